"""How findings read: the line first, the mend last; the same verdict wherever a launch is told of."""

from typing import Any

import numpy as np
import pytest

import lanewise as lw
from lanewise.debug.debugger import Debugger
from lanewise.debug.launches import DebuggedLaunch
from lanewise.machine.checker.mends import SPELLINGS, Language, spelled
from lanewise.machine.checker.records import OrderKind
from lanewise.machine.checker.suspicion_facts import SHORT_FACTS, Facts
from lanewise.machine.checker.suspicions import Subject, Suspicion
from lanewise.ptx.model.inlined_code import authors_line
from machine.mistakes.corpus import PAIRS, Pair, in_the_suite
from machine.mistakes.mending import insertions, is_mended
from nvrtc import need_nvrtc

F32 = lw.Ptr[lw.f32]


@lw.kernel
def reverse(x: F32):
    tile = lw.shared(lw.f32, 64)
    t = lw.thread_idx.x
    tile[t] = x[t]
    x[t] = tile[63 - t]


@lw.kernel
def one_sum(x: F32):
    x[0] = x[0] + 1.0


@lw.kernel
def unready_bins(x: lw.Ptr[lw.i32], y: lw.Ptr[lw.i32]):
    bins = lw.shared(lw.i32, 64)
    t = lw.thread_idx.x
    bins[t] = 0
    for i in lw.range(t, 256, 64):
        lw.atomic_add(bins.ptr(x[i]), 1)
    lw.syncthreads()
    y[t] = bins[t]


@lw.kernel
def outside(x: F32):
    x[lw.thread_idx.x + 1] = 1.0


@lw.kernel
def few_arrive(x: F32):
    ready = lw.mbarrier(2)
    t = lw.thread_idx.x
    if t == 0:
        ready[1].init(64)
    lw.syncthreads()
    if t < 40:
        ready[1].arrive()
    ready[1].wait(0)
    x[t] = 1.0


@lw.kernel
def many_arrive(x: F32):
    ready = lw.mbarrier()
    t = lw.thread_idx.x
    if t == 0:
        ready[0].init(1)
    lw.syncthreads()
    if t < 32:
        ready[0].arrive()
    ready[0].wait(0)
    x[t] = 1.0


def numbers() -> Any:
    return np.ones(64, np.float32)


# suspicions are records -------------------------------------------------------------------------------------


def test_a_suspicion_says_all_that_a_finding_says() -> None:
    """Every name in braces is a number that compiled code reports, or a fact; none is left without words."""
    facts = {*dir(Facts), *Facts.__dataclass_fields__, *SHORT_FACTS, *SPELLINGS}
    for each in Suspicion:
        assert len(each.numbers) == 4
        if each.subject is Subject.CHECKER:
            continue
        assert each.kind and each.message and each.mend, each
        for text in (each.message, each.mend):
            names = {part.split("}")[0].split(":")[0] for part in text.split("{")[1:]}
            assert names <= facts | set(each.numbers), (each, names)
        if each.subject is Subject.TWO_ACCESSES:
            assert {"address", "epoch", "who"} <= set(each.numbers)
    assert [int(each) for each in Suspicion] == list(range(len(Suspicion)))
    assert len({int(each) for each in OrderKind}) == len(OrderKind) and min(OrderKind) == 1


def test_every_language_spells_every_instruction() -> None:
    assert all(len(spelled(name, language)) > 2 for name in SPELLINGS for language in Language)


# how they read ----------------------------------------------------------------------------------------------


