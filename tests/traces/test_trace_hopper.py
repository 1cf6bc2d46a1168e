"""Traces of Hopper's kernels: bulk copies into shared memory, clusters, products of a warpgroup."""

import ml_dtypes
import numpy as np
import pytest

import cluster_kernels
import lanewise as lw
from machine.bulk_copy_kernels import TO_SHARED, WAIT, kernel
from machine.wgmma_gemms import BF16, GEMM
from nvrtc import need_nvrtc

COPY = kernel(
    f"""
    @%p0 bra WAIT;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 1024;
    {TO_SHARED} [%r1], [%rd0], 1024, [%r2];
    {WAIT}
    mul.lo.u32 %r3, %r0, 4;
    add.u32 %r4, %r1, %r3;
    ld.shared.u32 %r5, [%r4+512];
    cvt.u64.u32 %rd2, %r3;
    add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r5;
    """
)


@pytest.mark.parametrize("schedule", [None, "late", 3])
def test_bulk_copies_arrive_in_shared_memory(schedule: object) -> None:
    a, b = np.arange(256, dtype=np.uint32), np.zeros(32, np.uint32)
    run = lw.trace(lw.load(COPY)["k"][1, 32], a, b, schedule=schedule)
    assert np.array_equal(b, a[128:160]) and not run.fault
    issue = run.first(lambda step: step.text.startswith(TO_SHARED) or TO_SHARED in step.text)
    load = run.first(lambda step: step.op.opcode == "ld" and step.op.space == "shared")
    assert issue is not None and load is not None
    assert np.array_equal(load.shared("buffer", dtype=np.uint32)[:256], a)
    assert not run.at(issue.number - 1).shared("buffer", dtype=np.uint32).any()
    assert issue.is_complete
    assert bool(issue.shared("buffer", dtype=np.uint32).any()) == (schedule is None) or schedule == 3
    (copy,) = run.copies
    assert copy.issued == issue.number and copy.committed is None and copy.completed is not None
    assert run.at(copy.completed).shared("buffer", dtype=np.uint32)[5] == 5
    assert copy.completed == issue.number if schedule is None else copy.completed >= issue.number
    found = run.origin("b[5]")
    assert found.inputs == {"a": [(133,)]} and "copied asynchronously by step" in found.tree()


@pytest.mark.parametrize("size", [2, 4])
def test_words_go_round_a_ring_of_blocks(size: int) -> None:
    expected = np.zeros(16 * 8, np.uint32)
    ring = lw.load(cluster_kernels.RING)["k"][8, 32]
    ring(expected, cluster=size)
    found = np.zeros_like(expected)
    run = lw.trace(ring, found, blocks=[(1,)], cluster=size)
    assert np.array_equal(found, expected) and {step.block for step in run.steps} == {(1, 0, 0)}
    # Every word that block 1 reads was written by another block of its cluster, which is not traced.
    loads = [step for step in run.steps if step.op.opcode == "ld" and step.op.space == "shared"]
    assert len(loads) == 5
    for step in loads:
        assert np.array_equal(step.shared("data", dtype=np.uint32)[:32], step.memory[0].values[:, 0])
    writer = run.writer("%r16", lane=3)
    assert writer is not None and writer.sources[0].step is None and writer.sources[0].value == writer.value


def test_a_fragment_of_a_warpgroup_is_held_by_four_warps() -> None:
    need_nvrtc()
    rng = np.random.default_rng(5)
    a, b = (rng.normal(size=shape).astype(ml_dtypes.bfloat16) for shape in ((64, 64), (256, 64)))
    d = np.zeros((64, 256), np.float32)
    run = lw.trace(lw.cuda(GEMM, arch="sm_90a")["gemm"][1, 128, 320 * 128], a, b, d, 256, 64)
    expected = lw.instruction(BF16.format(256)).gemm(a, np.ascontiguousarray(b.T), arch="sm_90a")
    assert np.array_equal(d.view(np.uint32), expected.view(np.uint32)) and not run.fault
    products = [step for step in run.steps if step.text.startswith("wgmma.mma_async")]
    assert len(products) == 4 * 4 and {step.warp for step in products} == {0, 1, 2, 3}
    for warp in (0, 3):
        last = [step for step in products if step.warp == warp][-1]
        assert np.array_equal(last.fragment("d").view(np.uint32), expected.view(np.uint32))
    alone = lw.trace(lw.cuda(GEMM, arch="sm_90a")["gemm"][1, 128, 320 * 128], a, b, d, 256, 64, warps=0)
    step = alone.first(lambda step: step.text.startswith("wgmma.mma_async"))
    assert step is not None
    with pytest.raises(lw.LanewiseError, match="held by four warps, and warp 1 was not traced"):
        step.fragment("d")
