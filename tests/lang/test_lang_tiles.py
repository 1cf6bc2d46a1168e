"""Tiles in kernels: every thread's part is what `atoms/` says; copies and products have the bits of NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import sampled
from lanewise.layout import Layout, Swizzle, size
from ptxas import assemble, find_ptxas

RNG = np.random.default_rng(8)
MMA = {
    "f16": ("SM80_16x8x16_F32F16F16F32_TN", (2, 2, 1), (32, 32, 16)),
    "f16-f16": ("SM80_16x8x16_F16F16F16F16_TN", (1, 2, 1), None),
    "bf16": ("SM80_16x8x16_F32BF16BF16F32_TN", (2, 1, 1), (64, 8, 16)),
    "tf32": ("SM80_16x8x8_F32TF32TF32F32_TN", (2, 2, 1), None),
    "s8": ("SM80_16x8x32_S32S8S8S32_TN", (1, 2, 1), (16, 32, 32)),
    "f64": ("SM80_8x8x4_F64F64F64F64_TN", (2, 2, 1), None),
    "fp8": ("SM89_16x8x32_F32E4M3E5M2F32_TN", (2, 1, 1), None),
    "volta": ("SM70_8x8x4_F32F16F16F32_TN", (2, 2, 1), None),
    "turing": ("SM75_16x8x8_F32F16F16F32_TN", (1, 1, 1), None),
}


def tiled_mma(name: str) -> lw.TiledMMA:
    return lw.make_tiled_mma(*MMA[name])


def offsets(partition: Any, count: int) -> np.ndarray:
    """The indices that a plain partition of indices has, for every thread."""
    return np.array([[int(each) for each in partition(thread)] for thread in range(count)])


def traced_offsets(
    partition: Any, layout: Any, swizzle: Swizzle | None, count: int, values: int
) -> np.ndarray:
    """The same from inside a kernel, out of memory that holds its own indices."""

    @lw.kernel
    def seen(memory: lw.Ptr[lw.i32], out: lw.Ptr[lw.i32]):
        tensor = lw.tensor(memory, layout, swizzle=swizzle)
        part = partition(lw.thread_idx.x, tensor)
        for number in range(size(part.layout)):
            out[lw.thread_idx.x * values + number] = part.addresses.pointer_at(part.offset(number)).load()

    out = np.zeros((count, values), np.int32)
    seen[1, count](np.arange(1 << 14, dtype=np.int32), out)
    return out


SHAPES = {"A": (0, 2), "B": (1, 2), "C": (0, 1)}


@sampled(6)
@pytest.mark.parametrize("operand", "ABC")
@pytest.mark.parametrize("name", ["f16", "f64", "volta", "s8"])
def test_partitions_are_those_of_the_atoms(name: str, operand: str) -> None:
    mma = tiled_mma(name)
    tile = [2 * mma.tile_size_mnk[mode] for mode in SHAPES[operand]]
    layout = Layout((tile[0], tile[1]), (tile[1], 1))
    swizzle = Swizzle(2, 1, 4)
    count = mma.size()

    def plain(thread: int) -> Any:
        part = getattr(mma.get_slice(thread), f"partition_{operand}")(layout)
        return (swizzle(each) for each in part)

    def traced(thread: Any, tensor: Any) -> Any:
        return getattr(mma.get_slice(thread), f"partition_{operand}")(tensor)

    wanted = offsets(plain, count)
    assert np.array_equal(traced_offsets(traced, layout, swizzle, count, wanted.shape[1]), wanted)


COPIES = {
    "rows": lw.make_tiled_copy("UniversalCopy<uint128_t>", Layout((8, 4), (4, 1)), Layout((1, 4)), lw.f32),
    "columns": lw.make_tiled_copy("UniversalCopy<uint64_t>", Layout((8, 8)), Layout((2, 1)), lw.f32),
    "ldmatrix": lw.make_tiled_copy_A("SM75_U32x4_LDSM_N", tiled_mma("f16")),
    "trans": lw.make_tiled_copy_B("SM75_U16x8_LDSM_T", tiled_mma("f16")),
    "x2": lw.make_tiled_copy_B("SM75_U32x2_LDSM_N", tiled_mma("f16-f16")),
}  # fmt: skip


@sampled(12)
@pytest.mark.parametrize(("side", "pitch"), [("S", 32), ("D", 32), ("S", 36)])
@pytest.mark.parametrize("name", sorted(COPIES))
def test_copies_are_parted_as_the_atoms_say(name: str, side: str, pitch: int) -> None:
    """With a pitch of 36, steps carry into the bits that the swizzle looks at."""
    copy = COPIES[name]
    layout = Layout((64, 32), (pitch, 1)) if name != "columns" else Layout((64, 32), (1, 2 * pitch))
    swizzle = Swizzle(3, 3, 3)
    count = copy.size()

    def plain(thread: int) -> Any:
        part = getattr(copy.get_slice(thread), f"partition_{side}")(layout)
        return (swizzle(each) for each in part)

    def traced(thread: Any, tensor: Any) -> Any:
        return getattr(copy.get_slice(thread), f"partition_{side}")(tensor)

    wanted = offsets(plain, count)
    assert np.array_equal(traced_offsets(traced, layout, swizzle, count, wanted.shape[1]), wanted)


@pytest.mark.parametrize("stride", [(64, 1, 4096), (1, 68, 100)], ids=["periods", "carries"])
def test_tiles_and_slices_at_traced_coordinates(stride: tuple[int, int, int]) -> None:
    layout, swizzle = Layout((64, 64, 3), stride), Swizzle(3, 2, 4)

    @lw.kernel
    def seen(memory: lw.Ptr[lw.i32], out: lw.Ptr[lw.i32], m: lw.i32, stage: lw.i32):
        tensor = lw.tensor(memory, layout, swizzle=swizzle)
        tile = lw.local_tile(tensor, (16, 8), (m, lw.thread_idx.x))[None, None, stage]
        strided = lw.local_tile(lw.make_tensor(memory, (64, 64, 3), stride), (16, 8), (m, lw.thread_idx.x))
        for number in range(128):
            where = number % 16, number // 16
            out[lw.thread_idx.x * 256 + number] = tile[where]
            out[lw.thread_idx.x * 256 + 128 + number] = strided[(*where, stage)]

    out = np.zeros((8, 2, 128), np.int32)
    seen[1, 8](np.arange(1 << 14, dtype=np.int32), out, 3, 2)
    plain = np.array([layout(48 + i % 16, 8 * t + i // 16, 2) for t in range(8) for i in range(128)])
    plain = plain.reshape(8, 128)
    assert np.array_equal(out[:, 0], swizzle(plain))
    assert np.array_equal(out[:, 1], plain)


def numbers(fmt: lw.Format, shape: tuple[int, int]) -> np.ndarray:
    if fmt.kind == "int":
        return fmt.array(RNG.integers(-8 * fmt.signed, 8, shape))
    return fmt.array(RNG.normal(size=shape))


@sampled(16)
@pytest.mark.parametrize("name", sorted(MMA))
def test_gemm_has_the_bits_of_the_instruction_repeated(name: str) -> None:
    """One block, straight from global memory to fragments, for any M, N and K."""
    mma = tiled_mma(name)
    inst = mma.instruction
    fa, fb, fc = inst.a.format, inst.b.format, inst.c.format
    in_memory = {lw.tf32: lw.f32}
    ta, tb = in_memory.get(fa, fa), in_memory.get(fb, fb)
    tm, tn, tk = (many * each for many, each in zip((2, 2, 1), mma.tile_size_mnk, strict=True))
    m, n, k = tm - 3, tn - 1, 2 * tk + 1

    @lw.kernel
    def product(A: lw.Ptr[ta], B: lw.Ptr[tb], C: lw.Ptr[fc], M: lw.i32, N: lw.i32, K: lw.i32):
        thread = mma.get_slice(lw.thread_idx.x)
        gA = lw.local_tile(lw.make_tensor(A, (M, K), (K, 1)), (tm, tk), (0, None))
        gB = lw.local_tile(lw.make_tensor(B, (N, K), (1, N)), (tn, tk), (0, None))
        gC = lw.local_tile(lw.make_tensor(C, (M, N), (N, 1)), (tm, tn), (lw.block_idx.x, 0))
        acc = thread.partition_fragment_C(gC)
        a = thread.partition_fragment_A(gA[None, None, 0])
        b = thread.partition_fragment_B(gB[None, None, 0])
        part_a, part_b = thread.partition_A(gA), thread.partition_B(gB)
        for step in lw.range(lw.cdiv(K, tk)):
            lw.copy(part_a[None, None, None, step], a, pred=lw.inside, fill=0)
            lw.copy(part_b[None, None, None, step], b, pred=lambda n, k: (n < N) & (k < K), fill=0)
            lw.gemm(mma, acc, a, b)
        lw.copy(acc, thread.partition_C(gC), pred=lw.inside)

    a, b = numbers(fa, (m, k)), numbers(fb, (k, n))
    c = np.full((m, n), 9, fc.dtype)
    raw = [each.view(kind.dtype) if kind is lw.f32 else each for each, kind in ((a, ta), (b, tb))]
    arch = {"fp8": "sm_89", "volta": "sm_70"}.get(name, "sm_80")
    product[1, mma.size()](*raw, c, m, n, k, arch=arch)
    deep = -(-k // tk) * tk  # the kernel multiplies zeros beyond K
    a, b = np.pad(a, ((0, 0), (0, deep - k))), np.pad(b, ((0, deep - k), (0, 0)))
    wanted = inst.gemm(np.pad(a, ((0, tm - m), (0, 0))), np.pad(b, ((0, 0), (0, tn - n))), arch=arch)
    assert np.array_equal(c, wanted[:m, :n].astype(fc.dtype))
    if find_ptxas():
        assert not assemble(product.ptx(arch), arch)


@pytest.mark.parametrize("layout", ["k", "mn"])
def test_shared_memory_fragments_and_back(layout: str) -> None:
    """cp.async, ldmatrix of both kinds behind a swizzle, stmatrix, wide stores: one tile, several stages."""
    mma = tiled_mma("f16")
    fetch = lw.make_tiled_copy(
        "SM80_CP_ASYNC_CACHEALWAYS<uint128_t>", Layout((32, 4), (4, 1)), Layout((1, 8)), lw.f16
    )
    across = lw.make_tiled_copy(
        "SM80_CP_ASYNC_CACHEGLOBAL<uint128_t>", Layout((8, 16)), Layout((8, 1)), lw.f16
    )
    load_a = lw.make_tiled_copy_A("SM75_U32x4_LDSM_N", mma)
    load_b = lw.make_tiled_copy_B("SM75_U32x4_LDSM_N" if layout == "k" else "SM75_U16x8_LDSM_T", mma)
    store = lw.make_tiled_copy_C(lw.atom("SM90_U32x4_STSM_N", lw.f16), mma)
    rows = lw.make_tiled_copy("UniversalCopy<uint128_t>", Layout((16, 8), (8, 1)), Layout((1, 8)), lw.f16)
    b_fetch, b_layout, b_swizzle = (
        (fetch, Layout((64, 32, 2), (32, 1, 2048)), Swizzle(2, 3, 3))
        if layout == "k"
        else (across, Layout((64, 32, 2), (1, 64, 2048)), Swizzle(3, 3, 3))
    )

    @lw.kernel
    def run(A: lw.Ptr[lw.f16, 16], B: lw.Ptr[lw.f16, 16], C: lw.Ptr[lw.f16, 16], steps: lw.i32):
        t = lw.thread_idx.x
        stride_b = (64, 1) if layout == "k" else (1, 64)
        gA = lw.local_tile(lw.make_tensor(A, (64, 64), (64, 1)), (64, 32), (0, None))
        gB = lw.local_tile(lw.make_tensor(B, (64, 64), stride_b), (64, 32), (0, None))
        gC = lw.make_tensor(C, Layout((64, 64), (64, 1)))
        sA = lw.shared(lw.f16, Layout((64, 32, 2), (32, 1, 2048)), swizzle=Swizzle(2, 3, 3))
        sB = lw.shared(lw.f16, b_layout, swizzle=b_swizzle)
        sC = lw.shared(lw.f16, Layout((64, 64), (64, 1)), swizzle=Swizzle(3, 3, 3))
        fa, fb, la, lb, thread = [x.get_slice(t) for x in (fetch, b_fetch, load_a, load_b, mma)]
        from_a, to_a, from_b, to_b = (
            fa.partition_S(gA), fa.partition_D(sA), fb.partition_S(gB), fb.partition_D(sB),
        )  # fmt: skip
        a = thread.partition_fragment_A(sA[:, :, 0])
        b = thread.partition_fragment_B(sB[:, :, 0])
        acc = thread.partition_fragment_C((64, 64))
        for stage in range(2):
            lw.copy(fetch, from_a[:, :, :, stage], to_a[:, :, :, stage])
            lw.copy(b_fetch, from_b[:, :, :, stage], to_b[:, :, :, stage])
        lw.cp_async_wait()
        lw.syncthreads()
        at_a, at_b, into_a, into_b = (
            la.partition_S(sA), lb.partition_S(sB), la.retile_D(a), lb.retile_D(b)
        )  # fmt: skip
        for stage in lw.range(steps):
            lw.copy(load_a, at_a[None, None, None, stage], into_a)
            lw.copy(load_b, at_b[None, None, None, stage], into_b)
            lw.gemm(mma, acc, a, b)
        out, back = store.get_slice(t), rows.get_slice(t)
        lw.copy(store, out.retile_S(acc.to(lw.f16)), out.partition_D(sC))
        lw.syncthreads()
        lw.copy(rows, back.partition_S(sC), back.partition_D(gC))

    a, b = (RNG.normal(size=(64, 64)).astype(np.float16) for _ in range(2))
    c = np.zeros((64, 64), np.float16)
    given = np.ascontiguousarray(b.T) if layout == "k" else b
    report = lw.check(run[1, 128], a, given, c, 2, arch="sm_90")
    wanted = mma.instruction.gemm(a, b, arch="sm_90").astype(np.float16)
    assert report.ok, str(report)
    assert np.array_equal(c, wanted)
    assert report.counters["derived__memory_l1_wavefronts_shared_excessive"] == 0
    text = run.ptx("sm_90")
    loop = text[text.index("$loop:") : text.index("$endloop:")]
    assert " xor" not in loop and " and" not in loop  # addresses are at hand before the loop
    if find_ptxas():
        assert not assemble(text, "sm_90")


def test_coordinates_and_threads_laid_over_a_tensor() -> None:
    """A transpose by local_partition, and elements of C told by their coordinates."""
    mma, threads = tiled_mma("f16"), Layout((8, 4), (4, 1))

    @lw.kernel
    def transpose(A: lw.Ptr[lw.f32], B: lw.Ptr[lw.f32], M: lw.i32, N: lw.i32):
        tiles = [
            lw.local_tile(lw.make_tensor(A, (M, N), (N, 1)), (32, 32), (lw.block_idx.y, lw.block_idx.x)),
            lw.local_tile(lw.make_tensor(B, (M, N), (1, M)), (32, 32), (lw.block_idx.y, lw.block_idx.x)),
        ]
        source, target = [lw.local_partition(tile, threads, lw.thread_idx.x) for tile in tiles]
        held = lw.make_fragment_like(source)
        lw.copy(source, held, pred=lw.inside, fill=0)
        lw.copy(held.map(lambda x: x + x), target, pred=lw.inside)

    a, b = RNG.normal(size=(40, 70)).astype(np.float32), np.zeros((70, 40), np.float32)
    transpose[(3, 2), 32](a, b, 40, 70)
    assert np.array_equal(b, 2 * a.T)

    @lw.kernel
    def told(out: lw.Ptr[lw.i32], N: lw.i32):
        whole = lw.local_tile(lw.make_identity_tensor((N, N)), (32, 64), (lw.block_idx.x, 0))
        places = mma.get_slice(lw.thread_idx.x).partition_C(whole)
        for number in range(size(places.layout)):
            row, col = places[number]
            out[row * 64 + col] = lw.thread_idx.x

    out = np.full((64, 64), -1, np.int32)
    told[2, 128](out, 64)
    wanted = np.zeros((64, 64), np.int32)
    for thread in range(128):
        for index in mma.get_slice(thread).partition_C(Layout((64, 64), (64, 1))):
            wanted.flat[index] = thread
    assert np.array_equal(out, wanted)


def test_tiles_and_fragments_change_in_loops_and_branches() -> None:
    @lw.kernel
    def run(A: lw.Ptr[lw.f32], B: lw.Ptr[lw.f32], n: lw.i32):
        whole = lw.make_tensor(A, (n, 4), (4, 1))
        tile = lw.local_tile(whole, (4, 4), (0, 0))
        sums = lw.make_fragment_like(tile)
        held = lw.make_fragment_like(tile)
        half = held[None, 1]
        for i in lw.range(n // 4):
            if i % 2 == 1:
                tile = lw.local_tile(whole, (4, 4), (i, 0))
                lw.clear(half)
            else:
                lw.copy(tile, held)
            sums = sums.map(lambda x: x + x)
            for m in range(16):
                sums[m] = sums[m] + held[m]
        lw.copy(sums, lw.make_tensor(B, (4, 4)))

    a = RNG.integers(0, 8, (20, 4)).astype(np.float32)
    out = np.zeros((4, 4), np.float32)
    run[1, 1](a, out, 20)
    tile = held = a[:4].copy()
    sums = np.zeros((4, 4), np.float32)
    for i in range(5):
        if i % 2 == 1:
            tile, held = a[4 * i : 4 * i + 4], held.copy()
            held[:, 1] = 0
        else:
            held = tile.copy()
        sums = 2 * sums + held
    assert np.array_equal(out, sums)


def test_fragments_of_elements_smaller_than_a_byte() -> None:
    mma = lw.make_tiled_mma("SM80_16x8x64_S32S4S4S32_TN")

    @lw.kernel
    def run(out: lw.Ptr[lw.i32]):
        thread = mma.get_slice(lw.thread_idx.x)
        a, b = thread.partition_fragment_A((16, 64)), thread.partition_fragment_B((8, 64))
        acc = thread.partition_fragment_C((16, 8))
        lw.fill(a, 3)
        lw.fill(b, 5)
        b[0, 0, 0] = -1  # one place of K for each column
        lw.gemm(mma, acc, a, b)
        lw.copy(acc, thread.partition_C(lw.make_tensor(out, (16, 8))))

    out = np.zeros((16, 8), np.int32)
    run[1, 32](out, arch="sm_80")
    # four lanes hold a column of B, each 16 of its 64 places
    assert np.array_equal(out, np.full((16, 8), 3 * (60 * 5 - 4)))


# what goes wrong -------------------------------------------------------------------------------------------


def body(text: str) -> Any:
    """A kernel on A (f16, aligned to 16 bytes), B (f16), C (f32) and an integer K, its body given."""
    names = {"lw": lw, "MMA": tiled_mma("f16"), "Layout": Layout, "Swizzle": Swizzle, "COPIES": COPIES}
    names["ROWS"] = lw.make_tiled_copy(
        "UniversalCopy<uint128_t>", Layout((32, 4), (4, 1)), Layout((1, 8)), lw.f16
    )
    names["ASYNC"] = lw.make_tiled_copy(
        "SM80_CP_ASYNC_CACHEGLOBAL<uint128_t>", Layout((32, 4), (4, 1)), Layout((1, 8)), lw.f16
    )
    lines = "".join(f"    {line}\n" for line in text.strip().splitlines())
    source = (
        "@lw.kernel\ndef wrong(A: lw.Ptr[lw.f16, 16], B: lw.Ptr[lw.f16], C: lw.Ptr[lw.f32], K: lw.i32):\n"
        + lines
    )
    return source, names


MISTAKES = {
    "sizes that do not divide": (
        "MMA.get_slice(lw.thread_idx.x).partition_A(lw.shared(lw.f16, (40, 16)))",
        "not a multiple of it",
    ),
    "a tile that does not divide": (
        "lw.local_tile(lw.shared(lw.f16, (40, 16)), (32, 16), (0, 0))",
        "no multiple of 32",
    ),
    "a traced tile": ("lw.local_tile(lw.make_tensor(A, (K, K), (K, 1)), (K, 16), (0, 0))", "Python integers"),
    "a stride that is not known to be even": (
        """g = lw.local_tile(lw.make_tensor(A, (K, K), (K, 1)), (32, 32), (0, 0))
