"""Bad input: always the library's own error, and a message that says what is wrong and what to do."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everything import EVERYTHING, examples
from isa.near_misses import near_misses
from isa.probe import TYPE_NAMES
from lanewise.errors import IllegalInstruction, LanewiseError
from lanewise.isa import (
    ARCHS,
    FAMILIES,
    arch_number,
    describe_targets,
    find_arch,
    instruction,
    instructions,
)

F16 = instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
SPARSE = instruction("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
SPARSE_TF32 = instruction("mma.sp.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32")
SCALED = instruction("mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0")
WGMMA = instruction("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16")
VOLTA = instruction("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32")
LDMATRIX = instruction("ldmatrix.sync.aligned.m8n8.x2.shared.b16")


def message(call: Callable[[], object], kind: type[Exception] = LanewiseError) -> str:
    """What the error says; it must be of the library's own class."""
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


# texts ----------------------------------------------------------------------------------------------------

#: A text, what the message must say about it, and the legal form it must name (empty: none is named).
REFUSED = [
    (
        "mma.sync.aligned.m16n8k16.col.row.f32.f16.f16.f32",
        "or layout of A .row (here .col) together with layout of B .col (here .row)",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 (sm_80 and later; PTX 7.0)",
    ),
    (
        "mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32",
        "layout of B is .row, where the rest allows .col only; or shape is .m16n8k16, where the rest",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 (sm_80 and later; PTX 7.0)",
    ),
    (
        "mma.sync.m16n8k16.row.col.f32.f16.f16.f32",
        ".aligned is missing",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 (sm_80 and later; PTX 7.0)",
    ),
    (
        "mma.sync.aligned.m16n8k16.row.col.f32.fp16.fp16.f32",
        "unknown modifier '.fp16'; did you mean .f16?",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 (",
    ),
    (
        "mma.sync.aligned.m16n8k24.row.col.f32.f16.f16.f32",
        "shape is .m16n8k24, where the rest allows .m8n8k4, .m16n8k8 or .m16n8k16",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 (",
    ),
    (
        "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f32",
        "type of C is .f32, where the rest allows .f16 only; or type of D is .f16, where the rest",
        "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 (",
    ),
    (
        "mma.sync.aligned.m16n8k16.row.col.s32.s4.s4.s32",
        "shape is .m16n8k16, where the rest allows .m8n8k32, .m16n8k32 or .m16n8k64",
        "mma.sync.aligned.m16n8k32.row.col.s32.s4.s4.s32 (",
    ),
    (
        "mma.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
        "allows .m8n8k4, .m16n8k8 or .m16n8k16; or .sp is missing; the rest requires it",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 (",
    ),
    (
        "mma.sp.sync.aligned.m16n8k64.row.col.kind::f8f6f4.f32.e4m3.e4m3.f32",
        ".sp::ordered_metadata is missing; the rest requires it",
        "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.kind::f8f6f4.f32.e4m3.e4m3.f32 (sm_100a,",
    ),
    (
        "mma.sync.aligned.m16n8k16.row.col.satfinite.f32.f16.f16.f32",
        ".satfinite does not go with the rest",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 (",
    ),
    (
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32.rz",
        ".rz does not go with the rest",
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 (",
    ),
    (
        "mma.sync.aligned.m16n8k16.row.col.f16.bf16.bf16.f16",
        "the nearest legal form has type of D .f32 (here .f16), type of C .f32 (here .f16)",
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 (",
    ),
    (
        "mma.sync.aligned.m16n8k16.f32.f16.f16.f32",
        "takes two layouts, of A and of B (such as .row.col); none is given",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 (",
    ),
    (
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16",
        "takes four types, of D, A, B and C; 3 are given (.f32.f16.f16)",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 (",
    ),
    (
        "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.f32.e2m1.e2m1.f32",
        "block scale is missing; the rest requires .block_scale.scale_vec::2X with .ue8m0",
        "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0 (sm_120a,",
    ),
    (
        "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.f32.e2m1.e2m1.f32.ue8m0",
        "no .scale_vec, where the rest allows .block_scale.scale_vec::2X with .ue8m0 or .block_scale",
        "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::2X.f32.e2m1",
    ),
    (
        "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32",
        ".block_scale and the scale type (.ue8m0 or .ue4m3) stand together; one is missing",
        "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0 (",
    ),
    (
        "mma.sync.aligned.m16n8k32.row.col.f32.e2m1.e2m1.f32",
        "kind is missing; the rest requires .kind::f8f6f4",
        "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32 (sm_120a, sm_120f",
    ),
    (
        "mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32",
        "bit operation is missing; the rest requires .xor.popc or .and.popc",
        "mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc (sm_75 and later",
    ),
    (
        "mma.sync.aligned.m16n8k16.row.col.kind::f8f6f4.f32.e4m3.e4m3.f32",
        "ptxas accepts it, but no document mentions it (.kind::f8f6f4 does not go with the rest; or shape",
        "mma.sync.aligned.m16n8k16.row.col.f32.e4m3.e4m3.f32 (",
    ),
    (
        "wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16",
        "shape is .m64n12k16, where the rest allows .m64nNk16 with N 8 to 256 in steps of 8",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 (sm_90a only; PTX 8.0)",
    ),
    (
        "wgmma.mma_async.sync.aligned.m64n40k32.s32.s8.s8",
        "N 8 to 32 in steps of 8, 48 to 256 in steps of 16",
        "wgmma.mma_async.sync.aligned.m64n32k32.s32.s8.s8 (",
    ),
    (
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16.f32",
        "takes three types, of D, A and B; 4 are given",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 (",
    ),
    (
        "ldmatrix.sync.aligned.m8n8.x3.shared.b16",
        "unknown modifier '.x3'; did you mean .x4 or .x2 or .x1?",
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 (sm_75 and later; PTX 6.5)",
    ),
    (
        "ldmatrix.sync.aligned.m8n8.shared.b16",
        "number of matrices is missing; the rest requires .x1, .x2 or .x4",
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 (",
    ),
    (
        "ldmatrix.sync.aligned.m8n8.x4.global.b16",
        "state space is .global, where the rest allows .shared, .shared::cta or none",
        "ldmatrix.sync.aligned.m8n8.x4.b16 (",
    ),
    (
        "stmatrix.sync.aligned.m16n8.x1.shared.b8",
        ".trans is missing; the rest requires it",
        "stmatrix.sync.aligned.m16n8.x1.trans.shared.b8 (sm_100a, ",
    ),
    (
        "wmma.mma.xor.popc.sync.aligned.row.row.m8n8k128.s32.b1.b1.s32",
        "layout of B is .row, where the rest allows .col only",
        "wmma.mma.xor.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32 (sm_75 and later; PTX 6.3)",
    ),
    (
        "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f16.f16.f32",
        "A and B of f16 go without saying: two types, of D and C; 4 are given",
        "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 (sm_70 and later; PTX 6.3)",
    ),
    (
        "wmma.load.f16.a.sync.aligned.row.m16n16k16",
        "the matrix (.a, .b or .c) is missing right after wmma.load",
        "wmma.load.a.sync.aligned.row.m16n16k16.f16 (",
    ),
    (
        "wmma.load.d.sync.aligned.row.m16n16k16.f32",
        "matrix is .d, where the rest allows .c only",
        "wmma.load.c.sync.aligned.row.m16n16k16.f32 (",
    ),
    (
        "mma.sync.aligned..m16n8k16.row.col.f32.f16.f16.f32",
        "a modifier is empty: two dots in a row, or one at the end",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 (",
    ),
    (
        "mma.sync.aligned.m16n8k16.m16n8k8.row.col.f32.f16.f16.f32",
        "the shape is given 2 times (.m16n8k16, .m16n8k8); once is allowed",
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 (",
    ),
    (
        "mma.sync.aligned.m16n8k16.x4.row.col.f32.f16.f16.f32",
        "mma has no modifier .x4",
        "mma.sync.aligned.m16n8k16",
    ),
    (
        "mma.sync.aligned.row.col.f32.bf16.bf16.f32",
        "the shape is missing",
        "mma.sync.aligned.m16n8k8.row.col.f32.bf16",
    ),
    (
        "MMA.SYNC.ALIGNED.M16N8K16",
        "not a matrix instruction of a warp or warpgroup; modifiers are lower case",
        "",
    ),
    (
        "tcgen05.mma.cta_group::1.kind::f15",
        "kind::f15 is no word of these instructions",
        "tcgen05.mma.cta_group::1.kind::f16",
    ),
    ("wgmma.fence.sync.aligned", "not a matrix instruction", ""),
    ("", "an instruction such as 'mma.sync.aligned…' was expected, not ''", ""),
    ("{%r0}", "an instruction such as 'mma.sync.aligned…' was expected", ""),
    (f"{F16.text}; {F16.text};", "one instruction was expected", ""),
]


@pytest.mark.parametrize("text, says, nearest", REFUSED)
def test_messages(text: str, says: str, nearest: str) -> None:
    said = message(lambda: instruction(text), IllegalInstruction)
    assert says in said
    assert (f"Nearest legal form: {nearest}" in said) if nearest else ("Nearest" not in said)


def test_nearest_forms_are_legal_and_near() -> None:
    """Of a few hundred near-misses: the form that the message names exists, and shares most of the words."""
    tried = 0
    for text, *_ in near_misses("messages", 400):
        try:
            instruction(text)
        except IllegalInstruction as error:
            said = str(error)
            assert said.startswith(f"{text}: ")
            named = said.partition("Nearest legal form: ")[2].partition(" (")[0]
            assert instruction(named).text == named
            lost = set(text.split(".")) - set(named.split("."))
            assert len(lost) <= 5, said
            tried += 1
    assert tried > 250


@pytest.mark.parametrize("what", [None, 5, 1.5, b"mma.sync", ["mma"], F16])
def test_not_a_text(what: Any) -> None:
    assert "an instruction is text such as" in message(lambda: instruction(what), IllegalInstruction)


def test_other_archs() -> None:
    fp8 = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"
    said = message(lambda: instruction(fp8, arch="sm_80"), IllegalInstruction)
    assert "not on sm_80; legal on sm_89 and later" in said
    assert "Nearest legal form on sm_80: mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32" in said
    said = message(lambda: WGMMA.require("sm_100a"), IllegalInstruction)
    assert "legal on sm_90a only. sm_100a has no wgmma at all" in said
    said = message(lambda: instruction(fp8).lowering("sm_75"), IllegalInstruction)
    assert "not on sm_75" in said
    for arch in ("sm_99", "silicon", "", "sm_90ab", 90, None):
        assert "arch" in message(lambda arch=arch: F16.require(arch))
        assert "sm_70" in message(lambda arch=arch: find_arch(arch)) or not isinstance(arch, str)
    assert message(lambda: arch_number(None)).startswith("None is not an arch")  # type: ignore[arg-type]  # wrong on purpose
    assert (find_arch("90a"), find_arch("compute_86"), find_arch(" SM_120F ")) == (
        "sm_90a",
        "sm_86",
        "sm_120f",
    )


def test_archs_in_words() -> None:
    assert describe_targets(()) == "no arch"
    assert describe_targets(ARCHS) == "sm_70 and later"
    assert describe_targets(("sm_80", "sm_86")) == "sm_80, sm_86"


@pytest.mark.parametrize(
    "operands, says",
    [
        ("{d,d,d,d},{a,a,a},{b,b},{c,c,c,c}", "operand 2 (A) has 4 registers; 3 are written"),
        ("{d,d,d,d},{a,a,a,a},b,{c,c,c,c}", "operand 3 (B) is a vector of 2 in braces; 'b' is written"),
        ("{d,d,d,d},{a,a,a,a},{b,b}", "takes 4 operands (D, A, B, C); 3 are written"),
        ("{d,d,d,d}", "takes 4 operands (D, A, B, C); 1 is written"),
        ("{d,d,d,d},{a,a,a,a},{b,b},{c,c,c,c},e,0", "takes 4 operands (D, A, B, C); 6 are written"),
        ("{d,d,d,d},{a,a,a,a},{b,b},{c,c,c,c", "brackets of its operands do not match"),
        ("{d,d,d,d}},{a,a,a,a},{b,b},{c,c,c,c}", "brackets of its operands do not match"),
        ("{d,d,d,d},,{b,b},{c,c,c,c}", "operand 2 (A) is empty"),
        ("{},{a,a,a,a},{b,b},{c,c,c,c}", "operand 1 (D) has 4 registers; 0 are written"),
    ],
)
def test_operands(operands: str, says: str) -> None:
    assert says in message(lambda: instruction(f"{F16.text} {operands};"), IllegalInstruction)


def test_operands_of_other_families() -> None:
    said = message(lambda: instruction("movmatrix.sync.aligned.m8n8.trans.b16 {%r0}, {%r1};"))
    assert "operand 1 (D) is a single one; '{%r0}' is written" in said
    said = message(lambda: instruction(f"{SPARSE.text} {{d,d,d,d}},{{a,a}},{{b,b}},{{c,c,c,c}};"))
    assert "takes 6 operands (D, A, B, C, metadata, sparsity selector); 4 are written" in said
    said = message(lambda: instruction(f"{WGMMA.text} {{d,d,d,d}}, {{a,a,a,a}}, bd, p, 1, 1, 0, 0;"))
    assert "takes 7 operands (D, A, B's descriptor, scale-d, imm-scale-a, imm-scale-b, imm-trans-b)" in said
    load = "wmma.load.a.sync.aligned.row.m16n16k16.f16 {a,a,a,a,a,a,a,a}, [p]"
    assert "takes 3 operands (A, address, stride); 2 are" in message(lambda: instruction(load, stride=True))


def test_choices() -> None:
    assert "a_source is 'registers' or 'descriptor'" in message(
        lambda: instruction(WGMMA.text, a_source="shared")
    )
    assert "stride is True or False" in message(lambda: instruction(WGMMA.text, stride=3))  # type: ignore[arg-type]  # wrong on purpose
    for wrong in ({"a_source": "registers"}, {"stride": True}):
        said = message(lambda wrong=wrong: instruction(F16.text, **wrong))
        assert said == "a_source is for wgmma, stride for wmma.load and wmma.store"


@pytest.mark.parametrize(
    "question, says",
    [
        ({"arch": "sm_1"}, "unknown arch 'sm_1'"),
        (
            {"family": "wmma"},
            "unknown family 'wmma'; did you mean wmma.load or wmma.store or wmma.mma? The families are mma,",
        ),
        ({"family": np.arange(3)}, "unknown family"),
        ({"a": "fp8"}, "'fp8' may mean e4m3 or e5m2; name one of them"),
        ({"a": "f17"}, "unknown format 'f17'; did you mean f16? The formats are f16"),
        ({"d": 16}, "unknown format 16"),
        ({"c": ""}, "unknown format ''"),
        ({"kind": "mxf8"}, "unknown kind 'mxf8'; kinds are f8f6f4"),
        ({"shape": "16x8x16"}, "a shape is written as m16n8k16 (or m64n*k16), not '16x8x16'"),
        ({"shape": (16, 8, 16, 1)}, "a shape is (m, n, k)"),
        ({"shape": 16}, "a shape is (m, n, k)"),
        ({"shape": (16, None, 8)}, "a shape is (m, n, k)"),
        ({"sparse": "yes"}, "sparse is True, False or None"),
    ],
)
def test_lists(question: dict[str, Any], says: str) -> None:
    assert says in message(lambda: instructions(**question))


# garbage --------------------------------------------------------------------------------------------------

WORDS = (
    *TYPE_NAMES, "sync", "aligned", "row", "col", "satfinite", "block_scale", "scale_vec::1X",
    "scale_vec::4X", "kind::f8f6f4", "kind::mxf4", "ue8m0", "ue4m3", "rn", "xor", "and", "popc", "sp",
    "sp::ordered_metadata", "global", "shared::cta", "x1", "x4", "trans", "a", "d", "m16n8k16", "m8n8",
    "m64n8k16", "m16n16k16", "m0n0k0", "m99999n8k16", "", "fp16", "X", "kind::", "::", "é", "16", "-1",
    "None",
)  # fmt: skip
OPCODES = (
    "mma",
    "wmma.load",
    "wmma.store",
    "wmma.mma",
    "wmma",
    "wgmma.mma_async",
    "wgmma",
    *FAMILIES,
    "",
    "add",
)
soup = st.builds(
    lambda opcode, words, tail: ".".join([opcode, *words]) + tail,
    st.sampled_from(OPCODES),
    st.lists(st.sampled_from(WORDS), max_size=14),
    st.sampled_from(("", ";", " {a}, b;", " {a,b},{c},[d],1;", "{", " }", " ,,", " //", "@p", "\n\t{a}")),
)


@given(soup | st.text(max_size=80))
@settings(max_examples=400 if EVERYTHING else 8, deadline=None)
def test_garbage_is_refused_politely(text: str) -> None:
    try:
        found = instruction(text)
    except IllegalInstruction as error:
        assert len(str(error)) > 20
    else:
        assert (
            instruction(found.text, **({"a_source": found.a_source} if found.a_source else {})).text  # type: ignore[arg-type]  # keywords from a dictionary
            == found.text
        )


@given(st.text(alphabet="m0123456789nk.::_xXbf ", max_size=200).map("mma.sync.aligned.m".__add__))
@settings(max_examples=examples(200), deadline=None)
def test_garbage_shapes_are_refused_politely(text: str) -> None:
    with pytest.raises(IllegalInstruction):
        instruction(text)


def test_very_long_text_is_not_repeated() -> None:
    assert len(message(lambda: instruction("mma" + ".row" * 10_000))) < 200
    assert len(message(lambda: instruction("@" * 10_000))) < 200


# lanes, elements, arrays ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ask, says",
    [
        (lambda: F16.a.element(32, 0), f"A of {F16.text} has lanes 0 to 31; lane 32 was asked for"),
        (lambda: F16.a.element(-1, 0), "lane -1 was asked for"),
        (lambda: F16.a.element(0, 8), "has values 0 to 7; value 8"),
        (lambda: F16.a.element(1.0, 0), "a lane of A of mma.sync"),  # type: ignore[arg-type]  # wrong on purpose
        (lambda: F16.a.element(None, 0), "is an integer, not None"),  # type: ignore[arg-type]  # wrong on purpose
        (lambda: F16.a.element("3", 0), "is an integer, not '3'"),  # type: ignore[arg-type]  # wrong on purpose
        (lambda: F16.a.element(0, np.float32(1)), "is an integer"),  # type: ignore[arg-type]  # wrong on purpose
        (
            lambda: F16.a.holder(16, 0),
            "A of mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 has rows 0 to 15",
        ),
        (
            lambda: F16.b.holder(0, 8),
            "B of mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 has columns 0 to 7",
        ),
        (lambda: F16.d.holders(0, 0, product=1), "has product 0 only; product 1"),
        (lambda: VOLTA.d.holders(0, 0, product=4), "has products 0 to 3"),
        (lambda: F16.a.holder([0], 0), "is an integer"),  # type: ignore[arg-type]  # wrong on purpose
        (lambda: WGMMA.b.holder(0, 0), "lies in shared memory behind a descriptor"),
        (lambda: WGMMA.a.element(0, 0), "lies in shared memory behind a descriptor"),
        (lambda: WGMMA.b.pack(np.zeros((16, 8), np.float16)), "lies in shared memory"),
        (lambda: WGMMA.d.element(128, 0), "has lanes 0 to 127"),
        (lambda: LDMATRIX.row_addresses.lane(16), "has rows 0 to 15"),
        (lambda: LDMATRIX.row_addresses.lane("a"), "is an integer"),  # type: ignore[arg-type]  # wrong on purpose
        (lambda: F16.row_addresses, "takes no row addresses; ldmatrix and stmatrix do"),
        (lambda: F16.metadata, "has no operand metadata; it has a, b, c, d"),
        (lambda: LDMATRIX.a, "has no operand a; it has d"),
        (lambda: F16.a.pack(np.zeros((16, 8), np.float16)), "is 16×16"),
        (lambda: F16.a.pack(np.float16(1)), "an array of shape () was given"),
        (lambda: F16.a.pack([[1.0, 2.0], [3.0]]), "is not an array"),
        (lambda: F16.a.pack(np.zeros((16, 16))), "f16 takes arrays of dtype float16, not float64"),
        (lambda: F16.a.pack(None), "was given"),
        (lambda: VOLTA.a.pack(np.zeros((8, 4), np.float16)), "is 4×8×4"),
        (lambda: F16.a.unpack(np.zeros((32, 3), np.uint32)), "uint32[…, 32, 4]; uint32[32, 3] was given"),
        (lambda: F16.a.unpack(np.zeros((32, 4))), "float64[32, 4] was given"),
        (lambda: F16.a.unpack(np.zeros((32, 4), np.uint64)), "uint64[32, 4] was given"),
        (lambda: F16.a.unpack("words"), "was given"),
        (lambda: F16.a.unpack([[1], [2, 3]]), "is not an array"),
    ],
)
def test_lanes_and_elements(ask: Callable[[], object], says: str) -> None:
    assert says in message(ask)


@pytest.mark.parametrize(
    "ask, says",
    [
        (
            lambda: SPARSE.metadata.pack(np.zeros((16, 4), int)),
            "integer array (…, 16, 8) of indices; int64[16, 4]",
        ),
        (lambda: SPARSE.metadata.pack(np.zeros((16, 8))), "float64[16, 8] was given"),
        (lambda: SPARSE.metadata.pack(np.full((16, 8), 4)), "lie in 0…3; 4…4 given"),
        (lambda: SPARSE.metadata.pack(np.zeros((16, 8), int)), "row 0, group 0 selects 0 then 0"),
        (lambda: SPARSE_TF32.metadata.codes(np.full((16, 4), 2)), "lie in 0…1"),
        (lambda: SPARSE.metadata.pack([[0, 1] * 4] * 16, thread_id=4), "has selectors 0 to 3; selector 4"),
        (lambda: SPARSE.metadata.unpack(np.zeros((32, 1))), "float64[32, 1] was given"),
        (
            lambda: SPARSE.metadata.unpack(np.zeros((32, 1), np.uint32), thread_id=1.0),  # type: ignore[arg-type]  # wrong on purpose
            "is an integer, not 1.0",
        ),
        (lambda: SPARSE_TF32.metadata.unpack(np.zeros((32, 1), np.uint32)), "not 0b0000"),
        (lambda: SPARSE.metadata.indices(np.full((16, 4), 16)), "4-bit codes"),
        (
            lambda: SPARSE.metadata.compress(np.ones((16, 16))),
            "columns 0 to 3 hold more than 2 non-zero of 4",
        ),
        (lambda: SPARSE.metadata.compress(np.ones((16, 8))), "is 16×16; shape (16, 8) was given"),
        (lambda: SPARSE.metadata.compress([[1], [1, 2]]), "is not an array"),
        (lambda: SPARSE.metadata.expand(np.ones((16, 4)), [[0, 1] * 4] * 16), "packed A of"),
        (lambda: SPARSE.metadata.columns(None), "was given"),
        (lambda: SCALED.scale_a.holders(0, 0, byte_id=1), "takes byte-id 0, 2; 1 was given"),
        (lambda: SCALED.scale_a.holders(0, 0, thread_id=2), "has selectors 0 to 1; selector 2"),
        (
            lambda: SCALED.scale_b.unpack(np.zeros((32, 1), np.uint32), byte_id=4),
            "has byte-ids 0 to 3; byte-id 4",
        ),
        (lambda: SCALED.scale_b.unpack(np.zeros((32, 2), np.uint32)), "uint32[32, 2] was given"),
        (lambda: SCALED.scale_b.unpack(np.zeros((32, 1), np.float32)), "float32[32, 1] was given"),
        (lambda: SCALED.scale_a.pack(np.zeros((16, 1), np.uint8)), "is 16×2"),
        (
            lambda: SCALED.scale_a.pack(np.zeros((16, 2), np.uint8)),
            "ue8m0 takes arrays of dtype float8_e8m0fnu",
        ),
    ],
)
def test_metadata_and_scales(ask: Callable[[], object], says: str) -> None:
    assert says in message(ask)


def test_numpy_integers_are_integers() -> None:
    assert F16.a.element(np.int64(3), np.uint8(2)) == F16.a.element(3, 2)  # type: ignore[arg-type]  # NumPy's integers count as integers
    assert F16.a.holder(np.int32(3), np.int8(9)) == (12, 2, 1)  # type: ignore[arg-type]  # NumPy's integers count as integers
    assert all(type(number) is int for number in F16.a.element(np.int64(3), np.int64(2)))  # type: ignore[arg-type]  # NumPy's integers count as integers
    assert instructions(shape=np.array([16, 8, 32])) == instructions(shape=(16, 8, 32))  # type: ignore[arg-type]  # NumPy's integers count as integers


@given(st.integers() | st.floats() | st.none() | st.text(max_size=3), st.integers(-40, 40))
@settings(max_examples=examples(200), deadline=None)
def test_any_lane_gives_an_answer_or_an_error(lane: Any, value: int) -> None:
    try:
        row, col = F16.a.element(lane, value)
    except LanewiseError:
        assert not (isinstance(lane, int) and 0 <= lane < 32 and 0 <= value < 8)
    else:
        assert (row < 16, col < 16) == (True, True)


def test_an_operand_that_is_not_there_is_a_missing_attribute() -> None:
    for found in (F16, LDMATRIX, WGMMA):
        for name in ("a", "b", "c", "d", "metadata", "scale_a", "scale_b"):
            assert hasattr(found, name) == (name in found.operands)
        assert dict(inspect.getmembers(found))["text"] == found.text
