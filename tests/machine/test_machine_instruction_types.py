"""The types that a record names are those that ptxas takes: with any other, ptxas refuses every form."""

import re
from collections import Counter

import pytest

import lanewise as lw
from everything import sampled
from lanewise.machine.program.instruction_table import record_of
from lanewise.machine.program.ptx_types import TYPE_BITS
from machine.forms import forms
from machine.legal_forms import legal
from ptxas import find_ptxas

#: The letter of the registers that hold so many bits.
REGISTERS = {1: "p", 8: "h", 16: "h", 32: "r", 64: "d"}
#: Forms that differ only in these are tried a few times.
DETAILS = re.compile("ftz|sat|rn|rz|rm|rp|lt|gt|eq|ne|le|ge|lo|hi|wide|and|or|xor")
TRIES = 8


def with_other_types() -> dict[str, str]:
    """Forms in which a type is replaced by one that the record does not name, each with its opcode."""
    found: dict[str, str] = {}
    tried: Counter[tuple[str, ...]] = Counter()
    for form in forms():
        head, _, operands = form.partition(" ")
        opcode, *modifiers = head.split(".")
        record = record_of(opcode, tuple(modifiers))
        places = [place for place, name in enumerate(modifiers) if name in TYPE_BITS]
        if record is None or not record.types or not places:
            continue
        rest = (each for each in modifiers if each not in TYPE_BITS and not DETAILS.fullmatch(each))
        alike = (opcode, str(len(places)), *rest)
        tried[alike] += 1
        if tried[alike] > TRIES:
            continue
        old = REGISTERS[TYPE_BITS[modifiers[places[-1]]]]
        for name in TYPE_BITS.keys() - record.types:
            new = REGISTERS.get(TYPE_BITS[name], old)
            for place in places:
                others = [*modifiers[:place], name, *modifiers[place + 1 :]]
                plain = [each for each in others if each not in ("ftz", "sat", "rn", "rz", "rm", "rp")]
                for written in (others, plain):
                    for ending in (operands, re.sub(rf"%{old}(\d)", rf"%{new}\1", operands)):
                        found[f"{'.'.join([opcode, *written])} {ending}"] = opcode
    return found


@sampled(2)
@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_ptxas_refuses_every_other_type(target: str) -> None:
    if find_ptxas() is None:
        pytest.skip("no ptxas: pip install 'nvidia-cuda-nvcc==13.0.*'")
    candidates = with_other_types()
    assert len(candidates) > 10_000 and len(set(candidates.values())) > 40
    assert legal(list(candidates), target) == []


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        ("sin.u32 %r0, %r1;", "it is not of .u32; sin has .f32"),
        ("sqrt.rn.u32 %r0, %r1;", "it is not of .u32; sqrt has .f32 .f64"),
        ("setp.gt %p0, %r1, 0;", "it names no type; setp has .b16 .b32 .b64 .u16"),
        ("min.s32.f32 %r0, %r1, %r2;", "it names more than one type"),
        ("szext.s64 %rd0, %rd1, %r2;", "it is not of .s64; szext has .u32 .s32"),
        ("mov.u32 tile, %r1;", "its operand 1 is not a register"),
        ("shfl.sync.bfly.b32 %r0, %r1, %r2|%p0, %r3, -1;", "one of its sources is not one value"),
        ("mbarrier.arrive.v2.u32 {%r0, %r1}, [%rd0];", "its result is not one register"),
        ("div.full.b128 %r0, %r1, %r2;", "it is not of .b128; div has .f32"),
        ("redux.sync.add.noComplete %r0, %r1, -1;", "it names no type; redux has .b32 .u32 .s32 .f32"),
        ("redux.sync.u32 %r0, %r1, -1;", "it names no operation; redux.sync has .add .and .or .xor"),
        ("match.any.sync %r0, %r1, -1;", "it names no type; match has .b32 .b64"),
    ],
)
def test_what_ptxas_would_refuse_is_refused_in_words(instruction: str, message: str) -> None:
    text = f"""
.version 9.0
.target sm_100
.address_size 64
.visible .entry k() {{
    .reg .b32 %r<4>; .reg .b64 %rd<2>; .reg .pred %p<2>; .shared .align 4 .b8 tile[4];
    {instruction}
    ret;
}}
"""
    with pytest.raises(lw.LanewiseError, match=re.escape(message)):
        lw.load(text)["k"][1, 32]()


def test_a_cluster_without_blocks_is_refused() -> None:
    text = """
.version 9.0
.target sm_90
.address_size 64
.visible .entry k() .explicitcluster .reqnctapercluster 0, 1, 1 { ret; }
"""
    with pytest.raises(lw.LanewiseError, match="at least one block along each axis"):
        lw.load(text)["k"][8, 32]()
