"""A check on several processors says what a check on one says: the same findings, in the same order."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from lanewise.jit import threads
from lanewise.machine import Launch, Shape, compiled
from lanewise.machine.analysis.address_parameters import written_parameters
from lanewise.machine.checker import checked_launch
from lanewise.machine.checker import watch as checker_watch
from lanewise.machine.checker.report import Report
from lanewise.machine.checker.watch import Watch
from lanewise.machine.program.resolve import resolve

KERNELS = """
.version 8.0
.target sm_80
.address_size 64

// Each block: threads of two warps exchange through shared memory without a barrier; blocks do not meet.
.visible .entry in_block(.param .u64 out) {
    .reg .b64 %rd<4>; .reg .b32 %r<8>; .shared .align 4 .b8 tile[512];
    ld.param.u64 %rd0, [out];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r6, tile;
    shl.b32 %r2, %r0, 2;
    add.u32 %r2, %r2, %r6;
    st.shared.u32 [%r2], %r0;
    xor.b32 %r3, %r2, 128;
    ld.shared.u32 %r4, [%r3];
    mad.lo.u32 %r5, %r1, 64, %r0;
    mul.wide.u32 %rd1, %r5, 4;
    add.s64 %rd2, %rd0, %rd1;
    st.global.u32 [%rd2], %r4;
    ret;
}

// All blocks write the number of the block to one word.
.visible .entry between_blocks(.param .u64 out) {
    .reg .b64 %rd<2>; .reg .b32 %r<2>;
    ld.param.u64 %rd0, [out];
    mov.u32 %r0, %ctaid.x;
    st.global.u32 [%rd0], %r0;
    ret;
}

// Block n reads element n and writes element n + 1.
.visible .entry neighbours(.param .u64 data) {
    .reg .b64 %rd<4>; .reg .b32 %r<4>;
    ld.param.u64 %rd0, [data];
    mov.u32 %r0, %ctaid.x;
    mul.wide.u32 %rd1, %r0, 4;
    add.s64 %rd2, %rd0, %rd1;
    ld.global.u32 %r1, [%rd2];
    st.global.u32 [%rd2+4], %r1;
    ret;
}

// Each thread doubles its own element: nothing is wrong, and what is read is written later.
.visible .entry in_place(.param .u64 data) {
    .reg .b64 %rd<4>; .reg .b32 %r<4>;
    ld.param.u64 %rd0, [data];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, %ctaid.x;
    mad.lo.u32 %r2, %r1, 32, %r0;
    mul.wide.u32 %rd1, %r2, 4;
    add.s64 %rd2, %rd0, %rd1;
    ld.global.u32 %r3, [%rd2];
    add.u32 %r3, %r3, %r3;
    st.global.u32 [%rd2], %r3;
    ret;
}

