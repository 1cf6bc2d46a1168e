"""Registers without a value: results that depend on them are told of, and nothing else is."""

import numpy as np
import pytest

import lanewise as lw
from everything import sampled
from lanewise.machine.checker.findings import Finding
from lanewise.machine.checker.report import Report

HEAD = """
.version 8.0
.target sm_80
.address_size 64
{function}
.visible .entry k(.param .u64 out, .param .u32 n) {{
    .reg .b64 %rd<8>; .reg .b32 %r<16>; .reg .f32 %f<16>; .reg .pred %p<5>; .reg .b16 %h<4>;
    .shared .align 16 .b8 tile[2048];
    ld.param.u64 %rd0, [out];
    ld.param.u32 %r15, [n];
    mov.u32 %r14, %tid.x;
    mul.wide.u32 %rd1, %r14, 4;
    add.s64 %rd0, %rd0, %rd1;
    setp.lt.u32 %p0, %r14, %r15;
    {body}
    ret;
}}
"""
FUNCTION = """
.func (.param .b32 result) twice(.param .b32 given) {
    .reg .b32 %r<4>;
    ld.param.b32 %r0, [given];
    WHAT
    st.param.b32 [result], %r1;
    ret;
}
"""
CALL = """
    { .param .b32 given; .param .b32 got;
    st.param.b32 [given], %r14;
    call.uni (got), twice, (given);
    ld.param.b32 %r0, [got]; }
    st.global.u32 [%rd0], %r0;
"""
MMA = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f0, %f1, %f2, %f3}, {%r4, %r5, %r6, %r7}, "
MMA += "{%r8, %r9}, {%f0, %f1, %f2, %f3};"
OPERANDS = "".join(f"mov.u32 %r{number}, 0; " for number in range(4, 10))
WRONG = {
    "packed and unpacked": "mov.b64 %rd2, {%r14, %r0}; mov.b64 {_, %r1}, %rd2; st.global.u32 [%rd0], %r1;",
    "stored": "st.global.u32 [%rd0], %r0;",
    "moved, then stored": "mov.u32 %r1, %r0; mov.u32 %r2, %r1; st.global.u32 [%rd0], %r2;",
    "xor": "xor.b32 %r1, %r0, %r14; st.global.u32 [%rd0], %r1;",
    "converted": "cvt.rn.f32.s32 %f1, %r0; st.global.f32 [%rd0], %f1;",
    "chosen": "selp.b32 %r1, %r0, 7, %p0; st.global.u32 [%rd0], %r1;",
    "predicate": "@%p1 st.global.u32 [%rd0], %r14;",
    "branch": "@%p1 bra on; st.global.u32 [%rd0], %r14; on:",
    "shuffled": "shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1; st.global.u32 [%rd0], %r1;",
    "voted": "vote.sync.ballot.b32 %r1, %p1, -1; st.global.u32 [%rd0], %r1;",
    "an accumulator that nobody cleared": OPERANDS + MMA + "st.global.f32 [%rd0], %f0;",
    "an operand of mma": "mov.f32 %f0, 0f00000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0;"
    + OPERANDS.replace("mov.u32 %r6, 0; ", "")
    + MMA
    + "st.global.f32 [%rd0], %f0;",
    "set under a guard": "@%p0 mov.u32 %r0, 5; st.global.u32 [%rd0], %r0;",
    "set in one branch": "@%p0 bra on; mov.u32 %r0, 5; on: st.global.u32 [%rd0], %r0;",
    "used under another guard": "setp.gt.u32 %p1, %r14, 3; @%p0 mov.u32 %r0, 5; "
    "@%p1 st.global.u32 [%rd0], %r0;",
    "packed": "mov.b64 %rd2, {%r0, %r14}; st.global.u32 [%rd0], %rd2;",
    "an address": "cvt.u64.u32 %rd4, %r0; and.b64 %rd4, %rd4, 4; add.s64 %rd3, %rd0, %rd4; "
    "st.global.u32 [%rd3], %r14;",
    "to shared memory": "mov.u32 %r1, tile; st.shared.u32 [%r1], %r0;",
    "an atomic": "red.global.add.u32 [%rd0], %r0;",
    "a sum": "add.u32 %r1, %r0, 1; st.global.u32 [%rd0], %r1;",
    "loaded under a guard and added": "@%p0 ld.global.u32 %r0, [%rd0]; add.u32 %r1, %r0, 1; "
    "st.global.u32 [%rd0], %r1;",
    "copied from nothing, loaded under a guard and added": "mov.b32 %r0, %r3; "
    "@%p0 ld.global.u32 %r0, [%rd0]; mul.lo.u32 %r1, %r0, 3; st.global.u32 [%rd0], %r1;",
    "copied from nothing and added": "mov.b32 %r0, %r3; add.u32 %r1, %r0, 1; @%p0 st.global.u32 [%rd0], %r1;",
    "loaded under a guard, added, and branched on": "@%p0 ld.global.u32 %r0, [%rd0]; add.u32 %r1, %r0, 1; "
    "setp.eq.u32 %p1, %r1, 9; @%p1 bra on; st.global.u32 [%rd0], %r14; on:",
    "loaded under a guard, added, and stored under another": "setp.gt.u32 %p1, %r14, 3; "
    "@%p0 ld.global.u32 %r0, [%rd0]; add.u32 %r1, %r0, 1; @%p1 st.global.u32 [%rd0], %r1;",
    "a loop that adds to it": "mov.u32 %r1, 0; again: add.u32 %r0, %r0, %r1; add.u32 %r1, %r1, 1; "
    "setp.lt.u32 %p1, %r1, 4; @%p1 bra again; st.global.u32 [%rd0], %r0;",
}
RIGHT = {
    "packed beside one without": "mov.b64 %rd2, {%r0, %r14}; mov.b64 {_, %r1}, %rd2;"
    "st.global.u32 [%rd0], %r1;",
    "moved and dropped": "mov.u32 %r1, %r0; xor.b32 %r2, %r1, %r14; st.global.u32 [%rd0], %r14;",
    "the other one is chosen": "selp.b32 %r1, %r0, 7, %p1; st.global.u32 [%rd0], %r1;".replace(
        "selp", "setp.gt.u32 %p1, %r14, 1000; selp", 1
    ),
    "chosen where it was set": "@%p0 mov.u32 %r0, 5; selp.b32 %r1, %r0, 7, %p0; st.global.u32 [%rd0], %r1;",
    "loaded, added and stored under its guard": "@%p0 ld.global.u32 %r0, [%rd0]; add.u32 %r1, %r0, 1; "
    "mul.lo.u32 %r2, %r1, %r0; @%p0 st.global.u32 [%rd0], %r2;",
    "copied from nothing and loaded under a guard, as CUTLASS does": "mov.b32 %r0, %r3; "
    "@%p0 ld.global.u32 %r0, [%rd0]; mul.lo.u32 %r1, %r0, 3; add.u32 %r2, %r1, 1; "
    "@%p0 st.global.u32 [%rd0], %r2;",
    "loaded under a guard, shuffled and added as Triton reduces": "@%p0 ld.global.u32 %r0, [%rd0]; "
    "shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1; add.u32 %r2, %r0, %r1; @%p0 st.global.u32 [%rd0], %r2;",
    "two guards": "@%p0 mov.u32 %r0, 5; @!%p0 mov.u32 %r0, 6; st.global.u32 [%rd0], %r0;",
    "used under its guard": "@%p0 mov.u32 %r0, 5; @%p0 st.global.u32 [%rd0], %r0;",
    "both branches": "@%p0 bra on; mov.u32 %r0, 5; bra both; on: mov.u32 %r0, 6; "
    "both: st.global.u32 [%rd0], %r0;",
    "used in its branch": "@!%p0 bra on; mov.u32 %r0, 5; on: @!%p0 bra end; st.global.u32 [%rd0], %r0; end:",
    "set in a loop": "mov.u32 %r1, 0; again: mov.u32 %r0, %r1; add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 4; "
    "@%p1 bra again; st.global.u32 [%rd0], %r0;",
    "an accumulator that was cleared": "mov.f32 %f0, 0f00000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; "
    "mov.f32 %f3, %f0;" + OPERANDS + MMA + "st.global.f32 [%rd0], %f0;",
    "copied to local memory": ".local .align 8 .b8 depot[8]; mov.u64 %rd2, depot; st.local.u32 [%rd2], %r0; "
    "st.local.u32 [%rd2+4], %r14; ld.local.u32 %r1, [%rd2+4]; st.global.u32 [%rd0], %r1;",
    "set before a branch over a store": "setp.ge.u32 %p1, %r14, 4096; @%p1 bra in; mov.u32 %r0, 5; "
    "@%p0 bra on; in: st.global.u32 [%rd0], %r0; on:",
    "overwritten": "mov.u32 %r1, %r0; mov.u32 %r1, 4; st.global.u32 [%rd0], %r1;",
}
#: What puts %r14, which has a value, and others without one into parts of a register; what reads the part
#: that has a value; and what reads more.
BYTES = ".reg .b8 %b<8>; cvt.u8.u32 %b0, %r14; "
PARTS = {
    "four bytes, one stored": (
        BYTES + "mov.b32 %r1, {%b0, %b1, %b2, %b3};",
        "st.global.u8 [%rd0], %r1;",
        "st.global.u16 [%rd0], %r1;",
    ),
    "two halves, the low one stored": (
        "cvt.u16.u32 %h0, %r14; mov.b32 %r1, {%h0, %h1};",
        "st.global.u16 [%rd0], %r1;",
        "st.global.u32 [%rd0], %r1;",
    ),
    "bytes that prmt chooses": (
        "prmt.b32 %r1, %r14, %r0, 0x7410;",
        "and.b32 %r2, %r1, 0xffff; st.global.u32 [%rd0], %r2;",
        "and.b32 %r2, %r1, 0xff0000; st.global.u32 [%rd0], %r2;",
    ),
    "a sign that prmt repeats": (
        "prmt.b32 %r1, %r14, %r0, 0xb3c0;",
        "cvt.u16.u32 %h0, %r1; and.b16 %h1, %h0, 255; st.global.u16 [%rd0], %h1;",
        "cvt.u16.u32 %h0, %r1; st.global.u16 [%rd0], %h0;",
    ),
    "a field that bfi inserts": (
        "bfi.b32 %r1, %r14, %r0, 8, 8;",
        "bfe.u32 %r2, %r1, 8, 8; st.global.u32 [%rd0], %r2;",
        "bfe.u32 %r2, %r1, 7, 9; st.global.u32 [%rd0], %r2;",
    ),
    "a field inserted into one with a value": (
        "bfi.b32 %r1, %r0, %r14, 8, 24;",
        "st.global.u8 [%rd0], %r1;",
        "st.global.u16 [%rd0], %r1;",
    ),
    "shifted and joined": (
        "shl.b32 %r1, %r0, 8; or.b32 %r2, %r1, %r14;",
        "cvt.rn.f32.u8 %f0, %r2; st.global.f32 [%rd0], %f0;",
        "cvt.rn.f32.u16 %f0, %r2; st.global.f32 [%rd0], %f0;",
    ),
    "shifted down": (
        "mov.b64 %rd2, {%r0, %r14}; shr.u64 %rd3, %rd2, 32;",
        "cvt.u32.u64 %r1, %rd3; st.global.u32 [%rd0], %r1;",
        "shr.u64 %rd4, %rd2, 31; cvt.u32.u64 %r1, %rd4; st.global.u32 [%rd0], %r1;",
    ),
    "shifted out": (
        "shr.u32 %r1, %r0, 4294967295; or.b32 %r2, %r1, %r14;",
        "st.global.u32 [%rd0], %r2;",
        "shr.s32 %r3, %r0, 4294967295; or.b32 %r4, %r3, %r14; st.global.u32 [%rd0], %r4;",
    ),
    "joined again in a loop, then chosen": (
        "mov.u32 %r1, 0; mov.u32 %r2, 0; again: shl.b32 %r3, %r0, 16; or.b32 %r4, %r3, %r1; "
        "selp.b32 %r2, %r4, %r2, %p0; add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 4; @%p1 bra again;",
        "st.global.u16 [%rd0], %r2;",
        "st.global.u32 [%rd0], %r2;",
    ),
    "a wider number": (
        BYTES + "mov.b32 %r1, {%b0, %b1, %b2, %b3}; cvt.u32.u8 %r2, %r1;",
        "add.u32 %r3, %r2, 1; st.global.u32 [%rd0], %r3;",
        "cvt.u32.u16 %r4, %r1; add.u32 %r3, %r4, %r2; st.global.u32 [%rd0], %r3;",
    ),
}
#: Gives %r6, %f6 and %p1 a value in the first 16 lanes, where %p0 holds; %p3 holds in the others.
LOADED = (
    "@!%p0 bra m; ld.global.u32 %r6, [%rd0]; cvt.rn.f32.u32 %f6, %r6; setp.eq.u32 %p1, %r6, 0; m: "
    "not.pred %p3, %p0; "
)
#: What depends on %p2.
BRANCH = " @%p2 bra end; st.global.u32 [%rd0], %r14; end:"
#: Predicates that do not depend on what has no value, and the same where they do.
DECIDED = {
    "or": (
        "setp.lt.s32 %p2, %r6, 1; or.pred %p2, %p3, %p2;",
        "setp.lt.s32 %p2, %r6, 1; or.pred %p2, %p0, %p2;",
    ),
    "and": (
        "setp.lt.s32 %p2, %r6, 1; and.pred %p2, %p0, %p2;",
        "setp.lt.s32 %p2, %r6, 1; and.pred %p2, %p3, %p2;",
    ),
    "a comparison under the condition": ("or.pred %p2, %p1, %p3;", "or.pred %p2, %p1, %p0;"),
    "moved and negated": (
        "mov.pred %p2, %p1; not.pred %p2, %p2; and.pred %p2, %p2, %p0;",
        "mov.pred %p2, %p1; not.pred %p2, %p2; and.pred %p2, %p2, %p3;",
    ),
    "three of them": (
        "setp.lt.s32 %p2, %r6, 1; or.pred %p2, %p2, %p1; and.pred %p2, %p0, %p2;",
        "setp.lt.s32 %p2, %r6, 1; or.pred %p2, %p2, %p1; or.pred %p2, %p0, %p2;",
    ),
    "setp.or": ("setp.lt.or.s32 %p2, %r6, 1, %p3;", "setp.lt.or.s32 %p2, %r6, 1, %p0;"),
    "setp.and": ("setp.lt.and.s32 %p2, %r6, 1, %p0;", "setp.lt.and.s32 %p2, %r6, 1, %p3;"),
    "setp.and of a negated predicate": (
        "setp.lt.and.s32 %p2, %r6, 1, !%p3;",
        "setp.lt.and.s32 %p2, %r6, 1, !%p0;",
    ),
    "a comparison that decides": (
        "setp.ge.or.u32 %p2, %r14, %r15, %p1;",
        "setp.lt.or.u32 %p2, %r14, %r15, %p1;",
    ),
    "a comparison that decides beside a negated predicate": (
        "setp.lt.and.u32 %p2, %r14, %r15, !%p1;",
        "setp.ge.and.u32 %p2, %r14, %r15, !%p1;",
    ),
    "one of two results": (
        "setp.lt.and.u32 %p2|%p3, %r14, %r15, %p1;",
        "setp.lt.and.u32 %p3|%p2, %r14, %r15, %p1;",
    ),
    "f32": (
        "setp.lt.f32 %p2, %f6, 0f00000000; and.pred %p2, %p0, %p2;",
        "setp.lt.f32 %p2, %f6, 0f00000000; and.pred %p2, %p3, %p2;",
    ),
    "a sum that is compared": (
        "sub.f32 %f7, %f6, 0f3F800000; mul.f32 %f7, %f7, %f7; setp.lt.f32 %p2, %f7, %f6; "
        "and.pred %p2, %p0, %p2;",
        "sub.f32 %f7, %f6, 0f3F800000; mul.f32 %f7, %f7, %f7; setp.lt.f32 %p2, %f7, %f6; "
        "and.pred %p2, %p3, %p2;",
    ),
    "numbers chosen by predicates": (
        "selp.b32 %r7, 1, 0, %p1; selp.b32 %r8, %r7, 0, %p0; setp.ne.u32 %p2, %r8, 0;",
        "selp.b32 %r7, 1, 0, %p1; selp.b32 %r8, 0, %r7, %p0; setp.ne.u32 %p2, %r8, 0;",
    ),
    "one number, whatever is chosen": (
        "selp.b32 %r7, %r14, %r14, %p1; setp.gt.u32 %p2, %r7, 4;",
        "selp.b32 %r7, %r14, %r15, %p1; setp.gt.u32 %p2, %r7, 4;",
    ),
    "a comparison that decides, and sets its own guard": (
        "mov.pred %p2, %p0; @%p2 setp.ge.and.u32 %p2, %r14, %r15, %p4;",
        "mov.pred %p2, %p0; @%p2 setp.lt.and.u32 %p2, %r14, %r15, %p4;",
    ),
    "a comparison that sets its own guard": (
        "mov.pred %p2, %p0; @%p2 setp.lt.s32 %p2, %r6, 5;",
        "mov.pred %p2, %p0; @!%p2 setp.lt.s32 %p2, %r6, 5;",
    ),
    "a later turn of a loop": (
        "mov.u32 %r1, 0; again: setp.eq.u32 %p1, %r1, 0; setp.gt.u32 %p2, %r1, %r2; or.pred %p2, %p1, %p2; "
        "@%p2 mov.u32 %r2, %r1; add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 4; @%p1 bra again; "
        "setp.eq.u32 %p2, %r2, 3;",
        "mov.u32 %r1, 0; again: setp.eq.u32 %p1, %r1, 1; setp.gt.u32 %p2, %r1, %r2; or.pred %p2, %p1, %p2; "
        "@%p2 mov.u32 %r2, %r1; add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 4; @%p1 bra again; "
        "setp.eq.u32 %p2, %r2, 3;",
    ),
}
#: What needs %p2, or a number that is made of it.
NEEDS = {
    "branch": BRANCH,
    "guard of a store": "@%p2 st.global.u32 [%rd0], %r14;",
    "negated guard": "@!%p2 st.global.u32 [%rd0], %r14;",
    "vote": "vote.sync.ballot.b32 %r1, %p2, -1;",
    "stored value": "selp.b32 %r1, 1, 0, %p2; st.global.u32 [%rd0], %r1;",
    "address": "selp.b32 %r1, 0, 4, %p2; cvt.u64.u32 %rd2, %r1; add.s64 %rd2, %rd0, %rd2; "
    "st.global.u32 [%rd2], %r14;",
    "sum of what is chosen": "selp.b32 %r1, 1, 0, %p2; add.u32 %r1, %r1, %r14; st.global.u32 [%rd0], %r1;",
    "set by its own branch": "or.pred %p2, %p2, %p2;" + BRANCH,
    "xor": "xor.pred %p2, %p2, %p3;" + BRANCH,
    "compared again": "selp.b32 %r1, 1, 0, %p2; setp.eq.u32 %p2, %r1, %r14;" + BRANCH,
}