t = ROWS.get_slice(lw.thread_idx.x)
lw.copy(ROWS, t.partition_S(g), t.partition_D(lw.shared(lw.f16, (32, 32))))""",
        "a vector width of 8 elements (16 bytes) cannot be",
    ),
    "a pointer that is not aligned": (
        """g = lw.make_tensor(B, (32, 32))
t = ASYNC.get_slice(lw.thread_idx.x)
lw.copy(ASYNC, t.partition_S(g), t.partition_D(lw.shared(lw.f16, (32, 32))))""",
        "multiple of 2 bytes only",
    ),
    "elements that are not neighbours": (
        """g = lw.make_tensor(A, Layout((32, 32)))
t = ROWS.get_slice(lw.thread_idx.x)
lw.copy(ROWS, t.partition_S(g), t.partition_D(lw.shared(lw.f16, (32, 32))))""",
        "do not lie side by side",
    ),
    "a swizzle that parts a vector": (
        """g = lw.make_tensor(A, (32, 32))
t = ROWS.get_slice(lw.thread_idx.x)
lw.copy(ROWS, t.partition_S(g), t.partition_D(lw.shared(lw.f16, (32, 32), swizzle=Swizzle(3, 2, 4))))""",
        "keeps only 4 together",
    ),
    "ldmatrix from global memory": (
        """thread, copy = MMA.get_slice(lw.thread_idx.x), COPIES["ldmatrix"]
