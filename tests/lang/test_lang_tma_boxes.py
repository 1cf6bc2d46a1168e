"""Arrays that TMA fills: where their swizzle begins, rows of narrow boxes, the order of modes."""

from typing import Any

import numpy as np
import pytest

import lanewise as lw

SWIZZLE = lw.Swizzle(3, 3, 3)


@lw.device
def load(shared, A):
    """Load the box of A that begins in row 8, and wait for it; returns this thread's number."""
    barrier, thread = lw.mbarrier()[0], lw.thread_idx.x
    if thread == 0:
        barrier.init(1)
        lw.fence_mbarrier_init()
    lw.syncthreads()
    if thread == 0:
        barrier.arrive(expect=A.nbytes)
        lw.tma.load(shared, A, (8, 0), barrier)
    barrier.wait(0)
    return thread


@lw.kernel
def copied(
    A: lw.TensorMap[lw.f16, (8, 64), 128], out: lw.Ptr[lw.f16], layout: lw.Constexpr, offset: lw.Constexpr
):
    shared = lw.dynamic_shared(lw.f16, layout, swizzle=SWIZZLE, offset=offset)
    thread = load(shared, A)
    for i in lw.range(thread, 512, 32):
        out[i] = shared[i // 64, i % 64]


@lw.kernel
def narrow(A: lw.TensorMap[lw.f16, (8, 32), 128], out: lw.Ptr[lw.f16], pitch: lw.Constexpr):
    shared = lw.shared(lw.f16, lw.Layout((8, 32), (pitch, 1)), swizzle=SWIZZLE)
    thread = load(shared, A)
    for i in lw.range(thread, 256, 32):
        out[i] = shared[i // 32, i % 32]


NUMBERS = np.arange(24 * 64, dtype=np.float16).reshape(24, 64)


@pytest.mark.parametrize("offset", [0, 1024, 2048])
def test_a_swizzled_array_begins_where_the_swizzle_does(offset: int) -> None:
    out = np.zeros((8, 64), np.float16)
    arguments = lw.tensor_map(NUMBERS, (8, 64), swizzle="128B"), out
    copied[1, 32, offset + 1024](*arguments, layout=lw.Layout((8, 64), (64, 1)), offset=offset)
    assert (out == NUMBERS[8:16]).all()
    nested = lw.Layout((8, (32, 2)), (64, (1, 32)))
    copied[1, 32, offset + 1024](*arguments, layout=nested, offset=offset)
    assert (out == NUMBERS[8:16]).all()


@pytest.mark.parametrize(
    ("layout", "offset", "message"),
    [
        (
            lw.Layout((8, 64), (64, 1)),
            128,
            "repeats every 1024 bytes, and the array is known to be aligned to 128",
        ),
        (lw.Layout((8, 64), (64, 1)), 512, "aligned to 512 only"),
        (lw.Layout((8, 64), (1, 8)), 0, "last mode fastest"),
        (lw.Layout((8, (32, 2)), (32, (1, 256))), 0, "last mode fastest"),
    ],
)
def test_arrays_that_lie_otherwise_are_refused(layout: Any, offset: int, message: str) -> None:
    box = lw.tensor_map(NUMBERS, (8, 64), swizzle="128B")
    with pytest.raises(lw.LanewiseError, match=message):
        copied[1, 32, 4096](box, np.zeros((8, 64), np.float16), layout=layout, offset=offset)


def test_rows_of_a_narrow_box_are_as_long_as_its_swizzle() -> None:
    box, out = lw.tensor_map(NUMBERS, (8, 32), swizzle="128B"), np.zeros((8, 32), np.float16)
    narrow[1, 32](box, out, pitch=64)
    assert (out == NUMBERS[8:16, :32]).all()
    with pytest.raises(lw.LanewiseError, match="last mode fastest"):
        narrow[1, 32](box, out, pitch=32)


@pytest.mark.parametrize(
    ("box", "message"),
    [
        (lw.tensor_map(NUMBERS, (8, 64), swizzle="128B", element_strides=(2, 1)), "brings 512 bytes"),
        (lw.tensor_map(NUMBERS.astype(lw.bf16.dtype), (8, 64), swizzle="128B"), "is of bf16: the same bits"),
    ],
)
def test_maps_that_bring_something_else_are_refused(box: Any, message: str) -> None:
    with pytest.raises(lw.LanewiseError, match=message):
        copied[1, 32, 1024](box, np.zeros((8, 64), np.float16), layout=lw.Layout((8, 64), (64, 1)), offset=0)
