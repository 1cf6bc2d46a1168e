"""Walking through a recording: lines, breakpoints, watched values, backwards as forwards."""

from __future__ import annotations

import numpy as np
import pytest

import lanewise as lw
from debug.debugged import CUDA, Told, hgemm_debugger, launched, line_of, ptx_debugger, reduction_debugger
from lanewise.debug.debugger import Debugger
from lanewise.errors import LanewiseError
from lanewise.ptx.tools.runtime_compiler import load
from traces.traced import hgemm, mma

MMA = line_of(hgemm, "acc = mma(a, b, acc)")


@pytest.fixture(scope="module")
def shared_debugger() -> Debugger:
    return hgemm_debugger()


@pytest.fixture
def debugger(shared_debugger: Debugger) -> Debugger:
    shared_debugger.stops.clear()
    shared_debugger.lanes = None
    shared_debugger.to_start()
    return shared_debugger


def test_steps_back_undo_steps(debugger: Debugger) -> None:
    positions = [debugger.position]
    while debugger.step_in().why == "step":
        positions.append(debugger.position)
    assert len(positions) > 20 and positions == sorted(set(positions))
    back = []
    while debugger.step_back().why == "step":
        back.append(debugger.position)
    assert back[: len(positions)] == positions[::-1]


def test_a_breakpoint_stops_before_its_line_once_for_each_turn_of_the_loop(debugger: Debugger) -> None:
    debugger.add_breakpoint(str(MMA))
    forwards = []
    stop = debugger.run()
    while stop.why == "breakpoint":
        step = debugger.moment.step
        assert step is not None and step.op.opcode == "mma"
        forwards.append(debugger.position)
        stop = debugger.go_on()
    assert len(forwards) == 3 and stop.why == "end"
    back = []
    while debugger.go_on(backwards=True).why == "breakpoint":
        back.append(debugger.position)
    assert back == forwards[::-1]


def test_what_is_printed_holds_before_the_line(debugger: Debugger) -> None:
    debugger.add_breakpoint(str(MMA))
    debugger.run()
    a, b, _ = (np.asarray(each.array) for each in debugger.recorded.trace.arrays)
    names = debugger.recorded.recording.names
    before = debugger.moment.fragment(names.find("acc"))
    assert before is not None and not before.any()
    assert np.array_equal(debugger.moment.fragment(names.find("a")), a[:16, :16])
    assert np.array_equal(debugger.moment.shared("Bs"), b[:16, :8])
    debugger.step_over()
    expected = mma(a[:16, :16], b[:16, :8], before, arch="sm_80")
    assert np.array_equal(debugger.moment.fragment(names.find("acc")), expected)


def test_arrays_are_what_they_were_then(debugger: Debugger) -> None:
    c = next(np.asarray(each.array) for each in debugger.recorded.trace.arrays if each.name == "C")
    assert not debugger.moment.argument("C").any()
    debugger.go_on()
    assert np.array_equal(debugger.moment.argument("C")[:16, :8], c[:16, :8])
    assert not debugger.moment.argument("C")[16:].any()  # other blocks are not recorded


def test_another_block_runs_the_launch_again_from_the_same_arrays() -> None:
    x = np.zeros(64, np.float32)

    debugger = Debugger(launched(counting[4, 32], x))
    debugger.show_block((2, 0, 0))
    assert np.array_equal(x, np.repeat([1.0, 1.0], 32))  # and not 2: the array was put back
    with pytest.raises(LanewiseError, match="no block"):
        debugger.show_block((4, 0, 0))


@lw.kernel
def counting(X: lw.Ptr[lw.f32]):
    i = lw.block_idx.x * 32 + lw.thread_idx.x
    if i < 64:
        x = X[i] + 1
        X[i] = x


def test_a_condition_holds_in_a_lane_that_is_there(debugger: Debugger) -> None:
    debugger.add_breakpoint(str(MMA), "acc[2] > 1 and lane == 7 and k == 32")
    stop = debugger.run()
    k, acc = debugger.moment.registers["k"], debugger.moment.registers["acc"]
    assert stop.why == ("breakpoint" if acc[7, 2] > 1 else "end")
    debugger.stops.clear()
    debugger.add_breakpoint(str(MMA), "k == 32")
    assert "lanes 0-31" in debugger.run().reason
    assert debugger.moment.registers["k"].tolist() == [32] * 32
    debugger.stops.clear()
    debugger.add_breakpoint(str(MMA), "k == 33")
    assert debugger.run().why == "end" and k.shape == (32,)


def test_a_condition_with_a_mistake_is_refused_at_once(debugger: Debugger) -> None:
    with pytest.raises(LanewiseError, match="no register or variable ack; did you mean acc"):
        debugger.add_breakpoint(str(MMA), "ack[2] > 1")
    with pytest.raises(LanewiseError, match="no condition"):
        debugger.add_breakpoint(str(MMA), "acc")
    assert not debugger.stops


