"""`lanewise check`: a kernel, or every launch of a script, run with all checks; findings and counters."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from lanewise.cli.answer import Answer
from lanewise.cli.launching import (
    FAILED,
    Arch,
    Args,
    Asked,
    Bar,
    Block,
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
from lanewise.cli.options import AsJson
from lanewise.cli.render import show

if TYPE_CHECKING:
    from rich.text import Text

    from lanewise.launch import Configured

FOUND = 1


def check(
    file: KernelFile,
    arguments: ScriptArguments = None,
    entry: EntryName = None,
    grid: Grid = None,
    block: Block = None,
    shared: Shared = None,
    arg: Args = None,
    arch: Arch = None,
    steps: Steps = None,
    define: Definitions = None,
    progress: Bar = None,
    json: AsJson = False,
) -> Callable[[], int]:
    """Check a kernel while it runs on the CPU: races, bounds, barriers, alignment, bank conflicts.

    The exit status is 1 if anything was found, 0 if nothing was, 2 if there was nothing to check. In a Python
    script every launch is checked.

    \b
    lanewise check gemm.cu --entry mm --grid 8,8 --block 32 --arg random:f16:128x128 \\
        --arg random:f16:128x128 --arg zeros:f32:128x128 --arg 128
    lanewise check kernel.ptx --block 64 --arg zeros:f32:64 --json > report.json
    lanewise check script.py
    """
    from lanewise.cli.interrupt import ends_soon

    asked = Asked(
        file, tuple(arguments or ()), entry, grid, block, shared, arch, steps, tuple(arg or ()),
        tuple(define or ()), progress,
    )  # fmt: skip
    if asked.is_script:
        return partial(_script, asked, json)
    with ends_soon(), what_it_prints(json):
        configured, values = asked.kernel()
        report = _checked(asked, configured, values, {})
    return partial(_show, [report], json)


def _checked(asked: Asked, configured: Configured, values: Sequence[Any], options: dict[str, Any]) -> Any:
    from lanewise.cli.progress import ProgressBar
    from lanewise.launch import check as check_launch

    with ProgressBar(configured.entry.demangled, asked.progress) as bar:
        return check_launch(configured, *values, **{"progress": bar, **asked.options, **options})


def _script(asked: Asked, json: bool) -> int:
    reports: list[Any] = []

    def watcher(configured: Configured, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        reports.append(_checked(asked, configured, arguments, options))

    with what_it_prints(json):
        status = run_script(asked, watcher)
    found = _show(reports, json)
    return FAILED if status else found


def _show(reports: list[Any], json: bool) -> int:
    ok = all(report.ok for report in reports)
    if json:
        data = {"ok": ok, "launches": [report.to_dict() for report in reports]}
        show(Answer((), data), "json")
    elif sys.stdout.isatty():
        _on_terminal(reports)
    else:
        print("\n\n".join(map(str, reports)) if reports else "no launch: nothing was checked")
    return 0 if ok else FOUND


def _on_terminal(reports: list[Any]) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    for report in reports:
        console.print(_coloured(report), soft_wrap=True)
    if not reports:
        console.print("no launch: nothing was checked")


def _coloured(report: Any) -> Text:
    """The report's own text, with the kinds of findings and the verdict in colour."""
    from rich.text import Text

    text = Text(str(report))
    for kind in {finding.kind for finding in report.findings}:
        text.highlight_words([kind], style="bold red")
    text.highlight_words([report.kernel], style="bold green" if report.ok else "bold")
    return text
