"""Which of several candidates is faster than the one in use: measured by turns, and the winner once more.

The least of many noisy times is too small by chance. So the winner runs against the candidate in use again,
in rounds that nobody has chosen it by, and has to be faster there as well.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Generic, TypeVar

from lanewise.errors import LanewiseError

Candidate = TypeVar("Candidate", bound=Hashable)

#: Rounds in which all are measured, those in which the best of them are, and those of the last two.
SCREENING, FINAL, DUEL = 7, 15, 31
#: How many go from the first rounds to the second, beside the one in use.
FINALISTS = 5
#: What share of the time a winner has to save, and in what share of the rounds it has to be the faster one.
LEAST_GAIN, LEAST_WON = 0.02, 0.7


@dataclass(frozen=True)
class Verdict(Generic[Candidate]):
    """The outcome: the candidate to use, its seconds, and those of the candidate that was in use."""

    best: Candidate
    seconds: float
    seconds_in_use: float
    #: How many candidates could be measured, the one in use counted.
    measured: int


def contest(
    in_use: Candidate,
    others: Sequence[Candidate],
    seconds: Callable[[Candidate], float],
    advance: Callable[[], object] = lambda: None,
) -> Verdict[Candidate]:
    """Return the fastest candidate, or the one in use if none is clearly faster.

    `seconds` measures one run of a candidate. One that raises a LanewiseError is out; if the one in use does,
    the error is raised. `advance` is called after each of `rounds(len(others))` measurements, or fewer.

    >>> times = {"in use": 1.0, "slow": 2.0, "fast": 0.5}
    >>> contest("in use", ["slow", "fast"], times.__getitem__)
    Verdict(best='fast', seconds=0.5, seconds_in_use=1.0, measured=3)
    """
    running = [in_use, *(each for each in dict.fromkeys(others) if each != in_use)]

    def measured(names: list[Candidate], count: int) -> dict[Candidate, list[float]]:
        """Return the times of each candidate, one in each round, those that failed left out."""
        times: dict[Candidate, list[float]] = {each: [] for each in names}
        for number in range(count):
            for each in (
                names if number % 2 == 0 else reversed(names)
            ):  # nobody always runs after the same one
                if each not in times:
                    continue
                try:
                    times[each].append(seconds(each))
                except LanewiseError:
                    if each == in_use:
                        raise
                    del times[each]
                advance()
        return times

    times = measured(running, SCREENING)
    count = len(times)
    for keep, number in ((FINALISTS, FINAL), (1, DUEL)):
        ranked = sorted((each for each in times if each != in_use), key=lambda each: median(times[each]))
        times = measured([in_use, *ranked[:keep]], number)
    usual = median(times[in_use])
    for each in times:
        if each == in_use:
            continue
        ratios = [own / other for own, other in zip(times[each], times[in_use], strict=True)]
        won = sum(ratio < 1 for ratio in ratios) / len(ratios)
        if median(ratios) <= 1 - LEAST_GAIN and won >= LEAST_WON:
            return Verdict(each, median(times[each]), usual, count)
    return Verdict(in_use, usual, usual, count)


def rounds(others: int) -> int:
    """Return how many measurements a contest takes at most.

    >>> rounds(10)
    229
    """
    return (1 + others) * SCREENING + (1 + min(others, FINALISTS)) * FINAL + (1 + min(others, 1)) * DUEL
