"""`lanewise explore`: the page in the browser, or the parts of it that need no server as a site."""

from __future__ import annotations

import sys
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

#: What the room Kernels opens: kernels, scripts whose launches it shows.
_KINDS = (".ptx", ".cu", ".py")


def explore(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILES]",
            help="Kernels to open: PTX (.ptx), CUDA C++ (.cu), or Python scripts (.py), which are run.",
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
            help="Write what needs no server (instructions, layouts, tour) as a site into this folder.",
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
    lanewise explore --static site
    """
    opened = [_checked(file) for file in files or ()]
    return partial(_serve, opened, port, browser)


def _checked(file: Path) -> Path:
    if not file.is_file():
        raise LanewiseError(f"{file}: no such file")
    if file.suffix not in _KINDS:
        raise LanewiseError(f"{file}: the page opens PTX (.ptx), CUDA C++ (.cu) and Python scripts (.py)")
    return file


def _serve(files: list[Path], port: int, browser: bool) -> int:
    from lanewise.explore.server import ExploreServer

    with ExploreServer(files, port) as server:
        for file in files:
            if file.suffix == ".py":
                _run(file, server.session)
        return _until_interrupted(server, browser)


def _until_interrupted(server: ExploreServer, browser: bool) -> int:
    print(f"{server.link}\nCtrl-C ends it.", flush=True)
    if browser:
        import webbrowser

        webbrowser.open(server.link)
    try:
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        print(file=sys.stderr)
    return 0


def _run(script: Path, session: Session) -> None:
    """Run a script, its launches through the room Kernels."""
    from lanewise.explore.kernels import add_launch

    def watcher(configured: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        add_launch(session, configured, arguments, options)

    asked = Asked(script)
    run_script(asked, watcher)