// The last block reads beyond its array.
.visible .entry beyond(.param .u64 data) {
    .reg .b64 %rd<4>; .reg .b32 %r<4>;
    ld.param.u64 %rd0, [data];
    mov.u32 %r1, %ctaid.x;
    mul.wide.u32 %rd1, %r1, 4;
    add.s64 %rd2, %rd0, %rd1;
    ld.global.u32 %r3, [%rd2];
    st.global.u32 [%rd2], %r3;
    ret;
}
"""


@pytest.fixture(scope="module")
def module() -> lw.Module:
    return lw.load(KERNELS)


def both(monkeypatch: pytest.MonkeyPatch, check: Callable[[], Report]) -> list[Report]:
    """The report of one processor, and those of two and of four."""
    found = []
    for count in (1, 2, 4):
        monkeypatch.setattr(threads, "processors", lambda count=count: count)
        found.append(check())
    return found


def alike(reports: list[Report]) -> Report:
    first, *others = (report.to_dict() for report in reports)
    for other in others:
        assert other == first
    return reports[0]


def test_findings_inside_blocks(module: lw.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    def check() -> Report:
        return lw.check(module["in_block"][50, 64], np.zeros(50 * 64, np.uint32))

    report = alike(both(monkeypatch, check))
    assert {finding.kind for finding in report.findings} == {"race"}
    assert report.findings[0].block == (0, 0, 0)


def test_races_between_blocks(module: lw.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    def check() -> Report:
        return lw.check(module["between_blocks"][64, 1], np.zeros(4, np.uint32))

    report = alike(both(monkeypatch, check))
    assert [finding.kind for finding in report.findings] == ["race"]
    other = report.findings[0].other
    assert other is not None and other.block != report.findings[0].block


def test_a_read_in_one_block_and_a_write_in_another(
    module: lw.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):  # the second check of a kernel knows more from the start

        def check() -> Report:
            return lw.check(module["neighbours"][64, 1], np.zeros(65, np.uint32))

        report = alike(both(monkeypatch, check))
        assert [finding.kind for finding in report.findings] == ["race"]


@pytest.mark.parametrize("repeats", [1, 2])
def test_memory_that_is_read_and_then_written(
    repeats: int, module: lw.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check() -> Report:
        data = np.arange(64 * 32, dtype=np.uint32)
        for _ in range(repeats):
            report = lw.check(module["in_place"][64, 32], data)
        assert (data == np.arange(64 * 32) * 2**repeats).all()
        return report

    assert not alike(both(monkeypatch, check)).findings


def test_a_fault_ends_in_the_same_report(module: lw.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    def check() -> Report:
        return lw.check(module["beyond"][65, 1], np.zeros(64, np.uint32))

    report = alike(both(monkeypatch, check))
    assert [finding.kind for finding in report.findings] == ["out of bounds"]


ELSEWHERE = """
.version 8.0
.target sm_80
.address_size 64
// Each thread adds 1 to its element of `data`, through `out` and a distance.
.visible .entry elsewhere(.param .u64 data, .param .u64 out, .param .u64 distance) {
    .reg .b64 %rd<8>; .reg .b32 %r<4>;
    ld.param.u64 %rd0, [data];
    ld.param.u64 %rd1, [out];
    ld.param.u64 %rd2, [distance];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, %ctaid.x;
    mad.lo.u32 %r2, %r1, 32, %r0;
    mul.wide.u32 %rd3, %r2, 4;
    add.s64 %rd4, %rd0, %rd3;
    add.s64 %rd5, %rd1, %rd3;
    add.s64 %rd5, %rd5, %rd2;
    ld.global.u32 %r3, [%rd4];
    add.u32 %r3, %r3, 1;
    st.global.u32 [%rd5], %r3;
    ret;
}
"""


@pytest.mark.parametrize("processors", [1, 2])
def test_memory_that_seems_to_be_only_read_is_written_once(
    processors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pointer that leaves its array: nobody could tell that it writes the other one."""
    monkeypatch.setattr(threads, "processors", lambda: processors)
    module = lw.load(ELSEWHERE)
    kernel: Any = module["elsewhere"]
    assert written_parameters(resolve(module, kernel.function)) == frozenset({8, 16})
    data, out = np.zeros(64 * 32, np.uint32), np.zeros(64 * 32, np.uint32)
    probe = lw.load(ELSEWHERE)["elsewhere"]
    launch = Launch(
        compiled(probe.module, probe.function, "sm_80"), Shape((64, 1, 1), (32, 1, 1)), (data, out, 0)
    )
    # Arrays of other tests may have an address as well.
    hosts = (data.ctypes.data, out.ctypes.data)
    first, second = (each.first for each in launch.allocations if each.host in hosts)
    assert lw.check(kernel[64, 32], data, out, (first - second) % 2**64).ok
    assert (data == 1).all() and not out.any()


def test_parameters_whose_memory_may_be_written(module: lw.Module) -> None:
    for name, expected in (("in_block", frozenset({0})), ("in_place", frozenset({0}))):
        assert written_parameters(resolve(module, module[name].function)) == expected
    scattered = lw.load(ELSEWHERE.replace("add.s64 %rd5, %rd1, %rd3;", "ld.global.u64 %rd5, [%rd1];"))
    assert written_parameters(resolve(scattered, scattered["elsewhere"].function)) is None


