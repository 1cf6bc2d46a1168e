"""WMMA in kernels: every row of the programming guide's tables, against the catalogue's arithmetic."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import sampled
from lanewise import wmma

ORDERS = {"row": wmma.row_major, "col": wmma.col_major}
MEMORY = {"row": wmma.mem_row_major, "col": wmma.mem_col_major}
#: The guide's tables: shapes, matrices, accumulators, and the arch that the test computes like.
WIDE = ((16, 16, 16), (32, 8, 16), (8, 32, 16))
TABLE = [
    *((shape, lw.f16, acc) for shape in WIDE for acc in (lw.f32, lw.f16)),
    *((shape, lw.bf16, lw.f32) for shape in WIDE),
    *((shape, dtype, lw.i32) for shape in WIDE for dtype in (lw.s8, lw.u8)),
    ((16, 16, 8), lw.tf32, lw.f32),
    ((8, 8, 4), lw.f64, lw.f64),
]
SMALL = [((8, 8, 32), lw.u4), ((8, 8, 32), lw.s4)]


def stored(dtype: lw.Format) -> lw.Format:
    """What elements of a format are in memory."""
    return lw.f32 if dtype is lw.tf32 else dtype


@cache
def product(
    shape: tuple[int, int, int],
    dtype: lw.Format,
    acc: lw.Format,
    a_order: str,
    b_order: str,
    order: str,
    satf: bool,
) -> lw.Kernel:
    m, n, k = shape
    memory = stored(dtype)
    lda, ldb, ldc = leading((m, k), a_order), leading((k, n), b_order), leading((m, n), order)

    @lw.kernel
    def multiply(A: lw.Ptr[memory, 32], B: lw.Ptr[memory, 32], C: lw.Ptr[acc, 32], D: lw.Ptr[acc, 32]):
        a = wmma.fragment(wmma.matrix_a, m, n, k, dtype, ORDERS[a_order])
        b = wmma.fragment(wmma.matrix_b, m, n, k, dtype, ORDERS[b_order])
        c = wmma.fragment(wmma.accumulator, m, n, k, acc)
        wmma.load_matrix_sync(a, A, lda)
        wmma.load_matrix_sync(b, B, ldb)
        wmma.load_matrix_sync(c, C, ldc, MEMORY[order])
        if dtype is lw.tf32:
            for held in (a, b):
                for i in range(held.num_elements):
                    held.x[i] = wmma.float_to_tf32(held.x[i])
        wmma.mma_sync(c, a, b, c, satf=satf)
        wmma.store_matrix_sync(D, c, ldc, MEMORY[order])

    return multiply


def leading(shape: tuple[int, int], order: str) -> int:
    """Elements from one row or column to the next: 16 at least, as bytes want it."""
    return max(16, shape[1] if order == "row" else shape[0])


def as_stored(array: Any, order: str) -> Any:
    laid = array if order == "row" else array.T
    padded = np.zeros((laid.shape[0], leading(array.shape, order)), array.dtype)
    padded[:, : laid.shape[1]] = laid
    return padded


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: lw.Format) -> Any:
    if dtype.kind == "int":
        low, high = (-128, 128) if dtype.signed else (0, 256)
        if dtype is lw.i32:
            low, high = -(2**30), 2**30
        return rng.integers(low, high, shape).astype(dtype.dtype)
    return (rng.normal(size=shape) * 10).astype(stored(dtype).dtype)


def case_name(value: Any) -> str:
    if isinstance(value, lw.Format):
        return value.name
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


@sampled(6)
@pytest.mark.slow
@pytest.mark.parametrize(("shape", "dtype", "acc"), TABLE, ids=case_name)
def test_every_row_of_the_tables_computes_what_the_catalogue_does(
    shape: tuple[int, int, int], dtype: lw.Format, acc: lw.Format
) -> None:
    m, n, k = shape
    rng = np.random.default_rng(m * n + dtype.bits)
    a, b = numbers(rng, (m, k), dtype), numbers(rng, (k, n), dtype)
    c = numbers(rng, (m, n), acc)
    orders = [(x, y, z) for x in ("row", "col") for y in ("row", "col") for z in ("row", "col")]
    x, y, z = orders[(sum(shape) + dtype.bits) * 3 % 8]  # another one for every row
    d = np.zeros_like(as_stored(c, z))
    product(shape, dtype, acc, x, y, z, False)[1, 32](
        as_stored(a, x), as_stored(b, y), as_stored(c, z), d, arch="sm_90"
    )
    types = acc.name + (f".{dtype.name}.{dtype.name}." if dtype is not lw.f16 else ".") + acc.name
    inst = lw.instruction(f"wmma.mma.sync.aligned.{x}.{y}.m{m}n{n}k{k}.{types}")
    wanted = inst(rounded(a, dtype), rounded(b, dtype), c, arch="sm_90")
    found = d[:, :n] if z == "row" else d[:, :m].T
    assert np.array_equal(
        np.ascontiguousarray(found).view(np.uint8), np.ascontiguousarray(wanted).view(np.uint8)
    )


def rounded(array: Any, dtype: lw.Format) -> Any:
    """tf32 operands: to nearest, ties away, in 10 bits of fraction."""
    if dtype is not lw.tf32:
        return array
    bits = array.view(np.uint32) + np.uint32(0x1000)
    return (bits & np.uint32(0xFFFFE000)).view(np.float32)


@pytest.mark.parametrize(("shape", "dtype"), SMALL, ids=case_name)
def test_four_bit_products(shape: tuple[int, int, int], dtype: lw.Format) -> None:
    m, n, k = shape

    @lw.kernel
    def multiply(A: lw.Ptr[lw.u32, 32], B: lw.Ptr[lw.u32, 32], D: lw.Ptr[lw.i32, 32]):
        a = wmma.fragment(wmma.matrix_a, m, n, k, dtype, wmma.row_major)
        b = wmma.fragment(wmma.matrix_b, m, n, k, dtype, wmma.col_major)
        d = wmma.fragment(wmma.accumulator, m, n, k, lw.i32)
        assert (a.num_elements, a.num_storage_elements) == (8, 1)
        assert a.storage_element_type is (lw.u32 if dtype is lw.u4 else lw.i32)
        wmma.load_matrix_sync(a, A, k)
        wmma.load_matrix_sync(b, B, k)
        wmma.fill_fragment(d, 0)
        wmma.mma_sync(d, a, b, d, satf=True)
        wmma.store_matrix_sync(D, d, n, wmma.mem_row_major)

    rng = np.random.default_rng(4)
    low = -8 if dtype.signed else 0
    a, b = rng.integers(low, low + 16, (m, k)), rng.integers(low, low + 16, (k, n))
    d = np.zeros((m, n), np.int32)
    multiply[1, 32](nibbles(a), nibbles(b.T), d, arch="sm_80")
    assert np.array_equal(d, a @ b)


def nibbles(array: Any) -> Any:
    """Rows of four-bit numbers, eight in a word, the first lowest."""
    parts = (array & 15).astype(np.uint32).reshape(array.shape[0], -1, 8)
    return np.ascontiguousarray((parts << (4 * np.arange(8, dtype=np.uint32))).sum(-1, dtype=np.uint32))


@pytest.mark.parametrize("bit_op", ["xor", "and"])
def test_products_of_bits(bit_op: str) -> None:
    operation = wmma.bmmaBitOpXOR if bit_op == "xor" else wmma.bmmaBitOpAND

    @lw.kernel
    def multiply(A: lw.Ptr[lw.u32, 32], B: lw.Ptr[lw.u32, 32], D: lw.Ptr[lw.i32, 32]):
        a = wmma.fragment(wmma.matrix_a, 8, 8, 128, wmma.precision.b1, wmma.row_major)
        b = wmma.fragment(wmma.matrix_b, 8, 8, 128, wmma.precision.b1, wmma.col_major)
        d = wmma.fragment(wmma.accumulator, 8, 8, 128, lw.i32)
        assert (a.num_elements, a.num_storage_elements, a.storage_element_type) == (32, 1, lw.u32)
        wmma.load_matrix_sync(a, A, 128)
        wmma.load_matrix_sync(b, B, 128)
        wmma.fill_fragment(d, 5)
        wmma.bmma_sync(d, a, b, d, operation, wmma.bmmaAccumulateOpPOPC)
        wmma.store_matrix_sync(D, d, 8, wmma.mem_row_major)

    rng = np.random.default_rng(8)
    a, b = (rng.integers(0, 2**32, (8, 4), np.uint32) for _ in range(2))
    d = np.zeros((8, 8), np.int32)
    multiply[1, 32](a, b, d, arch="sm_80")
    both = a[:, None] ^ b[None] if bit_op == "xor" else a[:, None] & b[None]
    assert np.array_equal(d, np.bitwise_count(both).sum(-1).astype(np.int32) + 5)


@pytest.mark.parametrize("acc", [lw.f32, lw.f16], ids=case_name)
def test_satf_of_floats_is_the_guides_clamp(acc: lw.Format) -> None:
    a = np.zeros((16, 16), np.float16)
    a[:4, 0] = np.inf, -np.inf, np.nan, 1000
    b = np.zeros((16, 16), np.float16)
    b[0] = 1
    b[0, 1] = 1000
    c = np.zeros((16, 16), acc.dtype)
    d = np.ones_like(c)
    product((16, 16, 16), lw.f16, acc, "row", "row", "row", True)[1, 32](a, b, c, d, arch="sm_90")
    inst = lw.instruction(f"wmma.mma.sync.aligned.row.row.m16n16k16.{acc.name}.{acc.name}")
    assert np.array_equal(d, inst(a, b, c, arch="sm_90", satfinite=True))
    largest = np.finfo(acc.dtype).max
    assert (d[0] == largest).all() and (d[1] == -largest).all() and (d[2] == 0).all()


def test_fragments_in_a_loop_over_k() -> None:
    @lw.kernel
    def gemm(A: lw.Ptr[lw.f16, 32], B: lw.Ptr[lw.f16, 32], C: lw.Ptr[lw.f32, 32], N: lw.i32, K: lw.i32):
        a = wmma.fragment(wmma.matrix_a, 16, 16, 16, lw.f16, wmma.row_major)
        b = wmma.fragment(wmma.matrix_b, 16, 16, 16, lw.f16, wmma.row_major)
        acc = wmma.fragment(wmma.accumulator, 16, 16, 16, lw.f32)
        row, col = lw.block_idx.y * 16, lw.block_idx.x * 16
        wmma.fill_fragment(acc, 0.0)
        for k in lw.range(0, K, 16):
            wmma.load_matrix_sync(a, A + row * K + k, K)
            wmma.load_matrix_sync(b, B + k * N + col, N)
            wmma.mma_sync(acc, a, b, acc)
        for i in range(acc.num_elements):
            acc.x[i] = acc.x[i] * 2.0
        wmma.store_matrix_sync(C + row * N + col, acc, N, wmma.mem_row_major)

    rng = np.random.default_rng(2)
    a, b = (rng.normal(size=size).astype(np.float16) for size in ((32, 48), (48, 64)))
    c = np.zeros((32, 64), np.float32)
    gemm[(4, 2), 32](a, b, c, 64, 48, arch="sm_90")
    inst = lw.instruction("wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32")
    assert np.array_equal(c, inst.gemm(a, b, arch="sm_90") * 2)
    assert lw.check(gemm[(4, 2), 32], a, b, c, 64, 48, arch="sm_90").ok


# mistakes -------------------------------------------------------------------------------------------------

KEPT: list[Any] = []


def bare(acc: bool = False) -> Any:
    use = wmma.accumulator if acc else wmma.matrix_a
    return wmma.fragment(use, 16, 16, 16, lw.f32 if acc else lw.f16, None if acc else wmma.row_major)


def filled() -> Any:
    held = bare(acc=True)
    wmma.fill_fragment(held, 0.0)
    return held


def keep_and_use(A: Any) -> None:
    if KEPT:
        wmma.store_matrix_sync(A.to(lw.f32), KEPT.pop(), 16, wmma.mem_row_major)
    else:
        KEPT.append(filled())


def shifted(A: Any) -> None:
    array = lw.shared(lw.f16, (16, 16), align=32)
    wmma.load_matrix_sync(bare(), array.ptr(0, 8), 16)


MISTAKES = {
    "no such shape": (
        lambda A: wmma.fragment(wmma.matrix_a, 16, 16, 8, lw.f16, wmma.row_major), "16×16×8 f16"),
    "a layout for an accumulator": (
        lambda A: wmma.fragment(wmma.accumulator, 16, 16, 16, lw.f32, wmma.row_major), "has no layout"),
    "no layout for a matrix": (lambda A: wmma.fragment(wmma.matrix_a, 16, 16, 16, lw.f16), "row_major or"),
    "column-major u4": (lambda A: wmma.fragment(wmma.matrix_a, 8, 8, 32, lw.u4, wmma.col_major), "col"),
    "ldm of 12": (lambda A: wmma.load_matrix_sync(bare(), A, 12), "multiple of 8 for f16"),
    "a misaligned pointer": (shifted, "aligned to 32 bytes"),
    "a pointer of another format": (
        lambda A: wmma.load_matrix_sync(bare(), A.to(lw.f32), 16), "in memory as f16"),
    "read before load": (lambda A: bare().x[0], "holds nothing yet"),
    "no layout for a store": (
        lambda A: wmma.store_matrix_sync(A.to(lw.f32), filled(), 16, None), "mem_row_major"),
    "store of a matrix": (
        lambda A: wmma.store_matrix_sync(A, bare(), 16, wmma.mem_row_major), "stores accumulators"),
    "operands in the wrong order": (lambda A: wmma.mma_sync(bare(), filled(), bare(), bare()), "belongs"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told(name: str) -> None:
    act, says = MISTAKES[name]

    @lw.kernel
    def wrong(A: lw.Ptr[lw.f16, 32]):
        act(A)

    with pytest.raises(lw.KernelError, match=says):
        wrong.ptx("sm_90")


def test_a_fragment_does_not_pass_between_archs() -> None:
    @lw.kernel
    def leaking(A: lw.Ptr[lw.f16, 32]):
        keep_and_use(A)

    KEPT.clear()
    leaking.ptx("sm_70")
    with pytest.raises(lw.KernelError, match="sm_70 and sm_75 differ"):
        leaking.ptx("sm_75")


def test_shared_memory_is_aligned_for_wmma() -> None:
    def loading(column: int):
        @lw.kernel
        def k(out: lw.Ptr[lw.f32, 32]):
            first = lw.shared(lw.u8, 16)
            tile = lw.shared(lw.f16, (16, 32))
            first[0] = 0
            a = wmma.fragment(wmma.matrix_a, 16, 16, 16, lw.f16, wmma.row_major)
            wmma.load_matrix_sync(a, tile.ptr(0, column), 32)
            out[0] = a.x[0].to(lw.f32)

        return k

    assert loading(16).ptx("sm_80").count(".shared .align 32") == 2
    with pytest.raises(lw.KernelError, match="lies 16 bytes after such a place"):
        loading(8).ptx("sm_80")
