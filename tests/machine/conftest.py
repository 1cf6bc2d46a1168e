"""`pytest tests/machine --on-gpu` runs the one-instruction kernels on a GPU too, and compares every bit."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from machine import kernels


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--on-gpu", action="store_true", help="hold the machine's exact instructions against the GPU at hand"
    )


@pytest.fixture
def everything(request: pytest.FixtureRequest) -> bool:
    """Whether to try every combination, not some."""
    return bool(request.config.getoption("--on-gpu", default=False))


@pytest.fixture(scope="session", autouse=True)
def on_gpu(request: pytest.FixtureRequest) -> Iterator[None]:
    """With --on-gpu: whatever `run_cases` runs on the machine is run on the device and held against it."""
    if not request.config.getoption("--on-gpu", default=False):
        yield
        return
    from gpu.device import Device

    device, on_machine = Device(), kernels.launch

    def on_both(entry: Any, configuration: tuple[int, int]) -> Callable[..., None]:
        def call(*arrays: np.ndarray) -> None:
            before = [array.copy() for array in arrays]
            on_machine(entry, configuration)(*arrays)
            target = re.search(r"\.target sm_(\d+)", entry.module.text)
            if target is None or int(target[1]) > int(device.arch[3:].rstrip("a")):
                return  # a form that this device does not have
            compare(device, entry.module.text, configuration, before, arrays)

        return call

    kernels.launch = on_both  # type: ignore[assignment]  # stands in for it
    kernels.everything = True
    yield
    kernels.launch, kernels.everything = on_machine, False


def compare(
    device: Any,
    text: str,
    configuration: tuple[int, int],
    before: list[np.ndarray],
    after: tuple[np.ndarray, ...],
) -> None:
    """Every result of an exact instruction has the device's bits."""
    from gpu.device import Kernel

    blocks, threads = configuration
    returned = device.run_in_place(Kernel(text, threads, device.arch), before, blocks)
    names = re.findall(r"\.param \.u64 (\w+)", text)
    wrong = []
    for name, mine, theirs in zip(names, after, returned, strict=True):
        stored = re.search(rf"\n\s*([^\n]*;)\n(?:\s*selp[^\n]*\n)?\s*ld\.param\.u64 %rd0, \[{name}\]", text)
        if stored is None or ".approx" in stored[1] or ".full" in stored[1]:
            continue
        different = np.flatnonzero(mine != theirs)
        if different.size:
            place = different[0]
            wrong.append(
                f"{stored[1]} thread {place}: {int(mine[place]):#x}, the GPU {int(theirs[place]):#x}"
            )
    assert not wrong, "\n".join(wrong)
