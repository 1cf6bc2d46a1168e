"""`lw.virtual_gpu("H100")`: within it, programs of other frameworks have a GPU that is the CPU machine."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lanewise.errors import LanewiseError
from lanewise.virtual_gpu.devices import find_device
from lanewise.virtual_gpu.driver.driver import Driver
from lanewise.virtual_gpu.frameworks.framework_state import FrameworkState
from lanewise.virtual_gpu.frameworks.imports import when_imported
from lanewise.virtual_gpu.frameworks.patches import Patches

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lanewise.launch import Configured
    from lanewise.machine.checker.report import Finding, Report

#: What each framework needs, installed when a program imports it; the first argument is the virtual GPU.
_FRAMEWORKS = {
    "torch": "lanewise.virtual_gpu.frameworks.torch_device",
    "triton": "lanewise.virtual_gpu.frameworks.triton_driver",
    "cuda.bindings": "lanewise.virtual_gpu.frameworks.driver_library",
    "cuda.bindings.runtime": "lanewise.virtual_gpu.frameworks.cuda_runtime",
    "numba.cuda.cudadrv.driver": "lanewise.virtual_gpu.frameworks.numba_cuda",
    "lanewise.gpu.loading": "lanewise.virtual_gpu.frameworks.own_kernels",
    "lanewise.gpu.recorded": "lanewise.virtual_gpu.frameworks.own_records",
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


class VirtualGPU(FrameworkState):
    """A CUDA device made of the CPU machine, as a context manager; `lw.virtual_gpu` makes one.

    Within it Triton's kernels, unchanged, run on the CPU, on tensors of torch in host memory or on "cuda"
    ones, which live there. `launches` are those that were made. With `check=True` every launch is checked,
    and `findings` has what was found, each once for each kernel.

    >>> import lanewise as lw
    >>> with lw.virtual_gpu("H100") as gpu:
    ...     gpu.driver.cuDeviceComputeCapability(0)
    (9, 0)
    """

    def __init__(
        self,
        name: str,
        *,
        check: bool = False,
        memory_gib: float | None = None,
        multiprocessors: int | None = None,
        steps: int | None = None,
    ) -> None:
        super().__init__(Driver(find_device(name, memory_gib, multiprocessors), self._launch))
        self.is_checked, self.steps = check, steps
        self.launches: list[LaunchRecord] = []
        self._stack: ExitStack | None = None
        self._process = os.getpid()

    def __enter__(self) -> VirtualGPU:
        global _ACTIVE
        if _ACTIVE is not None:
            raise LanewiseError(
                f"a virtual {_ACTIVE.device.name} is in use already: there is one device at a time"
            )
        with ExitStack() as stack:  # what was installed is taken back if something fails
            patches = stack.enter_context(Patches())
            for framework, installer in _FRAMEWORKS.items():
                stack.enter_context(when_imported(framework, _installing(installer, self, patches)))
            self._stack = stack.pop_all()
        _ACTIVE = self
        return self

    def __exit__(self, *exception: object) -> None:
        global _ACTIVE
        _ACTIVE = None
        if self._stack is not None:
            self._stack.close()
            self._stack = None
        self.driver.memory.clear()

    # launches -----------------------------------------------------------------------------------------------

    def _launch(self, configured: Configured, arguments: tuple[Any, ...]) -> None:
        """Make a launch, or check it, and keep a record of it."""
        if os.getpid() != self._process:
            raise LanewiseError(
                "this process was forked from one that has a virtual GPU, and has none of its own: start it "
                "with the method 'spawn' and enter lw.virtual_gpu there"
            )
        begin, report = time.perf_counter(), None
        options: dict[str, Any] = {"arch": self.device.arch, "unchecked": True}
        if self.steps is not None:
            options["steps"] = self.steps
        try:
            if self.is_checked:
                from lanewise.machine.checker.check import check

                report = check(configured, *arguments, **options)
            else:
                configured(*arguments, **options)
        finally:
            shape = configured.shape
            self.launches.append(
                LaunchRecord(
                    configured.entry.demangled,
                    shape.grid,
                    shape.block,
                    shape.cluster,
                    shape.shared_bytes,
                    time.perf_counter() - begin,
                    report,
                )
            )

    @property
    def reports(self) -> list[Report]:
        """The reports of the launches that were checked."""
        if not self.is_checked:
            raise LanewiseError(
                f'launches were not checked: use lw.virtual_gpu("{self.device.name}", check=True), or '
                f'`lanewise check --gpu "{self.device.name}" script.py`'
            )
        return [each.report for each in self.launches if each.report is not None]

    @property
    def findings(self) -> list[Finding]:
        """What the checks found, each once for each kernel."""
        return [finding for report in new_in_each(self.reports) for finding in report.findings]

    def save(self, path: str | Path) -> None:
        """Write the reports to a file, in the form that its name ends in: .html, .json, .sarif or .txt."""
        from lanewise.machine.checker.reporting.saving import save

        save(new_in_each(self.reports), Path(path))

    def __repr__(self) -> str:
        return f"<virtual {self.device.name} ({self.device.arch}): {len(self.launches)} launches>"


def virtual_gpu(
    name: str,
    *,
    check: bool = False,
    memory_gib: float | None = None,
    multiprocessors: int | None = None,
    steps: int | None = None,
) -> VirtualGPU:
    """Return a virtual GPU by the name of a GPU, to be used as a context manager.

    With `check` every launch is checked. `memory_gib` and `multiprocessors` change the device; `steps` bounds
    the basic blocks that a thread block may run, so that an endless kernel ends.
    """
    return VirtualGPU(name, check=check, memory_gib=memory_gib, multiprocessors=multiprocessors, steps=steps)


_ACTIVE: VirtualGPU | None = None


def active() -> VirtualGPU | None:
    """Return the virtual GPU that is in use; None if there is none."""
    return _ACTIVE


def _installing(installer: str, gpu: VirtualGPU, patches: Patches) -> Callable[[], None]:
    """Return what installs a framework's part, once the framework is imported."""

    def install() -> None:
        from importlib import import_module

        import_module(installer).install(gpu, patches)

    return install


def new_in_each(reports: Sequence[Report]) -> list[Report]:
    """Return the first report of each kernel, and of the others those that have something new, and only that.

    A finding is known by its kernel, kind and place.
    """
    from copy import copy

    seen: set[tuple[str, ...]] = set()
    kernels: set[str] = set()
    kept = []
    for report in reports:
        new = []
        for finding in report.findings:
            key = (report.kernel, finding.kind, str(finding.location))
            if key not in seen:
                seen.add(key)
                new.append(finding)
        if report.kernel not in kernels or new:
            own = copy(report)
            object.__setattr__(own, "findings", new)
            kept.append(own)
        kernels.add(report.kernel)
    return kept
