"""Integer and bit instructions against Python's integers."""

from collections.abc import Callable

import numpy as np
import pytest

import lanewise
from machine.integers import clamp, signed
from machine.kernels import Case, edges, run_cases

Oracle = Callable[..., int]


def narrow(count: int, bits: int) -> int:
    """Places and lengths of fields: an H200 takes the low byte for 32-bit words, all bits for 64-bit ones."""
    return count & 255 if bits == 32 else min(count, 255)


def quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else -1


def remainder(a: int, b: int) -> int:
    return a - b * quotient(a, b) if b else -1


def table() -> list[tuple[Case, Oracle, str]]:
    """Case, oracle on integers as the type reads them, the type."""
    rows: list[tuple[Case, Oracle, str]] = []

    def add(
        text: str,
        kind: str,
        count: int,
        oracle: Oracle,
        result: int | None = None,
        sources: tuple[int, ...] | None = None,
    ) -> None:
        bits = int(kind[1:])
        rows.append(
            (Case(text, sources or (bits,) * count, bits if result is None else result), oracle, kind)
        )

    for kind in ("u16", "s16", "u32", "s32", "u64", "s64"):
        bits = int(kind[1:])
        add(f"add.{kind}", kind, 2, lambda a, b: a + b)
        add(f"sub.{kind}", kind, 2, lambda a, b: a - b)
        add(f"mul.lo.{kind}", kind, 2, lambda a, b: a * b)
        add(f"mul.hi.{kind}", kind, 2, lambda a, b, bits=bits: (a * b) >> bits)
        add(f"div.{kind}", kind, 2, quotient)
        add(f"rem.{kind}", kind, 2, remainder)
        add(f"min.{kind}", kind, 2, min)
        add(f"max.{kind}", kind, 2, max)
        add(f"mad.lo.{kind}", kind, 3, lambda a, b, c: a * b + c)
        add(f"sad.{kind}", kind, 3, lambda a, b, c: abs(a - b) + c)
        if bits < 64:
            add(f"mul.wide.{kind}", kind, 2, lambda a, b: a * b, result=2 * bits)
        if kind[0] == "s":
            add(f"abs.{kind}", kind, 1, abs)
            add(f"neg.{kind}", kind, 1, lambda a: -a)
        for name, holds in {
            "eq": int.__eq__,
            "ne": int.__ne__,
            "lt": int.__lt__,
            "le": int.__le__,
            "gt": int.__gt__,
            "ge": int.__ge__,
        }.items():
            add(f"setp.{name}.{kind}", kind, 2, lambda a, b, holds=holds: int(holds(a, b)), result=0)
        shift = (bits, 32)
        add(f"shr.{kind}", kind, 2, lambda a, n, bits=bits: a >> min(n, bits), sources=shift)
    for kind in ("b16", "b32", "b64"):
        bits = int(kind[1:])
        add(f"shl.{kind}", kind, 2, lambda a, n, bits=bits: a << n if n < bits else 0, sources=(bits, 32))
        add(f"and.{kind}", kind, 2, lambda a, b: a & b)
        add(f"or.{kind}", kind, 2, lambda a, b: a | b)
        add(f"xor.{kind}", kind, 2, lambda a, b: a ^ b)
        add(f"not.{kind}", kind, 1, lambda a: ~a)
        add(f"cnot.{kind}", kind, 1, lambda a: int(a == 0))
        if bits > 16:
            add(f"popc.{kind}", kind, 1, lambda a: a.bit_count(), result=32)
            add(f"clz.{kind}", kind, 1, lambda a, bits=bits: bits - a.bit_length(), result=32)
            add(f"brev.{kind}", kind, 1, lambda a, bits=bits: int(f"{a:0{bits}b}"[::-1], 2))
    for kind in ("u32", "s32", "u64", "s64"):
        bits = int(kind[1:])

        def bfind(a: int, bits: int = bits) -> int:
            a = ~a if a < 0 else a
            return a.bit_length() - 1

        def bfe(a: int, place: int, length: int, kind: str = kind, bits: int = bits) -> int:
            place, length = narrow(place, bits), narrow(length, bits)
            word = a % (1 << bits)
            if length == 0:
                return 0
            sign = 0 if kind[0] == "u" else word >> min(place + length - 1, bits - 1) & 1
            found = 0
            for i in range(bits):
                bit = word >> (place + i) & 1 if i < length and place + i < bits else sign
                found |= bit << i
            return found

        add(f"bfind.{kind}", kind, 1, bfind, result=32)
        add(
            f"bfind.shiftamt.{kind}",
            kind,
            1,
            lambda a, bits=bits, f=bfind: bits - 1 - f(a) if f(a) >= 0 else -1,
            result=32,
        )
        add(f"bfe.{kind}", kind, 3, bfe, sources=(bits, 32, 32))

    def bfi(bits: int) -> Oracle:
        def insert(a: int, b: int, place: int, length: int) -> int:
            place, length = narrow(place, bits), narrow(length, bits)
            for i in range(length):
                if place + i < bits:
                    b = b & ~(1 << place + i) | (a >> i & 1) << place + i
            return b

        return insert

    add("bfi.b32", "b32", 4, bfi(32), sources=(32, 32, 32, 32))
    add("bfi.b64", "b64", 4, bfi(64), sources=(64, 64, 32, 32))
    add("mul24.lo.s32", "s32", 2, lambda a, b: signed(a & 0xFFFFFF, 24) * signed(b & 0xFFFFFF, 24))
    add("mul24.hi.u32", "u32", 2, lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF) >> 16)
    add("add.sat.s32", "s32", 2, lambda a, b: clamp(a + b, 32))
    add("sub.sat.s32", "s32", 2, lambda a, b: clamp(a - b, 32))
    add("shf.l.clamp.b32", "b32", 3, lambda a, b, n: ((b << 32 | a) << min(n, 32)) >> 32)
    add("shf.r.clamp.b32", "b32", 3, lambda a, b, n: (b << 32 | a) >> min(n, 32))
    add("shf.l.wrap.b32", "b32", 3, lambda a, b, n: ((b << 32 | a) << (n & 31)) >> 32)
    add("shf.r.wrap.b32", "b32", 3, lambda a, b, n: (b << 32 | a) >> (n & 31))
    add("bmsk.clamp.b32", "b32", 2, lambda a, b: ((1 << min(b, 32)) - 1) << a if a < 32 else 0)
    add("bmsk.wrap.b32", "b32", 2, lambda a, b: ((1 << (b & 31)) - 1) << (a & 31))

    def prmt(a: int, b: int, s: int) -> int:
        both, found = b << 32 | a, 0
        for i in range(4):
            nibble = s >> 4 * i & 15
            byte = both >> 8 * (nibble & 7) & 255
            found |= ((255 if byte & 128 else 0) if nibble & 8 else byte) << 8 * i
        return found

    add("prmt.b32", "b32", 3, prmt)

    def dp4a(sa: bool, sb: bool) -> Oracle:
        def dot(a: int, b: int, c: int) -> int:
            total = c
            for i in range(4):
                x, y = a >> 8 * i & 255, b >> 8 * i & 255
                total += (signed(x, 8) if sa else x) * (signed(y, 8) if sb else y)
            return total

        return dot

    for sa in (False, True):
        for sb in (False, True):
            add(f"dp4a.{'s' if sa else 'u'}32.{'s' if sb else 'u'}32", "u32", 3, dp4a(sa, sb))
    add(
        "dp2a.lo.s32.s32",
        "u32",
        3,
        lambda a, b, c: (
            c + sum(signed(a >> 16 * i & 0xFFFF, 16) * signed(b >> 8 * i & 255, 8) for i in range(2))
        ),
    )
    add(
        "dp2a.hi.u32.u32",
        "u32",
        3,
        lambda a, b, c: c + sum((a >> 16 * i & 0xFFFF) * (b >> 8 * (i + 2) & 255) for i in range(2)),
    )
    add(
        "szext.clamp.s32",
        "s32",
        2,
        lambda a, n: (
            0 if n % (1 << 32) == 0 else signed(a % (1 << min(n % (1 << 32), 32)), min(n % (1 << 32), 32))
        ),
    )
    add("szext.wrap.u32", "u32", 2, lambda a, n: a % (1 << (n & 31)))
    for kind in ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"):
        for source in ("s32", "u32", "s64", "u64", "s16"):
            width = int(kind[1:])
            reach = [clamp(end, int(source[1:]), source[0] == "s") for end in (-(1 << 70), 1 << 70)]
            if any(clamp(end, width, kind[0] == "s") != end for end in reach):  # else ptxas refuses .sat
                add(
                    f"cvt.sat.{kind}.{source}",
                    source,
                    1,
                    lambda a, kind=kind, width=width: clamp(a, width, kind[0] == "s"),
                    result=max(width, 16),
                )
            if kind != source:
                add(
                    f"cvt.{kind}.{source}",
                    source,
                    1,
                    lambda a, kind=kind, width=width: (
                        signed(a % (1 << width), width) if kind[0] == "s" else a % (1 << width)
                    ),
                    result=max(width, 16),
                )
    return rows


