"""Notes of lw.check on code that relies on which elements of a wmma fragment a lane holds."""

import numpy as np
import pytest

import lanewise as lw

BODY = """
.version 7.0
.target sm_75
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 x) {{
    .reg .b32 %r<9>; .reg .f32 %f<20>; .reg .b64 %p<8>;
    ld.param.u64 %p0, [a]; ld.param.u64 %p1, [x];
    mov.u32 %r0, %tid.x; mul.wide.u32 %p2, %r0, 32; add.u64 %p2, %p1, %p2;
    wmma.load.c.sync.aligned.row.m16n16k16.f32 {{%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}}, [%p0];
{lines}
    ret;
}}
"""
ALL = "{%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}"
CASES = {
    "an element stored by its place": ("st.global.f32 [%p2], %f3;", "st stores"),
    "an element scaled, then stored": (
        "mul.f32 %f9, %f3, 0f40000000; st.global.f32 [%p2], %f9;",
        "st stores",
    ),
    "a fragment loaded by its places": (
        f"ld.global.f32 %f0, [%p2]; ld.global.f32 %f1, [%p2+4];"
        f" wmma.store.d.sync.aligned.row.m16n16k16.f32 [%p1], {ALL};",
        "ld loads",
    ),
    "all scaled, and stored by wmma": (
        " ".join(f"mul.f32 %f{n}, %f{n}, 0f40000000;" for n in range(8))
        + f" wmma.store.d.sync.aligned.row.m16n16k16.f32 [%p1], {ALL};",
        "",
    ),
    "one loaded value in every place": (
        "ld.global.f32 %f9, [%p0];"
        + " ".join(f"mov.f32 %f{n}, %f9;" for n in range(8))
        + f" wmma.store.d.sync.aligned.row.m16n16k16.f32 [%p1], {ALL};",
        "",
    ),
    "a sum over elements": ("add.f32 %f9, %f0, %f1; st.global.f32 [%p2], %f9;", ""),
}


@pytest.mark.parametrize("name", CASES)
def test_places_in_fragments_are_noted(name: str) -> None:
    lines, wanted = CASES[name]
    module = lw.load(BODY.format(lines=lines))
    report = lw.check(module["k"][1, 32], np.ones((16, 16), np.float32), np.zeros(256, np.float32))
    found = [note for note in report.notes if "wmma fragment" in note]
    assert bool(found) == bool(wanted)
    assert all(note.startswith(wanted) and "line" in note for note in found)