def check(body: str, function: str = "", schedule: str = "in order") -> Report:
    kernel = lw.load(HEAD.format(body=body, function=function))["k"]
    return lw.check(kernel[2, 32], np.zeros(128, np.uint32), 16, schedule=schedule)


def without_value(report: Report) -> list[Finding]:
    return [finding for finding in report.findings if "has no value" in finding.message]


@pytest.mark.parametrize("schedule", ["in order", "late", "reverse"])
@pytest.mark.parametrize("name", PARTS)
def test_parts_of_a_register_have_values_of_their_own(name: str, schedule: str) -> None:
    packs, right, wrong = PARTS[name]
    for reads, is_wrong in ((right, False), (wrong, True)):
        report = check(packs + reads, schedule=schedule)
        assert ["has no value" in finding.message for finding in report.findings] == [True] * is_wrong, report


@sampled(3)
@pytest.mark.parametrize("name", WRONG)
def test_what_depends_on_it_is_told(name: str) -> None:
    report = check(WRONG[name])
    assert "uninitialised" in [finding.kind for finding in report.findings], report
    assert any("has no value" in finding.message for finding in report.findings)


@pytest.mark.parametrize("name", RIGHT)
def test_what_does_not_is_not(name: str) -> None:
    report = check(RIGHT[name])
    assert not [finding for finding in report.findings if "has no value" in finding.message], report


