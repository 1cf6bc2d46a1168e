"""Questions of the room Kernels: examples, runs of what was typed, origins of values, SASS.

Kernels that the page sends run in processes of their own, see `kernel_workers.py`. Launches of scripts that
the command line opened ran before the page did, in this process, and are kept. Python that was typed runs
only for the user of this machine: never where the page is exported or served to others.
"""

import contextlib
import io
import sys
import threading
from typing import Any

from lanewise.errors import LanewiseError, install_command
from lanewise.explore.answers import Session, question
from lanewise.explore.kernel_requests import (
    EXAMPLES,
    MOST_ELEMENTS,
    MOST_SOURCE,
    MOST_THREADS,
    KernelRequest,
    RequestedLaunch,
)
from lanewise.explore.kernel_views import KernelView, data_of, origin_of, sass_of_view, view_of
from lanewise.explore.kernel_worker import can_limit
from lanewise.explore.kernel_workers import workers
from lanewise.isa import ARCHS
from lanewise.machine.checker.check import CHECKS

#: Launches of scripts that are kept; later ones run as they are.
MOST_OPENED = 16
_SHOWN_OF_EXAMPLES = (
    "name", "title", "about", "language", "source", "grid", "block", "arguments", "arch",
)  # fmt: skip
_lock = threading.Lock()


@question("kernels", "about")
def about(session: Session) -> dict[str, Any]:
    """Return the examples, what the command line opened, and what is installed."""
    workers.warm_up()
    return {
        "examples": [
            {name: getattr(example, name) for name in _SHOWN_OF_EXAMPLES} | {"file": example.shown_name}
            for example in EXAMPLES.values()
        ],
        "opened": [
            {"number": number, "title": _title(view)} for number, view in enumerate(session.opened, 1)
        ],
        "files": _files(session),
        "archs": list(ARCHS),
        "tools": {"nvrtc": _has_nvrtc(), "ptxas": _has_ptxas(), "install": install_command("cuda")},
        "python": _refuses_python(session),
        "limits": {"source": MOST_SOURCE, "elements": MOST_ELEMENTS, "threads": MOST_THREADS},
    }


@question("kernels", "run")
def run(session: Session, tab: str, request: dict[str, Any]) -> dict[str, Any]:
    """Run a kernel that was typed, or an example, and return everything that the page shows of it."""
    return _ask(session, tab, "run", request)


def _ask(
    session: Session, tab: str, what: str, request: dict[str, object], place: dict[str, object] | None = None
) -> dict[str, object]:
    """Ask a process that runs kernels; any question may run the kernel again, Python included."""
    is_python = KernelRequest.of(request).is_typed_python
    why = _refuses_python(session) if is_python else ""
    if why:
        raise LanewiseError(f"{why} `lanewise explore script.py` opens a script on your own machine.")
    return workers.ask(tab[:64], what, request, place, is_python)


def _refuses_python(session: Session) -> str:
    """Return why Python that is typed is not run, or nothing."""
    if not can_limit():
        return "This system has no limits of memory for a process, so that the page runs no Python."
    return session.refuses_python


@question("kernels", "stop")
def stop(tab: str) -> dict[str, Any]:
    """End the launch that a tab has under way."""
    workers.stop(tab[:64])
    return {}


@question("kernels", "origin")
def origin(
    session: Session, tab: str, request: dict[str, Any], of: str, step: int, warp: int, block: int,
    lane: int | None = None, opened: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """Return who wrote a value, and from what it was made."""
    place: dict[str, Any] = {"of": of[:200], "step": step, "warp": warp, "block": block, "lane": lane}
    if opened:
        with _lock:
            return origin_of(_view(session, opened), **place)
    return _ask(session, tab, "origin", request, place)


@question("kernels", "sass")
def sass(
    session: Session, tab: str, request: dict[str, Any], opened: int = 0, arch: str = ""
) -> dict[str, Any]:
    """Return the kernel's SASS, for the arch that it ran on or for another."""
    if opened:
        return sass_of_view(_view(session, opened), arch)
    return _ask(session, tab, "sass", request, {"arch": arch[:16]})


@question("kernels", "opened")
def opened(session: Session, number: int) -> dict[str, Any]:
    """Return what the page shows of a launch of a script that the command line opened."""
    with _lock:
        return data_of(_view(session, number))


def add_launch(
    session: Session, configured: Any, arguments: tuple[object, ...], options: dict[str, object]
) -> None:
    """Run a launch of a script that the command line opened, and keep what the room shows of it."""
    from lanewise.gpu import any_on_gpu

    views = session.opened
    kept = {name: value for name, value in options.items() if name not in ("stream", "executor", "progress")}
    if len(views) >= MOST_OPENED or "stream" in options or any_on_gpu(tuple(arguments)):
        configured(*arguments, **options)
        return
    printed = io.StringIO()
    # What this checks is the launch itself, and no other that the script asks for.
    with contextlib.redirect_stdout(printed), CHECKS.unobserved():
        views.append(view_of(RequestedLaunch(configured, arguments, kept)))
    views[-1].printed = printed.getvalue()
    sys.stdout.write(printed.getvalue())


def _view(session: Session, number: int) -> KernelView:
    views: list[KernelView] = session.opened
    if not 1 <= number <= len(views):
        raise LanewiseError(f"launch {number} was not opened; {len(views)} were")
    return views[number - 1]


def _title(view: KernelView) -> str:
    shape = view.trace.recording.run.shape
    sizes = "×".join(map(str, _significant(shape.grid))), "×".join(map(str, _significant(shape.block)))
    return f"{view.trace.kernel}[{sizes[0]}, {sizes[1]}]"


def _significant(sizes: tuple[int, ...]) -> tuple[int, ...]:
    while len(sizes) > 1 and sizes[-1] == 1:
        sizes = sizes[:-1]
    return sizes


#: The language of a file by the end of its name.
_LANGUAGES = {".ptx": "ptx", ".cu": "cuda", ".py": "python"}


def _files(session: Session) -> list[dict[str, object]]:
    """Return the files that the command line opened, as text to begin with, and how they may be launched."""
    opened = []
    for path in session.files:
        try:
            text = path.read_text(encoding="utf-8", errors="replace")[:MOST_SOURCE]
        except OSError as error:
            raise LanewiseError(f"{path.name}: {error.strerror}") from None
        fields = session.suggested.get(path.name, {})
        opened.append({"name": path.name, "language": _LANGUAGES[path.suffix], "source": text, **fields})
    return opened


def _has_nvrtc() -> bool:
    from lanewise.ptx.tools.runtime_compiler import installed_libraries

    return bool(installed_libraries())


def _has_ptxas() -> bool:
    from lanewise.ptx.tools.toolkit import find_tools

    return bool(find_tools("ptxas")) and bool(find_tools("nvdisasm"))
