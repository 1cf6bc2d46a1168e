"""The orders in which a check can run blocks and warps: in order, in reverse, or as a seed draws them.

With them goes when asynchronous operations take effect: early, late, or as the seed draws it.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from lanewise.errors import LanewiseError
from lanewise.machine.abi import RunOrder
from lanewise.machine.async_records import Completion
from lanewise.machine.runtime.completion import EARLY, LATE, seed_of
from lanewise.machine.runtime.resident_blocks import POLL, WHOLE, InOrder, Schedule, Share

IN_ORDER, REVERSE = "in order", "reverse"
#: The share with which a block of a check begins: blocks that wait for others are soon known to be stuck.
FIRST = Share(3 * POLL.slice, 0)
#: Blocks that a random schedule has under way at a time while others could begin.
MOST_INTERLEAVED = 64


@dataclass(frozen=True)
class RunSchedule:
    """The order of one run: its name in reports, the order as compiled code has it, and a seed."""

    name: str
    order: RunOrder
    seed: int = 0
    #: When asynchronous operations take effect.
    completion: Completion = Completion.EARLY

    @property
    def is_default(self) -> bool:
        """Whether it is the order of a plain run."""
        return self.order is RunOrder.IN_ORDER and self.completion is Completion.EARLY

    def for_worker(self) -> Schedule:
        """Return what a host thread asks for the next block."""
        if self.order is RunOrder.RANDOM:
            return RandomOrder(self.seed)
        made = InOrder(FIRST)
        made.order = self.order
        return made


class RandomOrder:
    """Blocks are begun, interrupted and resumed as a seed draws it.

    One host thread asks it, in an order that depends on the run alone, so that a seed gives one run.
    """

    order = RunOrder.RANDOM
    first_share = Share(WHOLE.slice, 0)

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def gives_way(self) -> bool:
        """Return whether a block gives way to another: one time out of two."""
        return self.random.random() < 0.5

    def chosen(self, waiting: int) -> int | None:
        """Return a waiting block, or None for a new one, which has equal chances while not too many wait."""
        begins = self.random.random() < (0.5 if waiting < MOST_INTERLEAVED else 0.1)
        return None if begins else self.random.randrange(waiting)

    def cut(self, length: int) -> int:
        """Return after how many of its basic blocks a share is interrupted, one time out of two; else 0.

        Most are interrupted soon: what a block does after it has waited for another one is then interrupted.
        """
        cut = 1 << self.random.randrange(6) if self.random.random() < 0.5 else 0
        return cut if cut < length else 0


def run_schedule(asked: object) -> RunSchedule:
    """Return the schedule that a user names: "in order", "reverse", "early", "late", or a seed.

    Asynchronous operations take effect early unless "late" or a seed says otherwise.

    >>> run_schedule(7).name, run_schedule("reverse").order.name, run_schedule("late").completion.name
    ('seed 7', 'REVERSE', 'LATE')
    """
    name = asked if isinstance(asked, str) else None
    if asked is None or name in (IN_ORDER, EARLY):
        return RunSchedule(IN_ORDER, RunOrder.IN_ORDER)
    if name == REVERSE:
        return RunSchedule(REVERSE, RunOrder.REVERSE)
    if name == LATE:
        return RunSchedule(LATE, RunOrder.IN_ORDER, completion=Completion.LATE)
    names = ", ".join(f'"{schedule_name}"' for schedule_name in (IN_ORDER, REVERSE, EARLY, LATE))
    seed = seed_of(asked, f"{names}, an integer (a seed) or a list of them")
    return RunSchedule(f"seed {seed}", RunOrder.RANDOM, seed, Completion.RANDOM)


def run_schedules(asked: object) -> list[RunSchedule]:
    """Return the schedules of a check: those of a list, or the one that was asked for."""
    if isinstance(asked, Sequence) and not isinstance(asked, str):
        if not asked:
            raise LanewiseError("schedule=[]: name at least one schedule")
        return list(dict.fromkeys(run_schedule(schedule) for schedule in asked))
    return [run_schedule(asked)]


def first_schedules(count: int) -> list[str | int]:
    """Return so many schedules: in order, in reverse, then seeds.

    >>> first_schedules(4)
    ['in order', 'reverse', 1, 2]
    """
    return [IN_ORDER, REVERSE, *range(1, count - 1)][:count]
