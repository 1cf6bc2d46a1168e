"""First mistakes, as somebody makes them who writes such a kernel for the first time: each ends in its mend.

In each kernel the line with `# here` (`// here` in CUDA C++) is the one that the mend names.
"""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from nvrtc import need_nvrtc

WGMMA = lw.instruction("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16")
MMA = lw.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
F32 = lw.Ptr[lw.f32]
SWIZZLE = lw.Swizzle(3, 3, 3)

#: Kernels in Python: the kind of the finding, what its mend says, and the shape of the launch.
Expected = tuple[str, str, Any, Any]
MISTAKES: dict[lw.Kernel | Callable[[], lw.Kernel], Expected] = {}


def mistake(kind: str, mend: str, grid: Any = 1, block: Any = 64) -> Callable[[Any], Any]:
    """Enter a kernel with one mistake, or a function that makes one."""

    def enter(case: lw.Kernel | Callable[[], lw.Kernel]) -> lw.Kernel | Callable[[], lw.Kernel]:
        MISTAKES[case] = (kind, mend, grid, block)
        return case

    return enter


@mistake("race", "`lw.syncthreads()` between line {here-1} and line {here}")
@lw.kernel
def no_barrier(x: F32):
    tile = lw.shared(lw.f32, 64)
    t = lw.thread_idx.x
    tile[t] = x[t]
    x[t] = tile[63 - t]  # here


@mistake("race", "`lw.syncthreads()` after line {here}, before line {here-2} comes again")
@lw.kernel
def no_second_barrier(x: F32):
    tile = lw.shared(lw.f32, 64)
    t = lw.thread_idx.x
    total = lw.f32(0.0)
    for i in lw.range(4):
        tile[t] = x[t] + i.to(lw.f32)
        lw.syncthreads()
        total = total + tile[63 - t]  # here
    x[t] = total


@mistake("race", "`lw.syncwarp()` between line {here-1} and line {here}", 1, 32)
@lw.kernel
def lanes_that_do_not_synchronise(x: F32):
    tile = lw.shared(lw.f32, 32)
    t = lw.thread_idx.x
    tile[t] = x[t]
    x[t] = tile[31 - t]  # here


@mistake("race", "`lw.atomic_add`", 1, 64)
@lw.kernel
def counter_without_atomics(x: F32):
    x[0] = x[0] + 1.0  # here


@mistake("race", "give each block elements of its own, or use `lw.atomic_add`", 4, 32)
@lw.kernel
def one_result_for_all_blocks(x: F32):
    if lw.thread_idx.x == 0:
        x[0] = lw.block_idx.x.to(lw.f32)  # here


@mistake("race", "let one lane write", 1, 32)
@lw.kernel
def all_lanes_write_one_element(x: F32):
    x[0] = lw.thread_idx.x.to(lw.f32)  # here


@mistake("uninitialised", "write shared variable tile before line {here} reads it")
@lw.kernel
def nothing_wrote_the_tile(x: F32):
    tile = lw.shared(lw.f32, 64)
    t = lw.thread_idx.x
    x[t] = tile[t]  # here


@mistake("out of bounds", "bound the index of line {here}: `if i < n:`; or make the array larger")
@lw.kernel
def one_thread_too_many(x: F32):
    x[lw.thread_idx.x + 1] = 0.0  # here


@mistake("out of bounds", "bound the index of line {here}, or make the memory larger")
@lw.kernel
def past_the_end_of_a_shared_array(x: F32):
    first = lw.shared(lw.f32, 64)
    second = lw.shared(lw.f32, 64)
    t = lw.thread_idx.x
    second[t] = 1.0
    first[t + 1] = x[t]  # here
    lw.syncthreads()
    x[t] = first[t + 1] + second[t]


@mistake("misaligned", "make the address a multiple of 16", 1, 8)
@lw.kernel
def vector_at_an_odd_element(x: F32):
    v = (x + 4 * lw.thread_idx.x + 1).aligned(16).load(4)  # here
    x[lw.thread_idx.x] = v[0]


@mistake("divergence", "move the barrier of line {here} out of the branch")
@lw.kernel
def barrier_in_a_branch(x: F32):
    t = lw.thread_idx.x
    if t % 2 == 0:
        x[t] = 1.0
        lw.syncthreads()  # here
    x[t] = 2.0