def test_the_line_first_and_the_mend_last() -> None:
    report = lw.check(reverse[1, 64], numbers())
    (race,) = report.findings
    head, what, who, other, by, mend, *_ = str(race).split("\n")
    assert head == f"{race.place}: tile[t] = x[t]" and what.startswith("race: ")
    assert who == "    by thread (32, 0, 0) in block (0, 0, 0) in shared variable tile"
    assert race.other is not None and other == f"    and shared read, {race.other.place}: x[t] = tile[63 - t]"
    assert by == "    by thread (31, 0, 0) in block (0, 0, 0)" and mend.startswith(
        "    mend: `lw.syncthreads()`"
    )
    assert "PTX" not in str(race) and "st.shared" in race.in_words(ptx=True)
    assert f"{len(report.counters)} counters: --counters" in str(report)
    assert "until the fault" in str(lw.check(outside[1, 64], numbers()))


def test_the_threads_that_are_farthest_apart_are_named() -> None:
    """Threads of a block race, and those of two blocks: the mend has to order the latter."""
    (race,) = lw.check(one_sum[4, 64], numbers()).findings
    assert race.other is not None and race.block != race.other.block
    assert "no barrier orders two blocks" in race.mend


def test_an_atomic_in_a_loop_is_no_lock() -> None:
    """A barrier orders the zeros and the sums; a lock is taken by an exchange, and there none would."""
    data = np.arange(256, dtype=np.int32)[::-1] % 64
    (race,) = lw.check(unready_bins[1, 64], data.copy(), np.zeros(64, np.int32)).findings
    assert race.mend.startswith("`lw.syncthreads()` between line")
    assert race.mend.endswith("atomic, too")


def test_long_lists_of_registers_are_cut() -> None:
    from lanewise.machine.checker.findings import elided

    many = ", ".join(f"%f{number}" for number in range(128))
    assert elided(f"wgmma {{{many}}}, %rd1;") == "wgmma {%f0, …, %f127}, %rd1;"
    assert elided("mma {%f0, %f1, %f2, %f3}, {%r0};") == "mma {%f0, %f1, %f2, %f3}, {%r0};"


@pytest.mark.parametrize(
    ("chain", "line"),
    [
        (["/x/include/cute/atom.hpp:7", "/x/include/cutlass/gemm.h:9", "gemm.cu:31"], "gemm.cu:31"),
        (["/x/cute/copy.hpp:7", "mainloop.hpp:205", "/x/cutlass/device_kernel.h:122"], "mainloop.hpp:205"),
        (["/usr/include/cuda/std/atomic:80", "queue.cuh:12", "main.cu:3"], "queue.cuh:12"),
        (["/x/cutlass/device_kernel.h:122"], "/x/cutlass/device_kernel.h:122"),
    ],
)  # fmt: skip
def test_the_line_of_inlined_code_is_the_authors(chain: list[str], line: str) -> None:
    places = [(name, int(number)) for name, _, number in (each.rpartition(":") for each in chain)]
    assert "{}:{}".format(*authors_line(places)) == line


# one bug, one verdict ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", [reverse, outside, few_arrive, many_arrive], ids=lambda each: each.name)
def test_check_debugger_and_page_tell_the_same(kernel: Any) -> None:
    from lanewise.traces.page import page_data

    checked = [str(each) for each in lw.check(kernel[1, 64], numbers(), arch="sm_90").findings]
    bound, values = kernel[1, 64].bind(numbers(), arch="sm_90")
    debugger = Debugger(DebuggedLaunch(bound, values, {"arch": "sm_90"}))
    assert [str(each) for each, _ in debugger.recorded.findings] == checked
    stop = debugger.to_first_finding()
    assert stop is not None and stop.reason in checked
    page = page_data(debugger.recorded.recording, 1 << 20)
    assert [each["text"] for each in page["findings"]] == checked


# deadlocks --------------------------------------------------------------------------------------------------


def test_a_deadlock_names_the_mbarrier_what_it_lacks_and_who_could_send_it() -> None:
    with pytest.raises(lw.LanewiseError) as fault:
        few_arrive[1, 64](numbers(), arch="sm_90")
    text = str(fault.value)
    arrival = few_arrive.function.__code__.co_firstlineno + 8
    assert "the mbarrier at shared variable ready[1] lacks 24 of 64 arrivals" in text
    assert f"(arrivals come from tests/machine/test_check_findings.py:{arrival})" in text.replace(
        "\\", "/"
    ) or (f"test_check_findings.py:{arrival})" in text)
    assert (
        "mend: let 24 more arrive at ready[1] in each phase" in text
        and "or initialise ready[1] with 40" in text
    )


