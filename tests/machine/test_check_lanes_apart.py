"""Lanes of a warp that wait for mbarriers apart from each other: what each of them knows is its own.

Blocks of one kernel are the cases. In most of them the first lane of warp 1 is late: it waits for something
else first, while the other lanes wait for what warp 0 has written, read it, and exit.
"""

import numpy as np
import pytest

import lanewise as lw

SOURCE = """
#define LANE (threadIdx.x % 32)
#define WARP (threadIdx.x / 32)
typedef unsigned long long u64;
#define DEVICE __device__ __forceinline__
DEVICE unsigned at(const void* p) { return __cvta_generic_to_shared(p); }
DEVICE void init(u64& bar) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at(&bar)) : "memory");
}
DEVICE void arrive(u64& bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at(&bar)) : "memory");
}
DEVICE void wait(u64& bar) {
    asm volatile("{ .reg .pred p; L: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0;"
                 "@p bra D; bra L; D: }" ::"r"(at(&bar)) : "memory");
}
extern "C" __global__ void cases(const int* in, int* out) {
    __shared__ u64 full, later, used;
    __shared__ int first, second;
    bool is_late = LANE == 0;
    if (threadIdx.x == 0) init(full), init(later), init(used);
    __syncthreads();
    if (WARP == 0) {
        first = in[0];
        __syncwarp();
        if (LANE == 0) arrive(full);
        second = in[1];
        __syncwarp();
        if (LANE == 0) arrive(later);
        return;
    }
    if (WARP == 2) {  // what the late lane waits for
        if (blockIdx.x < 3) wait(full);
        if (is_late) arrive(used);
        return;
    }
    switch (blockIdx.x) {
    case 0:  // the late lane waits for the mbarrier itself
        if (is_late) wait(used);
        wait(full);
        out[32 * blockIdx.x + LANE] = first;
        break;
    case 1:  // it knows by warp 2, which has waited for the mbarrier
        if (is_late) wait(used); else wait(full);
        out[32 * blockIdx.x + LANE] = first;
        break;
    case 2:  // the others know of a later phase, which does not concern it
        wait(full);
        if (is_late) wait(used), out[32 * blockIdx.x + LANE] = first;
        else wait(later), out[32 * blockIdx.x + LANE] = first + second;
        break;
    case 3:  // a mistake: what it waits for says nothing of the data
        if (is_late) wait(used); else wait(full);
        out[32 * blockIdx.x + LANE] = first;
        break;
    case 4:  // a mistake: it knows of the first phase, and reads what comes with the later one
        wait(full);
        if (is_late) wait(used), out[32 * blockIdx.x + LANE] = second;
        else wait(later), out[32 * blockIdx.x + LANE] = second;
        break;
    }
}
"""
RIGHT, WRONG = {0, 1, 2}, {3, 4}


@pytest.mark.parametrize("schedule", ["in order", "late", 1])
def test_a_late_lane_knows_what_it_has_waited_for(schedule: str | int) -> None:
    launch = lw.cuda(SOURCE, arch="sm_90a")["cases"][len(RIGHT | WRONG), 96]
    numbers, out = np.arange(2, dtype=np.int32), np.zeros((len(RIGHT | WRONG), 32), np.int32)
    report = lw.check(launch, numbers, out, schedule=schedule)
    accused = {each.block[0] for each in report.findings if each.block is not None}
    assert accused == WRONG, [str(each) for each in report.findings]
