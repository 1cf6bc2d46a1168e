"""Hopper in the kernel language: what each intrinsic emits, held against ptxas for sm_90a.

What the instructions do is the machine's business; here the PTX must be the one that was meant, ptxas must
take it, and must not tell of wgmma that it serialised.
"""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

import lanewise as lw
from lanewise.isa.matrix_descriptor import MatrixDescriptor
from ptxas import assemble, find_ptxas

MMA = lw.instruction("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16")
SW128 = lw.Swizzle(3, 3, 3)
Box = lw.TensorMap[lw.bf16, (64, 64), 128]
FourDimensions = lw.TensorMap[lw.f32, (4, 2, 8, 4)]


def traced(kernel: lw.Kernel, arch: str | None = None) -> str:
    """The PTX of a kernel, which ptxas must take."""
    text = kernel.ptx(arch)
    if find_ptxas() is not None:
        target = kernel.module(arch).target
        assert assemble(text, target) == []
    return text


def statements(text: str) -> list[str]:
    """The instructions of a kernel, without comments and directives."""
    lines = (line.strip() for line in text.split("{", 1)[1].splitlines())
    return [line for line in lines if line.endswith(";") and not line.startswith((".", "//"))]


def test_mbarriers() -> None:
    @lw.kernel
    def k(parity: lw.i32):
        bars = lw.mbarrier(4)
        bars.init(3)
        bars[1].arrive()
        bars[1].arrive(2)
        bars[parity].arrive(expect=4096)
        bars[0].expect(16)
        bars[2].wait(parity)
        bars[2].wait(1, scope="cluster")
        bars[3].remote(1).arrive()
        bars[3].remote(parity).arrive(expect=32)
        bars[3].remote(1).expect(32)
        if bars[0].test(0):
            bars[0].invalidate()

    text = traced(k)
    assert ".target sm_90\n" in text
    found = "\n".join(statements(text))
    for wanted in (
        "mbarrier.init.shared::cta.b64 [bars+24], 3;",
        "mbarrier.arrive.release.cta.shared::cta.b64 _, [bars+8], 2;",
        "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%r2], 4096;",
        "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bars], 16;",
        "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64",
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64",
        "mapa.shared::cluster.u32",
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _,",
        "mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _,",
        "mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64",
        "mbarrier.inval.shared::cta.b64 [bars];",
    ):
        assert wanted in found, (wanted, found)


def test_clusters() -> None:
    @lw.kernel(cluster=(2, 2))
    def k(x: lw.Ptr[lw.u32]):
        own = lw.shared(lw.u32, 32)
        own[lw.thread_idx.x] = x[lw.thread_idx.x]
        lw.cluster.sync()
        other = lw.cluster.map(own, lw.cluster.rank() ^ 1)
        x[lw.thread_idx.x] = other[lw.thread_idx.x] + other[3]
        other[0] = 1
        lw.cluster.arrive(relaxed=True)
        lw.cluster.wait()
        x[1] = (lw.cluster.size() + lw.cluster.block_idx.x + lw.cluster.block_dim.y).to(lw.u32)

    text = traced(k)
    assert ".reqnctapercluster 2, 2, 1" in text
    for wanted in (
        "barrier.cluster.arrive.release.aligned;",
        "barrier.cluster.arrive.relaxed.aligned;",
        "barrier.cluster.wait.acquire.aligned;",
        "mapa.shared::cluster.u32",
        "ld.shared::cluster.b32",
        "st.shared::cluster.b32",
        "%cluster_ctarank;",
        "%cluster_nctarank;",
        "%cluster_ctaid.x;",
        "%cluster_nctaid.y;",
    ):
        assert wanted in text, wanted


def test_the_cluster_barrier_alone_asks_for_the_ptx_version_that_has_it() -> None:
    @lw.kernel(cluster=2)
    def k(x: lw.Ptr[lw.u32]):
        lw.cluster.sync()
        x[lw.thread_idx.x] = 1

    assert "barrier.cluster.wait.acquire.aligned;" in traced(k)


