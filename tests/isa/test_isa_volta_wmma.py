"""Volta's own wmma fragments: what was published of them, m8n8k4 in each quad pair, the machine."""

import itertools

import numpy as np
import pytest

import lanewise as lw
from everything import sampled
from lanewise.isa.operands import VOLTA_ASSUMED, VOLTA_PUBLISHED

SHAPES = ("m16n16k16", "m32n8k16", "m8n32k16")
ORDERS = ("row", "col")
FORMS = list(itertools.product(SHAPES, ORDERS, ORDERS, ("f16", "f32"), ("f16", "f32")))


def wmma(shape: str, a: str, b: str, d: str, c: str, arch: str | None = "sm_70") -> lw.Instruction:
    return lw.instruction(f"wmma.mma.sync.aligned.{a}.{b}.{shape}.{d}.{c}", arch=arch)


def test_the_published_tables_of_m16n16k16() -> None:
    """As users of a V100 measured them: A does not depend on bit 3 of the lane, B not on bit 2."""
    rows = wmma("m16n16k16", "row", "col", "f16", "f32")
    columns = wmma("m16n16k16", "col", "row", "f16", "f32")
    for lane, value in itertools.product(range(32), range(16)):
        bit = [lane >> number & 1 for number in range(5)]
        in_quad, across = lane & 3, value >> 2
        assert rows.a.element(lane, value) == (8 * bit[2] + 4 * bit[4] + in_quad, value)
        assert rows.b.element(lane, value) == (value, 8 * bit[3] + 4 * bit[4] + in_quad)
        assert columns.a.element(lane, value) == (8 * bit[2] + 4 * bit[4] + value % 4, in_quad + 4 * across)
        assert columns.b.element(lane, value) == (in_quad + 4 * across, 8 * bit[3] + 4 * bit[4] + value % 4)
        if value < 8:
            row, col = 8 * bit[2] + 4 * bit[4], 8 * bit[3]
            assert rows.d.element(lane, value) == (row + in_quad, col + value)
            pair = (row + bit[0] + 2 * (value >> 1 & 1), col + 2 * bit[1] + (value & 1) + 4 * (value >> 2))
            assert rows.c.element(lane, value) == pair


@sampled(3)
@pytest.mark.parametrize("form", [each for each in FORMS if each[3:] != ("f16", "f32")], ids="-".join)
def test_each_quad_pair_holds_what_m8n8k4_holds(form: tuple[str, str, str, str, str]) -> None:
    """Four values of K at a time are an m8n8k4 of the PTX ISA, on the tile of the quad pair."""
    _, a, b, d, c = form
    whole = wmma(*form)
    step = lw.instruction(f"mma.sync.aligned.m8n8k4.{a}.{b}.{d}.f16.f16.{c}")
    for name, lane in itertools.product("abcd", range(32)):
        big, small = whole.operands[name], step.operands[name]
        first = lane & 3 | lane & 16  # the lane of the first quad pair that does the same
        for value in range(big.values):
            row, col = big.element(lane, value)
            _, inner_row, inner_col = small.cell(first, value % small.values)
            along = 4 * (value // small.values) if name in "ab" else 0
            down, right = (along, 0) if name == "b" else (0, along if name == "a" else 0)
            assert (row - down - inner_row) % 8 == 0 and (col - right - inner_col) % 8 == 0
    assert whole.c.registers == wmma(*form, arch=None).c.registers


@pytest.mark.parametrize("form", FORMS, ids="-".join)
def test_every_element_is_held_as_often_as_the_registers_allow(form: tuple[str, str, str, str, str]) -> None:
    whole = wmma(*form)
    for operand in whole.operands.values():
        times = 32 * operand.values // (operand.rows * operand.cols)
        for row, col in itertools.product(range(operand.rows), range(operand.cols)):
            assert len(operand.holders(row, col)) == times
    if form[0] == "m16n16k16":
        assert len(whole.a.holders(0, 0)) == 2


def test_only_volta_has_them_and_they_say_where_they_are_from() -> None:
    plain = wmma("m16n16k16", "row", "col", "f32", "f32", arch=None)
    assert plain.on("sm_75") is plain and plain.on("sm_90").on("sm_75") is plain
    volta = plain.on("sm_70")
    assert volta != plain and volta.on("sm_80") == plain and volta.text == plain.text
    assert volta.a.source == VOLTA_PUBLISHED and plain.a.source != VOLTA_PUBLISHED
    assert wmma("m32n8k16", "row", "col", "f32", "f32").a.source == VOLTA_ASSUMED
    whole_numbers = lw.instruction("wmma.mma.sync.aligned.row.col.m16n16k16.s32.s8.s8.s32", arch="sm_72")
    assert not whole_numbers.fragments_of  # nothing is published of Xavier's


KERNEL = """
.version 7.0
.target sm_70
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d, .param .u64 x) {{
    .reg .b32 %r<9>; .reg .b32 %a<8>; .reg .b32 %b<8>; .reg .b32 %c<8>; .reg .b32 %d<8>; .reg .b64 %p<8>;
    ld.param.u64 %p0, [a]; ld.param.u64 %p1, [b]; ld.param.u64 %p2, [c]; ld.param.u64 %p3, [d];
    ld.param.u64 %p4, [x]; mov.u32 %r0, %tid.x; mul.wide.u32 %p5, %r0, 32; add.u64 %p4, %p4, %p5;
    wmma.load.a.sync.aligned.{a}.{shape}.f16 {{{A}}}, [%p0];
    wmma.load.b.sync.aligned.{b}.{shape}.f16 {{{B}}}, [%p1];
    wmma.load.c.sync.aligned.row.{shape}.{c} {{{C}}}, [%p2];
    wmma.mma.sync.aligned.{a}.{b}.{shape}.{d}.{c} {{{D}}}, {{{A}}}, {{{B}}}, {{{C}}};
    wmma.store.d.sync.aligned.row.{shape}.{d} [%p3], {{{D}}};
    {stores}
    ret;
}}
"""


@sampled(12)
@pytest.mark.parametrize(
    ("form", "arch"), [*((form, "sm_70") for form in FORMS[::9]), (FORMS[3], "sm_75")], ids=str
)
def test_the_machine_lays_them_out_so(form: tuple[str, str, str, str, str], arch: str) -> None:
    shape, a, b, d, c = form
    there = wmma(*form, arch=arch)
    names = {
        name.upper(): ", ".join(f"%{name}{number}" for number in range(there.operands[name].registers))
        for name in "abcd"
    }
    stores = " ".join(f"st.global.u32 [%p4+{4 * n}], %d{n};" for n in range(there.d.registers))
    text = KERNEL.format(shape=shape, a=a, b=b, c=c, d=d, stores=stores, **names)
    m, n, k = there.shape
    rng = np.random.default_rng(1)
    types = {"f16": np.float16, "f32": np.float32}
    left, right = (rng.integers(-4, 5, size).astype(np.float16) for size in ((m, k), (k, n)))
    begin = rng.integers(-4, 5, (m, n)).astype(types[c])
    result, registers = np.zeros((m, n), types[d]), np.zeros((32, 8), np.uint32)
    in_memory = [np.ascontiguousarray(x if o == "row" else x.T) for x, o in ((left, a), (right, b))]
    lw.load(text)["k"][1, 32](*in_memory, begin, result, registers, arch=arch)
    wanted = left.astype(np.float64) @ right.astype(np.float64) + begin
    np.testing.assert_array_equal(result, wanted)
    np.testing.assert_array_equal(there.d.unpack(registers[:, : there.d.registers]), wanted)