@mistake("divergence", "out of the branch, so that all lanes of the mask execute it", 1, 32)
@lw.kernel
def shuffle_in_a_branch(x: F32):
    t = lw.thread_idx.x
    v = x[t]
    if t < 16:
        v = lw.shfl_xor_sync(v, 1)  # here
    x[t] = v


@mistake("barrier", "let 32 more arrive at done in each phase (", 1, 64)
@lw.kernel
def too_few_arrive(x: F32):
    done = lw.mbarrier()
    t = lw.thread_idx.x
    if t == 0:
        done[0].init(64)
    lw.syncthreads()
    if t < 32:
        done[0].arrive()
    done[0].wait(0)  # here
    x[t] = 1.0


@mistake("mbarrier", "initialise it with the number of threads that arrive", 1, 64)
@lw.kernel
def too_many_arrive(x: F32):
    done = lw.mbarrier()
    t = lw.thread_idx.x
    if t == 0:
        done[0].init(1)
    lw.syncthreads()
    done[0].arrive()  # here
    x[t] = 1.0


@mistake("barrier", "let one thread initialise it first (mbarrier.init)", 1, 32)
@lw.kernel
def barrier_that_nobody_initialised(x: F32):
    done = lw.mbarrier()
    done[0].arrive()  # here
    done[0].wait(0)
    x[lw.thread_idx.x] = 1.0


def bulk_load(expect: int, parity: int | None) -> Any:
    """Return a kernel that loads 64 numbers by a bulk copy, announces bytes, and waits for a parity."""

    @lw.kernel
    def k(x: F32):
        full = lw.mbarrier()
        tile = lw.shared(lw.f32, 64, align=16)
        t = lw.thread_idx.x
        if t == 0:
            full[0].init(1)
            lw.fence_mbarrier_init()
        lw.syncthreads()
        if t == 0:
            full[0].arrive(expect=expect)
            lw.tma.copy(tile, x.aligned(16), 256, full[0])
        if parity is not None:
            full[0].wait(parity)
        x[t] = tile[t] + 1.0  # here

    return k


@mistake("asynchronous copy", "wait for the phase of its mbarrier before line {here}")
def load_that_nobody_waits_for():
    return bulk_load(256, None)


@mistake("barrier", "wait for parity 0 of full, if the phase is meant that is complete")
def wrong_parity():
    return bulk_load(256, 1)


@mistake("barrier", "announce what the copies bring: 256 bytes fewer in expect_tx of full")
def too_many_bytes_announced():
    return bulk_load(512, 0)


def bulk_store(fence: bool, wait: bool) -> Any:
    """Return a kernel that stores 64 numbers by a bulk copy."""

    @lw.kernel
    def k(x: F32):
        tile = lw.shared(lw.f32, 64, align=16)
        t = lw.thread_idx.x
        tile[t] = x[t] * 2.0  # here
        if fence:
            lw.fence_proxy_async()
        lw.syncthreads()
        if t == 0:
            lw.tma.copy(x.aligned(16), tile, 256)
            lw.tma.commit()
            if wait:
                lw.tma.wait(read=True)

    return k


@mistake("proxy", "`lw.fence_proxy_async()` after line {here}, in each thread that wrote")
def store_without_a_proxy_fence():
    return bulk_store(fence=False, wait=True)


@mistake("asynchronous copy", "`lw.tma.wait(read=True)` before the thread exits")
def exit_before_the_store_has_read():
    return bulk_store(fence=True, wait=False)


@mistake("asynchronous copy", "`lw.cp_async_wait()` before line {here}, in the thread that copies", 1, 16)
@lw.kernel
def copy_that_nobody_waits_for(x: F32):
    tile = lw.shared(lw.f32, 16)
    t = lw.thread_idx.x
    lw.cp_async(tile.ptr(t), x + t, 4)
    lw.cp_async_commit()
    x[t] = tile[t]  # here


