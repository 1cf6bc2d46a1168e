"""`lanewise debug`: a kernel, or the launches of a script, walked through at a prompt or from an editor."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lanewise.cli.launching import (
    FAILED,
    Arch,
    Args,
    Asked,
    Block,
    Cluster,
    Definitions,
    EntryName,
    Grid,
    KernelFile,
    ScriptArguments,
    Shared,
    Steps,
    run_script,
)
from lanewise.errors import LanewiseError

if TYPE_CHECKING:
    from lanewise.debug.launches import DebuggedLaunch
    from lanewise.debug.prompt import Prompt
    from lanewise.launch import Configured

#: Bytes in a mebibyte, in which the limit is given.
_MEBIBYTE = 1 << 20


def debug(
    file: KernelFile,
    arguments: ScriptArguments = None,
    entry: EntryName = None,
    grid: Grid = None,
    block: Block = None,
    shared: Shared = None,
    cluster: Cluster = None,
    arg: Args = None,
    arch: Arch = None,
    steps: Steps = None,
    define: Definitions = None,
    check: Annotated[
        bool, typer.Option("--check", help="Start at the first finding of the checker, and stop at each.")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            metavar="MIB", help="The most memory of a recording, in MiB.", show_default=False, min=1
        ),
    ] = None,
    command: Annotated[
        list[str] | None,
        typer.Option("--command", "-x", metavar="TEXT", help="A command to begin with.", show_default=False),
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
    """
    from lanewise.debug.prompt import Prompt

    asked = Asked(
        file, tuple(arguments or ()), entry, grid, block, shared, arch, steps, tuple(arg or ()),
        tuple(define or ()), None, cluster,
    )  # fmt: skip
    bytes = limit * _MEBIBYTE if limit is not None else None
    prompt = Prompt(check, command)
    if asked.is_script:
        return partial(_script, asked, prompt, bytes)
    return partial(_kernel, asked, prompt, bytes)


def _debugged(
    asked: Asked, limit: int | None, configured: Configured, arguments: Any, options: dict[str, Any]
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
    with suppress(Quit):
        prompt.debug(_debugged(asked, limit, configured, values, {}))
    return 0


def _script(asked: Asked, prompt: Prompt, limit: int | None) -> int:
    from lanewise.debug.prompt import Quit

    launches = 0

    def watcher(configured: Configured, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        nonlocal launches
        launches += 1
        print(f"Launch {launches}:")
        try:
            prompt.debug(_debugged(asked, limit, configured, arguments, options))
        except Quit:
            raise SystemExit(0) from None

    status = run_script(asked, watcher)
    if not launches and not status:
        print(f"lanewise: {asked.file} launches nothing: nothing can be debugged", file=sys.stderr)
        return FAILED
    return status
