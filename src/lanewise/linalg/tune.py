"""`lw.tune`: the planner's candidates measured on the GPU at hand, and the fastest kept for later calls."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from statistics import median
from time import perf_counter
from typing import Any, Generic, NamedTuple, TypeVar

from lanewise.errors import LanewiseError
from lanewise.linalg.launch.known_calls import forget
from lanewise.linalg.matmul import matmul
from lanewise.linalg.operand_copies import with_copies
from lanewise.linalg.options import options_of
from lanewise.linalg.plan import Plan
from lanewise.linalg.planning import tuned
from lanewise.linalg.planning.planned import PlannedProduct
from lanewise.linalg.planning.planner import candidates, estimate, plan_of
from lanewise.linalg.problem import Problem
from lanewise.linalg.rules import Request, request_of, scattered
from lanewise.tracebacks import short_traceback

Candidate = TypeVar("Candidate", bound=Hashable)

#: Candidates that are measured: those that the model finds best.
_MOST_CANDIDATES = 24
_GROUPS = (8, 16)
#: Calls before a plan is measured: those that record its launches, and those by which machine code is made.
_WARM_UP = 9
#: What is written and read before each measurement, more than any L2 cache: operands come from memory then.
_SWEPT_BYTES = 256 << 20
#: How much longer than the host's part of a call the sweep before it takes, so that the GPU does not wait.
_HEADROOM = 1.5
_MOST_SWEEPS = 16
#: Rounds in which the plans of `measure_plans` are timed.
_REGRET_ROUNDS = 15
#: Rounds in which all candidates are measured, those of the best of them, and those of the last two.
#: The least of many noisy times is too small by chance. So the winner runs against the plan in use again, in
#: rounds that it was not chosen by, and has to be faster there as well.
_SCREENING, _FINAL, _DUEL = 7, 15, 31
#: How many go from the first rounds to the second, beside the one in use.
_FINALISTS = 5
#: What share of the time a winner has to save, and in what share of the rounds it has to be the faster one.
_LEAST_GAIN, _LEAST_WON = 0.02, 0.7


@short_traceback
def tune(a: Any, b: Any, *, progress: bool = True, **keywords: Any) -> PlannedProduct:
    """Measure plans for a call of `lw.matmul` on this GPU; the fastest is returned and used from now on.

    Arrays are torch's or CuPy's on a GPU; keywords are those of `lw.matmul`. Calls are measured as they are
    made, with the copies of operands that they need, in turn with the planner's own plan, the L2 cache swept
    before each. A plan that is not clearly faster than the planner's own is not kept, and one that was kept
    before is dropped then. What is kept is in the user's cache folder ($LANEWISE_CACHE_DIR), for this device,
    these types, sizes, strides and fused operations. What `out=` holds is restored. A bar shows the progress.
    """
    request, problem, ordinal = _request(a, b, keywords, "lw.tune")
    from lanewise.gpu.device import context
    from lanewise.linalg.launch.prepare import arch_of_device, forget_prepared

    device = context(ordinal).device.name
    usual, others = plans_to_measure(problem, arch_of_device(ordinal))
    out = keywords.get("out")
    before = None if out is None else _copy(out)
    timer = _Timer(request.a.library, ordinal)
    warm: set[Plan] = set()
    with _bar(progress, most_measurements(len(others))) as advance:

        def seconds(plan: Plan) -> float:
            def call() -> Any:
                return matmul(a, b, **{**keywords, "plan": plan})

            if plan not in warm:
                timer.warm_up(call)
                warm.add(plan)
            return timer.seconds(call)

        try:
            verdict = find_winner(usual, others, seconds, advance)
        finally:
            if out is not None:
                given: Any = out
                given[...] = before
    gained = verdict.best != usual
    microseconds = verdict.seconds * 1e6
    if gained:
        tuned.remember(problem, verdict.best, device, microseconds)
        why = f"the fastest of {verdict.measured} plans on this {device}: {microseconds:.1f} µs, where the "
        why += f"planner's own takes {verdict.seconds_in_use * 1e6:.1f}"
    else:
        tuned.forget(problem, device)
        why = f"none of {verdict.measured} plans is clearly faster on this {device}: {microseconds:.1f} µs"
    forget_prepared()
    forget()
    return PlannedProduct(replace(verdict.best, why=why), problem)


def _request(a: object, b: object, keywords: dict[str, object], caller: str) -> tuple[Request, Problem, int]:
    """Return what a call asks for, if its plans can be measured: its problem, and the GPU that it is on."""
    for name in ("plan", "stream", "arch"):
        if keywords.get(name) is not None:
            raise LanewiseError(f"{caller} takes no {name}=: it measures plans on the current stream")
    request = request_of(a, b, options_of(caller, keywords), empty_result=False)
    ordinal, problem = request.a.device, request.problem
    if ordinal is None:
        raise LanewiseError(
            f"{caller} measures on a GPU, and a and b lie in host memory: move them to the GPU"
        )
    if problem is None or not (problem.m and problem.n and problem.k and problem.batch):
        raise LanewiseError(
            f"{caller} takes a product, not empty, or a batch whose strides let it be treated as one axis"
        )
    if scattered(problem):
        raise LanewiseError(
            "a, b, out or residual is contiguous along neither axis, and lw.matmul multiplies copies then: "
            f"pass {caller} such copies, made by .contiguous() of torch or .copy() of CuPy"
        )
    if problem.batch_invariant:
        raise LanewiseError(
            f"{caller} has nothing to measure with batch_invariant=True: how K is cut is given then"
        )
    return request, problem, ordinal


def plans_to_measure(problem: Problem, arch: str) -> tuple[Plan, list[Plan]]:
    """Return the planner's own plan for a problem, and those that are worth measuring beside it.

    All of them make the copies of operands that a call makes, and none says why it was chosen, so that plans
    that are the same are equal.
    """
    usual = replace(plan_of(problem, arch), why="")
    ranked = sorted(candidates(problem, arch), key=lambda plan: estimate(problem, plan).seconds)
    others = (replace(with_copies(problem, plan), why="") for plan in ranked[:_MOST_CANDIDATES])
    tried = [usual, *others]
    plans = [replace(plan, group=group) for plan in tried for group in (plan.group, *_GROUPS)]
    return usual, [plan for plan in dict.fromkeys(plans) if plan != usual]


class MeasuredPlan(NamedTuple):
    """A plan with the microseconds that the model expects, and those of a call on this GPU."""

    plan: Plan
    expected: float
    measured: float


def measure_plans(a: Any, b: Any, *, count: int = 16, **keywords: Any) -> list[MeasuredPlan]:
    """Return the planner's own plan for a call of `lw.matmul` and the best of its candidates, all measured.

    The planner's own is the first. The quotient of its time and the least is its regret.
    """
    request, problem, ordinal = _request(a, b, keywords, "lanewise plan --regret")
    from lanewise.linalg.launch.prepare import arch_of_device

    arch = arch_of_device(ordinal)
    usual, others = plans_to_measure(problem, arch)
    plans = [usual, *[other for other in others if other.group == usual.group][: count - 1]]
    timer = _Timer(request.a.library, ordinal)
    calls = {plan: (lambda plan=plan: matmul(a, b, plan=plan, **keywords)) for plan in plans}
    times: dict[Plan, list[float]] = {plan: [] for plan in plans}
    for call in calls.values():
        timer.warm_up(call)
    for number in range(_REGRET_ROUNDS):
        for plan in plans if number % 2 == 0 else reversed(plans):
            times[plan].append(timer.seconds(calls[plan]))
    return [
        MeasuredPlan(plan, estimate(problem, plan).seconds * 1e6, median(times[plan]) * 1e6) for plan in plans
    ]


def _copy(array: Any) -> Any:
    """Return a copy of an array of torch or CuPy."""
    return array.clone() if hasattr(array, "clone") else array.copy()


class _Timer:
    """Times of calls on a GPU by its own events, the L2 cache swept before each."""

    def __init__(self, library: str, ordinal: int) -> None:
        if library not in ("torch", "cupy"):
            raise LanewiseError(f"lw.tune takes arrays of torch or CuPy, not of {library}")
        self.library, self.ordinal = library, ordinal
        self.module: Any = import_module(library)
        count = _SWEPT_BYTES // 4
        if library == "torch":
            self.swept = self.module.empty(count, dtype=self.module.int32, device=f"cuda:{ordinal}")
        else:
            with self.module.cuda.Device(ordinal):
                self.swept = self.module.empty(count, "int32")
        #: How often memory is swept before a call: so long that the host has made the call before it ends.
        self.sweeps = 1
        self._wait()
        began = perf_counter()
        for _ in range(4):
            self._sweep()
        self._wait()
        self.sweep_seconds = (perf_counter() - began) / 4

    def _wait(self) -> None:
        """Wait until the GPU is done."""
        if self.library == "torch":
            self.module.cuda.synchronize(self.ordinal)
        else:
            self.module.cuda.Device(self.ordinal).synchronize()

    def _sweep(self) -> None:
        """Write more than the L2 cache holds, and read it: nothing in it has to be written back then."""
        if self.library == "torch":
            self.swept.fill_(0)
        else:
            self.swept.fill(0)
        self.swept.sum()

    def warm_up(self, call: Callable[[], object]) -> None:
        """Make a call until it is made as later ones are, and see how long the host takes for it."""
        for _ in range(_WARM_UP):
            call()
        self._wait()
        began = perf_counter()
        call()
        host = perf_counter() - began
        self._wait()
        wanted = int(_HEADROOM * host / max(self.sweep_seconds, 1e-6)) + 1
        self.sweeps = max(self.sweeps, min(wanted, _MOST_SWEEPS))

    def seconds(self, call: Callable[[], Any]) -> float:
        """Return how long a call takes on the GPU."""
        cuda = self.module.cuda
        if self.library == "torch":
            start, end = (cuda.Event(enable_timing=True) for _ in range(2))
        else:
            start, end = cuda.Event(), cuda.Event()
        for _ in range(self.sweeps):
            self._sweep()
        start.record()
        call()
        end.record()
        end.synchronize()
        if self.library == "torch":
            return float(start.elapsed_time(end)) / 1e3
        return float(cuda.get_elapsed_time(start, end)) / 1e3


@contextmanager
def _bar(shown: bool, total: int) -> Iterator[Callable[[], None]]:
    """A progress bar on a terminal, nothing elsewhere; within it, a function that advances the bar."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not (shown and console.is_terminal)) as progress:
        task = progress.add_task("measuring plans", total=total)
        yield lambda: progress.advance(task)


