"""`lanewise explore`: the page in the browser, or the parts of it that need no server as a site."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lanewise.cli.launching import Asked, run_script
from lanewise.errors import LanewiseError

if TYPE_CHECKING:
    from lanewise.explore.server import ExploreServer
    from lanewise.explore.session import Session

#: What the room Kernels opens: kernels, and scripts whose launches it shows; what a site takes: saved traces.
_KINDS, _SAVED = (".ptx", ".cu", ".py"), (".html", ".htm")


def explore(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILES]",
            help="Kernels to open: PTX (.ptx), CUDA C++ (.cu), or Python scripts (.py), which are run; "
            "with --static, saved traces (.html).",
            show_default=False,
        ),
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            "--port", metavar="PORT", help="The port of the page; 0 takes a free one.", min=0, max=65535
        ),
    ] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.", show_default=False)
    ] = True,
    static: Annotated[
        Path | None,
        typer.Option(
            "--static",
            metavar="DIR",
            help="Write what needs no server (instructions, layouts, tour, traces) as a site into a folder.",
            show_default=False,
        ),
    ] = None,
) -> Callable[[], int]:
    """Explore instructions, layouts, bits and kernels on a page in the browser.

    The page is served to this machine only, under a link with a random token; Ctrl-C ends it.

    \b
    lanewise explore
    lanewise explore gemm.cu script.py
    lanewise explore --no-browser --port 8123
    lanewise explore --static site run.html
    """
    if static is not None:
        if static.exists() and not static.is_dir():
            raise LanewiseError(f"{static} is a file; --static wants a folder")
        saved = [
            _checked(file, _SAVED, "a site takes saved traces: trace.save('run.html')")
            for file in files or ()
        ]
        return partial(_write, static, saved)
    opens = "the page opens PTX (.ptx), CUDA C++ (.cu) and Python scripts (.py)"
    return partial(_serve, [_checked(file, _KINDS, opens) for file in files or ()], port, browser)


def _checked(file: Path, kinds: tuple[str, ...], allowed: str) -> Path:
    if not file.is_file():
        raise LanewiseError(f"{file}: {'a folder, not a file' if file.is_dir() else 'no such file'}")
    if file.suffix not in kinds:
        raise LanewiseError(f"{file}: {allowed}")
    return file


def _write(folder: Path, saved: list[Path]) -> int:
    from lanewise.explore.static_site import write_site

    print(f"{folder}: writing a site, which takes a minute", file=sys.stderr)
    print(f"{folder}: a site with {write_site(folder, saved)} answers; any web server can serve it")
    return 0


def _serve(files: list[Path], port: int, browser: bool) -> int:
    from lanewise.explore.server import ExploreServer

    with ExploreServer(files, port) as server:
        for file in files:
            if file.suffix == ".py":
                _run(file, server.session)
        return _until_interrupted(server, browser)


def _until_interrupted(server: ExploreServer, browser: bool) -> int:
    print(f"{server.link}\nCtrl-C ends it.", flush=True)
    threading.Thread(target=_prepare, args=(server.session,), daemon=True).start()
    if browser:
        import webbrowser

        webbrowser.open(server.link)
    try:
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        print(file=sys.stderr)
    return 0


def _prepare(session: Session) -> None:
    """Ask what the page asks first, so that the answers are at hand when the browser comes."""
    from lanewise.explore.answers import answer

    for name, body in (("catalogue", b"{}"), ("about", b'{"text": "m16n8k16 f16"}')):
        answer(session, "instructions", name, body)


def _run(script: Path, session: Session) -> None:
    """Run a script, its launches through the room Kernels."""
    from lanewise.explore.kernels import add_launch

    def watcher(configured: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        add_launch(session, configured, arguments, options)

    asked = Asked(script)
    run_script(asked, watcher)