def test_what_is_printed_is_printed_once_and_in_order(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = """
.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b32 result) vprintf (.param .b64 format, .param .b64 arguments);
.global .align 1 .b8 words[7] = {98, 32, 37, 100, 10, 0, 0};
.visible .entry says() {
    .local .align 8 .b8 stack[8];
    .reg .b64 %rd<4>; .reg .b32 %r<4>;
    mov.u64 %rd0, stack;
    cvta.local.u64 %rd1, %rd0;
    mov.u32 %r0, %ctaid.x;
    st.local.u32 [%rd0], %r0;
    mov.u64 %rd2, words;
    cvta.global.u64 %rd3, %rd2;
    {
    .param .b64 first; .param .b64 second; .param .b32 got;
    st.param.b64 [first], %rd3;
    st.param.b64 [second], %rd1;
    call.uni (got), vprintf, (first, second);
    }
    ret;
}
"""
    kernel: Any = lw.load(text)["says"]
    monkeypatch.setattr(threads, "processors", lambda: 3)
    assert lw.check(kernel[20, 1]).ok
    assert capsys.readouterr().out == "".join(f"b {number}\n" for number in range(20))


OFTEN = """
.version 8.0
.target sm_80
.address_size 64
// All lanes write one value to one word of shared memory; in the last block each its own.
.visible .entry often(.param .u64 out) {
    .reg .b64 %rd<4>; .reg .b32 %r<8>; .reg .pred %p; .shared .align 16 .b8 word[16];
    ld.param.u64 %rd0, [out];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, %ctaid.x;
    setp.eq.u32 %p, %r1, LAST;
    selp.u32 %r3, %r0, 7, %p;
    mov.u32 %r4, word;
    st.shared.u32 [%r4], %r3;
    ret;
}
"""


def test_harmless_suspicions_hide_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel: Any = lw.load(OFTEN.replace("LAST", "599"))["often"]
    report = alike(both(monkeypatch, lambda: lw.check(kernel[600, 32], np.zeros(4, np.uint32))))
    (finding,) = report.findings
    assert finding.kind == "race" and finding.block == (599, 0, 0)


def test_a_copy_of_no_bytes_reads_nothing() -> None:
    text = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a) {
    .reg .b64 %rd<4>; .reg .b32 %r<9>; .shared .align 16 .b8 tile[1024];
    ld.param.u64 %rd0, [a];
    cvta.to.global.u64 %rd0, %rd0;
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd1, %r0, 16;
    add.u64 %rd1, %rd0, %rd1;
    shl.b32 %r1, %r0, 4;
    mov.u32 %r2, tile;
    add.u32 %r2, %r2, %r1;
    st.global.v4.u32 [%rd1], {%r0, %r0, %r0, %r0};
    cp.async.cg.shared.global [%r2], [%rd0], 16, 0;
    cp.async.wait_all;
    ret;
}
"""
    report = lw.check(lw.load(text)["k"][1, 64], np.zeros(256, np.uint32))
    assert report.ok
    assert not any("global_op_ldgsts" in name and value for name, value in report.counters.items())


ARRAYS = """
.version 8.0
.target sm_80
.address_size 64
// All lanes of a block write one word, by one instruction: half of the blocks in one array, half in another.
.visible .entry arrays(.param .u64 one, .param .u64 two) {
    .reg .b64 %rd<4>; .reg .b32 %r<4>; .reg .pred %p;
    ld.param.u64 %rd0, [one];
    ld.param.u64 %rd1, [two];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, 0;
WAIT:
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p, %r2, 20000;
    @%p bra WAIT;
    setp.lt.u32 %p, %r1, 50;
    selp.b64 %rd2, %rd0, %rd1, %p;
    mul.wide.u32 %rd3, %r1, 4;
    add.u64 %rd2, %rd2, %rd3;
    st.global.u32 [%rd2], %r0;
    ret;
}
"""


def test_one_instruction_that_is_wrong_in_two_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are told, whichever thread came first."""
    module = lw.load(ARRAYS)

    def check() -> Report:
        arrays = np.zeros(100, np.uint32), np.zeros(100, np.uint32)
        return lw.check(module["arrays"][100, 32], *arrays)

    found = alike(both(monkeypatch, check)).findings
    assert [finding.kind for finding in found] == ["race", "race"]
    assert [finding.allocation for finding in found] == ["argument 0 (one)", "argument 1 (two)"]


