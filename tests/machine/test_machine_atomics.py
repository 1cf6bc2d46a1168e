"""Atomic sums, minima and maxima of floats, in global and in shared memory, against exact arithmetic."""

import numpy as np
import pytest

from everything import sampled
from lanewise.ptx import parse
from machine import kernels
from machine.exact import FMTS, Fmt, decode, operate

#: Places in memory: what leads to a thread's own.
PLACES = {
    "global": "ld.param.u64 %at, [memory];\n    mad.wide.u32 %at, %i, {size}, %at;",
    "shared": "mov.u64 %at, own;\n    mad.wide.u32 %at, %t, {size}, %at;\n    st.shared.b{bits} [%at], %old;",
}
KERNEL = """
.version 8.7
.target sm_90
.address_size 64
.shared .align 8 .b8 own[512];
.visible .entry k(.param .u64 memory, .param .u64 operand, .param .u64 out)
{{
    .reg .b64 %rd0, %at; .reg .b{bits} %old, %new; .reg .b32 %i, %t;
    mov.u32 %t, %tid.x;
    mov.u32 %i, %ctaid.x;
    mad.lo.u32 %i, %i, 64, %t;
    ld.param.u64 %rd0, [memory];
    mad.wide.u32 %rd0, %i, {size}, %rd0;
    ld.global.b{bits} %old, [%rd0];
    ld.param.u64 %rd0, [operand];
    mad.wide.u32 %rd0, %i, {size}, %rd0;
    ld.global.b{bits} %new, [%rd0];
    {place}
    atom.{space}.add.{type} %new, [%at], %new;
    ld.param.u64 %rd0, [out];
    mad.wide.u32 %rd0, %i, {size}, %rd0;
    ld.{space}.b{bits} %new, [%at];
    st.global.b{bits} [%rd0], %new;
    ret;
}}
"""


def specials(fmt: Fmt) -> list[int]:
    one, unit = fmt.bias << fmt.mantissa, 1 << fmt.mantissa
    sizes = [
        0,
        1,
        unit,
        unit + 1,
        unit - 1,
        one,
        one + 1,
        fmt.inf - 1,
        fmt.inf,
        fmt.inf + 1,
        fmt.inf + unit // 2 + 5,
    ]
    return [size | sign for size in sizes for sign in (0, 1 << fmt.bits - 1)]


def total(a: int, b: int, name: str, space: str) -> int:
    """The sum as an H200 has it."""
    fmt = FMTS[name]
    clear = (1 << fmt.bits - 1) - 1
    if name == "f64":
        # A NaN stays as it is in global memory, the operand's first; in shared memory it is quieted.
        nans = [word for word in ((b, a) if space == "global" else (a, b)) if word & clear > fmt.inf]
        if nans:
            return nans[0] if space == "global" else nans[0] | 1 << 51
        found = operate("add", [a, b], fmt)
        return 0xFFF8000000000000 if found & clear > fmt.inf else found
    if name == "f32" and space == "global":
        a, b = (word if word & fmt.inf else word & ~clear for word in (a, b))
        found = operate("add", [a, b], fmt)
        return found if found & fmt.inf else found & ~clear
    return operate("add", [a, b], fmt)


@sampled(3)
@pytest.mark.parametrize("space", PLACES)
@pytest.mark.parametrize("type", ["f64", "f32", "noftz.f16", "noftz.bf16", "noftz.f16x2", "noftz.bf16x2"])
def test_atomic_sums_of_floats(type: str, space: str) -> None:
    name = type.removeprefix("noftz.").removesuffix("x2")
    fmt, count = FMTS[name], 2 if type.endswith("x2") else 1
    bits = fmt.bits * count
    words = specials(fmt)
    pairs = [(a, b) for a in words for b in words]
    pairs += pairs[: -len(pairs) % 64]
    rows = [pairs] + [pairs[::-1]] * (count - 1)
    memory, operand = (
        sum(
            np.array([pair[side] for pair in row], f"uint{bits}") << (fmt.bits * place)
            for place, row in enumerate(rows)
        )
        for side in (0, 1)
    )
    place = PLACES[space].format(size=bits // 8, bits=bits)
    text = KERNEL.format(bits=bits, size=bits // 8, type=type, space=space, place=place)
    out = np.zeros_like(memory)
    kernels.launch(parse(text)["k"], (len(pairs) // 64, 64))(memory.copy(), operand, out)
    for thread, found in enumerate(out.tolist()):
        for number, row in enumerate(rows):
            part = found >> fmt.bits * number & ((1 << fmt.bits) - 1)
            expected = total(*row[thread], name, space)
            assert part == expected, ([hex(each) for each in row[thread]], hex(part), hex(expected))


def chosen(a: int, b: int, name: str, operation: str) -> int:
    """The lesser or the greater: a number before NaN, -0 below +0."""
    fmt = FMTS[name]
    numbers = [word for word in (a, b) if word & 0x7FFF <= fmt.inf]
    ordered = sorted(numbers, key=lambda word: (float(decode(word, fmt)), word < 0x8000))
    return (ordered[0] if operation == "min" else ordered[-1]) if ordered else fmt.nan


@pytest.mark.parametrize("operation", ["min", "max"])
@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_reductions_to_the_least_and_the_greatest(name: str, operation: str) -> None:
    words = specials(FMTS[name])
    pairs = [(a, b) for a in words for b in words]
    pairs += pairs[: -len(pairs) % 64]
    memory, operand = (np.array(column, np.uint16) for column in zip(*pairs, strict=True))
    text = f"""
.version 8.7
.target sm_90
.address_size 64
.visible .entry k(.param .u64 memory, .param .u64 operand)
{{
    .reg .b64 %rd<2>; .reg .b16 %h<2>; .reg .b32 %i, %t;
    mov.u32 %t, %tid.x;
    mov.u32 %i, %ctaid.x;
    mad.lo.u32 %i, %i, 32, %t;
    ld.param.u64 %rd0, [memory];
    mad.wide.u32 %rd0, %i, 4, %rd0;
    ld.param.u64 %rd1, [operand];
    mad.wide.u32 %rd1, %i, 4, %rd1;
    ld.global.v2.b16 {{%h0, %h1}}, [%rd1];
    red.global.{operation}.noftz.v2.{name} [%rd0], {{%h0, %h1}};
    ret;
}}
"""
    found = memory.copy()
    kernels.launch(parse(text)["k"], (len(pairs) // 64, 32))(found, operand)
    assert found.tolist() == [chosen(a, b, name, operation) for a, b in pairs]