g = lw.make_tensor(A, (32, 16))
to = copy.get_slice(lw.thread_idx.x)
lw.copy(copy, to.partition_S(g), to.retile_D(thread.partition_fragment_A(g)))""",
        "SM75_U32x4_LDSM_N reads shared memory",
    ),
    "cp.async into registers": (
        """g = ASYNC.get_slice(lw.thread_idx.x).partition_S(lw.make_tensor(A, (32, 32)))
lw.copy(ASYNC, g, lw.make_fragment_like(g))""",
        "writes shared memory",
    ),
    "a predicate for ldmatrix": (
        """copy = COPIES["ldmatrix"].get_slice(lw.thread_idx.x)
a = MMA.get_slice(lw.thread_idx.x).partition_fragment_A(lw.shared(lw.f16, (32, 16)))
s = copy.partition_S(lw.shared(lw.f16, (32, 16)))
lw.copy(COPIES["ldmatrix"], s, copy.retile_D(a), pred=K > 0)""",
        "done by a whole warp",
    ),
    "a vector half outside": (
        """K8 = lw.assume(K, multiple_of=8)
g = lw.local_tile(lw.make_tensor(A, (K, K), (K8, 1)), (32, 32), (0, 0))
t = ASYNC.get_slice(lw.thread_idx.x)
lw.copy(ASYNC, t.partition_S(g), t.partition_D(lw.shared(lw.f16, (32, 32))), pred=lw.inside)""",
        "may lie half outside",
    ),
    "inside of what has no coordinates": (
        """g = lw.make_tensor(A, (4, 4))