def product(fence: bool, commit: bool, wait: bool) -> Any:
    """Return a kernel with one wgmma."""

    @lw.kernel
    def k(x: F32):
        a = lw.shared(lw.bf16, (64, 64), swizzle=SWIZZLE)
        b = lw.shared(lw.bf16, (8, 64), swizzle=SWIZZLE)
        t = lw.thread_idx.x
        for i in range(32):
            a[t // 2, 32 * (t % 2) + i] = lw.bf16(1.0)
        for i in range(4):
            b[t // 16, 4 * (t % 16) + i] = lw.bf16(1.0)
        lw.fence_proxy_async()
        lw.syncthreads()
        acc = WGMMA.zeros()
        if fence:
            lw.wgmma_fence()
        acc = WGMMA(lw.make_gmma_desc(a)[0, 16], lw.make_gmma_desc(b)[0, 16], acc, accumulate=False)
        if commit:
            lw.wgmma_commit()
        if wait:
            lw.wgmma_wait()
        x[t] = acc[0]

    return k


@mistake("wgmma", "`lw.wgmma_fence()` before line", 1, 128)
def no_wgmma_fence():
    return product(fence=False, commit=True, wait=True)


@mistake("wgmma", "`lw.wgmma_commit()` and `lw.wgmma_wait()` before line", 1, 128)
def no_wgmma_commit():
    return product(fence=True, commit=False, wait=True)


@mistake("wgmma", "`lw.wgmma_commit()` and `lw.wgmma_wait()` before line", 1, 128)
def no_wgmma_wait():
    return product(fence=True, commit=True, wait=False)


@pytest.mark.parametrize("case", MISTAKES, ids=lambda case: case.__name__)
def test_first_mistake_ends_in_its_mend(case: lw.Kernel | Callable[[], lw.Kernel]) -> None:
    kind, mend, grid, block = MISTAKES[case]
    kernel = case if isinstance(case, lw.Kernel) else case()
    threads = block * (grid if isinstance(grid, int) else 1)
    report = lw.check(kernel[grid, block], np.ones(threads, np.float32), arch="sm_90a")
    lines, first = inspect.getsourcelines(kernel.function)
    here = next((first + at for at, text in enumerate(lines) if text.rstrip().endswith("# here")), 0)
    for before in range(3):
        mend = mend.replace(f"{{here-{before}}}", str(here - before))
    mend = mend.replace("{here}", str(here))
    findings = [each for each in report.findings if each.kind == kind]
    assert findings and mend in findings[0].mend, f"{mend!r} is not in\n{report}"
    text = str(findings[0])
    assert text.startswith(f"{findings[0].place}: {findings[0].quote}\n") and findings[0].quote
    assert f"\n    mend: {findings[0].mend}" in text


@pytest.mark.parametrize("operand", ["a", "d"])
def test_wrong_fragment_is_refused_with_the_way_out(operand: str) -> None:
    @lw.kernel
    def k(x: F32):
        a = MMA.a.zeros()
        acc = MMA.d.zeros()
        given = a if operand == "a" else acc
        acc = MMA(a, given, acc)
        x[0] = acc[0]

    with pytest.raises(lw.LanewiseError, match=r"lies in registers in another way|load as many"):
        k[1, 32](np.zeros(1, np.float32))


def test_bank_conflicts_end_in_a_layout() -> None:
    @lw.kernel
    def k(x: F32):
        tile = lw.shared(lw.f32, (32, 32))
        t, w = lw.thread_idx.x, lw.thread_idx.y
        tile[w, t] = x[w * 32 + t]
        lw.syncthreads()
        x[w * 32 + t] = tile[t, w]

    (slow,) = lw.check(k[1, (32, 32)], np.ones((32, 32), np.float32)).performance
    assert slow.kind == "bank conflict" and "lw.Layout((32, 32), (33, 1))" in slow.remedy, slow


CUDA = r"""
extern "C" __global__ void no_barrier(float* x) {
    __shared__ float tile[64];
    tile[threadIdx.x] = x[threadIdx.x];
    x[threadIdx.x] = tile[63 - threadIdx.x];  // here
}
extern "C" __global__ void histogram(float* x) {
    __shared__ int bins[8];
    if (threadIdx.x < 8) bins[threadIdx.x] = 0;
    atomicAdd(&bins[threadIdx.x % 8], 1);  // here
    __syncthreads();
    x[threadIdx.x] = bins[threadIdx.x % 8];
}
extern "C" __global__ void float4_of_odd(float* x) {
    float4 v = *reinterpret_cast<float4*>(x + threadIdx.x % 4 + 1);  // here
    x[threadIdx.x] = v.x + v.y + v.z + v.w;
}
extern "C" __global__ void no_value(float* x) {
    float v;
    if (threadIdx.x < 1 + (int)x[0]) v = x[threadIdx.x];
    x[threadIdx.x] = v * 2;  // here
}
extern "C" __global__ void early_return(float* x) {
    if (threadIdx.x >= 40) return;
    __syncthreads();  // here
    x[threadIdx.x] = 1;
}
extern "C" __global__ void wrong_mask(float* x) {
    x[threadIdx.x] = __shfl_down_sync(0x0000ffff, x[threadIdx.x], 1);  // here
}
extern "C" __global__ void no_dynamic_memory(float* x) {
    extern __shared__ float tile[];
    tile[threadIdx.x] = x[threadIdx.x];  // here
    __syncthreads();
    x[threadIdx.x] = tile[63 - threadIdx.x];
}
extern "C" __global__ void waits_for_nobody(float* x) {
    while (*(volatile float*)x != 2) {}  // here
}
extern "C" __global__ void named_barrier(float* x) {
    asm volatile("bar.sync 1, 48;" ::: "memory");  // here
    x[threadIdx.x] = 1;
}
"""
OF_CUDA = {
    "no_barrier": ("race", "`__syncthreads()` between line {here-1} and line {here}"),
    "histogram": ("race", "`__syncthreads()` between line {here-1} and line {here}"),
    "float4_of_odd": ("misaligned", "make the address a multiple of 16"),
    "no_value": ("uninitialised", "give the variable a value on every way to line {here}"),
    "early_return": (
        "divergence",
        "let the threads that have nothing to do skip the work, and not the barrier",
    ),
    "wrong_mask": ("divergence", "name every lane that executes line {here} in the mask"),
    "no_dynamic_memory": (
        "out of bounds",
        "give the launch dynamic shared memory: kernel[grid, block, bytes]",
    ),
    "waits_for_nobody": ("endless", "let a thread that runs by then change argument 0"),
    "named_barrier": ("barrier", "count whole warps: 64 threads"),
}


@pytest.mark.parametrize("name", OF_CUDA)
def test_first_mistake_in_cuda_ends_in_its_mend(name: str) -> None:
    need_nvrtc()
    kind, mend = OF_CUDA[name]
    report = lw.check(lw.cuda(CUDA)[name][1, 64], np.ones(64, np.float32))
    lines = CUDA.split("\n")
    start = next(at for at, text in enumerate(lines) if f" {name}(" in text)
    here = next(at for at in range(start, len(lines)) if lines[at].endswith("// here")) + 1
    mend = mend.replace("{here-1}", str(here - 1)).replace("{here}", str(here))
    findings = [each for each in report.findings if each.kind == kind]
    assert findings and findings[0].mend.startswith(mend), f"{mend!r} is not in\n{report}"


PTX = """.version 8.0
.target sm_80
.address_size 64
.visible .entry reverse(.param .u64 x)
{
    .shared .align 4 .b8 tile[256];
    .reg .b32 %r<6>; .reg .b64 %rd<4>;
    ld.param.u64 %rd0, [x];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd1, %r0, 4;
    add.u64 %rd2, %rd0, %rd1;
    ld.global.u32 %r1, [%rd2];
    shl.b32 %r2, %r0, 2;
    mov.u32 %r3, tile;
    add.u32 %r4, %r3, %r2;
    st.shared.u32 [%r4], %r1;
    sub.u32 %r5, %r3, %r2;
    ld.shared.u32 %r1, [%r5+252];
    st.global.u32 [%rd2], %r1;
    ret;
}
"""


def test_first_mistake_in_ptx_ends_in_its_mend() -> None:
    (race,) = lw.check(lw.load(PTX)["reverse"][1, 64], np.ones(64, np.float32)).findings
    assert race.mend == "`bar.sync 0` between line 16 and line 18"
    assert str(race).startswith("PTX:16: st.shared.u32 [%r4], %r1;\nrace: ")
    lines = PTX.split("\n")
    mended = "\n".join([*lines[:16], "    bar.sync 0;", *lines[16:]])
    assert not lw.check(lw.load(mended)["reverse"][1, 64], np.ones(64, np.float32)).findings
