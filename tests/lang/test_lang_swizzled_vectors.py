"""Vectors through a swizzle: what is not contiguous is refused when it is traced, and the rest is right.

The oracle is the layout itself: a vector of w elements at a coordinate is whole if and only if the layout
maps the w neighbours in the unswizzled order to neighbours, for every coordinate at which a vector may begin.
"""

import random
from typing import Any

import numpy as np
import pytest

import lanewise as lw

ROWS, COLUMNS = 16, 32


def contiguous(swizzle: lw.Swizzle, width: int, first: int) -> bool:
    return all(swizzle(first + k) == swizzle(first) + k for k in range(width))


def stored_and_read(dtype: Any, swizzle: lw.Swizzle, width: int) -> lw.Kernel:
    """A kernel that stores an array in vectors and reads it in single elements."""

    @lw.kernel
    def kernel(x: lw.Ptr[lw.u8], y: lw.Ptr[lw.u8]):
        shared = lw.shared(dtype, (ROWS, COLUMNS), swizzle=swizzle)
        lane = lw.lane_id()
        source, target = x.to(dtype).aligned(16), y.to(dtype)
        for step in range(ROWS * COLUMNS // width // 32):
            vector = step * 32 + lane
            row, column = vector * width // COLUMNS, vector * width % COLUMNS
            shared.ptr(row, column).store((source + vector * width).load(width))
        lw.syncwarp()
        for row in range(ROWS):
            target[row * COLUMNS + lane] = shared[row, lane]

    return kernel


@pytest.mark.parametrize("dtype", ["u8", "f16", "f32"])
def test_vectors_are_whole_or_refused(dtype: str) -> None:
    draw, kind = random.Random(f"swizzles of {dtype}"), getattr(lw, dtype)
    size = kind.bits // 8
    refused = right = 0
    for _ in range(24):
        bits, base, more = draw.randrange(0, 4), draw.randrange(0, 5), draw.randrange(0, 4)
        shift = (bits + more) * draw.choice([1, 1, -1])
        swizzle, width = (
            lw.Swizzle(bits, base, shift),
            draw.choice([w for w in (1, 2, 4, 8, 16) if w * size <= 16]),
        )
        firsts = range(0, ROWS * COLUMNS, width)
        whole = all(contiguous(swizzle, width, first) for first in firsts)
        kernel = stored_and_read(kind, swizzle, width)
        if whole and right >= 2:
            kernel.ptx()
        elif whole:
            x = np.random.default_rng(0).integers(0, 120, ROWS * COLUMNS * size, np.uint8)
            y = np.zeros_like(x)
            kernel[1, 32](x, y)
            assert np.array_equal(x, y)
            right += 1
        else:
            with pytest.raises(lw.KernelError, match="keeps only") as error:
                kernel.ptx()
            text = str(error.value)
            proposed = eval(
                text[text.index("elsewhere. ") + 11 :].split(" keeps")[0], {"Swizzle": lw.Swizzle}
            )
            assert all(contiguous(proposed, width, first) for first in range(0, proposed.size(), width)), text
            stored_and_read(kind, proposed, width).ptx()
            refused += 1
    assert refused >= 3 and right == 2


SW = lw.Swizzle(3, 2, 4)  # pieces of four f16: 8 bytes


@lw.device
def rows_of_matrices(s: Any, p: Any, lane: Any) -> Any:
    lw.ldmatrix(s.ptr(lane % 16, lane // 16 * 8))


@lw.device
def stored_matrices(s: Any, p: Any, lane: Any) -> Any:
    a = lw.ldmatrix(lw.shared(lw.f16, (16, 32)).ptr(lane % 16, 0))
    lw.stmatrix(s.ptr(lane % 16, lane // 16 * 8), a)


@lw.device
def asynchronous(s: Any, p: Any, lane: Any) -> Any:
    lw.cp_async(s.ptr(lane, 0), p + lane * 8)


@lw.device
def moved_on(s: Any, p: Any, lane: Any) -> Any:
    (s.ptr(lane, 0) + 8).load(8)


@lw.device
def as_another_type(s: Any, p: Any, lane: Any) -> Any:
    s.ptr(lane, 0).to(lw.u32).load(4)


@lw.device
def of_a_slice(s: Any, p: Any, lane: Any) -> Any:
    s[lane, None].ptr(8).load(8)


@lw.device
def in_groups(s: Any, p: Any, lane: Any) -> Any:
    lw.vectorized(s.ptr(lane, 0).aligned(16))[0]


@lw.device
def through_a_loop(s: Any, p: Any, lane: Any) -> Any:
    q = s.ptr(lane, 0)
    for _ in lw.range(3):
        q.load(8)
        q = q + 8


@lw.device
def at_a_constant(s: Any, p: Any, lane: Any) -> Any:
    s.ptr(2, 0).load(8)  # row 2: its pieces change places


MOVES = [
    rows_of_matrices, stored_matrices, asynchronous, moved_on, as_another_type, of_a_slice, in_groups,
    through_a_loop, at_a_constant,
]  # fmt: skip


def kernel_of(move: Any, swizzle: lw.Swizzle | None) -> lw.Kernel:
    @lw.kernel
    def kernel(p: lw.Ptr[lw.f16, 16]):
        move(lw.shared(lw.f16, (32, 32), swizzle=swizzle), p, lw.lane_id())

    return kernel


@pytest.mark.parametrize("move", MOVES, ids=lambda move: move.__name__)
def test_every_access_of_16_bytes_asks_the_swizzle(move: Any) -> None:
    for whole in (None, lw.Swizzle(2, 3, 3), lw.Swizzle(0, 0, 0)):
        kernel_of(move, whole).ptx("sm_90")
    with pytest.raises(
        lw.KernelError, match=r"16 bytes, and Swizzle\(3,2,4\).*only 8 together.*Swizzle\(3,3,3\)"
    ):
        kernel_of(move, SW).ptx("sm_90")


def test_where_the_swizzle_does_nothing_vectors_are_whole() -> None:
    @lw.kernel
    def kernel(p: lw.Ptr[lw.f16, 16]):
        small = lw.shared(lw.f16, (2, 32), swizzle=SW)  # its indices have none of the bits that move others
        large = lw.shared(lw.f16, (32, 32), swizzle=SW)
        (p + lw.lane_id() * 8).store(small.ptr(lw.lane_id() % 2, 0).load(8))
        p.store(large.ptr(0, 8).load(8))

    kernel.ptx()


def test_wmma_takes_no_swizzle() -> None:
    @lw.kernel
    def kernel(p: lw.Ptr[lw.f16, 16]):
        a = lw.wmma.fragment(lw.wmma.matrix_a, 16, 16, 16, lw.f16, lw.wmma.row_major)
        lw.wmma.load_matrix_sync(a, lw.shared(lw.f16, (16, 32), swizzle=SW).ptr(lw.warp_id(), 0), 32)

    with pytest.raises(lw.KernelError, match="WMMA moves rows that lie a fixed distance apart"):
        kernel.ptx()
