"""Records of products that are compiled on first use: they live as long as a site may point to them."""

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from lanewise.machine.tensor_core import mma_library, tcgen05_product
from lanewise.machine.tensor_core.mma_library import ProductCache


def test_two_records_of_one_product_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads that miss the cache at once make two records: both sites then get the same one."""
    made: list[Any] = []

    def prepared(form: int, descriptor: int) -> Any:
        made.append(SimpleNamespace(address=1000 + len(made)))
        return made[-1]

    monkeypatch.setattr(tcgen05_product, "prepared", prepared)
    find = mma_library._product_finder([])
    caches = [(ctypes.c_uint8 * ProductCache.BYTES)() for _ in range(2)]
    for cache in caches:
        assert find(ctypes.addressof(cache), 1, 2) == 0
    places = [ctypes.addressof(cache) + ProductCache.record for cache in caches]
    assert len(made) == 2
    assert [ctypes.c_int64.from_address(place).value for place in places] == [1000, 1000]
