"""`lw.virtual_gpu("H100")`: within it, programs of other frameworks have a GPU that is the CPU machine."""

from __future__ import annotations

import atexit
import os
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from lanewise.errors import LanewiseError
from lanewise.hints import Suggests
from lanewise.launch import LAUNCHES
from lanewise.machine.runtime.initialised_bytes import INITIALISED
from lanewise.tracebacks import short_traceback
from lanewise.virtual_gpu.checking import Checking, ProgramReport, accesses_in, program_report
from lanewise.virtual_gpu.child_processes import (
    inherited_by_children,
    report_launch,
    reported_launches,
    settings_in,
)
from lanewise.virtual_gpu.devices import Device, find_device
from lanewise.virtual_gpu.driver.driver import Driver
from lanewise.virtual_gpu.driver.host_regions import explained_finding
from lanewise.virtual_gpu.frameworks.patches import FrameworkState, Patches, when_imported
from lanewise.virtual_gpu.order.stream_races import StreamRaces

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor

    from lanewise.launch import Configured
    from lanewise.machine.checker.report import Finding, Report

#: What installs a framework's part once a program imports it: `install` of a module, or another function.
_FRAMEWORKS = {
    "torch": "lanewise.virtual_gpu.frameworks.torch_device",
    "triton": "lanewise.virtual_gpu.frameworks.triton_driver",
    "cuda.bindings": "lanewise.virtual_gpu.frameworks.driver_library",
    "cuda.bindings.runtime": "lanewise.virtual_gpu.frameworks.cuda_runtime",
    "numba.cuda.codegen": "lanewise.virtual_gpu.frameworks.numba_cuda",
    "lanewise.torch": "lanewise.virtual_gpu.frameworks.torch_device:install_operators",
    "lanewise.gpu.loading": "lanewise.virtual_gpu.frameworks.driver_library:install_own_kernels",
    "lanewise.gpu.recorded": "lanewise.virtual_gpu.frameworks.driver_library:install_own_records",
    "lanewise.linalg.launch.prepare": "lanewise.virtual_gpu.frameworks.driver_library:install_products",
    "lanewise.linalg.tune": "lanewise.virtual_gpu.frameworks.driver_library:install_tuning",
    "cutlass": "lanewise.virtual_gpu.frameworks.cute_dsl",
}


