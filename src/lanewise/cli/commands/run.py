"""`lanewise run`: a kernel in a file on arrays, or the launches of a script; what ran, where and how long."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from lanewise.cli.input.options import (
    AsJson,
    CompilingOptions,
    ExecutorName,
    executor_of,
    valued,
    with_groups,
)
from lanewise.cli.launching import (
    Asked,
    Bar,
    Gpu,
    KernelFile,
    LaunchOptions,
    ScriptArguments,
    run_script,
    what_it_prints,
)
from lanewise.cli.terminal.answer import Answer, Table, facts, show
from lanewise.cli.terminal.progress import COLUMNS, folded
from lanewise.errors import LanewiseError
from lanewise.isa import find_arch
from lanewise.isa.multiprocessor import FITTING_THREADS

if TYPE_CHECKING:
    from lanewise.launch import Configured
    from lanewise.machine.checker.report import Report
    from lanewise.ptx import Entry

#: The exit status of a kernel that a fault stopped, as of one that `check` finds fault with.
STOPPED = 1
#: The most elements that are printed in full; JSON is never cut.
_SHOWN = 256


@dataclass(frozen=True)
class Ran:
    """One launch that is over."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arch: str
    blocks: int
    seconds: float
    fault: str = ""

    @property
    def data(self) -> dict[str, Any]:
        """It as plain data."""
        return {
            "kernel": self.kernel,
            "grid": list(self.grid),
            "block": list(self.block),
            "arch": self.arch,
            "blocks": self.blocks,
            "seconds": self.seconds,
            "fault": self.fault or None,
        }

    @property
    def pairs(self) -> list[tuple[str, str | int]]:
        """It as properties and values."""
        return [
            ("kernel", folded(self.kernel, COLUMNS)),
            ("grid", dimensions(self.grid)),
            ("block", dimensions(self.block)),
            ("arch", self.arch),
            ("blocks", self.blocks),
            ("time", f"{self.seconds:.3g} s" + (f", stopped: {self.fault}" if self.fault else "")),
        ]


def dimensions(sizes: Sequence[int]) -> str:
    """A grid or block in words, without sizes of 1 at its end.

    >>> dimensions((8, 8, 1))
    '8 × 8'
    """
    used = list(sizes)
    while len(used) > 1 and used[-1] == 1:
        used.pop()
    return " × ".join(map(str, used))


def launch(
    asked: Asked, ran: list[Ran], configured: Configured, arguments: Sequence[Any], options: dict[str, Any]
) -> None:
    """Launch a kernel with a bar that shows how far it is; what ran is added to `ran`, a fault too."""
    from lanewise.cli.terminal.progress import ProgressBar
    from lanewise.gpu import any_on_gpu, synchronize
    from lanewise.machine import KernelFault

    entry, shape = configured.entry, configured.shape
    named = options.get("arch") or asked.arch
    arch = find_arch(named) if named else entry.module.arch
    begin, fault = time.perf_counter(), ""
    try:
        if "stream" in options or any_on_gpu(tuple(arguments)):
            configured(*arguments, **options)
            synchronize()  # so that its time is known
            arch = "GPU"
            return
        _refuse_registers(entry, shape.threads, find_arch(arch))
        title = entry.demangled if asked.gpu is None else f"launch {len(ran) + 1}, {entry.demangled}"
        with ProgressBar(title, asked.progress) as bar, asked.naming_the_file(configured):
            configured(*arguments, **{"progress": bar, **asked.options, **options})
    except KernelFault as error:
        fault = error.kind or "fault"
        raise
    finally:
        seconds = time.perf_counter() - begin
        ran.append(Ran(entry.demangled, shape.grid, shape.block, arch, shape.blocks, seconds, fault))


def _refuse_registers(entry: Entry, threads: int, arch: str) -> None:
    """Raise an error for a block that has too many threads for the kernel's registers, if ptxas is there."""
    from lanewise.ptx import register_refusals, resources_or_none

    bounded = entry.function.limit("maxntid") or entry.function.limit("reqntid")
    if threads <= FITTING_THREADS or bounded is not None:
        return  # any kernel fits, or ptxas has seen to it
    used = resources_or_none(entry, arch)
    if used is not None and (refused := register_refusals(used, threads)):
        raise LanewiseError(f"{entry.demangled}: {refused[0]}")


