"""Loads that race with a store, and whether the thread that loads can do anything with the value.

The oracle is the machine itself: where nobody observes the value, the results are the same in every order of
warps; where they differ, the race must be found.
"""

import random

import numpy as np
import pytest

import lanewise as lw
from lanewise.machine.analysis.thread_predicates import ThreadPredicates
from lanewise.machine.checker.checked_kernel import checked

SCHEDULES = ["in order", "reverse", 3]
#: 128 threads; %x is what a thread loads from [%p], %i its number, %own its place in the results.
BEGIN = """.version 8.0
.target sm_80
.address_size 64
.visible .entry kernel(.param .u64 p, .param .u64 out, .param .u32 n) {
    .reg .b64 %p, %out, %own, %rd<8>; .reg .b32 %x, %y, %z, %i, %n, %r<32>; .reg .pred %p<32>;
    ld.param.u64 %p, [p]; ld.param.u64 %out, [out]; ld.param.u32 %n, [n];
    mov.u32 %i, %tid.x; mul.wide.u32 %rd0, %i, 4; add.u64 %own, %out, %rd0;
"""
LOAD = "mov.u32 %x, 0; ld.global.u32 %x, [%p]; mad.lo.u32 %y, %x, 3, 1;\n"
ONE_STORES = "setp.eq.u32 %p0, %i, 0; @%p0 st.global.u32 [%p], %y;\n"
RIGHT = {
    "a running sum": LOAD + ONE_STORES,
    "in a loop": "mov.u32 %r9, 0;\nL:\n" + LOAD + ONE_STORES
    + "add.u32 %r9, %r9, 1; setp.lt.u32 %p9, %r9, 4; @%p9 bra L;\n",
    "a tensor of 32 elements": """
    and.b32 %r0, %i, 31; mul.wide.u32 %rd1, %r0, 4; add.u64 %rd1, %p, %rd1;
    ld.global.u32 %x, [%rd1]; add.u32 %y, %x, 1;
    and.b32 %r1, %i, 96; setp.eq.u32 %p0, %r1, 0; @%p0 st.global.u32 [%rd1], %y;
""",
    "with a mask that is not known": LOAD + """
    setp.eq.u32 %p0, %i, 0; setp.lt.u32 %p1, %i, %n; and.pred %p2, %p0, %p1; @%p2 st.global.u32 [%p], %y;
""",
    "with a mask that depends on the value": LOAD + """
    setp.gt.u32 %p1, %x, 3; setp.eq.and.u32 %p2, %i, 0, %p1; @%p2 st.global.u32 [%p], %y;
""",
    "by a sum over the warp": LOAD + """
    shfl.sync.bfly.b32 %r0, %x, 16, 31, -1; add.u32 %y, %x, %r0; bar.warp.sync -1;
""" + ONE_STORES,
    "behind a branch on the value": LOAD + """
    setp.gt.u32 %p1, %x, 3; @%p1 bra L; mul.lo.u32 %y, %y, 5;
L:
""" + ONE_STORES,
    "the store behind a branch on the value": LOAD + "setp.lt.u32 %p1, %x, 3; @%p1 bra L;\n"
    + ONE_STORES + "L:\n",
    "kept by another thread where it is known": LOAD + """
    setp.eq.u32 %p1, %i, 0; @%p1 st.global.u32 [%own], %x;
""" + ONE_STORES,
}  # fmt: skip
WRONG = {
    "every thread keeps the old value": LOAD + ONE_STORES + "st.global.u32 [%own], %x;\n",
    "the last thread does": LOAD + ONE_STORES
    + "setp.eq.u32 %p1, %i, 127; @%p1 st.global.u32 [%own], %x;\n",
    "where a parameter says so": LOAD + ONE_STORES
    + "setp.lt.u32 %p1, %i, %n; @%p1 st.global.u32 [%own], %x;\n",
    "by an atomic": LOAD + ONE_STORES + "red.global.add.u32 [%own], %x;\n",
    "as an address": LOAD + ONE_STORES
    + "and.b32 %r0, %x, 1; mul.wide.u32 %rd1, %r0, 4; add.u64 %rd1, %rd1, %own; st.global.u32 [%rd1], 9;\n",
    "as a guard": LOAD + ONE_STORES + "setp.gt.u32 %p1, %x, 3; @%p1 st.global.u32 [%own], 9;\n",
    "as a branch": LOAD + ONE_STORES + """
    setp.gt.u32 %p1, %x, 3; @%p1 bra L; st.global.u32 [%own], 9;
L:
""",
    "as a choice behind a branch": LOAD + ONE_STORES + """
    mov.u32 %z, 0; setp.gt.u32 %p1, %x, 3; @%p1 bra L; mov.u32 %z, 7;
L:
    st.global.u32 [%own], %z;
""",
    "by another lane of the warp": LOAD + ONE_STORES + """
    shfl.sync.idx.b32 %r0, %x, 5, 31, -1; and.b32 %r1, %i, 31;
    setp.eq.u32 %p1, %r1, 0; @%p1 st.global.u32 [%own], %r0;
""",
    "of another lane, which alone loads": """
    and.b32 %r1, %i, 31; setp.eq.u32 %p1, %r1, 5; mov.u32 %x, 0; @%p1 ld.global.u32 %x, [%p];
    shfl.sync.idx.b32 %r0, %x, 5, 31, -1; mov.u32 %y, 77;
    setp.eq.u32 %p2, %r1, 0; @%p2 st.global.u32 [%own], %r0;
""" + ONE_STORES,
    "through shared memory": ".shared .align 4 .b8 s[512];\n" + LOAD + ONE_STORES + """
    mov.u32 %r0, s; shl.b32 %r1, %i, 2; add.u32 %r0, %r0, %r1; st.shared.u32 [%r0], %x;
    bar.sync 0; ld.shared.u32 %r2, [%r0]; st.global.u32 [%own], %r2;
""",
    "by a carry": LOAD + ONE_STORES + """
    add.cc.u32 %r0, %x, 0xfffffffc; addc.u32 %r1, 0, 0; st.global.u32 [%own], %r1;
""",
    "two values of one register": LOAD + ONE_STORES
    + "mov.u32 %r0, %x; mov.u32 %x, 1; st.global.u32 [%own], %r0;\n",
    "by a guard that a loop changes": LOAD + ONE_STORES + """
    mov.u32 %r9, 0; setp.ne.u32 %p1, %i, %i;
L:
    @%p1 st.global.u32 [%own], %x;
    setp.eq.u32 %p1, %i, %i; add.u32 %r9, %r9, 1; setp.lt.u32 %p9, %r9, 3; @%p9 bra L;
""",
}  # fmt: skip