lw.copy(g, lw.make_fragment_like(g), pred=lw.inside)""",
        "shape, stride",
    ),
    "a mode of unknown extent": (
        """g = lw.local_tile(lw.make_tensor(A, (K, K), (K, 1)), (16, 16), (0, None))
lw.copy(g, lw.make_fragment_like(g))""",
        "slice the mode",
    ),
    "unlike numbers of elements": (
        "lw.copy(lw.make_tensor(A, (4, 4)), lw.make_fragment_like(lw.make_tensor(A, (4, 2))))",
        "no equal number",
    ),
    "another dtype": (
        "lw.copy(lw.make_tensor(A, (4, 4)), lw.make_fragment_like(lw.make_tensor(A, (4, 4)), lw.bf16))",
        "converts nothing",
    ),
    "values of another size": (
        """g = lw.make_tensor(A, (4, 4))
lw.copy(COPIES['rows'], g, lw.make_fragment_like(g))""",
        "32 bits",
    ),
    "gemm on memory": (
        """thread = MMA.get_slice(lw.thread_idx.x)
s = lw.shared(lw.f16, (32, 16))
acc, b = thread.partition_fragment_C((32, 32)), thread.partition_fragment_B(s)
lw.gemm(MMA, acc, thread.partition_A(s), b)""",
        "a is a fragment in registers",
    ),
    "gemm of shapes that do not fit": (
        """thread = MMA.get_slice(lw.thread_idx.x)