def test_shadow_memory_has_a_bound(module: lw.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host thread whose shadow memory would be too much leaves the work to others."""
    made: list[Watch] = []

    def watch(*arguments: Any, **options: Any) -> Any:
        made.append(Watch(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(checked_launch, "Watch", watch)
    monkeypatch.setattr(checked_launch, "ALONE_SECONDS", 0)
    monkeypatch.setattr(threads, "processors", lambda: 4)
    data = np.zeros(64 * 32, np.uint32)
    assert lw.check(module["in_place"][64, 32], data).ok
    needed = made[0].shadow_bytes
    assert needed >= data.nbytes
    for most in (needed, 2 * needed):
        made.clear()
        monkeypatch.setattr(checked_launch, "most_shadow_bytes", lambda most=most: most)
        assert lw.check(module["in_place"][64, 32], data).ok
        assert 1 <= len(made) <= most // needed


def test_an_array_that_is_too_large_is_not_watched_and_the_report_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Races in the smaller array are found all the same, and requests to both are counted."""
    module = lw.load(ARRAYS)

    def check(second: int) -> Report:
        arrays = np.zeros(100, np.uint32), np.zeros(second, np.uint32)
        return lw.check(module["arrays"][100, 32], *arrays)

    whole = check(5000)
    assert len(whole.findings) == 2 and not whole.notes
    monkeypatch.setattr(checker_watch, "most_shadow_bytes", lambda: 20_000)
    report = check(5000)
    assert [finding.allocation for finding in report.findings] == ["argument 0 (one)"]
    assert any("argument 1" in note and "20,000 bytes" in note for note in report.notes)
    assert report.counters == whole.counters


@pytest.mark.parametrize("available", [0, 1])
def test_a_watch_without_memory(
    available: int, module: lw.Module, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Threads that get no watch leave the work to those that have one; an error if there is none."""
    made: list[Watch] = []

    def watch(*arguments: Any, **options: Any) -> Any:
        if len(made) >= available:
            raise MemoryError("no memory for a watch")
        made.append(Watch(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(checked_launch, "Watch", watch)
    monkeypatch.setattr(checked_launch, "ALONE_SECONDS", 0)
    monkeypatch.setattr(threads, "processors", lambda: 4)
    data = np.ones(64 * 32, np.uint32)
    if available:
        assert lw.check(module["in_place"][64, 32], data).ok
        assert (data == 2).all()
    else:
        with pytest.raises(MemoryError, match="no memory for a watch"):
            lw.check(module["in_place"][64, 32], data)
    assert not capsys.readouterr().err


# Blocks that share work by atomics run on one host thread. The last block of three writes `data` by way of a
# pointer that is another parameter, so that `data` seems to be only read.
SHARED_WORK = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry shared_work(.param .u64 counter, .param .u64 data, .param .u64 other, .param .u64 distance) {
    .reg .b64 %rd<8>; .reg .b32 %r<8>; .reg .pred %p<2>;
    ld.param.u64 %rd0, [counter];
    ld.param.u64 %rd1, [data];
    ld.param.u64 %rd2, [other];
    ld.param.u64 %rd3, [distance];
    ld.global.u32 %r0, [%rd1];
    atom.global.gpu.acq_rel.add.u32 %r1, [%rd0], 1;
    st.global.u32 [%rd2], %r1;
    setp.ne.u32 %p0, %r1, 2;
    @%p0 ret;
    add.s64 %rd4, %rd2, %rd3;
    st.global.u32 [%rd4], %r1;
    ret;
}
"""


def test_blocks_that_share_work_and_write_what_seems_to_be_only_read(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel: Any = lw.load(SHARED_WORK)["shared_work"]
    counter, data, other = (np.zeros(4, np.uint32) for _ in range(3))
    launch = Launch(
        compiled(kernel.module, kernel.function, "sm_80"),
        Shape((3, 1, 1), (1, 1, 1)),
        (counter, data, other, 0),
    )
    places = {each.host: each.first for each in launch.allocations}
    first, second = (places[each.ctypes.data] for each in (data, other))
    recorded: list[int] = []
    run = checked_launch.CheckedLaunch.run

    def spy(own: checked_launch.CheckedLaunch, *arguments: Any) -> None:
        recorded.append(len(own.written))
        run(own, *arguments)

    monkeypatch.setattr(checked_launch.CheckedLaunch, "run", spy)
    lw.check(kernel[3, 1], counter, data, other, 0)
    assert recorded == [2] and counter[0] == 3 and not data.any()
    counter[:] = 0
    lw.check(kernel[3, 1], counter, data, other, (first - second) % 2**64)
    # The second run puts all reads on record, and begins with the memory as it was.
    assert recorded[:2] == [2, 2] and recorded[2] > 2  # other tests may have allocated memory, too
    assert counter[0] == 3 and data.tolist() == [2, 0, 0, 0]
