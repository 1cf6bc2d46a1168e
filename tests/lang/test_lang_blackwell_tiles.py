"""CuTe's tiles for Blackwell in kernels: products of random tiles, copies of tensor memory, mistakes."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import numpy as np
import pytest

import lanewise as lw
from everything import EVERYTHING, sampled
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
    if (m * times[0] + n * times[1]) * k * times[2] * size > 48_000:  # of static shared memory
        times = (times[0], times[1], 1)
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


@sampled(16)
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


def pair_kernel(m: int, n: int, k: int) -> tuple[lw.Kernel, Any]:
    """A kernel of a pair of blocks that multiplies one tile of f16, and its tiled MMA."""
    name = f"SM100_MMA_F16BF16_2x1SM_SS<half_t, half_t, float, {m}, {n}, UMMA::Major::K, UMMA::Major::MN>"
    mma = lw.make_tiled_mma(name)
    a_tile, b_tile = in_shared_memory(m // 2, k, "K", 32, 2), in_shared_memory(n // 2, k, "MN", 16, 2)
    columns = 1 << max(5, (n - 1).bit_length())

    @lw.kernel(cluster=2)
    def product(A: lw.Ptr[lw.f16], B: lw.Ptr[lw.f16], C: lw.Ptr[lw.f32]) -> None:
        sA = lw.shared(lw.f16, a_tile.layout, swizzle=a_tile.swizzle, align=1024)
        sB = lw.shared(lw.f16, b_tile.layout, swizzle=b_tile.swizzle, align=1024)
        thread, rank, done = (
            lw.thread_idx.x,
            lw.cluster.rank(),
            lw.PipelineUmmaAsync(1, consumers=1, cta_group=2),
        )
        for i in lw.range(thread, m // 2 * k, 128):
            sA[i // k, i % k] = A[rank * (m // 2 * k) + i]
        for i in lw.range(thread, n // 2 * k, 128):
            sB[i // k, i % k] = B[rank * (n // 2 * k) + i]
        if thread == 0:
            done.init()
            lw.fence_mbarrier_init()
        cta = mma.get_slice(rank)
        memory = lw.tmem.alloc(columns, cta_group=2)
        acc = memory.tensor(cta.partition_fragment_C((m, n)))
        lw.fence_proxy_async()
        lw.cluster.sync()
        if (thread == 0) & (rank == 0):
            a, b = cta.partition_fragment_A(sA), cta.partition_fragment_B(sB)
            lw.gemm(mma.with_(lw.atoms.ScaleOut.Zero), acc, a, b)
            done.commit(done.producer_state())
        done.wait(done.consumer_state())
        load = lw.make_tmem_copy("SM100_TMEM_LOAD_32dp32b8x", acc)
        mine = load.get_slice(thread)
        target = mine.partition_D(cta.partition_C(lw.make_tensor(C, lw.Layout((m, n), (n, 1)))))
        values = lw.make_fragment_like(target)
        lw.copy(load, mine.partition_S(acc), values)
        lw.copy(values, target)
        memory.free()

    return product, mma


@pytest.mark.parametrize(("m", "n"), [(256, 48), (128, 32)])
def test_a_pair_of_blocks_multiplies_one_tile(m: int, n: int) -> None:
    kernel, mma = pair_kernel(m, n, 32)
    rng = np.random.default_rng(m)
    a, b = (rng.normal(size=(rows, 32)).astype(np.float16) for rows in (m, n))
    c = np.zeros((m, n), np.float32)
    kernel[2, 128](a, b, c, arch=ARCH)
    np.testing.assert_array_equal(c, mma.instruction.gemm(a, b.T, arch=ARCH))
    if m == 128:
        assert lw.check(kernel[2, 128], a, b, c, arch=ARCH).ok
    if find_ptxas():
        assert assemble(kernel.ptx(arch=ARCH), ARCH) == []


STORED = lw.make_tiled_mma(
    "SM100_MMA_F16BF16_TS<half_t, half_t, float, 128, 32, UMMA::Major::K, UMMA::Major::K>"
)


@lw.kernel
def a_in_tensor_memory(A: lw.Ptr[lw.f16], B: lw.Ptr[lw.f16], C: lw.Ptr[lw.f32]) -> None:
    tile = in_shared_memory(32, 32, "K", 64, 2)
    sB = lw.shared(lw.f16, tile.layout, swizzle=tile.swizzle, align=1024)
    thread, done = lw.thread_idx.x, lw.mbarrier()[0]
    for i in lw.range(thread, 32 * 32, 128):
        sB[i // 32, i % 32] = B[i]
    if thread == 0:
        done.init(1)
        lw.fence_mbarrier_init()
    cta, memory = STORED.get_slice(0), lw.tmem.alloc(64)
    acc = memory.tensor(cta.partition_fragment_C((128, 32)))
    a = memory.tensor(cta.partition_fragment_A((128, 32)), column=32)
    store = lw.make_tmem_copy("SM100_TMEM_STORE_32dp32b8x", a)
    mine = store.get_slice(thread)
    values = lw.make_fragment_like(
        mine.partition_S(cta.partition_A(lw.make_tensor(A, lw.Layout((128, 32), (32, 1)))))
    )
    lw.copy(mine.partition_S(cta.partition_A(lw.make_tensor(A, lw.Layout((128, 32), (32, 1))))), values)
    lw.copy(store, values, mine.partition_D(a))
    lw.fence_proxy_async()
    lw.tcgen05.fence_before()
    lw.syncthreads()
    if thread == 0:
        lw.tcgen05.fence_after()
        lw.gemm(STORED.with_(lw.atoms.ScaleOut.Zero), acc, a, cta.partition_fragment_B(sB))
        lw.tcgen05.commit(done)
    done.wait(0)
    lw.tcgen05.fence_after()
    load = lw.make_tmem_copy("SM100_TMEM_LOAD_16dp256b4x", acc)
    mine = load.get_slice(thread)
    target = mine.partition_D(cta.partition_C(lw.make_tensor(C, lw.Layout((128, 32), (32, 1)))))
    sums = lw.make_fragment_like(target)
    lw.copy(load, mine.partition_S(acc), sums)
    lw.copy(sums, target)
    memory.free()


def test_a_is_stored_to_tensor_memory_and_read_from_there() -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.normal(size=(rows, 32)).astype(np.float16) for rows in (128, 32))
    c = np.zeros((128, 32), np.float32)
    a_in_tensor_memory[1, 128](a, b, c, arch=ARCH)
    np.testing.assert_array_equal(c, STORED.instruction.gemm(a, b.T, arch=ARCH))
    assert lw.check(a_in_tensor_memory[1, 128], a, b, c, arch=ARCH).ok


@lw.kernel
def taken_over(done: lw.Ptr[lw.i32]) -> None:
    """One block for each number; those that run take over the others."""
    answers = lw.PipelineCLCFetchAsync(2, consumers=32)
    if lw.thread_idx.x == 0:
        answers.init()
        lw.fence_mbarrier_init()
    lw.syncthreads()
    filling, reading = answers.producer_state(), answers.consumer_state()
    number, goes_on = lw.block_idx.x, lw.block_idx.x >= 0
    while goes_on:
        if lw.thread_idx.x == 0:
            answers.acquire(filling)
            answers.fetch(filling)
            lw.atomic_add(done + number, 1)
        answers.wait(reading)
        goes_on, number, _, _ = answers.read(reading)
        answers.release(reading)
        filling, reading = filling.next(), reading.next()


def test_a_pipeline_of_cluster_launch_control() -> None:
    done = np.zeros(40, np.int32)
    taken_over[40, 32](done, arch=ARCH)
    assert (done == 1).all()
    assert lw.check(taken_over[40, 32], done, arch=ARCH).ok


SCHEDULES = ("in order", "early", "late", 3) if EVERYTHING else ("in order", "late")


def taken_over_by_clusters(mistake: str = "") -> lw.Kernel:
    """A kernel of clusters of two blocks: the first asks, both read the answer, and go on with their tile."""

    @lw.kernel(cluster=2)
    def steals(A: lw.Ptr[lw.i32], out: lw.Ptr[lw.i32]) -> None:
        answers = lw.PipelineCLCFetchAsync(2, consumers=64, blocks=2)
        thread, rank = lw.thread_idx.x, lw.cluster.rank()
        if thread == 0:
            answers.init()
            lw.fence_mbarrier_init()
        lw.cluster.sync()
        filling, reading = answers.producer_state(), answers.consumer_state()
        tile, goes_on = lw.block_idx.x, lw.block_idx.x >= 0
        while goes_on:
            if (thread == 0) & (rank == 0):
                answers.acquire(filling)
                answers.fetch(filling)
            lw.atomic_add(out + tile * 64 + thread, A[tile * 64 + thread])
            if (mistake != "one block waits") | (rank == 0):
                answers.wait(reading)
            if mistake == "released before it is read":
                answers.release(reading)
            goes_on, first, _, _ = answers.read(reading)
            if mistake != "released before it is read":
                answers.release(reading)
            tile = first + rank
            filling, reading = filling.next(), reading.next()
        if mistake != "partner gone":
            lw.cluster.sync()

    return steals


def test_a_pipeline_of_cluster_launch_control_for_clusters() -> None:
    rng = np.random.default_rng(5)
    tiles = rng.integers(-1000, 1000, (24, 64)).astype(np.int32)
    out = np.zeros_like(tiles)
    kernel = taken_over_by_clusters()
    kernel[24, 64](tiles, out, arch=ARCH)
    np.testing.assert_array_equal(out, tiles)
    for schedule in SCHEDULES:
        out[...] = 0
        report = lw.check(kernel[24, 64], tiles, out, arch=ARCH, schedule=schedule)
        assert not report.findings, schedule
        np.testing.assert_array_equal(out, tiles)
    if find_ptxas():
        assert assemble(kernel.ptx(arch=ARCH), ARCH) == []


@sampled(3)
@pytest.mark.parametrize(
    ("mistake", "kinds", "line"),
    [
        ("one block waits", {"asynchronous copy", "uninitialised"}, "answers.read"),
        ("released before it is read", {"asynchronous copy", "race", "proxy"}, "answers."),
        ("partner gone", {"cluster"}, "answers."),
    ],
)
def test_mistakes_with_answers_for_clusters(mistake: str, kinds: set[str], line: str) -> None:
    for schedule in SCHEDULES:
        out = np.zeros((24, 64), np.int32)
        kernel = taken_over_by_clusters(mistake)[24, 64]
        report = lw.check(kernel, out + 1, out, arch=ARCH, schedule=schedule, steps=100_000)
        told = [each for each in report.findings if each.kind in kinds and each.severity == "error"]
        assert told and told[0].thread and told[0].mend, schedule
        assert any(line in str(each) for each in told)


# mistakes -------------------------------------------------------------------------------------------------

SMALL = lw.make_tiled_mma(
    "SM100_MMA_F16BF16_SS<half_t, half_t, float, 128, 32, UMMA::Major::K, UMMA::Major::K>"
)


def traced(body: Any) -> None:
    """Trace a kernel that calls a function with a block's slice, memory and its accumulator."""

    @lw.kernel
    def mistaken(C: lw.Ptr[lw.f32]) -> None:
        cta = SMALL.get_slice(0)
        memory = lw.tmem.alloc(32)
        body(cta, memory, C)

    mistaken.ptx(arch=ARCH)