def test_tma_by_tensor_maps() -> None:
    @lw.kernel
    def k(A: Box, F: FourDimensions, row: lw.i32):
        tile = lw.shared(lw.bf16, (64, 64), swizzle=SW128)
        many = lw.shared(lw.f32, (4, 2, 8, 4), align=128)
        bar = lw.mbarrier()
        assert (A.nbytes, F.nbytes) == (8192, 1024)
        lw.tma.prefetch_map(A)
        lw.tma.load(tile, A, (row, 64), bar)
        lw.tma.load(tile, A, (row, 64), bar[0], multicast=3, cache="evict_last")
        lw.tma.load(tile, A, (row, 64), bar, multicast=row)
        lw.tma.load(many, F, (row, 1, 2, 0), bar)
        lw.tma.prefetch(A, (0, row * 64))
        lw.tma.store(A, (row, 0), tile)
        lw.tma.reduce("add", F, (row, 1, 2, 4), many, cache="evict_first")
        lw.tma.commit()
        lw.tma.wait(1, read=True)
        lw.tma.wait()

    text = traced(k)
    assert ".param .align 64 .b8 A[128]" in text
    found = "\n".join(statements(text))
    load = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    for wanted in (
        f"{load} [tile], [%A, {{64, %row}}], [bar];",  # PTX has coordinates innermost first
        f"{load}.multicast::cluster.L2::cache_hint [tile], [%A, {{64, %row}}], [bar], %h0,",
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [many], "
        "[%F, {0, 2, 1, %row}], [bar];",
        "cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%A, {",
        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%A, {0, %row}], [tile];",
        "cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.tile.bulk_group.L2::cache_hint",
        "cp.async.bulk.commit_group;",
        "cp.async.bulk.wait_group.read 1;",
        "cp.async.bulk.wait_group 0;",
        "prefetch.tensormap [%A];",
    ):
        assert wanted in found, (wanted, found)


def test_bulk_copies_of_bytes() -> None:
    @lw.kernel
    def k(x: lw.Ptr[lw.f32, 16], n: lw.i32):
        tile = lw.shared(lw.f32, 256)
        bars = lw.mbarrier(2)
        lw.tma.copy(tile, x, 1024, bars[0])
        lw.tma.copy(tile, x + 4, n, bars[0], multicast=3)
        lw.tma.copy(x, tile, 1024)
        lw.tma.copy(lw.cluster.map(tile, 1), tile, 512, bars[1].remote(1))

    found = "\n".join(statements(traced(k)))
    for wanted in (
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%x], 1024, [bars];",
        "mbarrier::complete_tx::bytes.multicast::cluster [tile], [%x+16], %n, [bars], %h0;",
        "cp.async.bulk.global.shared::cta.bulk_group [%x], [tile], 1024;",
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [",
    ):
        assert wanted in found, (wanted, found)


def test_fences_and_launches_that_overlap() -> None:
    @lw.kernel
    def k(x: lw.Ptr[lw.f32]):
        lw.wait_on_dependencies()
        for space in ("shared", "cluster", "global", ""):
            lw.fence_proxy_async(space)
        lw.fence_mbarrier_init()
        if lw.elect_one():
            x[0] = 1.0
        lw.launch_dependents()

    found = statements(traced(k))
    assert found.count("griddepcontrol.wait;") == found.count("griddepcontrol.launch_dependents;") == 1
    for wanted in ("shared::cta", "shared::cluster", "global"):
        assert f"fence.proxy.async.{wanted};" in found
    assert "fence.proxy.async;" in found and "fence.mbarrier_init.release.cluster;" in found
    assert any(re.fullmatch(r"elect\.sync %r\d+\|%p\d+, 0xFFFFFFFF;", each) for each in found)


def test_registers_of_a_warpgroup() -> None:
    @lw.kernel(max_threads=256, min_blocks=1)
    def k(x: lw.Ptr[lw.f32]):
        if lw.thread_idx.x < 128:
            lw.setmaxnreg_dec(40)
        else:
            lw.setmaxnreg_inc(232)

    text = traced(k)
    assert ".target sm_90a\n" in text  # the only arch that has it
    assert "setmaxnreg.dec.sync.aligned.u32 40;" in text and "setmaxnreg.inc.sync.aligned.u32 232;" in text