@pytest.mark.parametrize("what", ["As[2, 9]", "C[3, 5]", "acc[1]"])
def test_a_watched_value_changes_where_the_trace_says(debugger: Debugger, what: str) -> None:
    debugger.lanes = np.arange(32) == 14
    debugger.add_watchpoint(what)
    history = debugger.recorded.trace.history(what, lane=14)
    expected = [each.step.number for each in history if each.step is not None]
    found = []
    while debugger.go_on().why == "watch":
        found.append(debugger.position - 1)
        assert debugger.moment.position == found[-1] + 1
    assert found and set(found) <= set(expected)
    if what != "acc[1]":  # each value is moved from register to register there
        assert found == expected
    back = []
    while debugger.go_on(backwards=True).why == "watch":
        back.append(debugger.position)
    assert back == found[::-1]


def test_lines_without_code_and_files_that_are_not_there(debugger: Debugger) -> None:
    assert debugger.add_breakpoint(str(MMA - 9)).frame.line >= MMA - 9
    with pytest.raises(LanewiseError, match="the last line with code is"):
        debugger.add_breakpoint("5000")
    with pytest.raises(LanewiseError, match="no code from nowhere"):
        debugger.add_breakpoint("nowhere.cu:3")
    assert debugger.add_breakpoint("ptx:60").frame.file == "ptx"


def test_warps_are_walked_one_by_one_and_a_breakpoint_stops_any() -> None:
    debugger = reduction_debugger()
    told = Told(debugger)
    line = debugger.add_breakpoint(debugger.lines.main_file + ":" + str(_barrier_line())).frame.line
    seen = []
    stop = debugger.run()
    while stop.why == "breakpoint":
        seen.append(debugger.warp)
        stop = debugger.go_on()
    assert sorted(seen) == [0, 1, 2, 3] and line
    debugger.run()
    waiting = told("stepi", "info barriers")
    assert f"warp {debugger.warp} waits at barrier 0" in waiting
    assert "has ended" in told("goto 999999", "continue")
    debugger.focus(1)
    with pytest.raises(LanewiseError, match="no warp 4"):
        debugger.focus(4)
    mine = debugger.lines.of_warp[1]
    debugger.go_to(int(mine[0]))
    while debugger.step_instruction().why == "step":
        assert debugger.warp == 1
    assert debugger.position == int(mine[-1]) + 1


def _barrier_line() -> int:
    from traces.traced import reduction

    return line_of(reduction, "lw.syncthreads()")


def test_plain_ptx_is_walked_by_its_own_lines() -> None:
    debugger = ptx_debugger()
    told = Told(debugger)
    assert "PTX line 8" in told("where")
    told("break 13", "run")
    assert debugger.moment.step is not None and debugger.moment.step.text.startswith("add.f32")
    assert told("print %f0[0]").startswith("error:")
    assert "+7" in told("print %f0") and told("print %f1").endswith("(nothing has written it yet)")
    assert told("next", "print %f1 - %f0") == "%f1 - %f0 = 1 in lanes 0-31"
    assert "-> 14" in told("list")


@pytest.mark.skipif(load(13) is None, reason="NVRTC is not installed (extra `cuda`)")
def test_inlined_functions_are_stepped_into_over_and_out_of() -> None:
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    debugger = Debugger(launched(lw.cuda(CUDA)["k"][1, 64], x, y, 3))
    told = Told(debugger)
    inside = debugger.add_breakpoint("4").frame
    assert inside.line == 4 and debugger.run().why == "breakpoint"
    assert [each.line for each in debugger.frames] == [4, 13]
    assert "13\tsum += twice" in told("up") and told("up").startswith("error")
    assert "4\treturn y" in told("down") and told("down").startswith("error")
    debugger.stops.clear()
    debugger.step_out()
    assert len(debugger.frames) == 1
    debugger.to_start()
    over = set()
    while debugger.step_over().why == "step":
        over |= {each.line for each in debugger.frames[:1]}
    assert not over & {3, 4} and 15 in over
    debugger.to_start()
    into = set()
    while debugger.step_in().why == "step":
        into |= {each.line for each in debugger.frames[:1]}
    assert 4 in into  # the product and the sum are one fma of line 4
    told("run")
    assert told("print tile[3]") == "tile[3] = 3"  # the source says what it holds
    plain = Told(Debugger(launched(lw.load(lw.cuda(CUDA).text)["k"][1, 64], x, y, 3)))
    plain("run")
    assert "as in type tile f16" in plain("print tile")
    plain("type tile f32[64]")
    assert plain("print tile[3]") == "tile[3] = 3"


def test_until_leaves_a_loop(debugger: Debugger) -> None:
    last = line_of(hgemm, "lw.syncthreads()") + 4
    debugger.add_breakpoint(str(last))
    debugger.run()
    debugger.stops.clear()
    line = debugger.frames[0].line
    while debugger.frames[0].line >= MMA:
        debugger.step_in()
    debugger.go_on(backwards=True)
    debugger.until(str(MMA))
    assert debugger.frames[0].line == MMA and line
    debugger.step_over()
    debugger.until()
    assert debugger.frames[0].line > MMA + 1 and debugger.moment.registers["k"].tolist() == [48] * 32


def test_a_fault_stops_before_its_instruction() -> None:
    debugger = ptx_debugger(elements=16)
    told = Told(debugger)
    assert "out of bounds" in told("continue") and "PTX line 12" in told("where")
    assert "out of bounds" in told("next") and debugger.moment.registers["%rd1"].tolist()[16] == 64
    assert "PTX line 11" in told("back")
