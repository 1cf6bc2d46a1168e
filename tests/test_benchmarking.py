"""lw.benchmark: how often it calls, what it measures, and what becomes of the times."""

import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lanewise as lw
from lanewise import benchmarking
from lanewise.gpu import streams as gpu_streams


class Clock:
    """A clock that stands still, but for calls that take their time."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.calls = 0

    def call_of(self, *milliseconds: float) -> Callable[[], None]:
        """Return a function whose calls take so long, one after the other, then over again."""
        durations = itertools.cycle(milliseconds)

        def call() -> None:
            self.calls += 1
            self.seconds += next(durations) / 1000

        return call


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(benchmarking, "perf_counter", lambda: made.seconds)
    return made


def test_it_measures_what_a_call_takes(clock: Clock) -> None:
    found = lw.benchmark(clock.call_of(4.0, 8.0, 6.0), warmup=19, rep=55, device="cpu")
    assert len(found.times) == 9  # 55 ms of 6 ms each
    assert sorted(found.times) == pytest.approx([4.0] * 3 + [6.0] * 3 + [8.0] * 3)
    assert (found.min, found.median, found.max) == pytest.approx((4.0, 6.0, 8.0))


def test_the_clock_on_the_wall_goes_on() -> None:
    found = lw.benchmark(lambda: time.sleep(0.004), warmup=0, rep=12, device="cpu")
    assert 4 <= found.min <= found.median <= found.max


def test_a_slow_call_is_not_repeated_for_ever(clock: Clock) -> None:
    assert lw.benchmark(clock.call_of(20.0), warmup=1, rep=1, device="cpu").times == pytest.approx([20.0] * 3)
    assert clock.calls == 5  # once to compile, once to estimate, three that count


@given(st.lists(st.floats(0.001, 1e3), min_size=1, max_size=40), st.floats(0, 1))
def test_quantiles_are_numpys(times: list[float], share: float) -> None:
    assert np.isclose(lw.Timing(tuple(times)).quantile(share), np.quantile(times, share))


def test_mistakes_are_named() -> None:
    with pytest.raises(lw.LanewiseError, match="takes a function to call"):
        lw.benchmark(3)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(lw.LanewiseError, match="are milliseconds"):
        lw.benchmark(lambda: None, rep=-1)
    with pytest.raises(lw.LanewiseError, match="the number of a GPU, not 'tpu'"):
        lw.benchmark(lambda: None, device="tpu")
    with pytest.raises(lw.LanewiseError, match="a share from 0 to 1"):
        lw.Timing((1.0,)).quantile(2)


class FakeDriver:
    """A driver whose clock goes on by one millisecond with each call."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.recorded: dict[int, int] = {}

    def __call__(self, name: str, *arguments: Any, kernel: str = "") -> None:
        self.calls.append(name)
        if name == "cuMemAlloc_v2":
            arguments[0]._obj.value = 4096
        if name == "cuEventRecord":
            self.recorded[arguments[0]] = len(self.calls)
        if name == "cuEventElapsedTime":
            arguments[0]._obj.value = self.recorded[arguments[2]] - self.recorded[arguments[1]]

    def handle(self, name: str, *arguments: Any) -> int:
        self.calls.append(name)
        return len(self.calls)


@pytest.mark.parametrize("flush", [True, False])
def test_events_lie_around_each_run(monkeypatch: pytest.MonkeyPatch, flush: bool) -> None:
    from contextlib import nullcontext
    from types import SimpleNamespace

    driver = FakeDriver()
    there = SimpleNamespace(driver=driver, current=nullcontext, last="", ordinal=0)
    monkeypatch.setattr(gpu_streams, "context", lambda ordinal: there)
    times = gpu_streams.event_times(lambda: driver("run"), 3, stream=7, flush=flush, ordinal=0)
    assert times == [2.0, 2.0, 2.0]  # from one event over the run to the next
    around = ["cuMemsetD32Async"] * flush + ["cuEventRecord", "run", "cuEventRecord"]
    first = driver.calls.index(around[0])
    assert driver.calls[first : first + 3 * len(around)] == around * 3
    assert driver.calls.count("cuEventCreate") == driver.calls.count("cuEventDestroy_v2") == 6
    assert driver.calls.count("cuMemFree_v2") == flush