@pytest.fixture(scope="module")
def results() -> list[tuple[Case, Oracle, str, list[np.ndarray], np.ndarray]]:
    rng = np.random.default_rng(1)
    inputs = {bits: [edges(bits, rng, 192) for _ in range(4)] for bits in (16, 32, 64)}
    for place in (1, 2, 3):  # counts and places that mean something
        small = rng.integers(0, 70, 192).astype(np.uint32)
        inputs[32][place] = np.where(rng.random(192) < 0.5, small, inputs[32][place])
    rows = table()
    got = run_cases([case for case, _, _ in rows], inputs)
    return [
        (case, oracle, kind, [inputs[bits][place] for place, bits in enumerate(case.sources)], out)
        for (case, oracle, kind), out in zip(rows, got, strict=True)
    ]


@pytest.mark.slow
def test_every_integer_instruction(
    results: list[tuple[Case, Oracle, str, list[np.ndarray], np.ndarray]],
) -> None:
    wrong = []
    for case, oracle, kind, arrays, got in results:
        bits = int(kind[1:])
        width = case.result or 32
        for row, found in enumerate(got):
            words = [int(array[row]) for array in arrays]
            values = [
                signed(word, source)
                if kind[0] == "s"
                and (source == bits)
                and not (place and case.sources[place] != case.sources[0])
                else word
                for place, (word, source) in enumerate(zip(words, case.sources, strict=True))
            ]
            if kind[0] == "s" and case.text.startswith(("shr", "bfe")):
                values[1:] = words[1:]
            expected = oracle(*values) % (1 << width)
            if expected != int(found):
                wrong.append(
                    f"{case.text} {[hex(word) for word in words]}: {int(found):#x}, expected {expected:#x}"
                )
                break
    assert not wrong, "\n".join(wrong)


