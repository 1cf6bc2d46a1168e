"""What `lanewise.check` hands back: findings once a place, the report as text and JSON, results unchanged."""

import json

import numpy as np
import pytest

import lanewise as lw
from lanewise.errors import LanewiseError
from lanewise.machine.checker.report import Finding, Report

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
REVERSE = f"""{HEAD}.visible .entry reverse(.param .u64 x)
{{
    .reg .b32 %r<6>; .reg .b64 %rd<2>; .shared .align 4 .b8 tile[512];
    mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [x]; mad.wide.u32 %rd1, %r0, 4, %rd0;
    ld.global.u32 %r1, [%rd1]; mov.u32 %r2, tile; mad.lo.u32 %r3, %r0, 4, %r2;
    st.shared.u32 [%r3], %r1;
    BARRIER
    sub.u32 %r4, 127, %r0; mad.lo.u32 %r3, %r4, 4, %r2; ld.shared.u32 %r5, [%r3];
    st.global.u32 [%rd1], %r5;
    ret;
}}"""


def test_a_place_is_told_of_once_with_both_sides_and_a_count() -> None:
    report = lw.check(
        lw.load(REVERSE.replace("BARRIER", ""))["reverse"][1, 128], np.arange(128, dtype=np.uint32)
    )
    assert not report.ok and not bool(report)
    assert {finding.kind for finding in report.findings} == {"race"}
    assert len({(finding.line, finding.allocation) for finding in report.findings}) == len(report.findings)
    # Warps 2 and 3 write what warps 1 and 0 have read, of which the first is thread 64's, and read what they
    # have written: 64 words each. It is one barrier that is missing.
    (race,) = report.findings
    assert race.count == 128 and race.thread == (64, 0, 0) and race.block == (0, 0, 0)
    assert race.address == 64 * 4 and race.allocation == "shared variable tile"
    assert race.text.startswith("st.shared") and race.message.endswith("in the opposite order")
    assert race.other is not None and race.other.text.startswith("ld.shared")
    assert race.other.thread == (63, 0, 0) and race.other.allocation == race.allocation
    text = str(report)
    for words in ("race: shared write of 4 bytes", "by thread (64, 0, 0) in block (0, 0, 0)", "128 times",
                  "reverse: 1 finding (1 race)", "mend: `bar.sync 0` between line 9 and line 11",
                  "31 counters: --counters, report.counters"):  # fmt: skip
        assert words in text, text
    assert "smsp__inst_executed.sum" not in text
    assert "31 counters:\nsmsp__inst_executed.sum" in report.in_words(counters=True)
    assert json.loads(json.dumps(report.to_dict()))["findings"][0]["kind"] == "race"


def test_a_correct_kernel_gives_its_result_and_no_finding() -> None:
    module = lw.load(REVERSE.replace("BARRIER", "bar.sync 0;"))
    plain, checked = np.arange(128, dtype=np.uint32), np.arange(128, dtype=np.uint32)
    module["reverse"][1, 128](plain)
    report = lw.check(module["reverse"][1, 128], checked)
    assert report and not report.findings
    assert plain.tolist() == checked.tolist() == list(range(127, -1, -1))


def test_advice_is_told_but_is_no_failure() -> None:
    advice = Finding("race", "a volatile exchange", 3, "ld.volatile", severity="advice")
    error = Finding("race", "a write without order", 4, "st.shared")
    report = Report("k", [advice], {})
    assert report.ok and report and report.to_dict()["findings"][0]["severity"] == "advice"
    assert "race (advice): a volatile exchange" in str(report)
    assert "1 finding (1 race (advice))" in str(report)
    both = Report("k", [advice, error], {})
    assert not both.ok and not both.to_dict()["ok"]
    assert "race: a write without order" in str(both) and error.severity == "error"


def test_two_runs_say_the_same() -> None:
    kernel = lw.load(REVERSE.replace("BARRIER", ""))["reverse"][3, 128]
    first, second = (lw.check(kernel, np.arange(128, dtype=np.uint32)).to_dict() for _ in range(2))
    assert first == second


def test_a_fault_is_a_finding_and_wrong_arguments_are_errors() -> None:
    kernel = lw.load(REVERSE.replace("BARRIER", "bar.sync 0;"))["reverse"][1, 128]
    report = lw.check(kernel, np.arange(100, dtype=np.uint32))
    (finding,) = report.findings
    assert finding.kind == "out of bounds" and finding.thread == (100, 0, 0)
    assert finding.message.startswith("global read of 4 bytes out of bounds")
    with pytest.raises(LanewiseError, match="takes 1 argument"):
        lw.check(kernel)


