"""Shared memory that the system reserves: tiles of several warps use it beside the kernel's own."""

from __future__ import annotations

import numpy as np
import pytest

import lanewise as lw

SOURCE = r"""
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
extern "C" __global__ void tiles(int* out, int* registers) {
    __shared__ int own[128];
    extern __shared__ int dynamic[];
    __shared__ cg::block_tile_memory<128> scratch;
    auto block = cg::this_thread_block(scratch);
    auto tile = cg::tiled_partition<64>(block);
    int i = threadIdx.x;
    own[i] = i;
    if (i < 32) dynamic[i] = 7;
    block.sync();
    int sum = cg::reduce(tile, i, cg::plus<int>());
    tile.sync();
    out[i] = sum * 1000 + own[127 - i] + dynamic[i % 32];
    unsigned begin, end, cap, groups, total, size;
    asm("mov.u32 %0, %%reserved_smem_offset_begin;" : "=r"(begin));
    asm("mov.u32 %0, %%reserved_smem_offset_end;" : "=r"(end));
    asm("mov.u32 %0, %%reserved_smem_offset_cap;" : "=r"(cap));
    asm("mov.u32 %0, %%reserved_smem_offset_1;" : "=r"(groups));
    asm("mov.u32 %0, %%total_smem_size;" : "=r"(total));
    asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(size));
    if (i == 0) {
        registers[0] = begin; registers[1] = end; registers[2] = cap; registers[3] = groups;
        registers[4] = total; registers[5] = size;
    }
}
"""


@pytest.fixture(scope="module")
def module() -> lw.Module:
    try:
        return lw.cuda(SOURCE, arch="sm_80")
    except lw.LanewiseError as error:
        pytest.skip(str(error).splitlines()[0])


def test_tiles_of_several_warps_leave_shared_memory_alone(module: lw.Module) -> None:
    out, registers = np.zeros(128, np.int32), np.zeros(6, np.int32)
    kernel = module["tiles"][2, 128, 128]
    kernel(out, registers, steps=1_000_000)
    i = np.arange(128)
    sums = np.where(i < 64, 63 * 32, 63 * 32 + 64 * 64)
    assert (out == sums * 1000 + 127 - i + 7).all()
    begin, end, cap, groups, total, dynamic = registers.tolist()
    assert total <= begin < groups < groups + 288 <= end <= cap == begin + 1024
    assert dynamic == 128 and total >= 512 + 128


def test_a_check_of_tiles_of_several_warps_finds_nothing(module: lw.Module) -> None:
    report = lw.check(
        module["tiles"][1, 128, 128], np.zeros(128, np.int32), np.zeros(6, np.int32), steps=1_000_000
    )
    assert report.ok, report