def outcomes(text: str) -> tuple[set[bytes], set[bool]]:
    """Return the results of a kernel in three orders of its warps, and whether a check finds no error."""
    kernel = lw.load(BEGIN + text + "    ret;\n}\n")["kernel"]
    results, silent = set(), set()
    for schedule in SCHEDULES:
        p, out = np.full(32, 3, np.uint32), np.zeros(129, np.uint32)
        report = lw.check(kernel[1, 128], p, out, 128, schedule=schedule)
        assert all(each.kind == "race" for each in report.findings)
        results.add(p.tobytes() + out.tobytes())
        silent.add(report.ok)
    return results, silent


@pytest.mark.parametrize("name", RIGHT)
def test_is_silent_where_nobody_observes_the_value(name: str) -> None:
    results, silent = outcomes(RIGHT[name])
    assert len(results) == 1
    assert silent == {True}


@pytest.mark.parametrize("name", WRONG)
def test_is_found_where_a_thread_observes_the_value(name: str) -> None:
    results, silent = outcomes(WRONG[name])
    assert len(results) > 1, "the kernel is right"
    assert silent == {False}


def test_another_reader_is_not_hidden_by_one_whose_value_nobody_observes() -> None:
    """Shadow memory has room for a few readers of a word."""
    text = "ld.global.u32 %z, [%p]; setp.eq.u32 %p1, %i, 40; @%p1 st.global.u32 [%own], %z;\n" + LOAD * 3
    results, silent = outcomes(text + ONE_STORES)
    assert len(results) > 1
    assert silent == {False}


def test_a_loop_that_waits_for_the_value_observes_it() -> None:
    """Although nothing is stored: with another value it never ends."""
    store = "setp.eq.u32 %p0, %i, 0; @%p0 st.global.u32 [%p], 9; ld.global.u32 %x, [%p];\n"
    wait = "L:\n    setp.ne.u32 %p1, %x, 9; @%p1 bra L;\n    ret;\n}\n"
    kernel = lw.load(BEGIN + store + wait)["kernel"]
    report = lw.check(kernel[1, 128], np.full(32, 3, np.uint32), np.zeros(128, np.uint32), 128)
    assert [each.kind for each in report.findings] == ["race"]


# random kernels ---------------------------------------------------------------------------------------------