@with_groups
def run(
    file: KernelFile,
    arguments: ScriptArguments = None,
    *,
    launching: LaunchOptions,
    save: Annotated[
        list[str] | None,
        valued("--save", "NUMBER=FILE", "Save an argument after the run, as .npy; the first is 0."),
    ] = None,
    print_: Annotated[
        list[int] | None, valued("--print", "NUMBER", "Print an argument after the run.")
    ] = None,
    compiling: CompilingOptions,
    gpu: Gpu = None,
    executor: ExecutorName = None,
    progress: Bar = None,
    json: AsJson = False,
) -> Callable[[], int]:
    """Run a kernel on the CPU: PTX or CUDA C++, on arrays from files or made on the spot.

    The seed of a random argument is its own number unless another is given. Random floats lie between 0
    and 1, random integers in their whole range. The exit status is 1 if a fault stopped the kernel. A Python
    script runs as it is, and every launch in it is reported.

    \b
    lanewise run saxpy.ptx --grid 4 --block 256 --arg 2.0 --arg x.npy --arg y.npy --arg 1000 --save 2=y.npy
    lanewise run gemm.cu --entry mm --arch sm_86 --grid 8,8 --block 32 \\
        --arg random:f16:128x128 --arg random:f16:128x128 --arg zeros:f32:128x128 --arg 128 --print 2
    lanewise run cute.cu -I cutlass/include --std c++20 -D TILE=64 --block 128 --arg zeros:f32:64x64
    lanewise run script.py -- --size 64
    lanewise run --gpu H100 triton_script.py
    lanewise run --gpu H100 program.cu -- 512 512
    """
    from lanewise.cli.input.arrays import save as save_array
    from lanewise.cli.terminal.interrupt import ends_soon
    from lanewise.machine import KernelFault

    asked = Asked.of(file, arguments, launching, compiling, progress=progress, gpu=gpu)
    if asked.is_script:
        if save or print_:
            raise LanewiseError(f"{file} is a script; --save and --print are for a kernel's arguments")
        return partial(_script, asked, json, executor)
    executor_of(executor, None)
    targets = [_target(text, len(asked.args)) for text in save or ()]
    for number in print_ or ():
        _number(number, len(asked.args), "--print")
    with ends_soon(), what_it_prints(json):
        configured, values = asked.kernel()
        for number in [*(number for number, _ in targets), *(print_ or ())]:
            if not hasattr(values[number], "dtype"):
                raise LanewiseError(
                    f"argument {number} is {asked.args[number]}, a number that no kernel changes"
                )
        ran: list[Ran] = []
        try:
            launch(asked, ran, configured, values, {})
        except KernelFault as error:
            print(f"lanewise: {error}", file=sys.stderr)
        for number, path in targets:
            save_array(path, values[number])
    printed = {number: values[number] for number in print_ or ()}
    return partial(_show, ran[0], printed, targets, json, asked.assumed(configured))


def _target(text: str, count: int) -> tuple[int, Path]:
    number, equals, path = text.partition("=")
    if not equals or not number.strip().isdecimal() or not path:
        raise LanewiseError(
            f"--save {text!r}: the number of an argument and a file are wanted, as in 2=c.npy"
        )
    from lanewise.cli.input.arrays import check_name

    return _number(int(number), count, "--save"), check_name(Path(path))


def _number(number: int, count: int, option: str) -> int:
    if not 0 <= number < count:
        has = f"arguments are 0 to {count - 1}" if count else "there are no arguments"
        raise LanewiseError(f"{option} {number}: {has}")
    return number


def _show(
    ran: Ran,
    printed: dict[int, Any],
    saved: list[tuple[int, Path]],
    json: bool,
    assumed: tuple[str, ...],
) -> int:
    import numpy as np

    data = {**ran.data}
    if printed:
        data["arguments"] = {
            str(number): {"dtype": str(array.dtype), "shape": list(array.shape), "values": array.tolist()}
            for number, array in printed.items()
        }
    with np.printoptions(threshold=_SHOWN, edgeitems=4, linewidth=110):
        notes = [
            f"argument {number}, {array.dtype}{list(array.shape)}:\n{array}"
            for number, array in printed.items()
        ]
    notes = [*assumed, *notes]
    notes += [f"argument {number} is in {path}" for number, path in saved]
    show(Answer((facts("", ran.pairs),), data, tuple(notes)), "json" if json else "text")
    return STOPPED if ran.fault else 0


def _checked_row(configured: Configured, options: dict[str, Any], seconds: float) -> Ran:
    """A launch that the script itself checked."""
    entry, shape = configured.entry, configured.shape
    arch = find_arch(options.get("arch") or entry.module.arch)
    return Ran(f"{entry.demangled} (lw.check)", shape.grid, shape.block, arch, shape.blocks, seconds)


def _script(asked: Asked, json: bool, workers: str | None) -> int:
    ran: list[Ran] = []

    def watcher(configured: Configured, arguments: tuple[object, ...], options: dict[str, object]) -> None:
        launch(asked, ran, configured, arguments, options)

    def own_check(
        configured: Configured,
        values: Sequence[object],
        options: dict[str, object],
        perform: Callable[[], Report],
    ) -> Report:
        begin = time.perf_counter()
        report = perform()
        ran.append(_checked_row(configured, options, time.perf_counter() - begin))
        return report

    with what_it_prints(json), executor_of(workers, asked.gpu) as executor:
        gpu = asked.virtual_gpu(executor=executor)
        status = run_script(asked, watcher, own_check, gpu)
    columns = tuple(name for name, _ in ran[0].pairs) if ran else ()
    table = Table("", columns, [tuple(value for _, value in launch.pairs) for launch in ran])
    note = f"{len(ran)} launches." if len(ran) != 1 else "1 launch."
    if not ran and not status and asked.gpu is None:
        note = f"{asked.nothing_launched('it only ran as Python runs it')}."
    if gpu is not None and (elsewhere := sum(launch.process != os.getpid() for launch in gpu.launches)):
        note = f"{note[:-1]}, and {elsewhere} in processes that the program started."
    answer = Answer(
        (table,) if ran else (), {"launches": [launch.data for launch in ran], "status": status}, (note,)
    )
    show(answer, "json" if json else "text")
    return status
