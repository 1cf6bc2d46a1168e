"""`ex2.approx.f32` has the bits that an H200 returned (tests/data/h200_ex2.json)."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lanewise as lw

RECORD = json.loads((Path(__file__).parents[1] / "data/h200_ex2.json").read_text())
MODULE = lw.load("""
.version 8.0
.target sm_90
.address_size 64
.visible .entry powers(.param .u64 x, .param .u64 y, .param .u64 z, .param .u32 n)
{
    .reg .pred %p;
    .reg .b32 %r<5>;
    .reg .b64 %d<8>;
    .reg .f32 %f<4>;
    ld.param.u32 %r0, [n];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    setp.ge.u32 %p, %r4, %r0;
    @%p ret;
    ld.param.u64 %d0, [x];
    ld.param.u64 %d1, [y];
    ld.param.u64 %d2, [z];
    mul.wide.u32 %d3, %r4, 4;
    add.u64 %d4, %d0, %d3;
    add.u64 %d5, %d1, %d3;
    add.u64 %d6, %d2, %d3;
    ld.global.f32 %f0, [%d4];
    ex2.approx.ftz.f32 %f1, %f0;
    ex2.approx.f32 %f2, %f0;
    st.global.f32 [%d5], %f1;
    st.global.f32 [%d6], %f2;
    ret;
}
""")


def powers(words: Any) -> tuple[Any, Any]:
    """The words that the machine gives, with .ftz and without."""
    x = words.view(np.float32)
    y, z = np.zeros_like(x), np.zeros_like(x)
    MODULE["powers"][-(-len(x) // 256), 256](x, y, z, len(x))
    return y.view(np.uint32), z.view(np.uint32)


def test_every_recorded_word_is_that_of_the_h200() -> None:
    pairs = np.array([int(each, 16) for each in RECORD["words"].split()], np.uint64)
    words, expected = (pairs >> 32).astype(np.uint32), pairs.astype(np.uint32)
    flushed, kept = powers(words)
    assert (flushed == expected).all()
    # Without .ftz the same, but for results and arguments that are subnormal or nearly so.
    x = words.view(np.float32)
    usual = ~(x < -126)
    assert (kept[usual] == expected[usual]).all()
    exact = np.exp2(x[~usual].astype(np.float64))
    assert (np.abs(kept[~usual].view(np.float32) - exact) <= np.maximum(exact * 2.0**-21, 2.0**-149)).all()


@pytest.mark.slow
@pytest.mark.parametrize("first", RECORD["binades"])
def test_whole_binades_are_those_of_the_h200(first: str) -> None:
    words = np.arange(int(first, 16), int(first, 16) + (1 << 23), dtype=np.uint32)
    flushed, kept = powers(words)
    assert hashlib.sha256(flushed.astype("<u4").tobytes()).hexdigest() == RECORD["binades"][first]
    assert (flushed == kept).all()