@pytest.mark.parametrize("name", DECIDED)
def test_predicates_may_decide_on_others(name: str) -> None:
    """`true | x` and `false & x` depend on nothing."""
    for decision, is_wrong in zip(DECIDED[name], (False, True), strict=True):
        assert len(without_value(check(LOADED + decision + BRANCH))) == is_wrong


@pytest.mark.parametrize("name", NEEDS)
def test_what_needs_a_predicate_tells_of_the_register_that_was_compared(name: str) -> None:
    (finding,) = without_value(check(LOADED + "setp.lt.s32 %p2, %r6, 1; " + NEEDS[name]))
    assert finding.message == "the register %r6 has no value" and finding.thread == (16, 0, 0)
    assert finding.text == "setp.lt.s32 %p2, %r6, 1;"


def test_the_line_that_needs_a_comparison_is_told() -> None:
    (finding,) = without_value(check(LOADED + "\nsetp.lt.s32 %p2, %r6, 1;\n" + BRANCH))
    assert finding.message == f"the register %r6 has no value; line {finding.line + 1} depends on it"


@pytest.mark.parametrize(
    ("what", "wrong"), [("mov.u32 %r1, %r0;", False), ("", True), ("add.u32 %r1, %r2, 1;", True)]
)
def test_in_device_functions_too(what: str, wrong: bool) -> None:
    report = check(CALL, FUNCTION.replace("WHAT", what))
    told = [finding for finding in report.findings if "has no value" in finding.message]
    if what:
        assert bool(told) == wrong


