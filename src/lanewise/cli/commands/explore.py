"""`lanewise explore`: the page in the browser, or the parts of it that need no server as a site."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from lanewise.cli.input.options import valued
from lanewise.cli.launching import Asked, run_script
from lanewise.errors import LanewiseError
from lanewise.hints import missing_file

if TYPE_CHECKING:
    from lanewise.explore.answers import Session
    from lanewise.explore.server import ExploreServer

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
        int, valued("--port", "PORT", "The port of the page; 0 takes a free one.", min=0, max=65535)
    ] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.", show_default=False)
    ] = True,
    static: Annotated[
        Path | None,
        valued(
            "--static",
            "DIR",
            "Write what needs no server (instructions, layouts, tour, traces) as a site into a folder.",
        ),
    ] = None,
) -> Callable[[], int]:
    """Explore instructions, layouts, bits and kernels on a page in the browser.

    The page is served to this machine only, under a link with a random token; Ctrl-C ends it. With files it
    opens at the first of them: a launch of a script, or a kernel with a launch to begin with.

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
        words = "" if file.suffix in kinds else f"; {allowed}, and has instructions without a file"
        raise LanewiseError(f"{missing_file(file)}{words}")
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
        rooms = [open_file(file, server.session) for file in files]
        return _until_interrupted(server, server.link + (rooms[0] if rooms else ""), browser)


def open_file(file: Path, session: Session) -> str:
    """Run a script, or find out how a kernel can be launched; return where on the page it is shown."""
    name = quote(file.name)
    if file.suffix == ".py":
        before = len(session.opened)
        _run(file, session)
        is_shown = len(session.opened) > before
        return f"#/kernels?opened={before + 1}" if is_shown else f"#/kernels?file={name}"
    suggested = _suggested(file)
    session.suggested[file.name] = suggested
    return f"#/kernels?file={name}{'&run=1' if suggested else ''}"


def _suggested(file: Path) -> dict[str, object]:
    """Return the fields of a launch of the first kernel in a file; none where the file has no kernel."""
    from lanewise.cli.input.suggested_command import suggested_launch
    from lanewise.cli.launching import module_in

    try:
        module = module_in(file)
        entry = module[next(iter(module.entries))] if module.entries else None
    except LanewiseError:
        entry = None  # the page says what is wrong with it when it is run
    if entry is None:
        return {}
    sizes, arguments = suggested_launch(entry)
    fields: dict[str, Any] = {name.removeprefix("--"): size for name, size in sizes.items()}
    if "shared" in fields:
        fields["shared"] = int(fields["shared"])
    name = entry.demangled.partition("(")[0].removeprefix("void ") if len(module.entries) > 1 else ""
    return {**fields, "arguments": arguments, "entry": name}


def _until_interrupted(server: ExploreServer, link: str, browser: bool) -> int:
    print(f"{link}\nCtrl-C ends it.", flush=True)
    threading.Thread(target=_prepare, args=(server.session,), daemon=True).start()
    if browser:
        import webbrowser

        webbrowser.open(link)
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

    def watcher(configured: object, arguments: tuple[object, ...], options: dict[str, object]) -> None:
        add_launch(session, configured, arguments, options)

    asked = Asked(file=script)
    run_script(asked, watcher)
