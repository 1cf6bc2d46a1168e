"""A GEMM for Blackwell in CuTe's words: tiled MMAs, accumulators in tensor memory and copies from there.

`one_block` multiplies a tile in each block. `pairs` is persistent: two blocks multiply one tile together, and
while the epilogue brings one accumulator to C, products go into another.
"""

from typing import Any

import numpy as np

import lanewise as lw

BM, BN, BK, STAGES = 128, 64, 64, 3  # a block's rows of A, columns of B, a step along K
ROWS, LOADER, MULTIPLIER = 128, 4, 5  # threads of the epilogue; the warps that load and multiply
SWIZZLE = lw.Swizzle(3, 3, 3)  # of 16-bit elements: the 128B mode
MAJORS = "UMMA::Major::K, UMMA::Major::K"
ONE = lw.make_tiled_mma(f"SM100_MMA_F16BF16_SS<bfloat16_t, bfloat16_t, float, {BM}, {BN}, {MAJORS}>")
TWO = lw.make_tiled_mma(
    f"SM100_MMA_F16BF16_2x1SM_SS<bfloat16_t, bfloat16_t, float, {2 * BM}, {2 * BN}, {MAJORS}>"
)
BYTES = (BM + BN) * BK * 2


@lw.kernel(max_threads=192)
def one_block(
    A: lw.TensorMap[lw.bf16, (BM, BK), 128], B: lw.TensorMap[lw.bf16, (BN, BK), 128],
    C: lw.Ptr[lw.f32, 16], M: lw.i32, N: lw.i32, K: lw.i32,
) -> None:  # fmt: skip
    """C = A · Bᵀ, a tile of BM × BN for each block."""
    N, warp = lw.assume(N, multiple_of=4), lw.shfl_sync(lw.warp_id(), 0)
    sA, sB = operands_in_shared_memory()
    row, column = lw.block_idx.y, lw.block_idx.x
    full = lw.PipelineTmaUmmaAsync(STAGES, bytes=BYTES)
    done = lw.PipelineUmmaAsync(1, consumers=ROWS)
    start_pipelines(full, done)
    cta = ONE.get_slice(0)
    fragment = cta.partition_fragment_C((BM, BN))
    memory = lw.tmem.alloc(BN)  # all threads meet in it
    acc = memory.tensor(fragment)
    steps = lw.cdiv(K, BK)
    if (warp == LOADER) & lw.elect_one():
        load("SM90_TMA_LOAD", full, full.producer_state(), A, B, sA, sB, (M, N, K), (row, column))
    if (warp == MULTIPLIER) & lw.elect_one():
        a, b = cta.partition_fragment_A(sA), cta.partition_fragment_B(sB)  # descriptors
        multiply(ONE, full, full.consumer_state(), acc, a, b, steps)
        done.commit(done.producer_state())
    if warp < LOADER:
        done.wait(done.consumer_state())
        gC = lw.local_tile(lw.make_tensor(C, (M, N), (N, 1)), (BM, BN), (row, column))
        store(acc, cta.partition_C(gC))
    lw.syncwarp()
    memory.free()


@lw.kernel(max_threads=192, cluster=2)
def pairs(
    A: lw.TensorMap[lw.bf16, (BM, BK), 128], B: lw.TensorMap[lw.bf16, (BN, BK), 128],
    C: lw.Ptr[lw.f32, 16], M: lw.i32, N: lw.i32, K: lw.i32,
) -> None:  # fmt: skip
    """C = A · Bᵀ, tiles of 2 BM × 2 BN for each pair of blocks, one after the other."""
    N, warp, rank = lw.assume(N, multiple_of=4), lw.shfl_sync(lw.warp_id(), 0), lw.cluster.rank()
    sA, sB = operands_in_shared_memory()
    full = lw.PipelineTmaUmmaAsync(STAGES, bytes=BYTES, cta_group=2)
    done = lw.PipelineUmmaAsync(2, consumers=ROWS, cta_group=2)
    start_pipelines(full, done)
    cta = TWO.get_slice(rank)
    fragment = cta.partition_fragment_C((2 * BM, 2 * BN))
    memory = lw.tmem.alloc(2 * 2 * BN, cta_group=2)  # two accumulators; both blocks meet in it
    tiles = lw.PersistentTiles(lw.cdiv(M, 2 * BM), lw.cdiv(N, 2 * BN), cluster=2)
    steps = lw.cdiv(K, BK)
    if (warp == LOADER) & lw.elect_one():
        filling = full.producer_state()
        for number in lw.range(tiles.first, tiles.count, tiles.step):
            row, column = tiles[number]
            mine = 2 * row + rank, 2 * column + rank
            filling = load("SM100_TMA_2SM_LOAD", full, filling, A, B, sA, sB, (M, N, K), mine)
    if (rank == 0) & (warp == MULTIPLIER) & lw.elect_one():
        a, b = cta.partition_fragment_A(sA), cta.partition_fragment_B(sB)
        reading, writing = full.consumer_state(), done.producer_state()
        for _ in lw.range(tiles.first, tiles.count, tiles.step):
            done.acquire(writing)
            acc = memory.tensor(fragment, column=writing.stage * 2 * BN)
            reading = multiply(TWO, full, reading, acc, a, b, steps)
            done.commit(writing)
            writing = writing.next()
    if warp < LOADER:
        reading = done.consumer_state()
        for number in lw.range(tiles.first, tiles.count, tiles.step):
            done.wait(reading)
            acc = memory.tensor(fragment, column=reading.stage * 2 * BN)
            gC = lw.local_tile(lw.make_tensor(C, (M, N), (N, 1)), (2 * BM, 2 * BN), tiles[number])
            store(acc, cta.partition_C(gC))
            done.release(reading)
            reading = reading.next()
    lw.syncwarp()
    memory.free()


