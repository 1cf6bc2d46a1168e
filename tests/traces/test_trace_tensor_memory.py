"""Tensor memory in traces: what a kernel reads back is what the trace says, and where it came from."""

import itertools
import pickle
from functools import cache
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import sampled
from lanewise.draw.tensor_memory import UNWRITTEN
from lanewise.errors import LanewiseError
from lanewise.traces.trace import Trace
from machine.tensor_memory_kernels import COLUMNS, dump, fill, kernel, registers
from traces.tensor_kernels import SCHEDULES, pair, tile

RNG = np.random.default_rng(2)


def opcode(step: Any, *words: str) -> bool:
    """Whether a step is a tcgen05 instruction with some modifiers."""
    return step.op.opcode == "tcgen05" and all(step.op.has(word) for word in words)


# loads, stores, shifts --------------------------------------------------------------------------------------

MOVES = [
    ("st", "32x32b", 4, ""),
    ("st", "16x256b", 2, ""),
    ("st", "16x64b", 4, ".unpack::16b"),
    ("st", "16x32bx2", 2, ""),
    ("shift", "", 0, ""),
]


@cache
def moved(verb: str, shape: str, num: int, pack: str, schedule: object) -> tuple[Any, Any, Trace]:
    """The words before and after an instruction as a kernel read them back, and its trace."""
    before = RNG.integers(0, 1 << 32, (128, COLUMNS), dtype=np.uint32)
    after = np.zeros_like(before)
    count = num * {"16x256b": 4}.get(shape, 1)
    half = ", 16" if shape == "16x32bx2" else ""
    lines = [f"    mov.u32 %d{n}, {RNG.integers(1 << 31)};" for n in range(count)]
    lines += [f"    mad.lo.u32 %d{n}, %tid0, 65537, %d{n};" for n in range(count)]
    lines += ["    shl.b32 %r60, %warp, 21;", "    add.u32 %r60, %r60, %taddr;", "    add.u32 %r60, %r60, 8;"]
    if verb == "shift":
        lines += [
            "    setp.eq.u32 %p0, %tid0, 0;",
            "    @%p0 tcgen05.shift.cta_group::1.down [%taddr];",
            "    mov.u32 %r1, bars;",
            "    @%p0 mbarrier.init.shared.b64 [bars], 1;",
            "    bar.sync 0;",
            "    @%p0 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r1];",
            "WAIT: mbarrier.try_wait.parity.shared.b64 %p1, [bars], 0;",
            "    @!%p1 bra WAIT;",
        ]
    else:
        vector = registers("d", count)
        lines += [
            f"    tcgen05.st.sync.aligned.{shape}.x{num}{pack}.b32 [%r60]{half}, {vector};",
            "    tcgen05.wait::st.sync.aligned;",
        ]
    body = "\n".join([fill("before"), *lines, "    bar.sync 0;", dump("after")])
    text = kernel(body, ("before", "after"))
    launch = lw.load(text)["k"][1, 128]
    return before, after, lw.trace(launch, before, after, arch="sm_100a", schedule=schedule)


@sampled(2)
@pytest.mark.parametrize(("case", "schedule"), list(itertools.product(MOVES, ("early", "late"))))
def test_what_a_kernel_reads_back_is_what_the_trace_has(case: Any, schedule: str) -> None:
    before, after, trace = moved(*case, schedule)
    last = trace.at(-3)
    memory = last.tensor_memory
    np.testing.assert_array_equal(memory.words[:, :COLUMNS], after)
    changed = before != after
    issued = [step.number for step in trace.steps if opcode(step, case[0])][-4:]
    assert set(memory.writers[:, :COLUMNS][changed].tolist()) <= set(issued)
    assert (memory.writers[:, COLUMNS:] == UNWRITTEN).all()
    # A store of a warp names exactly the words that it changed; a random word changes for sure.
    step = trace.at(issued[0])
    (touched,) = [each for each in step.tensor_memory.touched if each.kind == "write"]
    lanes = slice(0, 32)
    assert not (changed[lanes] & ~touched.words[lanes, :COLUMNS]).any()
    assert touched.words.sum() == changed[lanes].sum() or case[3]  # unpacking leaves some words as they are


