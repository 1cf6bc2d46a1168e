"""`lanewise check`: a kernel, or every launch of a script, run with all checks; findings and counters."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from lanewise.cli.input.options import AsJson, CompilingOptions, GpuChecks, flag, valued, with_groups
from lanewise.cli.launching import (
    FAILED,
    Asked,
    Bar,
    Gpu,
    KernelFile,
    LaunchOptions,
    ScriptArguments,
    run_script,
    what_it_prints,
)
from lanewise.cli.terminal.answer import Answer, show
from lanewise.errors import LanewiseError

if TYPE_CHECKING:
    from lanewise.launch import Configured
    from lanewise.machine.checker.report import Report
    from lanewise.virtual_gpu.session import VirtualGPU

FOUND = 1
#: Orders in which a launch may be repeated.
MOST_SCHEDULES = 1000


class Format(StrEnum):
    """The forms in which a report is written to stdout."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"


@dataclass(frozen=True)
class ReportOptions:
    """The options that say how reports are shown."""

    lines: Annotated[
        bool, flag("--lines", "Show the source with counters and findings beside each line.")
    ] = False
    strict: Annotated[bool, flag("--strict", "Let what wastes time count for the exit status, too.")] = False
    format: Annotated[
        Format,
        flag("--format", "Write text, JSON, SARIF 2.1.0, or annotations that GitHub reads from a log."),
    ] = Format.TEXT
    save: Annotated[
        Path | None,
        valued("--save", "FILE", "Write the report to a file as well: .html, .json, .sarif or .txt."),
    ] = None
    counters: Annotated[
        bool, flag("--counters", "Show the counters of the launch, as Nsight Compute names them.")
    ] = False
    ptx: Annotated[bool, flag("--ptx", "Show the instructions of the PTX and addresses of each finding.")] = (
        False
    )
    inlined: Annotated[
        bool, flag("--inlined", "Show the calls through which the line of a finding was inlined.")
    ] = False


@dataclass(frozen=True)
class OrderOptions:
    """The options that say in which orders a launch is repeated."""

    schedules: Annotated[
        int,
        valued(
            "--schedules",
            "N",
            "Run N times with other orders of blocks and warps: in order, in reverse, then at random.",
            min=1,
            max=MOST_SCHEDULES,
        ),
    ] = 1
    schedule: Annotated[
        list[str] | None,
        valued(
            "--schedule",
            "ORDER",
            "Run in this order: 'in order', reverse, late (asynchronous operations take effect as late "
            "as they may) or a seed. Give it again for a further run.",
        ),
    ] = None

    @property
    def names(self) -> list[str | int]:
        """The schedules of a check, as `lw.check(…, schedule=…)` takes them."""
        from lanewise.machine.checker.schedules import first_schedules, run_schedules

        if not self.schedule:
            return first_schedules(self.schedules)
        if self.schedules > 1:
            raise LanewiseError("--schedules and --schedule exclude each other; give one")
        asked = [int(name) if name.isdecimal() else name for name in self.schedule]
        run_schedules(asked)  # refuses what names no order, before anything is compiled
        return asked


@dataclass(frozen=True)
class Wanted(ReportOptions):
    """How reports are to be shown, of one file or of a script."""

    #: The file with the kernel, for lines of the PTX; a script has the kernels of others.
    file: Path | None = None

    @property
    def is_data(self) -> bool:
        """Whether stdout is for programs alone: what kernels print goes elsewhere."""
        return self.format in (Format.JSON, Format.SARIF)


@with_groups
def check(
    file: KernelFile,
    arguments: ScriptArguments = None,
    *,
    launching: LaunchOptions,
    compiling: CompilingOptions,
    shown: ReportOptions,
    orders: OrderOptions,
    gpu: Gpu = None,
    on_gpu: GpuChecks,
    progress: Bar = None,
    json: AsJson = False,
) -> Callable[[], int]:
    """Check a kernel while it runs on the CPU: races, bounds, barriers, alignment, and what wastes time.

    The exit status is 1 if an error was found (with --strict also if something wastes time), 0 if nothing or
    only advice was, 2 if there was nothing to check. In a Python script every launch is checked.

    \b
    lanewise check gemm.cu --entry mm --grid 8,8 --block 32 --arg random:f16:128x128 \\
        --arg random:f16:128x128 --arg zeros:f32:128x128 --arg 128
    lanewise check kernel.ptx --block 64 --arg zeros:f32:64 --counters --ptx
    lanewise check transpose.cu --block 32,8 --arg random:f32:32x32 --arg zeros:f32:32x32 --lines
    lanewise check kernel.cu --grid 8 --block 128 --arg zeros:f32:1024 --schedules 5
    lanewise check --gpu B200 --schedule late gemm.cu
    lanewise check script.py --strict --save report.html
    lanewise check --gpu H100 triton_script.py
    lanewise check --gpu H100 --streams --only 'matmul*' --first 10 triton_script.py
    lanewise check --gpu A100 ./a.out
    lanewise check kernel.cu --block 128 --arg zeros:f32:128 --format sarif > lanewise.sarif
    """
    from lanewise.cli.terminal.interrupt import ends_soon

    asked = Asked.of(file, arguments, launching, compiling, progress=progress, command="check", gpu=gpu)
    if json and shown.format not in (Format.TEXT, Format.JSON):
        raise LanewiseError(f"--json and --format {shown.format} exclude each other; give one")
    on_gpu.require_gpu(gpu)
    schedules = orders.names
    options = vars(shown) | ({"format": Format.JSON} if json else {})
    if asked.is_script:
        return partial(_script, asked, schedules, Wanted(**options), on_gpu)
    wanted = Wanted(**options, file=file)
    with ends_soon(), what_it_prints(wanted.is_data):
        configured, values = asked.kernel()
        with asked.naming_the_file(configured):
            report = _checked(asked, schedules, configured, values, {})
    return partial(_show, [report], wanted)


