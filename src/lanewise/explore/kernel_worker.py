"""The process in which kernels run that the page sends: requests come in on stdin, answers go out on stdout.

It can be stopped at any time by its parent, which loses nothing but the traces that it keeps. It ends with
its parent: when stdin is closed, whatever runs. A process that runs Python which was typed has limits of
processor time, memory and files, which keep a script that never ends, or that fills the memory, from taking
the machine with it. They are not a jail: the script is the user's own, and may do what the user may."""

import contextlib
import importlib.util
import io
import json
import os
import queue
import struct
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

from lanewise.errors import InternalError, LanewiseError
from lanewise.explore.kernel_requests import KernelRequest, requested
from lanewise.explore.kernel_views import KernelView, data_of, origin_of, sass_of_view, view_of
from lanewise.explore.time_limits import seconds
from lanewise.recently_used import RecentlyUsed

#: Seconds of processor time, bytes of memory, and bytes of a file that such a process may use.
CPU_SECONDS, MEMORY_BYTES, FILE_BYTES = seconds(60.0), 4 << 30, 256 << 20
#: Seconds between two looks at the memory where the system itself does not bound it.
_LOOK_SECONDS = 0.05


def can_limit() -> bool:
    """Whether Python can bound the memory and the time of a process here; on Windows it cannot."""
    return importlib.util.find_spec("resource") is not None


def limit_process(cpu_seconds: float = CPU_SECONDS, memory_bytes: int = MEMORY_BYTES) -> None:
    """Bound the process that calls this, and those that it starts, for the rest of their lives."""
    import resource

    def bound(kind: int, value: int) -> None:
        _, hard = resource.getrlimit(kind)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))

    bound(resource.RLIMIT_CPU, int(min(cpu_seconds, 1 << 30)))
    bound(resource.RLIMIT_FSIZE, FILE_BYTES)
    bound(resource.RLIMIT_CORE, 0)
    if sys.platform == "linux":
        bound(resource.RLIMIT_AS, memory_bytes)
    else:  # macOS takes the limit and does not keep it
        threading.Thread(target=_watch_memory, args=(memory_bytes,), daemon=True).start()


def _watch_memory(most: int) -> None:
    """End the process when it holds more memory than it may."""
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    while resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit < most:
        time.sleep(_LOOK_SECONDS)
    os._exit(1)


#: Launches that are kept for questions about them.
MOST_VIEWS = 3
_LENGTH = struct.Struct("<Q")


def write_message(stream: IO[bytes], message: dict[str, object]) -> None:
    """Write a message: its length, then JSON."""
    content = json.dumps(message, separators=(",", ":"), default=lambda value: value.item()).encode()
    stream.write(_LENGTH.pack(len(content)) + content)
    stream.flush()


def read_message(stream: IO[bytes]) -> dict[str, Any] | None:
    """Read a message; None at the end."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    content = stream.read(length)
    if len(content) < length:
        return None
    message: dict[str, object] = json.loads(content)
    return message


class KernelWorker:
    """Answers requests one after the other, and keeps the last launches."""

    def __init__(self, runs_python: bool = False) -> None:
        self._runs_python = runs_python
        self._views: RecentlyUsed[str, KernelView] = RecentlyUsed(MOST_VIEWS)
        self._running: Any = None
        #: The numbers of the request that is answered, and of the latest that was to be stopped.
        self._number = self._stopped = 0

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request, or why there is none, in words."""
        self._number = message["number"]
        try:
            view = self.view(message["key"], KernelRequest.of(message["request"]))
            return {"answer": self._answered(view, message)}
        except InternalError as error:
            return {"error": str(error)}
        except LanewiseError as error:
            return {"error": str(error)}
        except MemoryError:
            return {"error": "there is not enough memory for this launch; make it smaller"}
        except Exception as error:
            return {"error": str(InternalError("the launch failed", error))}

    def _answered(self, view: KernelView, message: dict[str, Any]) -> dict[str, object]:
        if message["what"] == "run":
            return data_of(view)
        if message["what"] == "sass":
            return sass_of_view(view, **message["place"])
        return origin_of(view, **message["place"])

    def view(self, key: str, request: KernelRequest) -> KernelView:
        """Return the launch of a request; it runs unless it is kept."""
        kept = self._views.get(key)
        if kept is not None:
            return kept
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), requested(request, self._runs_python) as launch:
            view = view_of(launch, request.traced, request.order, self._begun)
        view.printed = printed.getvalue()
        self._running = None
        self._views.put(key, view)
        return view

    def _begun(self, launch: Any) -> None:
        self._running = launch
        if self._number <= self._stopped:
            launch.stop()

    def stop(self, number: int) -> None:
        """End the launch of a request, from another thread; what it did so far is its answer.

        A request that has not begun is stopped when it begins, one that has been answered is not concerned.
        """
        self._stopped = number
        running = self._running
        if running is not None and self._number <= number:
            running.stop()


def serve(requests: IO[bytes], answers: IO[bytes], runs_python: bool = False) -> None:
    """Answer requests until there are no more."""
    worker = KernelWorker(runs_python)
    waiting: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def read() -> None:
        while True:
            message = read_message(requests)
            if message is None:  # the parent has ended or does not want this process any more
                with contextlib.suppress(OSError):
                    Path.cwd().rmdir()  # the empty folder that it was given
                os._exit(0)
            if message.get("what") == "stop":
                worker.stop(message["number"])
            else:
                waiting.put(message)

    threading.Thread(target=read, daemon=True).start()
    while True:
        message = waiting.get()
        write_message(answers, {**worker.answer(message), "number": message["number"]})


def main(runs_python: bool = False) -> None:
    """Serve on stdin and stdout; what else is written to stdout goes nowhere.

    A process that may run Python bounds itself first.
    """
    if runs_python:
        limit_process()
    answers = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    serve(sys.stdin.buffer, answers, runs_python)


if __name__ == "__main__":
    main()
