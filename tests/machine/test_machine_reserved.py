"""Shared memory that the system reserves: tiles of several warps use it beside the kernel's own."""

import numpy as np
import pytest

import lanewise as lw
from everything import EVERYTHING, only_with_everything
from lanewise.machine import KernelFault

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


@pytest.fixture(scope="module", params=["sm_80", "sm_90"] if EVERYTHING else ["sm_90"])
def target(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def module(target: str) -> lw.Module:
    try:
        return lw.cuda(SOURCE, arch=target)
    except lw.LanewiseError as error:
        pytest.skip(str(error).splitlines()[0])


@only_with_everything
def test_tiles_of_several_warps_leave_shared_memory_alone(module: lw.Module, target: str) -> None:
    out, registers = np.zeros(128, np.int32), np.zeros(6, np.int32)
    kernel = module["tiles"][2, 128, 128]
    kernel(out, registers, steps=1_000_000)
    i = np.arange(128)
    sums = np.where(i < 64, 63 * 32, 63 * 32 + 64 * 64)
    assert (out == sums * 1000 + 127 - i + 7).all()
    begin, end, cap, groups, total, dynamic = registers.tolist()
    assert begin == 0 if target == "sm_90" else total <= begin
    assert begin == groups < end == groups + 288 <= cap == begin + 1024  # as on an H200
    assert dynamic == 128 and total >= 512 + 128


@only_with_everything
def test_a_check_of_tiles_of_several_warps_finds_nothing(module: lw.Module) -> None:
    report = lw.check(
        module["tiles"][1, 128, 128], np.zeros(128, np.int32), np.zeros(6, np.int32), steps=1_000_000
    )
    assert report.ok, report


UNDERRUN = """
.version 8.0
.target sm_90
.address_size 64
.extern .shared .align 16 .b8 tile[];
.visible .entry k(.param .u64 out, .param .u32 below) {
    .reg .b32 %r<6>; .reg .b64 %rd<2>;
    ld.param.u64 %rd0, [out];
    ld.param.u32 %r0, [below];
    mov.u32 %r1, tile;
    sub.u32 %r2, %r1, %r0;
    mov.u32 %r3, 7;
    st.shared.u32 [%r2], %r3;
    ld.shared.u32 %r4, [%r2];
    st.global.u32 [%rd0], %r1;
    mov.u32 %r5, %total_smem_size;
    st.global.u32 [%rd0+4], %r5;
    ret;
}
"""


def test_shared_memory_begins_behind_the_reserved_one_from_sm_90_on() -> None:
    kernel, out = lw.load(UNDERRUN)["k"], np.zeros(2, np.int32)
    kernel[1, 1, 64](out, 0)
    assert out.tolist() == [1024, 64] and lw.check(kernel[1, 1, 64], out, 0).ok
    report = lw.check(kernel[1, 1, 64], out, 4)  # a GPU has memory there, which is not the kernel's
    assert {each.kind for each in report.findings} == {"out of bounds"}
    assert "outside of the kernel's shared memory (64 bytes)" in report.findings[0].message
    older = lw.load(UNDERRUN.replace("sm_90", "sm_80"))["k"]
    older[1, 1, 64](out, 0)
    assert out.tolist() == [0, 64]
    with pytest.raises(KernelFault, match="the block has 64 bytes of shared memory"):
        older[1, 1, 64](out, 4)
    with pytest.raises(KernelFault, match="64 bytes of shared memory, from 0x400 on"):
        kernel[1, 1, 64](out, 2**32 - 64)
    with pytest.raises(KernelFault, match="the block has 0 bytes of shared memory"):
        kernel[1, 1](out, 0)


@pytest.mark.parametrize(("alignment", "first"), [(16, 0x430), (128, 0x480), (1024, 0x800)])
def test_dynamic_memory_begins_where_its_alignment_says(alignment: int, first: int) -> None:
    """Behind 48 bytes of static memory: the addresses that ptxas 13.0 puts into the machine code."""
    text = f"""
.version 8.0
.target sm_90
.address_size 64
.extern .shared .align {alignment} .b8 tile[];
.visible .entry k(.param .u64 out) {{
    .shared .align 8 .b8 own[48];
    .reg .b64 %rd0; .reg .b32 %r<2>;
    ld.param.u64 %rd0, [out];
    mov.u32 %r0, own;
    mov.u32 %r1, tile;
    st.global.v2.u32 [%rd0], {{%r0, %r1}};
    ret;
}}
"""
    out = np.zeros(2, np.uint32)
    lw.load(text)["k"][1, 32, 64](out)
    assert out.tolist() == [0x400, first]