@lw.device
def operands_in_shared_memory() -> tuple[Any, Any]:
    """The stages of a block's tiles of A and B."""
    layout_a = lw.Layout((BM, BK, STAGES), (BK, 1, BM * BK))
    layout_b = lw.Layout((BN, BK, STAGES), (BK, 1, BN * BK))
    a = lw.dynamic_shared(lw.bf16, layout_a, swizzle=SWIZZLE)
    return a, lw.dynamic_shared(lw.bf16, layout_b, swizzle=SWIZZLE, offset=STAGES * BM * BK * 2)


@lw.device
def start_pipelines(full: Any, done: Any) -> None:
    """Prepare the barriers by one thread; the allocation of tensor memory lets all threads meet."""
    if lw.thread_idx.x == 0:
        full.init()
        done.init()
        lw.fence_mbarrier_init()


@lw.device
def load(atom: Any, full: Any, state: Any, A: Any, B: Any, sA: Any, sB: Any, size: Any, tile: Any) -> Any:
    """Load a block's tiles of A and B along K by TMA, and return the next state."""
    load_a, load_b = lw.make_tma_copy(atom, A), lw.make_tma_copy(atom, B)
    gA = lw.local_tile(load_a.get_tma_tensor((size[0], size[2])), (BM, BK), (tile[0], None))
    gB = lw.local_tile(load_b.get_tma_tensor((size[1], size[2])), (BN, BK), (tile[1], None))
    (from_a, to_a), (from_b, to_b) = lw.tma_partition(load_a, gA, sA), lw.tma_partition(load_b, gB, sB)
    for step in lw.range(lw.cdiv(size[2], BK)):
        full.acquire(state)
        full.commit(state)
        barrier = full.barrier(state)
        lw.copy(load_a.with_(barrier), from_a[None, step], to_a[None, state.stage])
        lw.copy(load_b.with_(barrier), from_b[None, step], to_b[None, state.stage])
        state = state.next()
    return state


@lw.device
def multiply(mma: Any, full: Any, state: Any, acc: Any, a: Any, b: Any, steps: Any) -> Any:
    """Multiply the stages by one thread, and return the next state."""
    for step in lw.range(steps):
        full.wait(state)
        tile = None, None, None, state.stage
        lw.gemm(mma, acc, a[tile], b[tile], accumulate=step > 0)
        full.release(state)
        state = state.next()
    return state


@lw.device
def store(acc: Any, gC: Any) -> None:
    """Bring an accumulator to C: each thread has a row of it."""
    copy = lw.make_tmem_copy("SM100_TMEM_LOAD_32dp32b32x", acc)
    mine = copy.get_slice(lw.thread_idx.x)
    source, target = mine.partition_S(acc), mine.partition_D(gC)
    for part in range(target.layout[1].size()):
        sums = lw.make_fragment_like(target[None, part, 0, 0])
        lw.copy(copy, source[None, part, 0, 0], sums)
        lw.copy(sums, target[None, part, 0, 0], pred=lw.inside)


def main() -> None:
    """Multiply on the CPU machine and compare with the instruction repeated along K; check the pairs."""
    rng, (m, n, k) = np.random.default_rng(0), (300, 140, 96)
    a, b = (rng.normal(size=(rows, k)).astype(lw.bf16.dtype) for rows in (m, n))
    maps = lw.tensor_map(a, (BM, BK), swizzle="128B"), lw.tensor_map(b, (BN, BK), swizzle="128B")
    for kernel, mma, grid in ((one_block, ONE, (-(-n // BN), -(-m // BM))), (pairs, TWO, (4, 1))):
        c = np.zeros((m, n), np.float32)
        launch = kernel[grid, 192, STAGES * BYTES]
        launch(*maps, c, m, n, k, arch="sm_100a")
        equal = np.array_equal(c, mma.instruction.gemm(a, b.T, arch="sm_100a"))
        print(f"{kernel.name}: {'equal to' if equal else 'NOT'} {mma.instruction.text}.gemm")
    report = lw.check(launch, *maps, c, m, n, k, arch="sm_100a")
    print("nothing found" if report.ok else report)


if __name__ == "__main__":
    main()