s = lw.shared(lw.f16, (64, 16))
acc, a = thread.partition_fragment_C((32, 32)), thread.partition_fragment_A(s)
lw.gemm(MMA, acc, a, thread.partition_fragment_B(s))""",
        "do not fit",
    ),
    "a traced index of registers": (
        "lw.make_fragment_like(lw.make_tensor(A, (4, 4)))[K, 0]",
        "registers have no addresses",
    ),
    "a coordinate outside": ("lw.make_tensor(A, (4, 4))[:, 4]", "outside 4"),
    "a float as a thread": ("MMA.get_slice(lw.f32(1.0))", "is an i32"),
    "no tensor": ("MMA.get_slice(lw.thread_idx.x).partition_A(K)", "takes a tensor"),
    "a new value for a fragment that has slices": (
        """a = lw.make_fragment_like(lw.make_tensor(A, (4, 4)))
part = a[None, 0]
for i in lw.range(K):
    a = a.map(lambda x: x + x)
lw.copy(a, lw.make_tensor(A, (4, 4)))""",
        "slices or retiled views of it exist",
    ),
    "elements smaller than a byte": (
        """g = lw.tensor(A.to(lw.s4), (4, 4))
lw.copy(g, lw.make_fragment_like(g))""",
        "smaller than a byte",
    ),
    "a complex product": (
        """mma = lw.make_tiled_mma("SM80_8x8x4_C64C64C64C64_TN")