GUARDS = (
    "setp.eq.u32 {}, %i, 0;", "setp.lt.u32 {}, %i, 8;", "setp.eq.u32 {}, %i, 77;", "setp.ge.u32 {}, %i, 32;",
    "and.b32 %r30, %i, 96; setp.eq.u32 {}, %r30, 0;", "shr.u32 %r30, %i, 5; setp.eq.u32 {}, %r30, 2;",
    "setp.gt.u32 {}, %x, 9;", "setp.lt.u32 {}, %i, %n;", "setp.eq.and.u32 {}, %i, 0, %p31;",
    "setp.lt.u32 %p30, %x, 40; setp.eq.u32 {}, %i, 0; and.pred {}, {}, %p30;",
)  # fmt: skip
STEPS = (
    "add.u32 %y, %y, %x;", "xor.b32 %y, %y, %i;", "mov.u32 %y, 5;",
    "shfl.sync.bfly.b32 %r29, %y, 8, 31, -1; add.u32 %y, %y, %r29;",
    "setp.gt.u32 %p29, %y, 50; selp.u32 %y, %y, 17, %p29;",
    "setp.gt.u32 %p29, %y, 60; @%p29 bra L{}; add.u32 %y, %y, 100;\nL{}:\n",
)  # fmt: skip


def random_kernel(rng: random.Random) -> str:
    """A load, some steps of computation, and stores under guards: one of them where it was loaded."""
    text = "setp.lt.u32 %p31, %i, 64; ld.global.u32 %x, [%p]; mov.u32 %y, %x;\n"
    places = ["[%p]", *rng.sample(["[%own]", "[%own]", "[%own]"], rng.randrange(3))]
    rng.shuffle(places)
    for number, place in enumerate(places):
        for _ in range(rng.randrange(3)):
            label = rng.randrange(1 << 30)
            text += rng.choice(STEPS).format(label, label) + "\n"
        guard = f"%p{number}"
        text += rng.choice(GUARDS[:1] if place == "[%p]" else GUARDS).replace("{}", guard)
        text += f" @{guard} st.global.u32 {place}, %y;\n"
    return text


def test_results_that_depend_on_the_order_are_always_found() -> None:
    rng = random.Random(22)
    silent_kernels = differing = 0
    for _ in range(60):
        text = random_kernel(rng)
        results, silent = outcomes(text)
        assert len(results) == 1 or silent == {False}, text
        silent_kernels += silent == {True}
        differing += len(results) > 1
    assert silent_kernels > 5
    assert differing > 5


# predicates of threads --------------------------------------------------------------------------------------

OPERATIONS = (
    "add.u32 %r{0}, %r{1}, %r{2};", "sub.u32 %r{0}, %r{1}, %r{2};", "mul.lo.s32 %r{0}, %r{1}, %r{2};",
    "mad.lo.u32 %r{0}, %r{1}, %r{2}, %i;", "and.b32 %r{0}, %r{1}, {3};", "or.b32 %r{0}, %r{1}, %r{2};",
    "xor.b32 %r{0}, %r{1}, {3};", "not.b32 %r{0}, %r{1};", "shl.b32 %r{0}, %r{1}, %r{2};",
    "shr.u32 %r{0}, %r{1}, {4};", "shr.s32 %r{0}, %r{1}, {4};", "shr.s32 %r{0}, %r{1}, %r{2};",
    "bfe.u32 %r{0}, %r{1}, {4}, 3;", "bfe.u32 %r{0}, %r{1}, %r{2}, {4};", "bfe.u32 %r{0}, %r{1}, 258, 261;",
    "mul.wide.u32 %rd1, %r{1}, %r{2}; cvt.u32.u64 %r{0}, %rd1;", "min.s32 %r{0}, %r{1}, %r{2};",
    "mul.wide.s32 %rd{5}, %r{1}, {3}; shr.s64 %rd{5}1, %rd{5}, {4}; cvt.u32.u64 %r{0}, %rd{5}1;",
    "mad.wide.s32 %rd{5}, %r{1}, %r{2}, -3; shr.u64 %rd{5}1, %rd{5}, {4}; cvt.u32.u64 %r{0}, %rd{5}1;",
    "cvt.s64.s32 %rd{5}, %r{1}; shr.s64 %rd{5}1, %rd{5}, 40; cvt.u32.u64 %r{0}, %rd{5}1;",
    "cvt.u16.u32 %h{5}, %r{1}; cvt.s32.s16 %r{0}, %h{5};", "cvt.s16.s32 %r{0}, %r{1};",
    "mov.u32 %r{0}, %laneid;", "mov.u32 %r{0}, {3};",
    "selp.b32 %r{0}, %r{1}, %r{2}, %p{6};", "mov.u32 %r{0}, %ntid.y;", "mov.u32 %r{0}, %tid.z;",
)  # fmt: skip
COMPARISONS = (
    "setp.{7}.u32 %p{0}, %r{1}, %r{2};", "setp.{7}.s32 %p{0}, %r{1}, {3};", "not.pred %p{0}, %p{6};",
    "setp.{7}.and.s32 %p{0}, %r{1}, %r{2}, %p{6};", "setp.{7}.or.u32 %p{0}, %r{1}, {3}, !%p{6};",
    "and.pred %p{0}, %p{6}, %p{8};", "or.pred %p{0}, %p{6}, %p{8};", "xor.pred %p{0}, %p{6}, %p{8};",
    "mov.pred %p{0}, %p{6};", "setp.{7}.xor.u32 %p{0}, %r{1}, %r{2}, %p{6};",
)  # fmt: skip
COUNT = 24


