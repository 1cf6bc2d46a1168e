"""`lanewise debug`: a kernel, or the launches of a script, walked through at a prompt or from an editor."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lanewise.cli.input.options import CompilingOptions, flag, valued, with_groups
from lanewise.cli.launching import FAILED, Asked, LaunchOptions, ScriptArguments, run_script
from lanewise.errors import LanewiseError

if TYPE_CHECKING:
    from lanewise.debug.adapter.adapter import Program
    from lanewise.debug.launches import DebuggedLaunch
    from lanewise.debug.prompt import Prompt
    from lanewise.launch import Configured

#: Bytes in a mebibyte, in which the limit is given.
_MEBIBYTE = 1 << 20


@with_groups
def debug(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="PTX (.ptx), CUDA C++ (.cu) or a Python script (.py)."),
    ] = None,
    arguments: ScriptArguments = None,
    *,
    launching: LaunchOptions,
    compiling: CompilingOptions,
    check: Annotated[
        bool, flag("--check", "Start at the first finding of the checker, and stop at each.")
    ] = False,
    limit: Annotated[
        int | None, valued("--limit", "MIB", "How much memory a recording may take, in MiB.", min=1)
    ] = None,
    command: Annotated[
        list[str] | None,
        typer.Option(
            "--command", "-x", metavar="TEXT", help="A command to execute first; may be given several times."
        ),
    ] = None,
    dap: Annotated[
        bool, flag("--dap", "Speak the Debug Adapter Protocol with an editor, on stdin and stdout.")
    ] = False,
    port: Annotated[
        int | None,
        valued(
            "--port",
            "PORT",
            "With --dap: listen on this port of the machine; 0 takes a free one.",
            min=0,
            max=65535,
        ),
    ] = None,
) -> Callable[[], int]:
    """Debug a kernel on the CPU, forwards and backwards: PTX, CUDA C++, or the launches of a script.

    The launch runs once and is recorded; from then on every command looks at the recording, so that going
    back costs nothing. At the prompt, `help` says what can be asked, and quit ends it. A script stops at each
    of its launches; `leave` goes on to the next.

    \b
    lanewise debug gemm.cu --grid 8,8 --block 32 --arg random:f16:128x128 --arg random:f16:128x128 \\
        --arg zeros:f32:128x128 --arg 128
    lanewise debug script.py --check
    lanewise debug script.py -x "break 28 if lane == 7" -x run -x "print acc"
    lanewise debug --dap --port 4711
    """
    if port is not None and not dap:
        raise LanewiseError("--port is for editors: give --dap as well")
    from lanewise.debug.prompt import Prompt

    asked = Asked.of(file or Path(), arguments, launching, compiling, command="debug")
    bytes = limit * _MEBIBYTE if limit is not None else None
    if dap:
        return partial(_serve, asked, bytes, check, port)
    if file is None:
        raise LanewiseError("name what to debug: lanewise debug kernel.cu, kernel.ptx or script.py")
    prompt = Prompt(check, command)
    if asked.is_script:
        return partial(_script, asked, prompt, bytes)
    return partial(_kernel, asked, prompt, bytes)


def _debugged(
    asked: Asked, limit: int | None, configured: Configured, arguments: Any, options: dict[str, object]
) -> DebuggedLaunch:
    from lanewise.debug.launches import DebuggedLaunch
    from lanewise.gpu import any_on_gpu

    if "stream" in options or any_on_gpu(tuple(arguments)):
        raise LanewiseError(
            "the arrays of this launch lie on a GPU; the debugger runs kernels on the CPU: pass NumPy arrays"
        )
    return DebuggedLaunch(configured, arguments, {**asked.options, **options}, limit)


def _kernel(asked: Asked, prompt: Prompt, limit: int | None) -> int:
    from lanewise.debug.prompt import Quit

    configured, values = asked.kernel()
    with suppress(Quit), asked.naming_the_file(configured):
        prompt.debug(_debugged(asked, limit, configured, values, {}))
    return 0


def _script(asked: Asked, prompt: Prompt, limit: int | None) -> int:
    from lanewise.debug.prompt import Quit

    launches = 0

    def watcher(configured: Configured, arguments: tuple[object, ...], options: dict[str, object]) -> None:
        nonlocal launches
        launches += 1
        print(f"Launch {launches}:")
        try:
            prompt.debug(_debugged(asked, limit, configured, arguments, options))
        except Quit:
            raise SystemExit(0) from None

    status = run_script(asked, watcher)
    if not launches and not status:
        print(f"lanewise: {asked.nothing_launched('nothing can be debugged')}", file=sys.stderr)
        return FAILED
    return status


def _serve(asked: Asked, limit: int | None, check: bool, port: int | None) -> int:
    from lanewise.debug.adapter.adapter import serve_port, serve_stdio

    program = launched_program(asked, limit, check)
    return serve_stdio(program) if port is None else serve_port(program, port)


def launched_program(asked: Asked, limit: int | None, check: bool) -> Program:
    """Return what runs the program of a launch request, each launch of it through a function."""

    def program(wanted: dict[str, object], debugged: Callable[[DebuggedLaunch], None]) -> int:
        wanted.setdefault("check", check)
        if wanted.get("program") is None:
            wanted["program"] = str(asked.file)
        whole = _asked(asked, wanted)
        if not whole.is_script:
            configured, values = whole.kernel()
            debugged(_debugged(whole, limit, configured, values, {}))
            return 0

        def watcher(
            configured: Configured, arguments: tuple[object, ...], options: dict[str, object]
        ) -> None:
            debugged(_debugged(whole, limit, configured, arguments, options))

        return run_script(whole, watcher)

    return program


def _asked(asked: Asked, wanted: dict[str, Any]) -> Asked:
    """Return the launch that an editor asks for, over what the command line says."""
    texts = {name: wanted.get(name) for name in ("entry", "grid", "block", "cluster", "arch")}
    numbers = {name: wanted.get(name) for name in ("shared", "steps")}
    lists = {name: wanted.get(name) for name in ("kernelArguments", "define", "include", "args")}
    for name, value in lists.items():
        if value is not None and not isinstance(value, list):
            raise LanewiseError(f"{name} is a list in a launch configuration, not {value!r}")
    for name, value in numbers.items():
        if value is not None and not isinstance(value, int):
            raise LanewiseError(f"{name} is a number in a launch configuration, not {value!r}")
    given: dict[str, Any] = {
        **{name: _comma(value) for name, value in texts.items() if value is not None},
        **{name: value for name, value in numbers.items() if value is not None},
    }
    if lists["kernelArguments"] is not None:
        given["arg"] = [str(text) for text in lists["kernelArguments"]]
    if lists["args"] is not None:
        given["arguments"] = tuple(str(text) for text in lists["args"])
    if lists["define"] is not None or lists["include"] is not None:
        given["compilation"] = asked.compilation._replace(
            definitions=tuple(map(str, lists["define"] or asked.compilation.definitions)),
            includes=tuple(Path(str(folder)) for folder in lists["include"] or asked.compilation.includes),
        )
    return replace(asked, file=Path(str(wanted["program"])), **given)


def _comma(value: object) -> str:
    """Return a text, a number, or a list of sizes as the command line has it."""
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
