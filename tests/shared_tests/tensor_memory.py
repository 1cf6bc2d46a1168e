"""Kernels of Blackwell in the language: rows of tensor memory, one product in it, blocks that are taken over.

tests/lang runs them on the CPU machine, tests/gpu on a GPU as well.
"""

from typing import Any

import lanewise as lw

SW128 = lw.Swizzle(3, 3, 3)
#: M, N, the format of A and B, that of D, and whether A lies in tensor memory.
PRODUCTS = [
    (128, 64, "bf16", "f32", False),
    (64, 96, "f16", "f32", False),
    (128, 32, "f16", "f16", False),
    (128, 32, "bf16", "f32", True),
]


@lw.kernel
def there_and_back(X: lw.Ptr[lw.f32], halves: lw.Ptr[lw.f32], packed: lw.Ptr[lw.bf16]) -> None:
    memory = lw.tmem.alloc(64)
    words = memory.matrix(lw.f32, 32)
    wide = memory.matrix(lw.f16, 16, column=32)
    narrow = memory.matrix(lw.bf16, 16, column=48, slot_bits=16)
    words.store(0, [X[lw.thread_idx.x * 32 + i] for i in range(32)])
    row = words.load(16, 16)
    narrow.store(0, [each.to(lw.bf16) for each in row])
    wide.store(0, [each.to(lw.f16) for each in row], wait=False)
    lw.tcgen05.wait_store()
    loaded, again = wide.load(wait=False), narrow.load(8, 8, wait=False)
    lw.tcgen05.wait_load()
    for i in range(16):
        r, c = loaded.element(i)
        halves[r * 16 + c] = loaded[i].to(lw.f32)
    for i in range(8):
        r, c = again.element(i)
        packed[r * 16 + c] = again[i]
    memory.free()


def product(mma: Any, a_in_tensor_memory: bool = False) -> lw.Kernel:
    """A kernel that multiplies two tiles by one instruction: A and Bᵀ are K-major, 64 elements of K."""
    a_type, b_type, d_type = mma.a.format, mma.b.format, mma.d.format
    m, n, steps = mma.m, mma.n, 64 // mma.k

    @lw.kernel
    def one_tile(A: lw.Ptr[a_type, 16], B: lw.Ptr[b_type, 16], D: lw.Ptr[d_type]) -> None:
        sA = lw.shared(a_type, (m, 64), swizzle=SW128, align=1024)
        sB = lw.shared(b_type, (n, 64), swizzle=SW128, align=1024)
        thread, done = lw.thread_idx.x, lw.mbarrier()[0]
        for i in lw.range(thread * 8, m * 64, 1024):
            sA.ptr(i // 64, i % 64).aligned(16).store(tuple(A[i + j] for j in range(8)))
        for i in lw.range(thread * 8, n * 64, 1024):
            sB.ptr(i // 64, i % 64).aligned(16).store(tuple(B[i + j] for j in range(8)))
        if thread == 0:
            done.init(1)
            lw.fence_mbarrier_init()
        lw.fence_proxy_async()
        memory = lw.tmem.alloc(512)
        acc, a, b = memory.accumulator(mma), lw.make_umma_desc(sA), lw.make_umma_desc(sB)
        left = memory.matrix(a_type, 64, column=256, slot_bits=16)
        if a_in_tensor_memory:
            left.store(0, [A[thread * 64 + i] for i in range(64)])
        lw.tcgen05.fence_before()
        lw.syncthreads()
        lw.tcgen05.fence_after()
        if (lw.warp_id() == 0) & lw.elect_one():
            for step in range(steps):
                k = step * mma.k
                first = left[k : k + mma.k] if a_in_tensor_memory else a[0, k]
                mma(first, b[0, k], acc, accumulate=step > 0)
            lw.tcgen05.commit(done)
        done.wait(0)
        lw.tcgen05.fence_after()
        for column in range(0, n, 32):
            sums = acc.load(column, 32)
            for each in range(32):
                row, col = sums.element(each)
                if m == 128 or lw.lane_id() < 16:
                    D[row * n + col] = sums[each]
        memory.free()

    return one_tile


@lw.kernel
def every_block_once(C: lw.Ptr[lw.i32]) -> None:
    answer, done = lw.clc.response(), lw.mbarrier()[0]
    if lw.thread_idx.x == 0:
        done.init(1)
        lw.fence_mbarrier_init()
    lw.syncthreads()
    x, phase, goes_on = lw.block_idx.x, lw.i32(0), lw.block_idx.x >= 0
    while goes_on:
        if lw.thread_idx.x == 0:
            done.arrive(expect=lw.clc.BYTES)
            lw.clc.try_cancel(answer, done)
            lw.atomic_add(C + x, 1)
        done.wait(phase)
        goes_on, x, _, _ = answer.read()
        phase = phase ^ 1
        lw.fence_proxy_async()
        lw.syncthreads()
