"""The kernels of `tests/machine/kernels/hopper` on a GPU: the bits of the machine, launch after launch."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from gpu.device import torch_here
from lanewise.ptx.tensor_maps import TensorMap
from shared_tests import collected_from
from shared_tests import hopper as kernels

torch = torch_here("these kernels are for sm_90a", lambda capability: capability == (9, 0))


def whole(array: np.ndarray) -> np.ndarray:
    """The array that a view belongs to."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def on_gpu(launched: Any, arguments: tuple[Any, ...], out: np.ndarray, checked: bool = True) -> np.ndarray:
    """Run a kernel on copies of its arrays, some times; returns what it and the machine leave in `out`."""
    begin = out.copy()
    found: set[bytes] = set()
    for _ in range(5):
        there: dict[int, Any] = {}

        def placed(array: np.ndarray, there: dict[int, Any] = there) -> Any:
            root = whole(array)
            if id(root) not in there:
                there[id(root)] = torch.from_numpy(root.reshape(-1).view(np.uint8).copy()).cuda()
            return there[id(root)]

        def argument(each: Any, placed: Callable[[np.ndarray], Any] = placed) -> Any:
            if isinstance(each, TensorMap):
                offset = each.array.ctypes.data - whole(each.array).ctypes.data
                return TensorMap(placed(each.array)[offset:], each.tensor)
            return placed(each) if isinstance(each, np.ndarray) else each

        launched(*map(argument, arguments))
        found.add(placed(out).cpu().numpy().tobytes())
    assert len(found) == 1, "launches differ"
    launched(*arguments)
    assert found == {whole(out).tobytes()}
    result = out.copy()
    out[...] = begin
    return result


@pytest.fixture(autouse=True)
def launches_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(kernels, "same_everywhere", on_gpu)
    yield


globals().update(collected_from(kernels))


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the error of the machine's own, not to the last bit: a GPU approximates exponentials."""

    def near(launched: Any, arguments: tuple[Any, ...], out: np.ndarray, checked: bool = True) -> np.ndarray:
        there = torch.zeros(out.shape, device="cuda")
        maps = arguments[:3]
        moved = [torch.from_numpy(each.array.view(np.uint16)).cuda() for each in maps]
        encoded = [TensorMap(array, each.tensor) for each, array in zip(maps, moved, strict=True)]
        launched(*encoded, there, *arguments[4:])
        result: np.ndarray = there.cpu().numpy()
        return result

    monkeypatch.setattr(kernels, "same_everywhere", near)
    kernels.test_attention(causal)
