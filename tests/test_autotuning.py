"""lw.autotune: the fastest configuration is chosen, kept, and found again; arrays are left as they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lanewise as lw


@lw.kernel
def add_one(x: lw.Ptr[lw.f32], n: lw.i32, BLOCK: lw.Constexpr, TIMES: lw.Constexpr = 1) -> None:
    shared = lw.shared(lw.f32, BLOCK)
    shared[lw.thread_idx.x] = x[lw.block_idx.x * BLOCK + lw.thread_idx.x]
    i = lw.block_idx.x * BLOCK + lw.thread_idx.x
    if i < n:
        x[i] = shared[lw.thread_idx.x] + 1.0 * TIMES


def pretended(best: int, asked: list[int]) -> Callable[[Callable[[], object]], lw.Timing]:
    """A clock for which the configuration that comes as number `best` is the fastest."""

    def measure(run: Callable[[], object]) -> lw.Timing:
        run()
        asked.append(len(asked))
        return lw.Timing((1.0 if len(asked) - 1 == best else 2.0,))

    return measure


def grid(n: int, BLOCK: int) -> int:
    return -(-n // BLOCK)


@pytest.fixture
def folder(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("LANEWISE_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_the_fastest_is_chosen_and_kept(folder: Any) -> None:
    asked: list[int] = []
    tuned = lw.autotune({"BLOCK": (32, 64, 128)}, measure=pretended(1, asked))(add_one)
    x = np.zeros(256, np.float32)
    tuned[grid, lambda BLOCK: BLOCK](x, x.size)
    assert tuned.best == {"BLOCK": 64} and asked == [0, 1, 2]
    assert (x == 1).all()  # as if it had run once
    tuned[grid, lambda BLOCK: BLOCK](x, x.size)
    assert (x == 2).all() and len(asked) == 3
    y = np.zeros(128, np.float32)
    tuned[grid, lambda BLOCK: BLOCK](y, y.size)  # other shapes: tried anew
    assert len(asked) == 6

    never: list[int] = []
    again = lw.autotune({"BLOCK": (32, 64, 128)}, measure=pretended(0, never))(add_one)  # as in a new process
    again[grid, lambda BLOCK: BLOCK](x, x.size)
    assert again.best == {"BLOCK": 64} and not never and (x == 3).all()
    other = lw.autotune({"BLOCK": (32, 64)}, measure=pretended(0, never))(add_one)
    other[grid, lambda BLOCK: BLOCK](x, x.size)
    assert other.best == {"BLOCK": 32} and len(never) == 2
    assert any(path.suffix == ".tuned" for path in folder.iterdir())


def test_what_cannot_run_is_left_out(folder: Any) -> None:
    configurations = [{"BLOCK": 100_000_000}, {"BLOCK": 64, "TIMES": 3}]
    tuned = lw.autotune(configurations)(add_one)
    x = np.zeros(64, np.float32)
    tuned[1, 64](x, x.size)
    assert tuned.best == configurations[1] and (x == 3).all()
    (_, why), (_, timing) = tuned.trials
    assert isinstance(why, lw.LanewiseError) and "shared memory" in str(why)
    assert isinstance(timing, lw.Timing) and timing.min > 0
    with pytest.raises(lw.KernelError, match="none of 1 configurations runs"):
        lw.autotune(configurations[:1])(add_one)[1, 64](x, x.size)


def test_mistakes_are_named(folder: Any) -> None:
    with pytest.raises(lw.LanewiseError, match="no Constexpr parameter SIZE; it has BLOCK, TIMES"):
        lw.autotune({"SIZE": (1, 2)})(add_one)
    with pytest.raises(lw.LanewiseError, match="takes values to try"):
        lw.autotune({"BLOCK": ()})
    with pytest.raises(lw.LanewiseError, match=r"goes above @lw\.kernel"):
        lw.autotune({"BLOCK": (1,)})(grid)  # type: ignore[arg-type]  # wrong on purpose
    tuned = lw.autotune({"BLOCK": (32,)})(add_one)
    x = np.zeros(64, np.float32)
    with pytest.raises(lw.LanewiseError, match="asks for m; there are x, n, BLOCK"):
        tuned[lambda m: m, 32](x, x.size)
    with pytest.raises(lw.LanewiseError, match="a launch is kernel"):
        tuned[1]
    with pytest.raises(lw.LanewiseError, match=r"BLOCK is chosen by lw.autotune, and given as BLOCK=, too"):
        tuned[1, 32](x, x.size, BLOCK=64)
    with pytest.raises(lw.LanewiseError, match="takes values of BLOCK to try"):
        lw.autotune({"BLOCK": 32})  # type: ignore[dict-item]  # wrong on purpose
    with pytest.raises(lw.LanewiseError, match="takes values to try"):
        lw.autotune(32)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(lw.LanewiseError, match="measure= is a function that times a call"):
        lw.autotune({"BLOCK": (32,)}, measure=3)  # type: ignore[arg-type]  # wrong on purpose


def test_a_check_takes_the_best_that_is_known(folder: Any) -> None:
    tuned = lw.autotune({"BLOCK": (32, 64)}, measure=pretended(1, []))(add_one)
    launch, x = tuned[grid, lambda BLOCK: BLOCK], np.zeros(64, np.float32)
    assert launch.bind(x, x.size)[0].shape.block == (32, 1, 1)
    launch(x, x.size)
    assert launch.bind(x, x.size)[0].shape.block == (64, 1, 1)
    assert lw.check(launch, x, x.size).ok and (x == 2).all()