def test_lanes_that_wait_for_one_at_an_mbarrier_are_not_the_cause() -> None:
    """The other 31 wait for the lane that waits for a phase: what is wrong is the mbarrier."""

    @lw.kernel
    def one_waits(x: F32):
        ready, t = lw.mbarrier()[0], lw.thread_idx.x
        if t == 0:
            ready.init(2)
        lw.syncthreads()
        if t == 0:
            ready.arrive()
            ready.wait(0)
        lw.syncwarp()
        x[t] = 1

    (finding,) = lw.check(one_waits[1, 32], np.zeros(32, np.float32), arch="sm_90").findings
    assert finding.kind == "barrier" and finding.source.endswith(
        f":{one_waits.function.__code__.co_firstlineno + 8}"
    )
    assert "let 1 more arrive at ready" in finding.mend


def test_a_plain_run_tells_of_too_many_arrivals() -> None:
    with pytest.raises(lw.LanewiseError, match="ready got more arrivals in one instruction than the 1 that"):
        many_arrive[1, 64](numbers(), arch="sm_90")


@pytest.mark.parametrize(("row", "inside"), [(0, True), (28, True), (32, False), (-8, False)])
def test_a_box_wholly_outside_of_its_tensor_is_a_note(row: int, inside: bool) -> None:
    @lw.kernel
    def load(tensor: lw.TensorMap[lw.f32, (8, 32)], x: F32, row: lw.i32):
        full = lw.mbarrier()
        tile = lw.shared(lw.f32, (8, 32), align=128)
        t = lw.thread_idx.x
        if t == 0:
            full[0].init(1)
            lw.fence_mbarrier_init()
        lw.syncthreads()
        if t == 0:
            full[0].arrive(expect=1024)
            lw.tma.load(tile, tensor, (row, 0), full[0])
        full[0].wait(0)
        x[t] = tile[0, t]

    tensor = lw.tensor_map(np.ones((32, 32), np.float32), (8, 32))
    report = lw.check(load[1, 32], tensor, np.zeros(32, np.float32), row, arch="sm_90a")
    notes = [note for note in report.notes if "wholly outside of its tensor" in note]
    assert not report.findings and bool(notes) is not inside
    assert inside or f"the box at ({row}, 0) lies" in notes[0]


# mends are right --------------------------------------------------------------------------------------------

RACED = [
    pair
    for pair in PAIRS
    if pair.name in in_the_suite()
    and pair.file.endswith(".cu")
    and not pair.advice
    and pair.kinds & {"race", "asynchronous copy", "proxy"}
]


#: Mends that ask for more than a statement at a line.
BY_HAND = {
    "wgmma_a_registers_no_fence": "the fence has to name registers, or nvcc writes them behind it",
    **dict.fromkeys(
        (
            "store_of_pending_copy",
            "store_of_copies_one_waited",
            "wgmma_of_tracked_copies",
            "tracked_before_copies",
        ),
        "the thread that copies has to wait, and does not come to the line before which it has to",
    ),
}


@pytest.mark.parametrize("pair", RACED, ids=lambda pair: pair.name)
def test_a_proposed_barrier_or_fence_mends_the_kernel(pair: Pair) -> None:
    need_nvrtc()
    found = [each for each in pair.check(wrong=True).findings if each.severity == "error"]
    assert all(each.mend for each in found if each.kind in ("race", "proxy", "asynchronous copy")), found
    if found and all(insertions(each.mend) for each in found) and pair.name not in BY_HAND:
        assert is_mended(pair, [each.mend for each in found]), [each.mend for each in found]
