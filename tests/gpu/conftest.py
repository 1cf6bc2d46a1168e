"""The device, torch on it, the record of what it showed, and the rule that this folder needs a GPU."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpu.device import Device, assembled, available
from gpu.record import SEED, Record

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folder = f"{HERE}{os.sep}"
    here = [item for item in items if str(item.path).startswith(folder)]
    for item in here:
        item.add_marker(pytest.mark.gpu)
        # One test compares hundreds of instructions with the device.
        item.add_marker(pytest.mark.timeout(1800))
        if not available():
            skip = pytest.mark.skip(reason="no CUDA device here: these tests compare with a GPU, bit by bit")
            item.add_marker(skip, append=False)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Set ptxas to work on everything that will be launched."""
    if not available() or session.config.option.collectonly:
        return
    for item in session.items:
        if not isinstance(item, pytest.Function):
            continue
        kernels_of = getattr(item.function, "kernels_of", None)
        if kernels_of is not None:
            for kernel in kernels_of(**item.callspec.params):
                assembled(kernel)


@pytest.fixture(scope="session")
def device() -> Device:
    return Device()


@pytest.fixture(scope="session")
def torch() -> Any:
    """torch with a Hopper GPU."""
    found = pytest.importorskip("torch")
    if not found.cuda.is_available() or found.cuda.get_device_capability()[0] != 9:
        pytest.skip("needs torch and a Hopper GPU")
    return found


@pytest.fixture(scope="session")
def seed() -> int:
    return SEED


@pytest.fixture(scope="session")
def record(device: Device) -> Iterator[Record]:
    found = Record()
    yield found
    path = os.environ.get("LANEWISE_RECORD")
    if path:
        found.write(Path(path), device)