def test_lanes_are_told_apart() -> None:
    """Only lanes from 16 on have no value: the first of them is named."""
    (finding,) = check(WRONG["set under a guard"]).findings
    assert finding.thread == (16, 0, 0) and finding.message == "the register %r0 has no value"


@pytest.mark.parametrize(
    "statements",
    [
        "int d; if (i < n) d = x[i]; if (i < n && d > 0) y[i] = 1;",
        "int d; if (i < n) d = x[i]; if (i >= n || d <= 0) return; y[i] = d;",
        "int d; bool ok = i < n; if (ok) d = x[i]; bool w = ok && d > 0; y[i] = w;",
        "int d, e; if (i < n) { d = x[i]; e = x[0]; } if (i < n && d - e > 0) y[i] = 1;",
        "float d, e; if (i < n) { d = x[i]; e = x[0]; } if (i < n && d * 2 - e > 0) y[i] = 1;",
        "struct { bool ok; int a, b; } s; s.ok = i < n; if (s.ok) { s.a = x[i]; s.b = x[0]; } "
        "if (s.ok && s.a < s.b) y[i] = 1;",
        "bool have = false; int m; for (int j = 0; j < n; j++) { int v = x[j]; "
        "if (v > i) { if (!have || v > m) m = v; have = true; } } if (have) y[i] = m;",
        "int best; for (int j = 0; j < n; j++) { int v = x[j]; if (j == 0 || v < best) best = v; } "
        "y[i] = best;",
        "int few[4]; int count = 0; for (int j = 0; j < 4; j++) if (x[i] > j) few[count++] = x[j]; "
        "int sum = 0; for (int j = 0; j < 4; j++) if (j < count && few[j] > 0) sum++; y[i] = sum;",
    ],
)
def test_conditions_that_guard_others_are_right(statements: str) -> None:
    source = 'extern "C" __global__ void k(const int* x, int* y, int n) { int i = threadIdx.x; ' + statements
    x, y = np.arange(64, dtype=np.int32) * 7 % 31, np.zeros(64, np.int32)
    report = lw.check(lw.cuda(source + "}")["k"][1, 64], x, y, 40)
    assert not report.findings, report


@pytest.mark.parametrize(
    ("statement", "wrong"),
    [
        ("float sum; sum += x[0]; y[0] = sum;", True),
        ('y[0] = x[0] + nanf("");', False),
        ("y[0] = x[0] * __int_as_float(0x7fc00000);", False),
        ("y[0] = x[0] + 0.f / 0.f;", False),
    ],
)
def test_a_nan_that_the_source_does_not_ask_for_stands_for_no_value(statement: str, wrong: bool) -> None:
    """A compiler that computes ahead with a variable without a value leaves a constant of it."""
    source = f'extern "C" __global__ void k(const float* x, float* y) {{ {statement} }}'
    report = lw.check(lw.cuda(source)["k"][1, 1], np.ones(1, np.float32), np.zeros(1, np.float32))
    assert [finding.kind for finding in report.findings] == ["uninitialised"] * wrong
    assert all(
        finding.message.endswith("the compiler wrote a NaN in its place") for finding in report.findings
    )
