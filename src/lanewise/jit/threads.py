"""One pool of threads for all compiled loops, which release the GIL while they run.

Safe for many callers at a time and across a fork: a child process starts its own pool.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # loaded when there are jobs to share out
    from concurrent.futures import Future, ThreadPoolExecutor

Job = Callable[[], None]

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None


def processors() -> int:
    """Processors this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def run(jobs: Sequence[Job]) -> None:
    """Run all jobs, on as many threads as there are processors; the caller's thread takes its share."""
    count = min(processors(), len(jobs))
    if count <= 1:
        for job in jobs:
            job()
        return
    waiting = iter(jobs)
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                job = next(waiting, None)
            if job is None:
                return
            job()

    helpers: list[Future[None]] = [_executor().submit(work) for _ in range(count - 1)]
    work()
    for helper in helpers:
        # A helper that never started has nothing left to do; the jobs are all taken.
        if not helper.cancel():
            helper.result()


def _executor() -> ThreadPoolExecutor:
    global _pool
    from concurrent.futures import ThreadPoolExecutor

    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(
                max_workers=max(1, (os.cpu_count() or 1) - 1), thread_name_prefix="lanewise"
            )
        return _pool


def _forget() -> None:
    """A forked child has none of its parent's threads."""
    global _pool, _lock
    _pool, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
