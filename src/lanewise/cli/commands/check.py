"""`lanewise check`: a kernel, or every launch of a script, run with all checks; findings and counters."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lanewise.cli.input.options import AsJson
from lanewise.cli.launching import (
    FAILED,
    Arch,
    Args,
    Asked,
    Bar,
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
    what_it_prints,
)
from lanewise.cli.terminal.answer import Answer, Table
from lanewise.cli.terminal.render import show

if TYPE_CHECKING:
    from lanewise.launch import Configured
    from lanewise.machine.checker.report import Report

FOUND = 1
#: Orders in which a launch may be repeated.
MOST_SCHEDULES = 1000
#: What is shown for each line: the sum of which counters.
_COLUMNS = {
    "instructions": ("smsp__inst_executed.sum",),
    "tensor": ("smsp__inst_executed_pipe_tensor.sum",),
    "wavefronts": ("memory_l1_wavefronts_shared",),
    "excessive": ("derived__memory_l1_wavefronts_shared_excessive",),
    "requests": tuple(f"l1tex__t_requests_pipe_lsu_mem_global_op_{op}.sum" for op in ("ld", "st")),
    "sectors": tuple(f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum" for op in ("ld", "st")),
}


def check(
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
    lines: Annotated[
        bool, typer.Option("--lines", help="Show counters by line of the source, or of the PTX.")
    ] = False,
    schedules: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Run with so many orders of blocks and warps: in order, in reverse, then at random.",
            min=1,
            max=MOST_SCHEDULES,
        ),
    ] = 1,
    progress: Bar = None,
    json: AsJson = False,
) -> Callable[[], int]:
    """Check a kernel while it runs on the CPU: races, bounds, barriers, alignment, bank conflicts.

    The exit status is 1 if an error was found, 0 if nothing or only advice was, 2 if there was nothing to
    check. In a Python script every launch is checked.

    \b
    lanewise check gemm.cu --entry mm --grid 8,8 --block 32 --arg random:f16:128x128 \\
        --arg random:f16:128x128 --arg zeros:f32:128x128 --arg 128
    lanewise check kernel.ptx --block 64 --arg zeros:f32:64 --json > report.json
    lanewise check transpose.cu --block 32,8 --arg random:f32:32x32 --arg zeros:f32:32x32 --lines
    lanewise check kernel.cu --grid 8 --block 128 --arg zeros:f32:1024 --schedules 5
    lanewise check script.py
    """
    from lanewise.cli.terminal.interrupt import ends_soon

    asked = Asked(
        file, tuple(arguments or ()), entry, grid, block, shared, arch, steps, tuple(arg or ()),
        tuple(define or ()), progress, cluster,
    )  # fmt: skip
    if asked.is_script:
        return partial(_script, asked, schedules, lines, json)
    with ends_soon(), what_it_prints(json):
        configured, values = asked.kernel()
        report = _checked(asked, schedules, configured, values, {})
    return partial(_show, [report], lines, json)


def _checked(
    asked: Asked, schedules: int, configured: Configured, values: Sequence[Any], options: dict[str, Any]
) -> Report:
    from lanewise.cli.terminal.progress import ProgressBar
    from lanewise.machine.checker.check import check as check_launch
    from lanewise.machine.checker.schedules import first_schedules

    options = {"schedule": first_schedules(schedules), **options}
    with ProgressBar(configured.entry.demangled, asked.progress) as bar:
        return check_launch(configured, *values, **{"progress": bar, **asked.options, **options})


def _script(asked: Asked, schedules: int, lines: bool, json: bool) -> int:
    reports: list[Report] = []

    def watcher(configured: Configured, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        reports.append(_checked(asked, schedules, configured, arguments, options))

    with what_it_prints(json):
        status = run_script(asked, watcher)
    found = _show(reports, lines, json)
    return FAILED if status else found


def _show(reports: list[Report], lines: bool, json: bool) -> int:
    ok = all(report.ok for report in reports)
    if json:
        show(Answer((), {"ok": ok, "launches": [report.to_dict() for report in reports]}), "json")
        return 0 if ok else FOUND
    for number, report in enumerate(reports):
        if number:
            print()
        _say(report)
        if lines:
            print()
            show(Answer((by_line(report),), {}), "text")
    if not reports:
        print("no launch: nothing was checked")
    return 0 if ok else FOUND


def _say(report: Report) -> None:
    """The report's own text; on a terminal with the kinds of findings and the kernel in colour."""
    if not sys.stdout.isatty():
        print(report)
        return
    from rich.console import Console
    from rich.text import Text

    text = Text(str(report))
    text.highlight_words(sorted({f"{finding.title}:" for finding in report.findings}), style="bold red")
    text.highlight_words([report.kernel], style="bold green" if report.ok else "bold")
    Console(highlight=False, markup=False).print(text, soft_wrap=True)


def by_line(report: Report) -> Table:
    """Counters by line of the source, or of the PTX where that does not tell: a table."""
    sums: dict[str, list[int]] = {}
    for line in report.lines:
        row = sums.setdefault(line.source or f"PTX:{line.line}", [0] * len(_COLUMNS))
        for place, names in enumerate(_COLUMNS.values()):
            row[place] += sum(int(line.counters.get(name, 0)) for name in names)
    return Table("", ("line", *_COLUMNS), [(place, *row) for place, row in sums.items()])
