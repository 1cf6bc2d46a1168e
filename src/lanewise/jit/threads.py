"""Threads for compiled code, which releases the GIL while it runs: a pool for loops, workers for long jobs.

Safe for many callers at a time and across a fork: a child process starts its own threads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # loaded when there are jobs to share out
    from concurrent.futures import Future, ThreadPoolExecutor

Job = Callable[[], None]

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
#: Workers that wait for a task.
_idle: list[_Worker] = []
#: One is kept, which saves short launches the start of a thread.
_MOST_IDLE = 1


def processors() -> int:
    """Processors this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def run(jobs: Sequence[Job]) -> None:
    """Run all jobs, on as many threads as there are processors; the caller's thread takes its share.

    If a job of the caller's thread raises, or Ctrl-C interrupts it, no other job begins, and those under way
    have ended when the exception reaches the caller: nobody writes to its memory any more.
    """
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

    helpers: list[Future[None]] = []
    try:
        helpers.extend(_executor().submit(work) for _ in range(count - 1))
        work()
    except BaseException:
        with lock:
            for _ in waiting:
                pass
        for helper in helpers:
            if not helper.cancel():
                helper.exception()
        raise
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


class Task:
    """A job that a thread of its own does, beside all others: it may wait for what other tasks do.

    Tasks that are to share the processors begin `in_new_thread`: systems spread threads over processors when
    they are started, but not so well when they are woken.
    """

    def __init__(self, job: Job, *, in_new_thread: bool = False) -> None:
        self._job: Job | None = job
        self._done = threading.Lock()
        self._done.acquire()
        worker = None
        if not in_new_thread:
            with suppress(IndexError):
                worker = _idle.pop()
        if worker is None:
            _Worker(self)
        else:
            worker.begin(self)

    def wait(self, seconds: float) -> bool:
        """Wait for the end, but no longer than that; return whether it came. Signals are handled then."""
        ended = self._done.acquire(timeout=seconds)
        if ended:
            self._done.release()
        return ended

    def run(self) -> None:
        """Do the job; nothing that it refers to is kept."""
        job, self._job = self._job, None
        try:
            if job is not None:
                job()
        finally:
            del job

    def end(self) -> None:
        """Let those who wait go on."""
        self._done.release()


class _Worker:
    """A thread that does one task after another: to start a thread takes as long as a short launch."""

    def __init__(self, task: Task) -> None:
        self._task: Task | None = task
        self._woken = threading.Lock()  # it does its first task at once
        threading.Thread(target=self._serve, name="lanewise-worker", daemon=True).start()

    def begin(self, task: Task) -> None:
        """Let the thread do a task; it waits for one now."""
        self._task = task
        self._woken.release()

    def _serve(self) -> None:
        stays = True
        while stays:
            self._woken.acquire()
            task, self._task = self._task, None
            assert task is not None
            stays = False  # after an error the thread ends
            try:
                task.run()
                stays = len(_idle) < _MOST_IDLE
            finally:
                if stays:  # before the end is told, so that the next task finds this worker
                    _idle.append(self)
                task.end()
                del task


def _forget() -> None:
    """A forked child has none of its parent's threads."""
    global _pool, _lock
    _pool, _lock = None, threading.Lock()
    _idle.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