def test_what_a_gpu_would_not_launch() -> None:
    kernel = lw.load(REVERSE.replace("BARRIER", "bar.sync 0;"))["reverse"]
    x = np.arange(128, dtype=np.uint32)
    for configuration, arch, words in (
        ((1, 128), "sm_75", "PTX for sm_80 does not run on sm_75"),
        ((1, 128, 100 * 1024), "sm_86", "sm_86 has 101,376"),
    ):
        (finding,) = lw.check(kernel[configuration], x, arch=arch).findings
        assert finding.kind == "launch" and words in finding.message
    assert lw.check(kernel[1, 128, 100 * 1024], x, arch="sm_90").ok


@pytest.mark.parametrize(("offset", "kind"), [(0, None), (4, "out of bounds")])
def test_shared_variables_are_told_apart(offset: int, kind: str | None) -> None:
    text = f"""{HEAD}.visible .entry k(.param .u32 n)
{{
    .reg .b32 %r<6>; .shared .align 4 .b8 first[128]; .shared .align 4 .b8 second[128];
    mov.u32 %r0, %tid.x; shl.b32 %r0, %r0, 2;
    mov.u32 %r1, first; add.u32 %r1, %r1, %r0; mov.u32 %r2, second; add.u32 %r2, %r2, %r0;
    st.shared.u32 [%r1], %r0; st.shared.u32 [%r2], %r0; bar.sync 0;
    ld.shared.u32 %r3, [%r1+{offset}];
    ret;
}}"""
    found = lw.check(lw.load(text)["k"][1, 32], 0).findings
    assert [finding.kind for finding in found] == ([kind] if kind else [])
    if found:
        assert "outside of shared variable first (128 bytes)" in found[0].message
        assert found[0].allocation == "shared variable second" and found[0].thread == (31, 0, 0)


@pytest.mark.parametrize("epochs", [4, 6, 9, 1 << 20])
def test_a_run_that_is_too_long_for_its_clock_is_silent(epochs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = lw.load(REVERSE.replace("BARRIER", "bar.sync 0;"))["reverse"]
    monkeypatch.setattr("lanewise.machine.checker.checked_launch.EPOCHS", epochs)
    report = lw.check(kernel[1, 128], np.arange(128, dtype=np.uint32))
    assert report.ok, str(report)
    # Four warps, each before and after the barrier, and the block's own beginning: nine epochs.
    assert any("too long" in note for note in report.notes) == (epochs <= 9)


COPY = f"""{HEAD}.visible .entry copy(.param .u64 x, .param .u32 from, .param .u32 to)
{{
    .reg .b32 %r<6>; .reg .b64 %rd<3>; .shared .align 16 .b8 tile[512];
    mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [x]; ld.param.u32 %r1, [from]; ld.param.u32 %r2, [to];
    mad.lo.u32 %r1, %r0, 16, %r1; cvt.u64.u32 %rd1, %r1; add.u64 %rd0, %rd0, %rd1;
    mov.u32 %r3, tile; add.u32 %r2, %r2, %r3; mad.lo.u32 %r2, %r0, 16, %r2;
    cp.async.cg.shared.global [%r2], [%rd0], 16;
    cp.async.wait_all;
    ret;
}}"""


@pytest.mark.parametrize(
    "start, target, words, allocation",
    [
        (16, 0, "global read of 16 bytes out of bounds", None),
        (4, 0, "misaligned global read of 16 bytes", "argument 0 (x)"),
        (0, 16, "shared write of 16 bytes out of bounds", "shared memory"),
        (0, 8, "misaligned shared write of 16 bytes", "shared variable tile"),
    ],
)
def test_a_copy_fails_at_the_side_that_is_wrong(
    start: int, target: int, words: str, allocation: str | None
) -> None:
    kernel, x = lw.load(COPY)["copy"][1, 32], np.zeros(128, np.float32)
    (finding,) = lw.check(kernel, x, start, target).findings
    assert finding.message.startswith(words) and finding.allocation == allocation
    assert ("argument 0 (x) (512 bytes" if start else "512 bytes of shared memory") in finding.message
    with pytest.raises(LanewiseError, match=words):
        kernel(x, start, target)


def test_code_that_the_compiler_moved_is_of_the_next_line_that_is_named() -> None:
    text = REVERSE.replace(".visible", '.file 1 "k.cu"\n.visible').replace(
        "    BARRIER\n    sub.u32", "    .loc 1 0 0\n    sub.u32"
    )
    report = lw.check(
        lw.load(text.replace("    st.global", "    .loc 1 7 3\n    st.global"))["reverse"][1, 128],
        np.arange(128, dtype=np.uint32),
    )
    (race,) = report.findings
    assert race.other is not None and race.other.text.startswith("ld") and race.other.source == "k.cu:7"


def test_a_kernel_without_a_grid_says_how_it_is_launched() -> None:
    with pytest.raises(LanewiseError, match=r"kernel\[grid, block\]"):
        lw.load(COPY)["copy"](np.zeros(128, np.float32), 0, 0)