@pytest.mark.parametrize("source", ["descriptor", "registers"])
@pytest.mark.parametrize(
    ("types", "k", "dtype"),
    [
        ("f32.bf16.bf16", 16, lw.bf16),
        ("f16.f16.f16", 16, lw.f16),
        ("f32.tf32.tf32", 8, lw.tf32),
        ("f32.e4m3.e5m2", 32, None),
        ("s32.s8.s8", 32, lw.s8),
    ],
)
def test_wgmma_of_every_type(types: str, k: int, dtype: lw.Format | None, source: str) -> None:
    mma = lw.instruction(f"wgmma.mma_async.sync.aligned.m64n32k{k}.{types}")
    in_registers = lw.instruction(mma.text, a_source="registers")
    a_type, b_type = (dtype, dtype) if dtype else (lw.e4m3, lw.e5m2)
    per_row = 128 * 8 // a_type.bits

    @lw.kernel
    def kernel(out: lw.Ptr[lw.u32]):
        swizzle = lw.Swizzle(3, 4 - (a_type.bits // 16), 3)
        sA = lw.shared(a_type, lw.Layout((64, per_row), (per_row, 1)), swizzle=swizzle)
        sB = lw.shared(b_type, lw.Layout((32, per_row), (per_row, 1)), swizzle=swizzle)
        a, b = lw.make_gmma_desc(sA), lw.make_gmma_desc(sB)
        if source == "registers":
            a = in_registers.a.fragment([lw.u32(0)] * in_registers.a.registers)
        acc = mma.zeros()
        lw.wgmma_fence()
        acc = mma(a, b[0, k], acc, accumulate=False)
        lw.wgmma_commit()
        lw.wgmma_wait()
        for i, each in enumerate(acc.registers):
            out[i * 128 + lw.thread_idx.x] = lw.bitcast(each, lw.u32)

    text = traced(kernel)
    line = next(each for each in statements(text) if each.startswith("wgmma.mma_async"))
    assert lw.instruction(line).text == mma.text  # its operands are as many as the catalogue says
    assert (line.split("}, ")[1][0] == "{") == (source == "registers")


DESCRIBED = [
    (lw.bf16, lw.Layout((128, 64), (64, 1)), lw.Swizzle(3, 3, 3), "K", (0, 1024, "128B")),
    (lw.bf16, lw.Layout((64, 32), (32, 1)), lw.Swizzle(2, 3, 3), "K", (0, 512, "64B")),
    (lw.bf16, lw.Layout((64, 16), (16, 1)), lw.Swizzle(1, 3, 3), "K", (0, 256, "32B")),
    (lw.bf16, lw.Layout(((8, 8), (8, 2)), ((8, 64), (1, 512))), None, "K", (1024, 128, "none")),
    (lw.bf16, lw.Layout(((64, 2), 64), ((1, 4096), 64)), lw.Swizzle(3, 3, 3), "MN", (8192, 1024, "128B")),
    (lw.s8, lw.Layout((64, 128), (128, 1)), lw.Swizzle(3, 4, 3), "K", (0, 1024, "128B")),
]


@pytest.mark.parametrize(("dtype", "layout", "swizzle", "major", "fields"), DESCRIBED)
def test_a_layout_decides_the_descriptor(
    dtype: Any, layout: Any, swizzle: Any, major: str, fields: Any
) -> None:
    """The fields are those that the PTX ISA gives for each canonical layout."""
    made = []

    @lw.kernel
    def k(out: lw.Ptr[lw.u64]):
        made.append(lw.make_gmma_desc(lw.shared(dtype, layout, swizzle=swizzle, align=1024)))
        out[0] = made[-1].bits

    text = traced(k)
    leading, stride, mode = fields
    wanted = MatrixDescriptor(0, leading, stride, 0, mode)
    assert made[-1].major == major and made[-1].described.fields == wanted
    assert f", {wanted.encode()};" in text


def test_steps_of_a_descriptor_are_sixteenths_of_bytes() -> None:
    @lw.kernel
    def k(out: lw.Ptr[lw.u64], stage: lw.i32):
        tile = lw.dynamic_shared(lw.bf16, lw.Layout((128, 64, 4), (64, 1, 128 * 64)), swizzle=SW128)
        d = lw.make_gmma_desc(tile)
        out[0] = d[0, 16, 0].bits  # 32 bytes
        out[1] = d[64, 48, 1].bits  # 64 rows of 128 bytes, 96 bytes, a stage of 16 KB
        out[2] = d[0, 0, stage].bits

    found = statements(traced(k))
    assert [each.rsplit(" ", 1)[1] for each in found if each.startswith("add.u64")][:2] == ["2;", "1542;"]


def test_accumulators_stay_in_their_registers() -> None:
    """A loop carries no copies of an accumulator, and elements that were read do not change afterwards."""

    @lw.kernel
    def k(out: lw.Ptr[lw.f32], n: lw.i32):
        tile = lw.shared(lw.bf16, (64, 64), swizzle=SW128)
        d = lw.make_gmma_desc(tile)
        acc = MMA.zeros()
        for _ in lw.range(n):
            lw.wgmma_fence()
            acc = MMA(d, d, acc)
            lw.wgmma_commit()
        lw.wgmma_wait()
        before = acc[0]
        acc[1] = 2.0
        lw.wgmma_fence()
        acc = MMA(d, d, acc, negate_a=True)
        lw.wgmma_commit()
        lw.wgmma_wait()
        out[0] = before
        out[1] = acc[0]

    found = statements(traced(k))
    products = [each for each in found if each.startswith("wgmma.mma_async")]
    assert len(products) == 2
    assert products[0].split("}")[0] == products[1].split("}")[0]
    assert products[1].endswith("-1, 1, 0, 0;")
    assert sum(each.startswith("mov.f32 %acc") for each in found) == 32 + 1  # zeros, and acc[1] = 2.0
    assert found.index("mov.f32 %before, %acc0;") < found.index(products[1])


@pytest.mark.skipif(find_ptxas() is None, reason="needs ptxas")
def test_a_pipelined_loop_is_not_serialised(tmp_path: Path) -> None:
    """ptxas says so (C7510 and its kin) when it has to wait after each wgmma."""

    @lw.kernel(max_threads=256, min_blocks=1)
    def k(A: Box, out: lw.Ptr[lw.f32], steps: lw.i32):
        tiles = lw.shared(lw.bf16, lw.Layout((64, 64, 4), (64, 1, 4096)), swizzle=SW128)
        pipeline = lw.Pipeline(4, bytes=A.nbytes, consumers=1)
        if lw.thread_idx.x == 0:
            pipeline.init()
            lw.fence_mbarrier_init()
        lw.syncthreads()
        if lw.shfl_sync(lw.thread_idx.x // 128, 0) == 0:
            lw.setmaxnreg_dec(40)
            filling = pipeline.producer_state()
            if lw.thread_idx.x == 0:
                for step in lw.range(steps):
                    pipeline.acquire(filling)
                    lw.tma.load(
                        tiles[None, None, filling.stage], A, (0, step * 64), pipeline.barrier(filling)
                    )
                    pipeline.commit(filling)
                    filling = filling.next()
        else:
            lw.setmaxnreg_inc(232)
            d = lw.make_gmma_desc(tiles)
            acc = MMA.zeros()
            reading = before = pipeline.consumer_state()
            for step in lw.range(steps):
                pipeline.wait(reading)
                lw.wgmma_fence()
                for j in range(0, 64, 16):
                    acc = MMA(d[0, j, reading.stage], d[0, j, reading.stage], acc)
                lw.wgmma_commit()
                lw.wgmma_wait(1)
                if (step > 0) & (lw.thread_idx.x == 128):
                    pipeline.release(before)
                before, reading = reading, reading.next()
            lw.wgmma_wait(0)
            for i in range(len(acc)):
                row, col = acc.element(i)
                out[row * 64 + col] = acc[i]

    source = tmp_path / "k.ptx"
    source.write_text(k.ptx())
    command = [str(find_ptxas()), "-arch=sm_90a", "-v", str(source), "-o", str(tmp_path / "k.cubin")]
    done = subprocess.run(command, capture_output=True, text=True)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert not re.search(r"C75\d\d|serializ|Potential Performance", said), said
    assert "0 bytes spill stores" in said


def test_persistent_tiles_cover_every_tile_once() -> None:
    """The formula, on Python integers: each tile of the matrix has one number, grouped by rows."""
    for rows, columns, group in ((7, 5, 4), (1, 1, 8), (16, 16, 8), (3, 9, 2)):
        tiles = lw.PersistentTiles.__new__(lw.PersistentTiles)
        tiles.rows, tiles.columns, tiles.group = rows, columns, group
        found = [tiles[number] for number in range(rows * columns)]
        assert sorted(found) == [(r, c) for r in range(rows) for c in range(columns)]
        assert {r for r, _ in found[: min(group, rows)]} == set(range(min(group, rows)))


def test_a_box_may_have_modes_of_one_element_with_any_stride() -> None:
    @lw.kernel
    def k(A: lw.TensorMap[lw.bf16, (1, 64, 64), 128]):
        tile = lw.shared(lw.bf16, lw.Layout((1, 64, 64), (0, 64, 1)), swizzle=SW128)
        bar = lw.mbarrier()
        lw.tma.load(tile, A, (0, 0, 0), bar[0])

    assert "cp.async.bulk.tensor.3d" in traced(k)
