"""Counters of `lanewise.check`: published and measured figures, and the rules by which hardware counts."""

from itertools import pairwise

import numpy as np
import pytest

import lanewise as lw
from gpu.counted import one_instruction

WAVEFRONTS = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
CONFLICTS = "sm__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum"
SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_{}.sum"
REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_{}.sum"
HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"


def count(name: str, offsets: np.ndarray) -> dict[str, int | float]:
    """The counters of one instruction by a warp, at these offsets."""
    kernel = lw.load(one_instruction(name))[name][1, 32]
    data, out = np.zeros(1 << 13, np.uint32), np.zeros(32, np.uint32)
    return dict(lw.check(kernel, offsets.astype(np.uint32), data, out).counters)


def ldmatrix(count: str, pitch: int) -> str:
    """A kernel of one warp with one ldmatrix whose rows are `pitch` bytes apart; two of them side by side."""
    registers = ", ".join(f"%r{number}" for number in range(int(count[1])))
    return f"""{HEAD}.visible .entry k() {{
    .reg .b32 %r<8>; .reg .b32 %a; .reg .b32 %b; .shared .align 128 .b8 tile[8192];
    mov.u32 %a, %tid.x; and.b32 %b, %a, 15; mul.lo.u32 %b, %b, {pitch}; shr.u32 %a, %a, 4; shl.b32 %a, %a, 4;
    add.u32 %a, %a, %b; mov.u32 %b, tile; add.u32 %a, %a, %b;
    ldmatrix.sync.aligned.m8n8.{count}.shared.b16 {{{registers}}}, [%a];
    ret;
}}"""


def excess(count: str, pitch: int) -> int:
    return int(lw.check(lw.load(ldmatrix(count, pitch))["k"][1, 32]).counters[CONFLICTS.format("ldsm")])