mma.get_slice(lw.thread_idx.x).partition_fragment_C((8, 8))""",
        "SM80_8x8x4_C64",
    ),
    "a sparse product": (
        """name = "SM120::SPARSE::SM120_SPARSE_16x8x64_TN<float_e4m3_t, float_e4m3_t, float>"
mma = lw.make_tiled_mma(name)
mma.get_slice(lw.thread_idx.x).partition_fragment_A((16, 64))""",
        "for mma.sync",
    ),
    "wgmma of another major": (
        """mma = lw.make_tiled_mma("SM90::GMMA::MMA_64x8x16_F32F16F16_SS<GMMA::Major::MN, GMMA::Major::K>")
tile = lw.shared(lw.f16, (64, 16), swizzle=lw.Swizzle(1, 3, 3))
mma.get_slice(lw.thread_idx.x).partition_fragment_A(tile)""",
        "name the atom with GMMA::Major::K for A",
    ),
    "wgmma and registers in place of descriptors": (
        """mma = lw.make_tiled_mma("SM90::GMMA::MMA_64x8x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>")
acc = mma.get_slice(lw.thread_idx.x).partition_fragment_C((64, 8))
lw.gemm(mma, acc, acc, acc)""",
        "takes a tensor of descriptors for A",
    ),
}


@pytest.mark.parametrize("name", sorted(MISTAKES))
def test_a_mistake_is_named_with_its_line(name: str, tmp_path: Any) -> None:
    text, says = MISTAKES[name]
    source, names = body(text)
    file = tmp_path / "wrong.py"
    file.write_text(source)
    exec(compile(source, str(file), "exec"), names)
    with pytest.raises(lw.KernelError) as error:
        names["wrong"].ptx("sm_90")
    assert says in str(error.value)
    assert str(error.value).startswith("wrong.py:")
    assert error.value.line >= 3


def test_blocks_of_other_sizes_are_refused() -> None:
    mma = tiled_mma("f16")

    @lw.kernel
    def run(out: lw.Ptr[lw.f32]):
        acc = mma.get_slice(lw.thread_idx.x).partition_fragment_C((32, 32))
        out[lw.thread_idx.x] = acc[0, 0, 0]

    with pytest.raises(lw.KernelError, match="for 128 threads, and the block has 64") as error:
        run[1, 64](np.zeros(128, np.float32))
    assert error.value.line > 0
    run[1, 128](np.zeros(128, np.float32))