@dataclass(frozen=True)
class Verdict(Generic[Candidate]):
    """The outcome: the candidate to use, its seconds, and those of the candidate that was in use."""

    best: Candidate
    seconds: float
    seconds_in_use: float
    #: How many candidates could be measured, the one in use counted.
    measured: int


def find_winner(
    in_use: Candidate,
    others: Sequence[Candidate],
    seconds: Callable[[Candidate], float],
    advance: Callable[[], object] = lambda: None,
) -> Verdict[Candidate]:
    """Return the fastest candidate, or the one in use if none is clearly faster.

    `seconds` measures one run of a candidate. One that raises a LanewiseError is out; if the one in use does,
    the error is raised. `advance` is called after each measurement; `most_measurements` counts them.

    >>> times = {"in use": 1.0, "slow": 2.0, "fast": 0.5}
    >>> find_winner("in use", ["slow", "fast"], times.__getitem__)
    Verdict(best='fast', seconds=0.5, seconds_in_use=1.0, measured=3)
    """
    challengers = [candidate for candidate in dict.fromkeys(others) if candidate != in_use]

    def measured(group: list[Candidate], rounds: int) -> dict[Candidate, list[float]]:
        """Return the times of each candidate, one in each round, those that failed left out."""
        times: dict[Candidate, list[float]] = {candidate: [] for candidate in group}
        for number in range(rounds):
            # Every second round runs backwards, so that nobody always runs after the same one.
            for candidate in group if number % 2 == 0 else reversed(group):
                if candidate not in times:
                    continue
                try:
                    times[candidate].append(seconds(candidate))
                except LanewiseError:
                    if candidate == in_use:
                        raise
                    del times[candidate]
                advance()
        return times

    times = measured([in_use, *challengers], _SCREENING)
    count = len(times)
    for keep, rounds in ((_FINALISTS, _FINAL), (1, _DUEL)):
        challengers = sorted((plan for plan in times if plan != in_use), key=lambda plan: median(times[plan]))
        times = measured([in_use, *challengers[:keep]], rounds)
    usual = median(times[in_use])
    for challenger in [plan for plan in times if plan != in_use]:
        ratios = [own / other for own, other in zip(times[challenger], times[in_use], strict=True)]
        won = sum(ratio < 1 for ratio in ratios) / len(ratios)
        if median(ratios) <= 1 - _LEAST_GAIN and won >= _LEAST_WON:
            return Verdict(challenger, median(times[challenger]), usual, count)
    return Verdict(in_use, usual, usual, count)


def most_measurements(others: int) -> int:
    """Return how many measurements `find_winner` takes at most.

    >>> most_measurements(10)
    229
    """
    return (1 + others) * _SCREENING + (1 + min(others, _FINALISTS)) * _FINAL + (1 + min(others, 1)) * _DUEL