def copies_without_memory(cta: Any, memory: Any, C: Any) -> None:
    fragment = cta.partition_fragment_C((128, 32))
    copy = lw.make_tmem_copy("SM100_TMEM_LOAD_32dp32b8x", fragment)
    lw.copy(copy, fragment, lw.make_fragment_like(lw.make_tensor(C, lw.Layout((32, 1)))))


def multiplies_without_memory(cta: Any, memory: Any, C: Any) -> None:
    shared = lw.shared(lw.f16, lw.Layout((128, 16), (16, 1)), swizzle=lw.Swizzle(1, 3, 3), align=1024)
    lw.gemm(SMALL, cta.partition_fragment_C((128, 32)), cta.partition_fragment_A(shared), None)


def copies_what_was_not_partitioned(cta: Any, memory: Any, C: Any) -> None:
    acc = memory.tensor(cta.partition_fragment_C((128, 32)))
    copy = lw.make_tmem_copy("SM100_TMEM_LOAD_32dp32b8x", acc)
    values = lw.make_fragment_like(lw.make_tensor(C, lw.Layout(((128, 32), 1, 1))), lw.f32)
    lw.copy(copy, acc, values)


def gives_a_tile_that_does_not_divide(cta: Any, memory: Any, C: Any) -> None:
    cta.partition_fragment_A(lw.shared(lw.f16, lw.Layout((96, 16), (16, 1)), align=1024))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (copies_without_memory, r"not allocated: memory\.tensor"),
        (multiplies_without_memory, r"not allocated: memory\.tensor\(acc\)"),
        (lambda cta, memory, C: memory.tensor(cta.partition_fragment_C((128, 64))), "columns 0 to 63"),
        (lambda cta, memory, C: memory.tensor(lw.Layout(3)), "takes a fragment of a tiled MMA"),
        (lambda cta, memory, C: cta.partition_fragment_C((96, 32)), "not a multiple"),
        (gives_a_tile_that_does_not_divide, "is no multiple of that"),
        (lambda cta, memory, C: lw.make_tmem_copy("SM100_TMEM_LOAD_32dp32b8x", C), "in tensor memory"),
        (copies_what_was_not_partitioned, "partition or retile both by the tiled copy"),
        (
            lambda cta, memory, C: lw.make_tmem_copy(
                "SM100_TMEM_LOAD_32dp32b64x", memory.tensor(cta.partition_fragment_C((128, 32)))
            ),
            "does not have all of them",
        ),
    ],
)  # fmt: skip
def test_mistakes_are_sentences(body: Any, message: str) -> None:
    with pytest.raises(KernelError, match=message):
        traced(body)


