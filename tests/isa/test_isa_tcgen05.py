"""One door: tcgen05.mma by PTX, name, descriptor or fields; and the other asynchronous instructions."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from lanewise.errors import IllegalInstruction, LanewiseError
from lanewise.isa.asynchronous import AsyncInstruction, Tcgen05Instruction, async_instructions
from lanewise.isa.asynchronous.descriptor import KINDS, InstructionDescriptor, legal_shapes
from ptxas import find_ptxas

F16 = "tcgen05.mma.cta_group::1.kind::f16"
HEAD = ".version 8.8\n.target sm_100a\n.address_size 64\n"
REGISTERS = ".reg .b32 %r<9>; .reg .b64 %rd<4>; .reg .pred %p<2>; setp.eq.u32 %p0, %r0, 0;"


def product(text: str, **fields: Any) -> Tcgen05Instruction:
    found = lw.instruction(text, **fields)
    assert isinstance(found, Tcgen05Instruction)
    return found


def kernel(number: int, text: str) -> str:
    """A kernel of PTX with one tcgen05.mma."""
    a = "[%r1]" if "ashift" in text else "%rd0"
    metadata = ", [%r2]" if ".sp." in text else ""
    scales = ", [%r4], [%r5]" if "block_scale" in text else ""
    return f".entry k{number}() {{ {REGISTERS} {text} [%r0], {a}, %rd1{metadata}, %r3{scales}, %p0; ret; }}"


def test_the_door_takes_every_asynchronous_text() -> None:
    for form in async_instructions():
        found = lw.instruction(form.text)
        if form.multiplies:
            assert isinstance(found, Tcgen05Instruction) and found.form == form
        else:
            assert isinstance(found, AsyncInstruction) and found == lw.async_instruction(form.text)


def test_operands_and_a_predicate_may_stand_around_it() -> None:
    assert product("@%p1 tcgen05.mma.kind::tf32.cta_group::2 [%r0], %rd0, %rd1, %r1, %p0;").kind == "tf32"
    found = lw.instruction("@!p cp.async.bulk.commit_group;")
    assert isinstance(found, AsyncInstruction) and found.family == "cp.async.bulk.commit_group"


#: Names and what they mean: the text without its opcode, shape, formats (D, A, B).
NAMES = [
    ("tcgen05 m128n256k16 bf16", "mma 1 f16", "m128n256k16", "f32 bf16 bf16"),
    ("UMMA 64x8x16 half", "mma 1 f16", "m64n8k16", "f32 f16 f16"),
    ("tcgen05.mma f16 f16 f16 m64n16", "mma 1 f16", "m64n16k16", "f16 f16 f16"),
    ("tcgen05 f16 bf16 m64n16", "mma 1 f16", "m64n16k16", "f32 f16 bf16"),
    ("tcgen05 m256n32 tf32", "mma 2 tf32", "m256n32k8", "f32 tf32 tf32"),
    ("tcgen05 m128n32 pair e4m3 e5m2", "mma 2 f8f6f4", "m128n32k32", "f32 e4m3 e5m2"),
    ("tcgen05 f16.e2m1.e3m2 m64n8", "mma 1 f8f6f4", "m64n8k32", "f16 e2m1 e3m2"),
    ("tcgen05 e4m3 f16 m64n8", "mma 1 f8f6f4", "m64n8k32", "f16 e4m3 e4m3"),
    ("tcgen05 u8 s8 s32 sparse", "mma.sp 1 i8", "m128n256k64", "s32 u8 s8"),
    ("tcgen05 ws sp m32n64k32 bf16", "mma.ws.sp 1 f16", "m32n64k32", "f32 bf16 bf16"),
    ("tcgen05 mxfp8 m128n8", "mma 1 mxf8f6f4 block32", "m128n8k32", "f32 e4m3 e4m3"),
    ("tcgen05 mxfp4 m128n8k96", "mma 1 mxf4 block32", "m128n8k96", "f32 e2m1 e2m1"),
    ("umma nvfp4 m256n256k64", "mma 2 mxf4nvf4 block16", "m256n256k64", "f32 e2m1 e2m1"),
    ("tcgen05 kind::mxf8f6f4 e2m3 m128n8", "mma 1 mxf8f6f4 block32", "m128n8k32", "f32 e2m3 e2m3"),
]


@pytest.mark.parametrize(("name", "words", "shape", "types"), NAMES)
def test_names(name: str, words: str, shape: str, types: str) -> None:
    found = product(name)
    opcode, group, kind, *block = words.split()
    text = f"tcgen05.{opcode}.cta_group::{group}.kind::{kind}" + "".join(
        f".block_scale.{size}" for size in block
    )
    assert (found.text, found.shape_text, " ".join(found.types)) == (text, shape, types)
    assert product(text, descriptor=found.descriptor) == found
    assert product(text, descriptor=found.descriptor.encode()) == found


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("tcgen05 m128n8 bf17", {}, r"the word 'bf17' is not known here \(did you mean 'bf16'\?\)"),
    ("tcgen05 m128n8 fp8", {}, "fp8 may mean e4m3 or e5m2; name one of them"),
    ("tcgen05 m128n256k16", {}, "no format of A is named"),
    ("tcgen05 m128n8 f32", {}, "formats are those of A and B, and of D before or after them"),
    ("tcgen05 m100n8 bf16", {}, "M is 100; .*kind::f16, cta_group::1 has M 64 or 128"),
    ("tcgen05 m128n8k32 bf16", {}, "K is 32; .* has K 16"),
    ("tcgen05 m64n40 s8", {}, "has N 8, 16, 24, and 32 to 256 by 16"),
    ("tcgen05 m128n32 ws nvfp4", {}, "Nearest legal form"),
    ("tcgen05 m64n8 e2m1 bf16", {}, "b of .* kind::f8f6f4 is e4m3, .* or e2m1, not 'bf16'"),
    ("umma", {}, "'tcgen05.mma' begins 464 instructions"),
    (F16, {"m": 256}, "M is 256"),
    (F16, {"a": "e4m3"}, "a of an instruction descriptor of kind::f16 is f16 or bf16, not 'e4m3'"),
    (F16, {"q": 1}, "no field 'q' in its instruction descriptor; it has m, n, k, a"),
    (F16, {"descriptor": 0x8400490, "m": 64}, "a descriptor says everything that m would"),
    (F16, {"descriptor": "0x8400490"}, "is an integer, not '0x8400490'"),
    (F16, {"descriptor": 1 << 6}, "kind::f16 reserves: 6"),
    (F16, {"descriptor": InstructionDescriptor("tf32", 64, 8)}, "one of kind::tf32"),
    (F16, {"arch": "H100"}, "sm_90a does not have it; sm_100a"),
    (F16, {"stride": True}, "stride for wmma.load"),
    ("tcgen05.shift.cta_group::1.down", {"m": 64}, "multiplies nothing"),
    ("tcgen05.shift.cta_group::1.down", {"descriptor": 3}, "multiplies nothing"),
    ("mma m16n8k8 bf16", {"m": 16, "n": 8}, "m, n chooses what an instruction descriptor says"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "options", "says"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_is_refused(text: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(LanewiseError, match=says) as caught:
        lw.instruction(text, **options)
    assert len(str(caught.value)) < 500


def test_any_legal_shape_and_format_can_be_chosen() -> None:
    for form in async_instructions():
        if not form.multiplies or "collector" in form.text:
            continue
        default = product(form.text)
        legal, kind = legal_shapes(default.product), default.product.kind
        for m, n in ((legal.m[0], legal.n[1]), (legal.m[-1], legal.n[-2])):
            a, b = next(iter(kind.formats)), list(kind.formats)[-1]
            found = product(form.text, m=m, n=n, a=a, b=b)
            assert (found.m, found.n, found.k) == (m, n, legal.k[0])
            terms = found.k // 2 if found.sparse else found.k
            assert found.a.shape == (m, terms) and found.b.shape == (found.k, n) and found.d.shape == (m, n)
            assert (found.a.format.name, found.b.format.name) == (a, b)
            if kind.block_scaled:
                assert found.scale_a.shape == (m, terms // found.product.block)
                assert found.scale_b.shape == (terms // found.product.block, n)
            else:
                assert not hasattr(found, "scale_a")


def test_it_is_an_instruction_like_others() -> None:
    found = product("tcgen05 m128n64k16 bf16", arch="B200")
    assert isinstance(found, lw.Instruction) and found.multiplies and found.threads == 1
    assert pickle.loads(pickle.dumps(found)) == found == copy.deepcopy(found)
    assert hash(found) == hash(copy.copy(found)) and found != product("tcgen05 m128n64k16 f16")
    assert repr(found) == f"<{F16} m128n64k16 f32.bf16.bf16>"
    assert found.archs == found.form.archs and found.since == "8.6"
    assert product("tcgen05 mxfp4 m128n64k96").archs == ("sm_103a",)
    with pytest.raises(LanewiseError, match=r"D of tcgen05.* lies in tensor memory: no thread's registers"):
        found.d.holder(0, 0)
    with pytest.raises(LanewiseError, match=r"A of tcgen05.* lies in shared memory behind a descriptor"):
        found.a.pack([[0.0]])
    assert "started by one thread" in lw.draw.text(found) and "<svg" in lw.draw.svg(found)


def test_every_element_of_d_has_a_place_of_its_own() -> None:
    one, pair, ws = (
        "m64n24 f16|m128n8 tf32",
        "m256n32|m128n32 pair|m128n32 pair sparse",
        "m64n64 ws|m32n128 ws",
    )
    for name in "|".join((one, pair, ws)).split("|"):
        text = f"tcgen05 {name}" if name in one else f"tcgen05 {name} f16"
        d = product(text).d
        places = {d.place(row, col): (row, col) for row in range(d.rows) for col in range(d.cols)}
        assert len(places) == d.rows * d.cols
        for (block, lane, column), element in places.items():
            assert d.element_at(lane, column, block) == element and column < d.columns
        found = sum(
            d.element_at(lane, column, block) is not None
            for block in range(d.cta_group)
            for lane in range(128)
            for column in range(d.columns)
        )
        assert found == len(places)  # and no other lane or column holds one
    with pytest.raises(LanewiseError, match=r"D of tcgen05.* has columns 0 to 7; column 8 was asked for"):
        product("tcgen05 m128n8 tf32").d.place(0, 8)


def test_inside_a_kernel_it_takes_tensor_memory() -> None:
    mma = lw.instruction(F16)

    @lw.kernel
    def multiply(c: lw.Ptr[lw.f32]) -> None:
        mma(c[0], c[1])

    with pytest.raises(LanewiseError, match="adds to an accumulator of f32 in tensor memory"):
        multiply[1, 32](np.zeros(2, np.float32), arch="sm_100a")


@pytest.mark.skipif(
    find_ptxas() is None, reason="ptxas is not installed: pip install nvidia-cuda-nvcc==13.0.*"
)
def test_machine_instructions_are_ptxas_own() -> None:
    texts = [f"tcgen05.mma.cta_group::1.kind::{kind}" for kind in KINDS]
    texts = [f"{text}.block_scale.block16" if text.endswith("nvf4") else text for text in texts]
    texts = [f"{text}.block_scale" if "::mxf" in text and "block" not in text else text for text in texts]
    kernels = "\n".join(kernel(number, text) for number, text in enumerate(texts))
    listing = lw.ptx.nvdisasm(lw.ptx.ptxas(HEAD + kernels, "sm_100a"))
    code = dict(re.findall(r"\.text\.k(\d+):(.*?)(?=\.text\.k|\Z)", listing, re.S))
    for number, text in enumerate(texts):
        written = set(re.findall(r"UTC[A-Z]MMA", code[str(number)]))
        assert written == {lw.instruction(text).lowering("sm_100a").detail.removeprefix("1 ")}, text


def test_async_instruction_stays() -> None:
    form = lw.async_instruction(F16)
    assert isinstance(form, AsyncInstruction) and form.operands.startswith("[d], a or [a]")
    with pytest.raises(IllegalInstruction, match="begins"):
        lw.async_instruction("tcgen05 m128n256k16 bf16")
