"""`lw.benchmark(f)`: how long a call takes, many times over, with a GPU's own clock where there is a GPU.

The times of single runs on a GPU are taken in `lanewise.gpu.streams`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

from lanewise.errors import LanewiseError
from lanewise.tracebacks import short_traceback

#: Runs by which the time of one is estimated, on a GPU.
_FIRST_RUNS = 5
#: The fewest and the most runs that are timed.
_FEWEST, _MOST = 3, 10_000


@dataclass(frozen=True)
class Timing:
    """The times of many runs, in milliseconds.

    >>> timing = Timing((1.0, 4.0, 2.0))
    >>> timing.median, timing.min, timing.quantile(0.25)
    (2.0, 1.0, 1.5)
    >>> timing
    Timing(median 2.00 ms, 20 % to 80 %: 1.40 to 3.20 ms, 3 runs)
    """

    times: tuple[float, ...]

    @property
    def median(self) -> float:
        """The time that half of the runs took at most."""
        return self.quantile(0.5)

    @property
    def mean(self) -> float:
        """The average of the times."""
        return sum(self.times) / len(self.times)

    @property
    def min(self) -> float:
        """The time of the fastest run."""
        return min(self.times)

    @property
    def max(self) -> float:
        """The time of the slowest run."""
        return max(self.times)

    def quantile(self, share: float) -> float:
        """Return the time that a share of the runs took at most, between the two nearest runs."""
        if not 0 <= share <= 1:
            raise LanewiseError(f"a quantile is a share from 0 to 1, not {share!r}")
        ordered = sorted(self.times)
        place = share * (len(ordered) - 1)
        below = int(place)
        above = min(below + 1, len(ordered) - 1)
        return ordered[below] + (ordered[above] - ordered[below]) * (place - below)

    def quantiles(self, shares: Sequence[float] = (0.5, 0.2, 0.8)) -> list[float]:
        """Return several quantiles; those that Triton's do_bench is usually asked for, if none are named."""
        return [self.quantile(share) for share in shares]

    def __repr__(self) -> str:
        unit, scale = ("ms", 1.0) if self.median >= 0.1 else ("µs", 1000.0)
        low, middle, high = (scale * self.quantile(share) for share in (0.2, 0.5, 0.8))
        runs = f"{len(self.times)} run{'s' if len(self.times) > 1 else ''}"
        return f"Timing(median {middle:.2f} {unit}, 20 % to 80 %: {low:.2f} to {high:.2f} {unit}, {runs})"


@short_traceback
def benchmark(
    f: Callable[[], object],
    *arguments: object,
    warmup: float = 25,
    rep: float = 100,
    flush: bool = True,
    stream: object = 0,
    device: str | int | None = None,
) -> Timing:
    """Return how long a call of `f` takes, in milliseconds.

    `f` runs for `warmup` milliseconds first, and then for `rep` milliseconds in which each run is timed. On a
    GPU each run is timed by two events, and the L2 cache is emptied before it (`flush`), as Triton's do_bench
    does; `stream` is the stream that `f` uses. Without a GPU, or with `device="cpu"`, the clock is read.
    `device` may also be the number of a GPU.

    >>> timing = benchmark(lambda: sum(range(1000)), warmup=1, rep=2, device="cpu")
    >>> 0 < timing.min <= timing.median <= timing.max
    True
    """
    if not callable(f) or arguments:
        given = f"{f!r} and its arguments" if arguments else repr(f)
        raise LanewiseError(
            f"lw.benchmark takes a function to call, as in lambda: kernel[grid, block](…); not {given}"
        )
    if warmup < 0 or rep < 0:
        raise LanewiseError(f"warmup= and rep= are milliseconds, not {warmup!r} and {rep!r}")
    measure = _clock(flush, stream, device)
    f()  # compiles, assembles and loads
    estimate = Timing(tuple(measure(f, 1)))
    if estimate.median < rep / _FIRST_RUNS:
        estimate = Timing(tuple(measure(f, _FIRST_RUNS)))
    one = max(estimate.median, 1e-4)
    for _ in range(min(_MOST, int(warmup / one))):
        f()
    return Timing(tuple(measure(f, max(_FEWEST, min(_MOST, int(rep / one))))))


def _clock(
    flush: bool, stream: object, device: str | int | None
) -> Callable[[Callable[[], object], int], list[float]]:
    """Return what measures the milliseconds of so many runs: a GPU's events, or the clock on the wall."""
    if device != "cpu":
        from lanewise.gpu import available
        from lanewise.gpu.streams import event_times, stream_handle

        if device is not None and (isinstance(device, bool) or not isinstance(device, int)):
            raise LanewiseError(f'device= is "cpu" or the number of a GPU, not {device!r}')
        if device is not None or available():
            handle, ordinal = stream_handle(stream), device or 0
            return lambda f, count: event_times(f, count, stream=handle, flush=flush, ordinal=ordinal)
    return _wall_times


def _wall_times(f: Callable[[], object], count: int) -> list[float]:
    """Return the milliseconds that runs take by the clock on the wall."""
    times = []
    for _ in range(count):
        before = perf_counter()
        f()
        times.append(1000 * (perf_counter() - before))
    return times