def test_published_bank_conflicts_of_two_products() -> None:
    steps = 1024 // 16
    # One warp a 16×8 tile: A by x4 with rows of 32 bytes; B by x2 with rows of 16 (transposed) or of 32.
    blocks = (1024 // 16) * (1024 // 8)
    assert (excess("x4", 32) + excess("x2", 16)) * steps * blocks == 2_097_152
    assert (excess("x4", 32) + excess("x2", 32)) * steps * blocks == 3_145_728
    # Blocks of 2×4 warps, each with 4×4 tiles of 16×8: A has rows of 32 bytes, B of 256.
    warps = (1024 // 128) ** 2 * 8
    assert (4 * excess("x4", 32) + 4 * excess("x2", 256)) * steps * warps == 2_359_296


@pytest.mark.parametrize(("pitch", "loads"), [(32, 65_536), (33, 2_048)])
def test_measured_wavefronts_of_a_transpose(pitch: int, loads: int) -> None:
    moves = "\n".join(
        f"""    ld.global.f32 %f, [%rd0+{row * 8 * 1024}]; st.shared.f32 [%s+{row * 8 * pitch * 4}], %f;"""
        for row in range(4)
    )
    back = "\n".join(
        f"    ld.shared.f32 %f, [%t+{row * 8 * 4}]; st.global.f32 [%rd1+{row * 8 * 1024}], %f;"
        for row in range(4)
    )
    text = f"""{HEAD}.visible .entry k(.param .u64 x, .param .u64 y) {{
    .reg .b32 %x, %y, %bx, %by, %i, %s, %t, %u;
    .reg .b64 %rd<4>; .reg .f32 %f; .shared .align 128 .b8 tile[{32 * pitch * 4}];
    mov.u32 %x, %tid.x; mov.u32 %y, %tid.y; mov.u32 %bx, %ctaid.x; mov.u32 %by, %ctaid.y; mov.u32 %u, tile;
    ld.param.u64 %rd0, [x]; mad.lo.u32 %i, %by, 32, %y; mul.lo.u32 %i, %i, 256; mad.lo.u32 %i, %bx, 32, %i;
    add.u32 %i, %i, %x; mul.wide.u32 %rd2, %i, 4; add.u64 %rd0, %rd0, %rd2;
    mad.lo.u32 %s, %y, {pitch}, %x; shl.b32 %s, %s, 2; add.u32 %s, %s, %u;
{moves}
    bar.sync 0;
    ld.param.u64 %rd1, [y]; mad.lo.u32 %i, %bx, 32, %y; mul.lo.u32 %i, %i, 256; mad.lo.u32 %i, %by, 32, %i;
    add.u32 %i, %i, %x; mul.wide.u32 %rd2, %i, 4; add.u64 %rd1, %rd1, %rd2;
    mad.lo.u32 %t, %x, {pitch}, %y; shl.b32 %t, %t, 2; add.u32 %t, %t, %u;
{back}
    ret;
}}"""
    x = np.arange(256 * 256, dtype=np.float32).reshape(256, 256)
    y = np.zeros_like(x)
    report = lw.check(lw.load(text)["k"][(8, 8), (32, 8)], x, y)
    assert report.ok, str(report)
    assert (y == x.T).all()
    assert report.counters[WAVEFRONTS.format("ld")] == loads
    assert report.counters[WAVEFRONTS.format("st")] == 2_048
    assert report.counters[SECTORS.format("ld")] == report.counters[SECTORS.format("st")] == 8_192


@pytest.mark.parametrize(("pitch", "wavefronts"), [(48, 8), (32, 4)])
def test_measured_wavefronts_of_wide_stores(pitch: int, wavefronts: int) -> None:
    lane = np.arange(32)
    offsets = lane // 2 * pitch + lane % 2 * 16
    assert count("st16", offsets)[WAVEFRONTS.format("st")] == wavefronts


@pytest.mark.parametrize(("pitch", "wavefronts"), [(32, 8), (48, 4)])
def test_measured_wavefronts_of_ldmatrix(pitch: int, wavefronts: int) -> None:
    assert excess("x4", pitch) + 4 == wavefronts


def served(offsets: np.ndarray, size: int) -> int:
    """Wavefronts by the definition: phases of 128 bytes, in each the distinct words of the fullest bank."""
    total = 0
    per_phase = 128 // max(size, 4)
    for start in range(0, 32, per_phase):
        words = {
            int(o) // 4 + part
            for o in offsets[start : start + per_phase]
            for part in range(max(size // 4, 1))
        }
        total += max(np.bincount([word % 32 for word in words]))
    return total


@pytest.mark.parametrize("name", ["st1", "st4", "st8", "st16", "ldsm4"])
def test_wavefronts_are_those_of_the_banks(name: str) -> None:
    size = {"1": 1, "4": 4, "8": 8, "6": 16, "m4": 16}[name[-2:] if "m" in name else name[-1]]
    way = "ldsm" if "ldsm" in name else "st"
    rng = np.random.default_rng(size)
    for spread in (32, 64, 512):
        offsets = rng.choice(spread, 32, replace=False) * size
        assert count(name, offsets)[WAVEFRONTS.format(way)] == served(offsets, size), offsets.tolist()


@pytest.mark.parametrize(("name", "size"), [("gld4", 4), ("gld16", 16), ("gst4", 4)])
def test_sectors_are_the_distinct_32_bytes(name: str, size: int) -> None:
    way = name[1:3]
    rng = np.random.default_rng(size)
    for spread in (32, 200, 2000):
        offsets = rng.integers(0, spread, 32) * size
        found = count(name, offsets)
        # Each kernel also loads its offsets and stores what it has: 128 bytes.
        assert found[SECTORS.format(way)] == len({int(o) // 32 for o in offsets}) + 4
        assert found[REQUESTS.format(way)] == 2


def test_lines_add_up_to_the_total() -> None:
    kernel = lw.load(one_instruction("ld8"))["ld8"][1, 32]
    report = lw.check(
        kernel, np.arange(32, dtype=np.uint32) * 16, np.zeros(8, np.uint32), np.zeros(32, np.uint32)
    )
    for name, value in report.counters.items():
        if name.endswith(".sum") or name.startswith(("memory", "derived")):
            assert value == sum(line.counters.get(name, 0) for line in report.lines), name
    assert [line.line for line in report.lines] == sorted(line.line for line in report.lines)
    assert all(a.line <= b.line for a, b in pairwise(report.lines))


def test_branches_barriers_and_tensor_instructions() -> None:
    text = f"""{HEAD}.visible .entry k(.param .u32 n) {{
    .reg .b32 %r<4>; .reg .pred %p; .reg .f32 %f<4>;
    mov.u32 %r0, %tid.x; mov.u32 %r1, 0; mov.f32 %f0, 0f00000000;
L:  setp.lt.u32 %p, %r0, 40;
    @%p bra M;
    add.u32 %r2, %r0, 1;
M:  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{%f0,%f1,%f2,%f3}}, {{%r1,%r1,%r1,%r1}}, {{%r1,%r1}},
        {{%f0,%f0,%f0,%f0}};
    bar.sync 0;
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p, %r1, 3;
    @%p bra L;
    ret;
}}"""
    found = lw.check(lw.load(text)["k"][2, 64], 0).counters
    # Two blocks of two warps, three turns; lanes 32 to 39 of a block go another way than 40 to 63.
    assert found["smsp__sass_branch_targets_threads_divergent.sum"] == 2 * 3
    assert found["smsp__inst_executed_op_branch.sum"] == 2 * 2 * 3 * 2
    assert found["lanewise__barriers.sum"] == 2 * 2 * 3
    assert found["smsp__inst_executed_pipe_tensor.sum"] == 2 * 2 * 3
    assert found["lanewise__tensor_flops.sum"] == 2 * 2 * 3 * 2 * 16 * 8 * 16