@dataclass(frozen=True)
class LaunchRecord:
    """One launch on a virtual GPU that is over; `report` is there if it was checked."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] | None
    shared_bytes: int
    seconds: float
    report: Report | None = None
    #: The handle of the stream; 0 is the default one.
    stream: int = 0
    #: The number of the process that made it.
    process: int = 0


class VirtualGPU(FrameworkState, Suggests):
    """A CUDA device made of the CPU machine, as a context manager; `lw.virtual_gpu` makes one.

    Within it Triton's kernels, unchanged, run on the CPU, on tensors of torch in host memory or on "cuda"
    ones, which live there. `launches` are those that were made. With `check=True` every launch is checked,
    and `findings` has what was found, each once for each kernel; `report.save("report.html")` writes it to a
    file.

    >>> import lanewise as lw
    >>> with lw.virtual_gpu("H100") as gpu:
    ...     gpu.driver.cuDeviceComputeCapability(0)
    (9, 0)
    """

    INSTEAD: ClassVar = dict.fromkeys(
        ("run", "launch", "start", "use"), "launches inside `with lw.virtual_gpu(…) as gpu:` run on it"
    )

    def __init__(
        self,
        name: str | Device,
        *,
        check: bool | Checking = False,
        memory_gib: float | None = None,
        multiprocessors: int | None = None,
        steps: int | None = None,
        executor: Executor | None = None,
    ) -> None:
        device = name if isinstance(name, Device) else find_device(name, memory_gib, multiprocessors)
        super().__init__(Driver(device, self._launch))
        #: How launches are checked; None if they are not.
        self.checking = check if isinstance(check, Checking) else Checking() if check else None
        self.steps, self.executor = steps, executor
        self.launches: list[LaunchRecord] = []
        #: What is noted at the end of a checked program: memory that was never freed.
        self.notes: list[str] = []
        memory = self.driver.memory
        memory.keeps_lines = self.driver.mistakes.are_reported = self.checking is not None
        if self.checking is not None and not self.checking.fast:
            self.follow_memory()
            if self.checking.streams:
                self.driver.races = StreamRaces(memory.title)
        self._stack: ExitStack | None = None
        #: The process that entered the virtual GPU, and the first that launched a kernel: as with CUDA, a
        #: process that is forked after the first launch has no GPU, one that is forked before has.
        self._owner = os.getpid()
        self._launching: int | None = None
        #: Where the launches of child processes are recorded, and whether this is one of them.
        self._folder: Path | None = None
        self.is_inherited = False

    def __enter__(self) -> VirtualGPU:
        global _ACTIVE
        if _ACTIVE is not None and _ACTIVE.is_inherited:
            _ACTIVE.__exit__(None, None, None)  # the program asks for another one than its parent had
        if _ACTIVE is not None:
            raise LanewiseError(
                f"a virtual {_ACTIVE.device.name} is in use already: there is one device at a time"
            )
        self._owner = os.getpid()
        with ExitStack() as stack:  # what was installed is taken back if something fails
            if not self.is_inherited:
                self._folder = stack.enter_context(
                    inherited_by_children(self._settings(), _imported_by_programs())
                )
            patches = stack.enter_context(Patches())
            for framework, installer in _FRAMEWORKS.items():
                stack.enter_context(when_imported(framework, _installing(installer, self, patches)))
            self._stack = stack.pop_all()
        _ACTIVE = self
        return self

    def _settings(self) -> dict[str, Any]:
        """Return what makes the same virtual GPU in a child process, whose blocks no executor spreads."""
        checking = self.checking and replace(self.checking, progress=Checking.progress, count=0)
        return {"name": self.device, "check": checking or False, "steps": self.steps}

    def follow_memory(self) -> None:
        """Follow from now on which bytes of new memory are written, so that checks find reads before."""
        self.driver.memory.is_followed = self.driver.memory.keeps_lines = True

    def __exit__(self, *exception: object) -> None:
        global _ACTIVE
        _ACTIVE = None
        if self._folder is not None and not self.is_inherited:
            if os.getpid() == self._owner:
                self.launches += reported_launches(self._folder)
            elif self._stack is not None:
                self._stack.pop_all()  # a forked process goes; what it shares with its parent stays
        ended_early = bool(exception) and exception[0] not in (None, SystemExit)
        if self.checking is not None and not ended_early and not self.driver.mistakes.stopped:
            self.notes += self.driver.memory.leaks()
        if self._stack is not None:
            self._stack.close()
            self._stack = None
        self.driver.memory.clear()
        fault, self.driver.pending_fault = self.driver.pending_fault, None
        if fault is not None and not any(exception):
            raise fault  # the program did not ask, and must not seem to have succeeded

    # launches -----------------------------------------------------------------------------------------------

    def _launch(self, configured: Configured, arguments: tuple[Any, ...], stream: int) -> None:
        """Make a launch, or check it, and keep a record of it."""
        process = os.getpid()
        if self._launching is None:
            self._launching = process
        if process != self._launching:
            raise LanewiseError(
                "this process was forked from one that has used the virtual GPU, and CUDA does not work in "
                "such a process: fork it before the first launch, or start it with the method 'spawn'"
            )
        # Tensors that the program drops meanwhile, or Python's garbage collector, stay until the launch ends.
        held = self.torch.held() if self.torch is not None else []
        begin, report = time.perf_counter(), None
        options: dict[str, Any] = {"arch": self.device.arch, "unchecked": True}
        if self.steps is not None:
            options["steps"] = self.steps
        try:
            if self.checking is None:
                if self.executor is not None:
                    options["executor"] = self.executor
                configured(*arguments, **options)
            else:
                report = self._checked(self.checking, configured, arguments, options, stream)
        finally:
            del held
            shape = configured.shape
            record = LaunchRecord(
                configured.entry.demangled,
                shape.grid,
                shape.block,
                shape.cluster,
                shape.shared_bytes,
                time.perf_counter() - begin,
                report,
                stream,
                process,
            )
            self.launches.append(record)
            if self._folder is not None and (self.is_inherited or process != self._owner):
                report_launch(self._folder, record)

    def _checked(
        self,
        checking: Checking,
        configured: Configured,
        arguments: tuple[Any, ...],
        options: dict[str, Any],
        stream: int,
    ) -> Report | None:
        """Check a launch and return its report; one that is not to be checked runs plainly."""
        from lanewise.machine.checker.check import CHECKS

        with LAUNCHES.unobserved(), CHECKS.unobserved():
            if not checking.takes(configured.entry):
                configured(*arguments, **options)
                INITIALISED.take_all_as_initialised()
                return None
            before = self.driver.unfinished.before_launch(configured.entry)
            report = checking.check(configured, arguments, options)
            title = f"kernel {configured.entry.demangled.partition('(')[0]}"
            self.driver.unfinished.launched(title, before)
        found = [explained_finding(self.driver.memory, finding) for finding in report.findings]
        object.__setattr__(report, "findings", found)
        INITIALISED.settle_all()
        self._compare_streams(configured, report, stream)
        return report

    def _compare_streams(self, configured: Configured, report: Report, stream: int) -> None:
        """Look for races of a checked launch with operations on other streams."""
        if self.driver.races is None:
            return

        def home(place: int) -> int | None:
            allocation = self.driver.memory.find(place)
            return allocation.first if allocation is not None else None

        title = f"kernel {configured.entry.demangled.partition('(')[0]}"
        self.driver.note(title, stream, accesses_in(report, home))
        object.__setattr__(report, "accesses", ())  # they are large, and nobody else needs them

    @property
    def reports(self) -> list[Report]:
        """The reports of the launches that were checked."""
        if self.checking is None:
            raise LanewiseError(
                f'launches were not checked: use lw.virtual_gpu("{self.device.name}", check=True), or '
                f'`lanewise check --gpu "{self.device.name}" script.py`'
            )
        return [launch.report for launch in self.launches if launch.report is not None]

    @property
    def report(self) -> ProgramReport:
        """What the checks found in all launches so far: `report.save("report.html")`, `print(report)`."""
        races = self.driver.races
        of_streams = races.findings if races is not None else []
        found = [*self.driver.mistakes.findings, *of_streams]
        return program_report(len(self.launches), self.reports, found, self.notes)

    @property
    def findings(self) -> list[Finding]:
        """What the checks found, each once for each kernel."""
        return self.report.findings

    def save(self, path: str | Path) -> None:
        """Write the report to a file, in the form that its name ends in: .html, .json, .sarif or .txt."""
        self.report.save(path)

    def __repr__(self) -> str:
        return f"<virtual {self.device.name} ({self.device.arch}): {len(self.launches)} launches>"


@short_traceback
def virtual_gpu(
    name: str,
    *,
    check: bool = False,
    streams: bool = False,
    fast: bool = False,
    only: Sequence[str] | str = (),
    first: int | None = None,
    memory_gib: float | None = None,
    multiprocessors: int | None = None,
    steps: int | None = None,
    executor: Executor | None = None,
) -> VirtualGPU:
    """Return a virtual GPU by the name of a GPU, to be used as a context manager.

    With `check` every launch is checked; `only` names the kernels that are, `first` says how many launches
    are. With `fast` launches run plainly, and only what stops one is found. With `streams` races between
    operations on different streams are looked for as well. `memory_gib` and `multiprocessors` change the
    device; `steps` bounds the basic blocks that a thread block may run, so that an endless kernel ends;
    `executor` spreads the blocks of plain launches over its workers, as at a launch.

    >>> virtual_gpu("H100")
    <virtual H100 (sm_90a): 0 launches>
    """
    names = (only,) if isinstance(only, str) else tuple(only)
    wanted = check or streams or fast or bool(names) or first is not None
    checking = Checking(names, first, fast, streams) if wanted else False
    return VirtualGPU(
        name,
        check=checking,
        memory_gib=memory_gib,
        multiprocessors=multiprocessors,
        steps=steps,
        executor=executor,
    )


_ACTIVE: VirtualGPU | None = None


def active() -> VirtualGPU | None:
    """Return the virtual GPU that is in use; None if there is none."""
    return _ACTIVE


def _imported_by_programs() -> list[str]:
    """Return the packages at whose import a child process needs the virtual GPU; lanewise's own are not."""
    return [framework for framework in _FRAMEWORKS if not framework.startswith("lanewise.")]


def inherit(folder: Path) -> None:
    """Enter the virtual GPU of the process that started this one, until this process ends."""
    settings = settings_in(folder)
    if active() is not None or settings is None:
        return
    gpu = VirtualGPU(**settings)
    gpu.is_inherited, gpu._folder = True, folder
    gpu.__enter__()
    # Before Python takes its modules down: what frameworks free later must not call a driver in Python.
    atexit.register(lambda: gpu.__exit__(None, None, None) if active() is gpu else None)


def _installing(installer: str, gpu: VirtualGPU, patches: Patches) -> Callable[[], None]:
    """Return what installs a framework's part, once the framework is imported."""

    def install() -> None:
        from importlib import import_module

        module, _, function = installer.partition(":")
        getattr(import_module(module), function or "install")(gpu, patches)

    return install