def random_predicates(rng: random.Random) -> str:
    """A kernel of numbers and predicates that are computed from the place of a thread, and from memory."""
    lines = [
        "mov.u32 %r0, %tid.x; ld.global.u32 %r1, [%p];",
        "setp.eq.u32 %p0, %r0, 3; setp.eq.u32 %p1, %r1, 3; mov.u32 %r2, %tid.y; setp.lt.u32 %p2, %r2, 1;",
    ]
    for number in range(3, COUNT):
        for patterns in (OPERATIONS, COMPARISONS):
            first, second, one, other = (rng.randrange(number) for _ in range(4))
            first = number if patterns is COMPARISONS else first  # what was just computed
            constant = rng.choice((0, 1, 7, 31, 96, -1, -8, rng.randrange(1 << 31)))
            relation = rng.choice(("eq", "ne", "lt", "le", "gt", "ge"))
            words = (number, first, second, constant, rng.randrange(70), number, one, relation, other)
            lines.append(rng.choice(patterns).format(*words))
    for number in range(COUNT):
        predicate, value = (4 * 96 * each for each in (number, COUNT + number))
        lines.append(f"selp.u32 %r31, 1, 0, %p{number}; st.global.u32 [%own+{predicate}], %r31;")
        lines.append(f"st.global.u32 [%own+{value}], %r{number};")
    names = ", ".join(f"%rd{number}, %rd{number}1" for number in range(3, COUNT))
    begin = BEGIN.replace("%rd<8>;", f"%rd0, %rd1, {names}; .reg .b16 %h<{COUNT}>;")
    rows = "mov.u32 %r31, %tid.y; mad.lo.u32 %i, %r31, 8, %i;"
    planes = "mov.u32 %r31, %tid.z; mad.lo.u32 %i, %r31, 48, %i;"
    begin = begin.replace("mul.wide.u32 %rd0, %i, 4;", f"{rows} {planes} mul.wide.u32 %rd0, %i, 4;")
    return begin + "\n".join(lines) + "\n    ret;\n}\n"


def test_what_is_known_of_predicates_is_what_the_machine_computes() -> None:
    rng, known, unknown = random.Random(23), 0, 0
    for _ in range(25):
        text = random_predicates(rng)
        module, out = lw.load(text), np.zeros((2 * COUNT, 96), np.uint32)
        module["kernel"][1, (8, 6, 2)](np.full(1, 3, np.uint32), out, 0)
        program = checked(module, module["kernel"].function, "sm_80").program
        analysis = ThreadPredicates(program, (8, 6, 2))
        stores = [op.operands[1] for op in program.sites if op.record.is_plain_store][1::2]
        predicates = [op.operands[3] for op in program.sites if op.record.chooses][-COUNT:]
        for number, (predicate, register) in enumerate(zip(predicates, stores, strict=True)):
            value, (true, false) = analysis.number(register, "u32"), analysis.truth(predicate)
            assert value is None or (value == out[COUNT + number]).all(), f"%r{number}\n{text}"
            assert not (true & false).any()
            assert (out[number][true] == 1).all(), f"%p{number}\n{text}"
            assert (out[number][false] == 0).all(), f"%p{number}\n{text}"
            known += int((true | false).sum())
            unknown += int((~(true | false)).sum())
    assert min(known, unknown) > 10_000


@pytest.mark.parametrize("type", ["u8", "s8", "u16", "s16", "u32"])
def test_a_number_that_is_cut_to_fewer_bits_than_its_register_is_not_the_whole_number(type: str) -> None:
    module = lw.load(
        BEGIN + f"mul.lo.u32 %r0, %i, 1031; cvt.{type}.u32 %r1, %r0; st.global.u32 [%own], %r1; ret; }}"
    )
    out = np.zeros(128, np.uint32)
    module["kernel"][1, 128](np.zeros(1, np.uint32), out, 0)
    program = checked(module, module["kernel"].function, "sm_80").program
    (stored,) = (op.operands[1] for op in program.sites if op.record.is_plain_store)
    value = ThreadPredicates(program, (128, 1, 1)).number(stored, "u32")
    assert value is not None or type != "u32"
    assert value is None or (value == out).all()
