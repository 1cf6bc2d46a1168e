"""CuTe's tiles for Blackwell in kernels: products of random tiles, their copies from tensor memory, mistakes."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import numpy as np
import pytest

import lanewise as lw
from everything import sampled
from lanewise.lang.trace.errors import KernelError
from lanewise.layout import tile_to_shape
from ptxas import assemble, find_ptxas

ARCH = "sm_100a"
#: Formats of A and B by CUTLASS's word for the kind, C++ names, and elements of K.
KINDS = {
    "F16BF16": (("half_t", lw.f16), ("bfloat16_t", lw.bf16)),
    "TF32": (("tfloat32_t", lw.tf32),),
    "S8": (("int8_t", lw.s8),),
    "F8F6F4": (("float_e4m3_t", lw.e4m3), ("float_e5m2_t", lw.e5m2)),
}
#: Bytes of a row of each swizzle.
WIDTHS = {"INTER": 16, "SW32": 32, "SW64": 64, "SW128": 128}


class Operand(NamedTuple):
    """A tile of A or B in shared memory."""

    layout: lw.Layout
    swizzle: lw.Swizzle | None


def in_shared_memory(rows: int, k: int, major: str, width: int, size: int) -> Operand:
    """A tile as tcgen05 wants it: blocks of eight lines of a swizzle's width, side by side."""
    line = width // size
    if major == "MN" and size == 4:  # the one swizzle that there is for it: atoms of 32 bytes, four lines
        return Operand(tile_to_shape(lw.Layout((line, 4), (1, line)), (rows, k)), lw.Swizzle(2, 3, 2))
    block = lw.Layout((8, line), (line, 1)) if major == "K" else lw.Layout((line, 8), (1, line))
    bits, shift = {16: 0, 32: 1, 64: 2, 128: 3}[width], size.bit_length() - 1
    swizzle = lw.Swizzle(bits, 4 - shift, 3) if bits else None
    return Operand(tile_to_shape(block, (rows, k)), swizzle)


class Case(NamedTuple):
    """A random product: the atom, its tile, and the copy that brings the sums out."""

    name: str
    dtype: lw.Format
    tile: tuple[int, int, int]
    a: Operand
    b: Operand
    load: str


def random_case(seed: int) -> Case:
    rng = random.Random(seed)
    kind = rng.choice(list(KINDS))
    cpp, dtype = rng.choice(KINDS[kind])
    size, k = dtype.bits // 8, 256 // dtype.bits
    m, times = rng.choice((64, 128)), (rng.choice((1, 2)), rng.choice((1, 2)), rng.choice((1, 2, 4)))
    n = rng.choice([16 * i for i in range(1, 9)])
    tile = m * times[0], n * times[1], k * times[2]
    operands, majors = [], []
    for rows in (m, n):
        major = rng.choice(("K", "MN") if size < 4 or rows % 32 == 0 else ("K",))
        extent = (tile[2] if major == "K" else rows) * size
        fitting = [width for width in WIDTHS.values() if extent % width == 0]
        fitting = [128] if major == "MN" and size == 4 else fitting
        operands.append((major, rng.choice(fitting)))
        majors.append(f"UMMA::Major::{major}")
    sums = "int32_t" if kind == "S8" else rng.choice(("float", "half_t")) if kind == "F8F6F4" else "float"
    name = f"SM100_MMA_{kind}_SS<{cpp}, {cpp}, {sums}, {m}, {n}, {', '.join(majors)}>"
    a, b = (
        in_shared_memory(rows, tile[2], major, width, size)
        for rows, (major, width) in zip(tile[:2], operands, strict=True)
    )
    packs = sums == "half_t"
    loads = ["16dp64b", "16dp128b", "16dp256b", "16dp32b"] + ["32dp32b"] * (m == 128)
    load = rng.choice(loads)
    wide = {"16dp64b": 2, "16dp128b": 4, "16dp256b": 8, "16dp32b": 2, "32dp32b": 1}[load] * (1 + packs)
    most = n // wide & -(n // wide)  # the power of two that divides the columns
    num = max(1, rng.choice([1 << i for i in range(8) if 1 << i <= min(most, 16)] or [1]))
    return Case(name, dtype, tile, a, b, f"SM100_TMEM_LOAD_{load}{num}x{'_16b' * packs}")


def kernel_of(case: Case) -> tuple[lw.Kernel, Any]:
    """A kernel of one block that multiplies one tile, and its tiled MMA."""
    mma = lw.make_tiled_mma(case.name)
    m, n, k = case.tile
    sums = mma.ValTypeC.format
    assert sums is not None
    element: Any = case.dtype

    @lw.kernel
    def product(A: lw.Ptr[element], B: lw.Ptr[element], C: lw.Ptr[sums]) -> None:
        sA = lw.shared(element, case.a.layout, swizzle=case.a.swizzle, align=1024)
        sB = lw.shared(element, case.b.layout, swizzle=case.b.swizzle, align=1024)
        thread, done = lw.thread_idx.x, lw.mbarrier()[0]
        for i in lw.range(thread, m * k, 128):
            sA[i // k, i % k] = A[i]
        for i in lw.range(thread, n * k, 128):
            sB[i // k, i % k] = B[i]
        if thread == 0:
            done.init(1)
            lw.fence_mbarrier_init()
        cta = mma.get_slice(0)
        fragment = cta.partition_fragment_C((m, n))
        memory = lw.tmem.alloc(512)
        acc = memory.tensor(fragment)
        lw.fence_proxy_async()
        lw.syncthreads()
        if thread == 0:
            a, b = cta.partition_fragment_A(sA), cta.partition_fragment_B(sB)
            lw.gemm(mma.with_(lw.atoms.ScaleOut.Zero), acc, a, b)
            lw.tcgen05.commit(done)
        done.wait(0)
        lw.tcgen05.fence_after()
        gC = lw.make_tensor(C, lw.Layout((m, n), (n, 1)))
        part = cta.partition_C(gC)
        for row in range(acc.layout[1].size()):
            for column in range(acc.layout[2].size()):
                here = (None, None), row, column
                copy = lw.make_tmem_copy(case.load, acc[here])
                mine = copy.get_slice(thread)
                target = mine.partition_D(part[here])
                values = lw.make_fragment_like(target)
                lw.copy(copy, mine.partition_S(acc[here]), values)
                lw.copy(values, target)
        memory.free()

    return product, mma


def numbers(rng: np.random.Generator, shape: tuple[int, int], dtype: lw.Format) -> Any:
    if dtype.kind == "int":
        return rng.integers(-128, 128, shape).astype(np.int8)
    return dtype.array(rng.normal(size=shape))


@sampled(8)
@pytest.mark.parametrize("seed", range(40))
def test_random_tiles_have_the_bits_of_the_instruction_repeated(seed: int) -> None:
    case = random_case(seed)
    kernel, mma = kernel_of(case)
    rng = np.random.default_rng(seed)
    m, n, k = case.tile
    a, b = numbers(rng, (m, k), case.dtype), numbers(rng, (n, k), case.dtype)
    c = np.zeros((m, n), mma.ValTypeC.dtype)
    kernel[1, 128](a, b, c, arch=ARCH)
    np.testing.assert_array_equal(c, mma.instruction.gemm(a, b.T, arch=ARCH), err_msg=str(case))
