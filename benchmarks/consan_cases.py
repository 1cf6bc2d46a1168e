"""A plugin for pytest that lets lanewise speak in ConSan's place in Triton's `test_consan.py`.

The rule of the comparison, which names no case. ConSan's own description (TritonInstrument.md) says what it
looks at: concurrent accesses to shared and tensor memory, the use of mbarriers, and waits that never end. A
finding of one of these families (`families`) counts as every sentence that ConSan has for the family; any
other finding is in the record and does not count. The assertions of the test file compare the sentences, and
ask for none at all where the kernel is right.

Allocations are as large as those of a GPU, for every case: a fault of bounds, which ConSan does not look at,
would end a launch before the rest of the kernel has run.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.overrides

from lanewise.machine.checker.findings import Finding
from lanewise.ptx import Shape
from lanewise.pytest import LaunchFailed
from lanewise.virtual_gpu.frameworks import triton_driver
from lanewise.virtual_gpu.session import active

#: What ConSan prints, for each family of what it looks at.
SENTENCES = {
    "access": (
        "Buffer being accessed has outstanding writes",
        "Buffer being accessed has outstanding reads",
        *(
            f"Accessing buffer with pending access. Pending access type{colon} {access}"
            for colon in ("", ":")
            for access in (
                "async_copy_global_to_shared",
                "async_copy_shared_to_global",
                "warpgroup_mma operand read",
            )
        ),
    ),
    "fence": ("Async shared-memory access is missing fence_async_shared",),
    "mbarrier": (
        "Barrier arrive underflow: current count would become negative",
        "Barrier arrive underflow",
        "Barrier used before initialization or after invalidation",
        "Barrier re-initialized without prior invalidation",
        "Barrier invalidated while a thread is waiting",
        "Shared memory reused before barrier invalidation",
    ),
    "deadlock": ("Deadlock detected", "Deadlock detected at a cluster barrier"),
}
#: The family of each kind of finding about two accesses, mbarriers and waits.
FAMILIES = {
    "race": "access",
    "asynchronous copy": "access",
    "tensor memory": "access",
    "proxy": "fence",
    "mbarrier": "mbarrier",
    "barrier": "mbarrier",
    "deadlock": "deadlock",
    "endless": "deadlock",
}
#: PyTorch's allocator hands out pieces of blocks of 2 MiB; an SM has shared memory in units of 128 bytes.
GLOBAL_BLOCK = 2 << 20
SHARED_UNIT = 128


def family(finding: Finding) -> str | None:
    """Return which of ConSan's families a finding belongs to, None if ConSan looks at no such thing."""
    if finding.message.startswith("global "):
        return None
    if "tcgen05.alloc" in finding.text or "tcgen05.dealloc" in finding.text:
        return None
    if "deadlock in block" in finding.message or "deadlock in cluster" in finding.message:
        return "deadlock"
    return FAMILIES.get(finding.kind)


@dataclass
class Printed:
    """What a test reads of a process: its exception, and what the driver has printed."""

    exc: BaseException | None
    driver_stderr_output: str


#: A class of torch, which mypy need not know.
_Mode: Any = torch.overrides.TorchFunctionMode


class Roomy(_Mode):  # type: ignore[misc]  # a class that mypy does not know
    """Arrays that torch makes lie at the beginning of a block of device memory."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        factory = not any(isinstance(each, torch.Tensor) for each in args)
        if (
            not factory
            or not isinstance(made, torch.Tensor)
            or not made.numel()
            or "device" not in (kwargs or {})
        ):
            return made
        block = torch.empty(
            made.numel() + GLOBAL_BLOCK // made.element_size(), dtype=made.dtype, device=made.device
        )
        return block[: made.numel()].copy_(made.flatten()).view(made.shape)


def findings_of(failed: BaseException | None) -> list[Finding]:
    """Return the errors that the checks of all launches have found; raise what is no finding."""
    gpu = active()
    assert gpu is not None
    failures = [failed, *gpu.driver.take_unseen()]
    reports = [each.report for each in failures if isinstance(each, LaunchFailed)]
    if failed is not None and not reports:
        raise failed
    return [each for report in reports for each in report.findings if each.severity == "error"]


def judged(item: pytest.Item, failed: BaseException | None) -> Printed:
    """Return what ConSan would have printed where lanewise has found something; put that on record."""
    families = set()
    for finding in findings_of(failed):
        counted = family(finding)
        families.add(counted)
        remark = "" if counted else " (not counted)"
        item.user_properties.append(("found", f"{finding.kind}: {finding.message}{remark}"))
    families.discard(None)
    printed = "\n".join(sentence for name in sorted(map(str, families)) for sentence in SENTENCES[name])
    return Printed(RuntimeError("device-side assert triggered") if families else None, printed)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, bool]:
    """Judge a case that makes its launches in the process of the test: it is one of a right kernel."""
    failed = None
    try:
        with Roomy():
            yield
    except LaunchFailed as error:
        failed = error
    found = judged(pyfuncitem, failed)
    if found.exc is not None:
        raise AssertionError(
            f"ConSan finds nothing, and lanewise does: {found.driver_stderr_output}"
        ) from failed
    return True


@pytest.fixture
def device() -> str:
    """Return the device of the cases."""
    return "cuda"


@pytest.fixture
def process_pool() -> None:
    """Start no processes: cases run in this one."""


@pytest.fixture(autouse=True)
def lanewise_for_consan(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a case in this process, without ConSan's instrumentation."""
    set_variable = pytest.MonkeyPatch.setenv

    def in_units(grid: Any, block: Any, shared_bytes: int, *rest: Any) -> Any:
        return Shape(grid, block, -(-shared_bytes // SHARED_UNIT) * SHARED_UNIT, *rest)

    def setenv(patch: pytest.MonkeyPatch, name: str, value: str, prepend: str | None = None) -> None:
        if name != "TRITON_INSTRUMENTATION_MODE":
            set_variable(patch, name, value, prepend)

    def run_in_process(client: Callable[..., None], args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        failed = None
        try:
            with Roomy():
                client(*args, **(kwargs or {}))
        except BaseException as error:
            failed = error
        return judged(request.node, failed)

    monkeypatch.setattr(triton_driver, "Shape", in_units)
    monkeypatch.setattr(pytest.MonkeyPatch, "setenv", setenv)
    monkeypatch.setattr(request.module, "run_in_process", run_in_process)
