"""The server's side of the processes that run kernels: two at most, bounded in time, none left behind.

Python that was typed runs in a process of its own, with limits, which serves no other request: whatever the
script did to its process ends with it.
"""

import atexit
import contextlib
import hashlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lanewise.errors import LanewiseError
from lanewise.explore.kernel_worker import CPU_SECONDS, MEMORY_BYTES, MOST_VIEWS, read_message, write_message
from lanewise.explore.time_limits import seconds
from lanewise.recently_used import RecentlyUsed

#: Processes that run kernels at the same time.
MOST_WORKERS = 2
#: Seconds for a request: to begin, to end, and to end after it was stopped. The process itself stops a launch
#: much earlier, but first it compiles a new kernel, and that may take long.
TURN_SECONDS, MOST_SECONDS, STOP_SECONDS = seconds(12.0), seconds(45.0), seconds(1.5)
_BEGIN = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from lanewise.explore.kernel_worker import main; main(sys.argv[2] == 'python')"
)


class Superseded(LanewiseError):
    """The request was dropped, because the same tab has asked for something else."""


def key_of(request: Mapping[str, object]) -> str:
    """Return a digest by which requests of the same launch are known."""
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()


class WorkerProcess:
    """One process that runs kernels; one that runs Python is given the launch of a single script."""

    def __init__(self, runs_python: bool = False) -> None:
        self.runs_python = runs_python
        #: It works in an empty folder, so that no relative name leads anywhere.
        self._folder = tempfile.mkdtemp(prefix="lanewise-explore-")
        environment = dict(os.environ)
        cache = environment.get("LANEWISE_CACHE_DIR")
        if cache:
            environment["LANEWISE_CACHE_DIR"] = str(Path(cache).resolve())
        path = [str(Path(folder).resolve()) for folder in sys.path]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BEGIN, json.dumps(path), "python" if runs_python else "kernels"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=self._folder,
            env=environment,
            start_new_session=True,
        )
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        #: Two threads write: the one that asks, and the one that stops what was asked.
        self._writing = threading.Lock()
        #: The number of the request that it was given last.
        self._number = 0
        #: The launches that it keeps, by their keys, the latest last.
        self.kept: RecentlyUsed[str, bool] = RecentlyUsed(MOST_VIEWS)
        self.tab = ""
        self.busy = False
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError, OSError):
            while (message := read_message(self._process.stdout)) is not None:
                self._answers.put(message)
        self._answers.put(None)

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def _send(self, message: dict[str, object]) -> None:
        assert self._process.stdin is not None
        try:
            with self._writing:
                write_message(self._process.stdin, message)
        except (OSError, ValueError):
            raise LanewiseError("the process that runs kernels has ended; run it again") from None

    def reserve(self, tab: str) -> None:
        """Keep the process for a request of a tab, which has its number from now on and can be stopped."""
        self.busy, self.tab = True, tab
        self._number += 1

    def ask(
        self, what: str, key: str, request: Mapping[str, object], place: Mapping[str, object] | None
    ) -> dict[str, Any]:
        """Return the answer to the request that it was reserved for; one that takes too long is ended."""
        number, end = self._number, time.monotonic() + MOST_SECONDS
        self._send({"what": what, "key": key, "request": request, "place": place, "number": number})
        while True:
            try:
                message = self._answers.get(timeout=max(end - time.monotonic(), 0.0))
            except queue.Empty:
                self.end()
                raise LanewiseError(
                    f"this took more than {MOST_SECONDS:.0f} seconds and was stopped: make the launch smaller"
                ) from None
            if message is None:
                self.end()
                raise LanewiseError(self._why_ended())
            if message["number"] == number:
                break
        if "error" in message:
            raise LanewiseError(message["error"])
        self.kept.put(key, True)
        answer: dict[str, object] = message["answer"]
        return answer

    def _why_ended(self) -> str:
        if not self.runs_python:
            return "the process that ran the kernel has ended, stopped or out of memory; run it again"
        return (
            f"the process that ran the script has ended: it was stopped, or used more than {CPU_SECONDS:.0f} "
            f"seconds of processor time or {MEMORY_BYTES >> 30} GiB of memory"
        )

    def stop(self) -> None:
        """Ask the process to end the launch of its request, under way or not begun yet; it lives on.

        A script that does not get to its launch hears nothing of that: its process is ended after a while.
        """
        with contextlib.suppress(LanewiseError):
            self._send({"what": "stop", "number": self._number})
        if self.runs_python:
            timer = threading.Timer(STOP_SECONDS, self._end_if_at, (self._number,))
            timer.daemon = True
            timer.start()

    def _end_if_at(self, number: int) -> None:
        if self.busy and self._number == number:
            self.end()

    def end(self) -> None:
        """End the process and everything that it has started, and remove its folder."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=seconds(5.0))
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        shutil.rmtree(self._folder, ignore_errors=True)


class Workers:
    """Gives requests to processes: to the one that keeps the launch, else to one that is free."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._workers: list[WorkerProcess] = []
        self._latest: dict[str, int] = {}
        self._count = 0
        self._closed = False

    def warm_up(self) -> None:
        """Start a process before it is needed, because it takes a moment to load the library."""
        with self._changed:
            if not self._workers and not self._closed:
                self._workers.append(WorkerProcess())

    def ask(
        self,
        tab: str,
        what: str,
        request: Mapping[str, object],
        place: Mapping[str, object] | None = None,
        runs_python: bool = False,
    ) -> dict[str, Any]:
        """Return the answer to a request. A run ends the one before of the same tab."""
        key = key_of(request)
        run = 0
        if what == "run":
            run = self._supersede(tab)
        worker = self._acquire(tab, key, run, runs_python)
        try:
            return worker.ask(what, key, request, place)
        finally:
            self._release(worker)

    def stop(self, tab: str) -> None:
        """End what a tab has under way; its answer is what was done so far."""
        with self._changed:
            for worker in self._workers:
                if worker.busy and worker.tab == tab:
                    worker.stop()

    def _supersede(self, tab: str) -> int:
        with self._changed:
            self._count += 1
            self._latest[tab] = self._count
            if len(self._latest) > 64:
                self._latest.pop(next(iter(self._latest)))
            for worker in self._workers:
                if worker.busy and worker.tab == tab:
                    worker.stop()
            self._changed.notify_all()
            return self._count

    def _acquire(self, tab: str, key: str, run: int, runs_python: bool) -> WorkerProcess:
        begun = time.monotonic()
        with self._changed:
            while True:
                if run and self._latest.get(tab) != run:
                    raise Superseded("a newer run of this tab has taken its place")
                if self._closed:
                    raise LanewiseError("the server is ending")
                self._workers = [worker for worker in self._workers if worker.is_alive or worker.busy]
                alike = [worker for worker in self._workers if worker.runs_python == runs_python]
                free = [worker for worker in alike if not worker.busy]
                keeping = [worker for worker in free if key in worker.kept]
                waited = time.monotonic() - begun
                if runs_python and not keeping:
                    self._end_workers(free)  # of scripts that are not shown any more
                    alike = [worker for worker in alike if worker not in free]
                    free = []
                if not keeping and not free and len(alike) < MOST_WORKERS:
                    self._workers.append(WorkerProcess(runs_python))
                    free = self._workers[-1:]
                if keeping or free:
                    worker = (keeping or free)[0]
                    worker.reserve(tab)
                    return worker
                if waited > STOP_SECONDS and run:
                    for other in self._workers:
                        if other.tab == tab:  # it was asked to stop, and does not
                            other.end()
                if waited > TURN_SECONDS:
                    raise LanewiseError("two launches are under way already; wait for one, or stop it")
                self._changed.wait(0.1)

    def _end_workers(self, workers: list[WorkerProcess]) -> None:
        for worker in workers:
            worker.end()
        self._workers = [worker for worker in self._workers if worker not in workers]

    def _release(self, worker: WorkerProcess) -> None:
        with self._changed:
            worker.busy = False
            if not worker.is_alive and worker in self._workers:
                self._workers.remove(worker)
                worker.end()
            self._changed.notify_all()

    @property
    def pids(self) -> list[int]:
        """The numbers of the processes."""
        return [worker.pid for worker in self._workers]

    def close(self) -> None:
        """End all processes, and start no others."""
        with self._changed:
            self._closed = True
            for worker in self._workers:
                worker.end()
            self._workers = []
            self._changed.notify_all()


#: The processes of this server.
workers = Workers()
atexit.register(workers.close)
