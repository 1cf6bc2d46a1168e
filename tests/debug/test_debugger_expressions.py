"""Expressions: what they mean, and that nothing but numbers of the recording can be reached by them."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lanewise as lw
from debug.debugged import CUDA, Told, hgemm_debugger, launched, line_of
from everything import examples
from lanewise.debug.debugger import Debugger
from lanewise.debug.expressions import Expression, Kind
from lanewise.debug.launches import DebuggedLaunch
from lanewise.debug.stops import Watchpoint, shown
from lanewise.errors import LanewiseError
from nvrtc import need_nvrtc
from traces.traced import hgemm

LANE = np.arange(32)


@pytest.fixture(scope="module")
def debugger() -> Debugger:
    made = hgemm_debugger()
    made.add_breakpoint(str(line_of(hgemm, "acc = mma(a, b, acc)")), "k == 32")
    made.run()
    return made


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lane * 2 + 1", LANE * 2 + 1),
        ("lane % 4 == 3", LANE % 4 == 3),
        ("1 < lane <= 5", (LANE > 1) & (LANE <= 5)),
        ("not lane or lane > 30", (LANE == 0) | (LANE > 30)),
        ("lane if lane < 3 else -lane", np.where(LANE < 3, LANE, -LANE)),
        ("k - 33", np.full(32, -1)),
        ("threadIdx.x + blockDim.x", LANE + 32),
        ("%lane", LANE),
        ("lane % %lane == 0 or lane", (LANE != 0) | True),
        ("$lane & 3 ^ 1", LANE & 3 ^ 1),
        ("abs(lane - 16) // 2", abs(LANE - 16) // 2),
        ("~lane >> 1", ~LANE >> 1),
    ],
)
def test_lanes(debugger: Debugger, text: str, expected: np.ndarray) -> None:
    found = Expression(text).evaluate(debugger.moment)
    assert found.kind is Kind.LANES and np.array_equal(found.data, expected)


def test_arrays_and_their_elements(debugger: Debugger) -> None:
    moment = debugger.moment
    shared, acc = moment.shared("As"), moment.registers["acc"]

    def value(text: str) -> np.ndarray:
        return Expression(text).evaluate(moment).data

    assert value("As[2, 9]") == shared[2, 9] and value("sum(As)") == shared.astype(np.float32).sum()
    assert np.array_equal(value("As[lane // 2, lane % 2 * 8]"), shared[LANE // 2, LANE % 2 * 8])
    assert np.array_equal(value("As[1:3, 0:4]"), shared[1:3, 0:4])
    assert np.array_equal(value("acc[2] * 2"), acc[:, 2] * 2)
    assert np.array_equal(value("acc[lane % 4]"), acc[LANE, LANE % 4])
    assert value("As[-1, -2]") == shared[15, 14] == value("As[15, -2]")
    assert value("A[-1, 0]") == moment.argument("A")[-1, 0]
    assert np.array_equal(value("acc[-1]"), acc[:, 3])
    assert value("max(acc)") == acc.max() and not value("any(isnan(As))")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "an expression is missing"),
        ("1 +", "no expression"),
        ("__import__('os').system('true')", "no function here"),
        ("open('x')", "no function here"),
        ("'text'", "no number"),
        ("(lambda: 1)()", "no function here"),
        ("[1, 2]", "List is not part of expressions"),
        ("lane.__class__", "there is no lane.__class__"),
        ("As.dtype.name", "only threadIdx"),
        ("9 ** 9 ** 9", "Pow is not part"),
        ("1 << 99999999999", "0 to 63 bits"),
        ("1" * 400, "more than 64 bits"),
        ("1" * 2000, "at most 1000 characters"),
        ("(" * 500 + ")" * 500, "no expression"),
        ("As[16, 0]", "elements 0 to 15 there, not 16"),
        ("As[-17, 0]", "elements 0 to 15 there, not -17"),
        ("As[lane - 1, 0]", "elements 0 to 15 there, not -1"),
        ("As[0]", "takes 2 indices, not 1"),
        ("As[0.5, 0]", "is an integer"),
        ("As + lane", "do not go together"),
        ("lane[0]", "it has no elements"),
        ("threadIdx", "three coordinates"),
        ("$nothing", "there is no"),
        ("nothing", "no register or variable nothing"),
        ("lane in 3", "In is not part"),
        ("x := 3", "no expression"),
        ("min()", "no function here"),
    ],
)
def test_mistakes_are_told(debugger: Debugger, text: str, message: str) -> None:
    with pytest.raises(LanewiseError, match=message):
        Expression(text).evaluate(debugger.moment)


@settings(max_examples=examples(200), deadline=None)
@given(st.text("ackAs[]()0123456789.,:+-*/%<>=&|^~$ \n\\'\"x{}lne@!", max_size=24))
def test_any_text_is_a_value_or_a_clear_error(debugger: Debugger, text: str) -> None:
    answer = Told(debugger)(f"print {text}")
    assert answer and "Traceback" not in answer


MMA = lw.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
TILES = 2


@lw.kernel
def tiles(X: lw.Ptr[lw.u32], Y: lw.Ptr[lw.f32]):
    t = lw.thread_idx.x
    a = MMA.a.fragment([X[t + i] for i in range(4)])
    b = MMA.b.fragment([X[t + i] for i in range(2)])
    acc = [MMA.d.zeros() for _ in range(TILES)]
    places = {"first": t * 2, "next": (t * 3, 7)}
    for _ in lw.range(2):
        for j in range(TILES):
            acc[j] = MMA(a, b, acc[j])
    Y[t] = acc[0][0] + acc[1][2] + places["first"].to(lw.f32) + places["next"][0].to(lw.f32)
    Y[t] = Y[t] + 1.0


def test_any_name_of_the_kernels_python() -> None:
    """Lists, tuples and dicts of fragments and values, numbers, and the registers of a fragment."""
    y = np.zeros(32, np.float32)
    bound, values = tiles[1, 32].bind(np.ones(128, np.float16).view(np.uint32), y)
    debugger = Debugger(DebuggedLaunch(bound, values, {}))
    debugger.add_breakpoint(str(line_of(tiles, "Y[t] = Y[t] + 1.0")))
    debugger.run()

    def value(text: str) -> np.ndarray:
        return Expression(text).evaluate(debugger.moment).data

    first, second = value("acc[0]"), value("acc[1]")
    assert first.shape == (32, 4) and np.array_equal(first, second) and first.any()
    assert np.array_equal(value("acc[-1][2]"), second[:, 2])
    assert np.array_equal(value("acc[1].registers"), second)
    assert np.array_equal(value("a.registers[0]"), value("a.registers")[:, 0])
    assert value("a.registers").dtype == np.uint32 and value("a.registers").shape == (32, 4)
    assert np.array_equal(value('places["first"]'), 2 * LANE)
    assert np.array_equal(value("places['next'][0] + places['next'][1]"), 3 * LANE + 7)
    assert value("TILES") == 2 and value("len(acc) * TILES") == 4 and np.array_equal(value("t"), LANE)
    assert np.array_equal(value("acc[0][0] + acc[1][2] + places['first'] + places['next'][0]"), value("Y[t]"))
    for text, message in (
        ("acc[2]", "acc has the elements 0, 1, not 2"),
        ("acc[t]", "one number for all lanes"),
        ("acc + 1", "a list, tuple or dict is no number: name an element of it"),
        ("places['last']", "places has the elements 'first', 'next', not 'last'"),
        ("t.registers.x", "fragments .registers"),
        ("Y.registers", "Y is no fragment"),
        ("'text'", "only the key of a dict is a text"),
    ):
        with pytest.raises(LanewiseError, match=re.escape(message)):
            value(text)


def test_cuda_without_debug_information_says_which_option_gives_it() -> None:
    need_nvrtc()
    configured = lw.cuda(CUDA)["k"][1, 64]
    arguments = (np.ones(64, np.float32), np.zeros(64, np.float32), 4)
    debugger = Debugger(DebuggedLaunch(configured, arguments, {}))
    with pytest.raises(LanewiseError, match=r"no register or variable j\b.*--option=-G"):
        Expression("j").evaluate(debugger.moment)


HALF = lw.instruction("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16")


@lw.kernel
def halves(X: lw.Ptr[lw.u32], Y: lw.Ptr[lw.f16]):
    t = lw.thread_idx.x
    a = HALF.a.fragment([X[t + i] for i in range(4)])
    b = HALF.b.fragment([X[t + i] for i in range(2)])
    d = HALF(a, b, HALF.d.zeros())
    for i in range(len(d)):
        Y[4 * t + i] = d[i]
    Y[t] = Y[t] + 1.0


def test_an_index_of_packed_halves_is_that_of_the_kernel() -> None:
    y = np.zeros(128, np.float16)
    x = np.arange(128, dtype=np.float16).view(np.uint32)
    debugger = Debugger(launched(halves[1, 32], x, y))
    told = Told(debugger)
    told(f"break {line_of(halves, 'Y[t] = Y[t] + 1.0')}", "watch d[1]", "run", "continue")

    def value(text: str) -> np.ndarray:
        return Expression(text).evaluate(debugger.moment).data

    d = debugger.moment.argument("Y").reshape(32, 4)
    assert value("d").dtype == np.float16 and np.array_equal(value("d"), d) and d.any()
    assert np.array_equal(value("d[1]"), d[:, 1]) and np.array_equal(value("d[-1]"), d[:, 3])
    assert value("len(d)") == 4 and value("d.registers").shape == (32, 2)
    assert value("a[7]").dtype == np.float16 and value("d.registers").dtype == np.uint32
    assert told("lanes 5", "print d[1]") == f"d[1] = {shown(d[5, 1])} in lane 5"
    assert told("why d[1]").startswith(f"%d0 = {shown(d[5, 1])}  step")
    assert f"→ {shown(d[0, 1])} in lane 0" in "".join(
        change.text for stop in debugger.stops.values() if isinstance(stop, Watchpoint)
        for change in stop.changes(debugger.recorded)
    )  # fmt: skip


@lw.kernel
def in_place(X: lw.Ptr[lw.i32]):
    t = lw.thread_idx.x
    w = (X[t] - 5) * 2
    X[t] = w


def test_why_tells_what_was_read_and_signs() -> None:
    told = Told(Debugger(launched(in_place[1, 32], np.arange(32, dtype=np.int32))))
    told("run")
    answer = told("why X[3]")
    assert answer.startswith("X[3] = -4 ") and "X[3] = 3  (input)" in answer and "%w = -4 " in answer
    assert told("why w").startswith("%w = -10 ")
    assert told("why X[-1]").startswith("X[31] = 52 ")
    assert told("print X[-1]") == "X[-1] = 52"
