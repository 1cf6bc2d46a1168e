"""tcgen05.cp, shift and commit against a model in NumPy that follows the text of the PTX ISA."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import sampled
from machine.tensor_memory_kernels import COLUMNS, dump, fill, kernel
from ptxas import assemble, find_ptxas

SEED = int(os.environ.get("LANEWISE_SEED", "20261116"))
#: Rows and bits of each shape, and the lanes that get a row, counted from the address.
SHAPES: dict[str, tuple[int, int, Callable[[int], list[int]]]] = {
    "128x256b": (128, 256, lambda row: [row]),
    "128x128b": (128, 128, lambda row: [row]),
    "4x256b": (4, 256, lambda row: [32 * row]),
    "64x128b.warpx2::02_13": (64, 128, lambda row: [row, row + 64]),  # warps 0 and 2 have the first half
    "64x128b.warpx2::01_23": (64, 128, lambda row: [row % 32 + 64 * (row // 32) + warp for warp in (0, 32)]),
    "32x128b.warpx4": (32, 128, lambda row: [row + 32 * warp for warp in range(4)]),
}
FORMATS = {"": 8, ".b8x16.b6x16_p32": 6, ".b8x16.b4x16_p64": 4}
#: By code of the swizzle: the bytes of a row.
SWIZZLES = {0: 16, 2: 128, 4: 64, 6: 32}
SHARED = 40 * 1024


def checked(text: str) -> Any:
    """The kernel, after ptxas has taken its PTX."""
    if find_ptxas() is not None:
        assert assemble(text, "sm_100a") == []
    return lw.load(text)["k"]


def swizzled(address: int, code: int) -> int:
    """Bits 4 to 6 of an address of shared memory, as many as the swizzle has, change with bits 7 to 9."""
    pieces = SWIZZLES[code] // 16
    return address ^ ((address >> 7 & 7) % pieces << 4)


def source_rows(
    memory: np.ndarray, shape: str, start: int, leading: int, stride: int, code: int
) -> np.ndarray:
    """The rows of a K-major matrix as bytes; `memory` begins at address 0."""
    rows, bits, _ = SHAPES[shape]
    width = SWIZZLES[code]
    found = np.zeros((rows, bits // 8), np.uint8)
    for row in range(rows):
        for piece in range(bits // 128):
            offset = piece * (leading if width == 16 else 16)
            at = swizzled(start + row % 8 * width + row // 8 * stride + offset, code)
            found[row, 16 * piece : 16 * piece + 16] = memory[at : at + 16]
    return found


def expanded(rows: np.ndarray, bits: int) -> np.ndarray:
    """Elements of 6 or 4 bits, 16 in each 16 bytes, as bytes; 4-bit ones are in bits 2 to 5."""
    if bits == 8:
        return rows
    found = np.zeros_like(rows)
    for index in np.ndindex(rows.shape[0], rows.shape[1] // 16):
        row, piece = index
        number = int.from_bytes(rows[row, 16 * piece : 16 * piece + 16].tobytes(), "little")
        for element in range(16):
            value = number >> (bits * element) & ((1 << bits) - 1)
            found[row, 16 * piece + element] = value << (2 if bits == 4 else 0)
    return found


COPY = """
    // all threads fill the tile
    mov.u32 %r1, tile;
    shl.b32 %r2, %tid0, 2;
FILLING:
    cvt.u64.u32 %rd1, %r2;
    add.u64 %rd1, %rd1, %p_bytes;
    ld.global.u32 %r3, [%rd1];
    add.u32 %r4, %r1, %r2;
    st.shared.u32 [%r4], %r3;
    add.u32 %r2, %r2, 512;
    setp.lt.u32 %p1, %r2, {size};
    @%p1 bra FILLING;
    setp.eq.u32 %p2, %tid0, {issuer};
    @%p2 mbarrier.init.shared::cta.b64 [bars], 1;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    // the descriptor: the address of the tile, and the other fields from the host
    add.u32 %r5, %r1, {start};
    and.b32 %r5, %r5, 0x3FFFF;
    shr.u32 %r5, %r5, 4;
    cvt.u64.u32 %rd2, %r5;
    ld.global.u64 %rd3, [%p_fields];
    or.b64 %rd2, %rd2, %rd3;
    add.u32 %r6, %taddr, {target};
    @%p2 tcgen05.cp.cta_group::{group}.{shape} [%r6], %rd2;
    @%p2 tcgen05.commit.cta_group::{group}.mbarrier::arrive::one.shared::cluster{commit};
WAITING:
    mbarrier.try_wait.parity.shared::cta.b64 %p3, [bars], 0;
    @!%p3 bra WAITING;
    tcgen05.fence::after_thread_sync;
"""


@sampled(24)
@pytest.mark.parametrize("code", SWIZZLES)
@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("shape", SHAPES)
def test_copies_go_to_the_lanes_that_the_shape_names(shape: str, fmt: str, code: int) -> None:
    rng = np.random.default_rng([SEED, *shape.encode(), *fmt.encode(), code])
    rows, bits, lanes_of = SHAPES[shape]
    width = SWIZZLES[code]
    leading, stride = 16, int(rng.choice([8, 16])) * width
    if width == 16:  # pieces of eight rows next to one another, or all first pieces before all second ones
        leading, stride = [(128, 256), (17 * 128, 128)][rng.integers(2)]
    start = int(rng.integers(0, 3)) * 1024 + (int(rng.integers(8)) * 128 if width == 16 else 0)
    size = SHARED
    column = int(rng.integers(0, COLUMNS - bits // 32 + 1))
    lane = int(rng.integers(32)) if shape == "4x256b" else 0
    text = kernel(
        fill("before")
        + COPY.format(
            size=size, issuer=int(rng.integers(128)), start=start,
            target=(lane << 16) + column, group=1, shape=shape + fmt, commit=".b64 [bars]",
        )
        + dump("after"),
        ("before", "bytes", "fields", "after"),
        shared=f".shared .align 1024 .b8 tile[{size}];",
    )  # fmt: skip
    fields = leading // 16 << 16 | stride // 16 << 32 | 1 << 46 | code << 61
    memory = rng.integers(0, 256, size, dtype=np.uint8)
    before = rng.integers(0, 1 << 32, (128, COLUMNS), dtype=np.uint32)
    after = np.zeros_like(before)
    run = checked(text)[1, 128]
    copied = expanded(source_rows(memory, shape, start, leading, stride, code), FORMATS[fmt]).view(np.uint32)
    expected = before.copy()
    for row in range(rows):
        for each in lanes_of(row):
            expected[lane + each, column : column + bits // 32] = copied[row]
    for schedule in ("early", "late", int(rng.integers(1000))):
        run(before, memory, np.array([fields], np.uint64), after, schedule=schedule)
        np.testing.assert_array_equal(after, expected)