def test_carry_chains() -> None:
    from lanewise.launch import launch
    from lanewise.ptx import parse

    rng = np.random.default_rng(2)
    a, b = (rng.integers(0, 1 << 64, 32, dtype=np.uint64) for _ in range(2))
    a[:4], b[:4] = [0, 2**64 - 1, 2**32 - 1, 2**63], [0, 1, 1, 2**63]
    text = """.version 8.0
.target sm_80
.address_size 64
.entry k(.param .u64 pa, .param .u64 pb, .param .u64 ps, .param .u64 pd) {
.reg .b64 %rd<5>; .reg .b32 %r<9>;
mov.u32 %r0, %tid.x;
ld.param.u64 %rd0, [pa]; mad.wide.u32 %rd0, %r0, 8, %rd0; ld.global.v2.u32 {%r1, %r2}, [%rd0];
ld.param.u64 %rd0, [pb]; mad.wide.u32 %rd0, %r0, 8, %rd0; ld.global.v2.u32 {%r3, %r4}, [%rd0];
add.cc.u32 %r5, %r1, %r3; addc.u32 %r6, %r2, %r4;
sub.cc.u32 %r7, %r1, %r3; subc.u32 %r8, %r2, %r4;
ld.param.u64 %rd0, [ps]; mad.wide.u32 %rd0, %r0, 8, %rd0; st.global.v2.u32 [%rd0], {%r5, %r6};
ld.param.u64 %rd0, [pd]; mad.wide.u32 %rd0, %r0, 8, %rd0; st.global.v2.u32 [%rd0], {%r7, %r8};
}"""
    total, difference = np.zeros_like(a), np.zeros_like(a)
    launch(parse(text)["k"], (1, 32))(a, b, total, difference)
    assert (total == a + b).all()
    assert (difference == a - b).all()


def test_every_table_of_lop3() -> None:
    """Bit 4a + 2b + c of the table is the result: all 256 tables on words that have every combination."""
    words = np.array([0xF0F00FF0, 0xCC33CCCC, 0xAAAA55AA], np.uint32)
    lines = "\n".join(
        f"lop3.b32 %r3, %r0, %r1, %r2, {table}; st.global.u32 [%d0+{4 * table}], %r3;" for table in range(256)
    )
    module = lanewise.load(
        f""".version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 a, .param .u32 b, .param .u32 c) {{
    .reg .b32 %r<4>;
    .reg .b64 %d<1>;
    ld.param.u64 %d0, [out];
    ld.param.u32 %r0, [a];
    ld.param.u32 %r1, [b];
    ld.param.u32 %r2, [c];
    {lines}
    ret;
}}"""
    )
    out = np.zeros(256, np.uint32)
    module["k"][1, 1](out, *(int(word) for word in words))
    bits = (words[:, None] >> np.arange(32, dtype=np.uint32)) & 1
    rows = bits[0] * 4 + bits[1] * 2 + bits[2]
    expected = ((np.arange(256)[:, None] >> rows & 1) << np.arange(32)).sum(axis=1)
    assert (out == expected).all()
