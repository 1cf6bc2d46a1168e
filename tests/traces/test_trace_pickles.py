"""Pickles and copies of traces: as small as what was logged, with the same answers. Wrong arguments."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from traces.traced import hgemm_trace, matrices, reduction


@lw.kernel
def double(x: lw.Ptr[lw.f32]):
    i = lw.thread_idx.x
    y = x[i] * 2
    x[i] = y


@lw.kernel
def copied(x: lw.Ptr[lw.f32, 16], y: lw.Ptr[lw.f32]):
    lane, tile = lw.thread_idx.x, lw.shared(lw.f32, 128)
    lw.cp_async(tile.ptr(lane * 4), x + lane * 4)
    lw.cp_async_wait()
    lw.syncwarp()
    y[lane] = tile[127 - lane]


def answers(run: lw.Trace) -> list[Any]:
    """Everything that steps say: what they wrote, what they touched, and where values came from."""
    found: list[Any] = [str(run), run.nbytes // 4096]
    for step in run.steps:
        found.append((str(step), {name: each.tobytes() for name, each in step.written.items()}))
        found.append([(each.addresses.tobytes(), str(each)) for each in step.memory])
    return found


def test_a_pickle_has_what_was_logged_alone() -> None:
    run = lw.trace(double[1, 32], np.arange(32, dtype=np.float32))
    before = answers(run)
    text = pickle.dumps(run)
    assert len(text) < 50_000
    for other in (pickle.loads(text), copy.deepcopy(run), pickle.loads(pickle.dumps(pickle.loads(text)))):
        assert answers(other) == before
        assert str(other.writer("x[3]")) == str(run.writer("x[3]"))
        assert other.at(5).registers["y"][3] == 6


def test_larger_traces_have_the_same_answers() -> None:
    x = np.random.default_rng(1).standard_normal(300).astype(np.float32)
    for run in (
        hgemm_trace(matrices()),
        lw.trace(reduction[1, 128], x, np.zeros(1, np.float32), 300),
        lw.trace(copied[1, 32], np.arange(128, dtype=np.float32), np.zeros(32, np.float32)),
    ):
        before = answers(run)
        text = pickle.dumps(run)
        assert len(text) < 3 * run.nbytes + 300_000
        assert answers(pickle.loads(text)) == before


def array() -> np.ndarray[Any, Any]:
    return np.arange(32, dtype=np.float32)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"warps": 1.5}, "warps= is a number of a warp, or a list of them, not 1.5"),
        ({"warps": np.array(0.5)}, "warps= is a number of a warp"),
        ({"warps": "01"}, "warps= is a number of a warp"),
        ({"warps": [0.5]}, "there is no warp 0.5"),
        ({"warps": True}, "warps= is a number of a warp, or a list of them, not True"),
        ({"warps": -1}, "there is no warp -1"),
        ({"blocks": [1.5]}, "there is no block 1.5"),
        ({"blocks": [None]}, "there is no block None"),
        ({"blocks": (1.5, 0)}, "there is no block 1.5"),
        ({"blocks": array()}, "there is no block"),
        ({"blocks": np.array(0)}, "blocks= is a list of coordinates"),
        ({"blocks": [-1]}, "there is no block -1"),
        ({"blocks": [()]}, r"there is no block \(\)"),
        ({"schedule": array()}, "schedule= is"),
        ({"unchecked": array()}, "unchecked= is True or False"),
        ({"limit": array()}, "limit= is a number of bytes"),
        ({"steps": "a"}, "steps= is a number of basic blocks"),
    ],
    ids=str,
)
def test_wrong_arguments_of_a_trace_are_told_in_a_sentence(options: dict[str, Any], says: str) -> None:
    with pytest.raises(lw.LanewiseError, match=says):
        lw.trace(double[1, 32], array(), **options)


def test_integers_of_numpy_name_blocks_and_warps() -> None:
    zero = np.int64(0)
    for options in (
        {"warps": zero},
        {"warps": np.array([0])},
        {"blocks": np.array([[0, 0]])},
        {"blocks": (zero, 0)},
    ):
        run = lw.trace(double[1, 32], array(), **options)
        assert run.warps == (0,) and run.blocks == [(0, 0, 0)]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"lane": "a"}, "a lane is 0 to 31, not 'a'"),
        ({"lane": 1.5}, "a lane is 0 to 31, not 1.5"),
        ({"lane": 1, "warp": np.arange(2)}, "was not traced"),
        ({"lane": 1, "block": 1.5}, "block 1.5 was not traced"),
        ({"lane": 1, "block": "a"}, "block '?a'? was not traced"),
        ({"lane": 1, "before": array()}, "a step is asked for by its number"),
    ],
    ids=str,
)
def test_wrong_questions_are_told_in_a_sentence(options: dict[str, Any], says: str) -> None:
    run = lw.trace(double[1, 32], array())
    with pytest.raises(lw.LanewiseError, match=says):
        run.writer("y", **options)
    with pytest.raises(lw.LanewiseError, match="start= is the number of a step"):
        run.first(lambda step: True, 1.5)