def _checked(
    asked: Asked,
    schedules: list[str | int],
    configured: Configured,
    values: Sequence[Any],
    options: dict[str, Any],
) -> Report:
    from lanewise.cli.terminal.progress import ProgressBar
    from lanewise.machine.checker.check import CHECKS
    from lanewise.machine.checker.check import check as check_launch

    options = {"schedule": schedules, "resources": True, **options}
    with CHECKS.unobserved(), ProgressBar(configured.entry.demangled, asked.progress) as bar:
        return check_launch(configured, *values, **{"progress": bar, **asked.options, **options})


def _script(asked: Asked, schedules: list[str | int], wanted: Wanted, on_gpu: GpuChecks) -> int:
    reports: list[Report] = []

    def watcher(configured: Configured, arguments: tuple[object, ...], options: dict[str, object]) -> None:
        reports.append(_checked(asked, schedules, configured, arguments, options))

    def own_check(
        configured: object,
        values: Sequence[object],
        options: dict[str, object],
        perform: Callable[[], Report],
    ) -> Report:
        reports.append(perform())
        return reports[-1]

    gpu = _gpu_of(asked, schedules, on_gpu)
    with what_it_prints(wanted.is_data):
        status = run_script(asked, watcher, own_check, gpu)
    if gpu is not None:
        reports += gpu.report.parts
    verdict = _show(reports, wanted)
    if gpu is not None and (gpu.report.launches or not status):
        print(f"lanewise: {gpu.report.summary}", file=sys.stderr)
    if not status and (missed := _nothing_checked(asked, reports, gpu, on_gpu)):
        print(f"lanewise: {missed}", file=sys.stderr)
        return FAILED
    if asked.is_program:
        return verdict or status  # the exit status of main(), unless a check found an error
    return FAILED if status else verdict


def _gpu_of(asked: Asked, schedules: list[str | int], on_gpu: GpuChecks) -> VirtualGPU | None:
    """Return the virtual GPU of a script, which checks its launches; None if the script has none."""
    if asked.gpu is None:
        return None
    from lanewise.cli.terminal.progress import ProgressBar

    checking = on_gpu.checking()
    checking.options = {"schedule": schedules, "resources": not on_gpu.fast}
    gpu = asked.virtual_gpu(checking)
    assert gpu is not None
    checking.progress = lambda kernel: ProgressBar(
        f"launch {len(gpu.launches) + 1}, {kernel}", asked.progress
    )
    return gpu


def _nothing_checked(asked: Asked, reports: list[Report], gpu: VirtualGPU | None, on_gpu: GpuChecks) -> str:
    """Return why nothing was checked, in words; empty if something was."""
    if gpu is not None and gpu.findings:
        return ""
    if gpu is not None and gpu.launches and not gpu.report.checked:
        launched = ", ".join(sorted({launch.kernel.partition("(")[0] for launch in gpu.launches}))
        names = " or ".join(on_gpu.only or ())
        return f"no kernel that is called {names} was launched; launched were: {launched}"
    if not reports or (gpu is not None and not gpu.launches and len(reports) == len(gpu.report.parts)):
        return asked.nothing_launched("nothing was checked")
    return ""


def _show(reports: list[Report], wanted: Wanted) -> int:
    from lanewise.machine.checker.report import save
    from lanewise.machine.checker.reporting.ci import sarif, workflow_commands

    ok = all(report.ok and not (wanted.strict and report.performance) for report in reports)
    if wanted.save is not None:
        save(reports, wanted.save, wanted.file)
    match wanted.format:
        case Format.JSON:
            show(Answer((), {"ok": ok, "launches": [report.to_dict() for report in reports]}), "json")
        case Format.SARIF:
            show(Answer((), sarif(reports, wanted.file, wanted.strict)), "json")
        case Format.GITHUB:
            for line in workflow_commands(reports, wanted.file, wanted.strict):
                print(line)
        case Format.TEXT:
            for number, report in enumerate(reports):
                if number:
                    print()
                _say(report, wanted)
                if wanted.lines and report.module is not None:
                    print(f"\n{report.listing_text()}")
    return 0 if ok else FOUND


def _say(report: Report, wanted: Wanted) -> None:
    """The report's own text; on a terminal with the kinds of findings and the kernel in colour."""
    words = report.in_words(wanted.counters, wanted.ptx, wanted.inlined)
    if not sys.stdout.isatty():
        print(words)
        return
    from rich.console import Console
    from rich.text import Text

    text = Text(words)
    text.highlight_words(sorted({f"{finding.title}:" for finding in report.findings}), style="bold red")
    text.highlight_words([report.kernel], style="bold green" if report.ok else "bold")
    text.highlight_words(["    mend:"], style="bold")
    Console(highlight=False, markup=False).print(text, soft_wrap=True)
