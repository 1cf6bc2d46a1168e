"""One finding for each mistake: copies of a source line are one, with the calls that inlined them."""

import numpy as np
import pytest

import lanewise as lw
from everything import only_with_everything

HEAD = """.version 8.0
.target sm_80
.address_size 64
.file 1 "k.cu"
.file 2 "tile.cuh"
"""


def exchange(copies: int, write_at: str, read_at: str) -> lw.Module:
    """A kernel in which two warps exchange words without a barrier, as a loop of copies that was unrolled."""
    lines = []
    for number in range(copies):
        lines.append(f".loc {write_at}\nst.shared.u32 [%r2+{1024 * number}], %r0;")
        lines.append(f".loc {read_at}\nld.shared.u32 %r4, [%r3+{1024 * number}]; st.global.u32 [%rd0], %r4;")
    return lw.load(
        f"""{HEAD}.visible .entry k(.param .u64 x) {{
    .reg .b32 %r<6>; .reg .b64 %rd<2>; .shared .align 4 .b8 tile[{1024 * copies}];
    .loc 1 5 1
    ld.param.u64 %rd0, [x]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd1, %r0, 4; add.u64 %rd0, %rd0, %rd1;
    mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, 4, %r1; xor.b32 %r3, %r2, 128;
    {chr(10).join(lines)}
    ret;
}}"""
    )


def test_unrolled_copies_of_a_line_are_one_finding() -> None:
    counts = {}
    for copies in (1, 8):
        report = lw.check(exchange(copies, "1 7 3", "1 8 3")["k"][1, 64], np.zeros(64, np.uint32))
        (race,) = report.findings
        assert race.kind == "race" and race.other is not None
        assert {race.source, race.other.source} == {"k.cu:7", "k.cu:8"}
        assert race.allocation == race.other.allocation == "shared variable tile"
        assert race.chain == () and race.thread is not None and race.other.thread is not None
        counts[copies] = race.count
    assert counts[8] == 8 * counts[1]


def test_other_lines_are_other_findings() -> None:
    text = str(exchange(2, "1 7 3", "1 8 3").text)
    half = text.rindex(".loc 1 8 3")
    module = lw.load(text[:half] + ".loc 1 9 3" + text[half + len(".loc 1 8 3") :])
    found = lw.check(module["k"][1, 64], np.zeros(64, np.uint32)).findings
    assert sorted(each.other.source or "" for each in found if each.other) == ["k.cu:8", "k.cu:9"]


def test_inlined_code_has_the_lines_of_all_calls() -> None:
    inlined = "2 30 5, function_name $L0, inlined_at 2 40 7"
    caller = ".loc 2 40 7, function_name $L1, inlined_at 1 12 3\nmov.u32 %r5, 0;\n"
    text = str(exchange(2, inlined, "1 8 3").text).replace(".loc 2 30", caller + ".loc 2 30", 1)
    (race,) = lw.check(lw.load(text)["k"][1, 64], np.zeros(64, np.uint32)).findings
    store = race if race.text.startswith("st") else race.other
    assert store is not None and store.chain == ("tile.cuh:30", "tile.cuh:40", "k.cu:12")
    assert store.source == "tile.cuh:30"  # the author's own header; one of CUTLASS would name its caller
    inlined = "tile.cuh:30, inlined at tile.cuh:40, inlined at k.cu:12"
    assert inlined in race.in_words(inlined=True) and inlined not in str(race)
    assert all(f"PTX line {each.line}: " in race.in_words(ptx=True) for each in (race, race.other) if each)


SEVERAL = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x) {
    .reg .b32 %r<6>; .reg .b64 %rd<2>; .reg .pred %p; .shared .align 4 .b8 tile[256];
    mov.u32 %r0, %tid.x; mov.u32 %r1, tile;
    setp.ge.u32 %p, %r0, 32; @%p bra SECOND;
    ACCESS
    ret;
SECOND:
    setp.ne.u32 %p, %r0, 32; @%p bra END;
    st.shared.u32 [%r1], 9;
END:
    ret;
}"""


@pytest.mark.parametrize("access", ["ld.shared.u32 %r2, [%r1];", "st.shared.u32 [%r1], 5;"])
def test_of_several_lanes_the_first_is_named(access: str) -> None:
    module = lw.load(SEVERAL.replace("ACCESS", access))
    races = [each for each in lw.check(module["k"][1, 64], 0).findings if each.kind == "race"]
    (race,) = races
    assert race.thread == (32, 0, 0) and race.other is not None
    assert (
        race.other.thread == (0, 0, 0) and "several lanes, of which this is the first" in race.other.message
    )


@pytest.mark.slow
@only_with_everything
def test_the_other_side_of_a_long_kernel_has_its_place() -> None:
    """Beyond 32,700 instructions the number of an access, not of its instruction, is put on record."""
    filler = "add.u32 %r5, %r5, 1;\n" * 34_000
    text = str(exchange(1, "1 7 3", "1 8 3").text).replace(
        ".loc 1 7 3", f"mov.u32 %r5, 0;\n{filler}.loc 1 7 3"
    )
    (race,) = lw.check(lw.load(text)["k"][1, 64], np.zeros(64, np.uint32)).findings
    assert race.other is not None and race.other.line > 34_000 and race.other.thread is not None