# products ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_sums_and_their_origin(schedule: object) -> None:
    trace, a, _, c = tile(schedule)
    first = trace.first(lambda step: opcode(step, "ld"))
    assert first is not None
    memory = first.tensor_memory
    np.testing.assert_array_equal(memory.read("f32")[:, : c.shape[1]], c)
    assert memory.allocated == (range(64),) and memory[3, 5] == c.view(np.uint32)[3, 5]
    origin = trace.origin("C[72, 5]")
    assert origin.inputs == {
        "A": [(72, k) for k in range(a.shape[1])],
        "B": [(5, k) for k in range(a.shape[1])],
    }
    values = [each.value for each in trace.history("tmem[72, 5]")]
    assert len(values) == a.shape[1] // 16 and values[-1] == c[72, 5]
    assert trace.writer("acc[72, 5]").value == c[72, 5]


def test_operations_are_in_flight_until_their_commit_arrives() -> None:
    trace, *_ = tile("late")
    products = [each for each in trace.copies if "tcgen05.mma" in each.text]
    commits = [each for each in trace.copies if "tcgen05.commit" in each.text]
    assert len(products) == 4 * len(commits) and all(each.bytes == 128 * 64 * 4 for each in products)
    for each in products:
        commit = next(found for found in commits if found.issued == each.committed)
        assert each.issued < commit.issued < each.completed == commit.completed
    waiting = [each for step in trace.steps[: products[0].completed] for each in step.waiting]
    assert any(each.kind == "mbarrier" for each in waiting)


def test_columns_are_allocated_between_alloc_and_dealloc() -> None:
    trace, *_ = tile("early")
    allocated = [bool(step.tensor_memory.allocated) for step in trace.steps if step.warp == 0]
    first, last = allocated.index(True), len(allocated) - allocated[::-1].index(True)
    assert all(allocated[first:last]) and not any(allocated[:first]) and not any(allocated[last:])


def test_a_pair_writes_both_blocks() -> None:
    trace, _, _, c = pair()
    first = trace.first(lambda step: opcode(step, "ld"))
    assert first is not None
    for block, rows in (((0, 0, 0), slice(0, 64)), ((1, 0, 0), slice(64, 128))):
        step = trace.first(lambda step, block=block: opcode(step, "ld") and step.block == block)
        memory = step.tensor_memory.read()  # M = 128 of a pair: halves of D's columns in halves of the lanes
        found = np.concatenate([memory[:64, :32], memory[64:, :32]], axis=1)
        np.testing.assert_array_equal(found, c[rows])
    inputs = trace.origin("C[70, 40]").inputs
    assert inputs == {"A": [(70, k) for k in range(64)], "B": [(40, k) for k in range(64)]}


def test_a_trace_stays_small_and_survives_a_pickle() -> None:
    trace, *_ = tile("early")
    raw = pickle.dumps(trace)
    assert len(raw) < 2 << 20
    again = pickle.loads(raw)
    np.testing.assert_array_equal(again.at(-1).tensor_memory.words, trace.at(-1).tensor_memory.words)


def test_what_is_not_there_is_said() -> None:
    trace, *_ = tile("early")
    for of in ("tmem[128, 0]", "tmem[0, 512]", "tmem[3]", "acc[200, 0]", "acc[1]"):
        with pytest.raises(LanewiseError, match=r"there is no|has elements|columns 0 to 511"):
            trace.writer(of)
    with pytest.raises(LanewiseError, match="lanes 0 to 127"):
        trace.at(-1).tensor_memory[200, 3]
    with pytest.raises(LanewiseError, match="32 bits"):
        trace.at(-1).tensor_memory.read("f64")
    with pytest.raises(LanewiseError, match="was not traced"):
        trace.at(-1).tensor_memory_of((5, 0, 0))