def multiplied_by(lanes: int) -> lw.Kernel:
    """A kernel in which so many lanes of a warp call lw.gemm."""

    @lw.kernel
    def product(C: lw.Ptr[lw.f32]) -> None:
        sA = lw.shared(lw.f16, lw.Layout((128, 16), (16, 1)), swizzle=lw.Swizzle(1, 3, 3), align=1024)
        thread, done = lw.thread_idx.x, lw.mbarrier()[0]
        for k in range(16):
            sA[thread, k] = lw.f16(1)
        if thread == 0:
            done.init(1)
            lw.fence_mbarrier_init()
        lw.fence_proxy_async()
        cta, memory = SMALL.get_slice(0), lw.tmem.alloc(32)
        acc = memory.tensor(cta.partition_fragment_C((128, 32)))
        if thread < lanes:
            a, b = cta.partition_fragment_A(sA), cta.partition_fragment_B(lw.local_tile(sA, (32, 16), (0, 0)))
            lw.gemm(SMALL.with_(lw.atoms.ScaleOut.Zero), acc, a, b)
        if thread == 0:
            lw.tcgen05.commit(done)
        done.wait(0)
        lw.tcgen05.fence_after()
        load = lw.make_tmem_copy("SM100_TMEM_LOAD_32dp32b8x", acc)
        mine = load.get_slice(thread)
        target = mine.partition_D(cta.partition_C(lw.make_tensor(C, lw.Layout((128, 32), (32, 1)))))
        sums = lw.make_fragment_like(target)
        lw.copy(load, mine.partition_S(acc), sums)
        lw.copy(sums, target)
        memory.free()

    return product


def test_a_whole_warp_that_multiplies_is_told_to_elect_a_lane() -> None:
    """CuTe's atoms elect a lane; here each lane that calls lw.gemm issues products, as PTX has it."""
    c = np.zeros((128, 32), np.float32)
    assert not lw.check(multiplied_by(1)[1, 128], c, arch=ARCH).findings
    assert (c == 16).all()
    (first, *_) = lw.check(multiplied_by(32)[1, 128], c, arch=ARCH).findings
    assert first.kind == "tensor memory" and "lw.gemm" in str(first)
    assert first.mend.startswith("let one lane issue it (`if lw.elect_one():`)")
