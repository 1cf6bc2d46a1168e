"""Random programs of streams, events and waits, and a brute-force oracle of what happens before what.

The oracle knows no clocks: it draws every edge that CUDA promises between two steps and looks for paths.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

#: The legacy default stream, two that wait for it, and two that do not.
LEGACY, BLOCKING, APART = 0, (1, 2), (3, 4)
STREAMS = (LEGACY, *BLOCKING, *APART)
#: Words of a buffer, of which there are two.
WORDS, BUFFERS = 48, 2
EVENTS = 3

#: Steps that access memory, and those that only order others.
WORK = ("launch", "copy", "memset", "copy to host")
ORDER = ("record", "wait", "synchronize event", "synchronize stream", "synchronize", "host function")


@dataclass(frozen=True)
class Step:
    """One call of a program: what it is, its stream, its event, and the words that it reads and writes."""

    kind: str
    stream: int = LEGACY
    event: int = 0
    reads: tuple[int, int, int] | None = None
    writes: tuple[int, int, int] | None = None


def draw_words(chance: random.Random) -> tuple[int, int, int]:
    """A buffer, its first word, and a number of words."""
    first = chance.randrange(WORDS - 1)
    return chance.randrange(BUFFERS), first, chance.randint(1, min(16, WORDS - first))


def draw_program(chance: random.Random, steps: int) -> list[Step]:
    """A program of some steps."""
    program = []
    for _ in range(steps):
        kind = chance.choice(WORK if chance.random() < 0.55 else ORDER)
        stream, event = chance.choice(STREAMS), chance.randrange(EVENTS)
        source, target = draw_words(chance), draw_words(chance)
        count = min(source[2], target[2])
        source, target = (*source[:2], count), (*target[:2], count)
        match kind:
            case "launch" | "copy":
                program.append(Step(kind, stream, reads=source, writes=target))
            case "memset":
                program.append(Step(kind, stream, writes=target))
            case "copy to host":
                program.append(Step(kind, LEGACY, reads=source))
            case _:
                program.append(Step(kind, stream, event))
    return program


def _without_idle_waits(program: list[Step]) -> list[Step | None]:
    """The steps of a program; None for a wait for an event that was not recorded, which does nothing."""
    recorded: set[int] = set()
    steps: list[Step | None] = []
    for step in program:
        steps.append(None if step.kind == "wait" and step.event not in recorded else step)
        if step.kind == "record":
            recorded.add(step.event)
    return steps


def _is_on_stream(step: Step) -> bool:
    return not step.kind.startswith("synchronize")


def _edges(program: list[Step]) -> Iterator[tuple[int, int]]:
    """Every pair of steps of which CUDA says that the first is over before the second begins."""
    recorded: dict[int, int] = {}
    steps = _without_idle_waits(program)
    for now, step in enumerate(steps):
        if step is None:
            continue
        for before, other in enumerate(steps[:now]):
            if other is None:
                continue
            # The host waits in these calls, and makes the later ones afterwards.
            if not _is_on_stream(other) or other.kind == "copy to host":
                yield before, now
            elif _is_on_stream(step):
                both = {step.stream, other.stream}
                if len(both) == 1 or (LEGACY in both and not both & set(APART)):
                    yield before, now
            elif step.kind == "synchronize" or (
                step.kind == "synchronize stream"
                and (other.stream == step.stream or (step.stream == LEGACY and other.stream in BLOCKING))
            ):
                yield before, now
        if step.kind in ("wait", "synchronize event") and step.event in recorded:
            yield recorded[step.event], now
        if step.kind == "record":
            recorded[step.event] = now


def _overlap(one: tuple[int, int, int] | None, other: tuple[int, int, int] | None) -> bool:
    if one is None or other is None or one[0] != other[0]:
        return False
    return one[1] < other[1] + other[2] and other[1] < one[1] + one[2]


def racing_pairs(program: list[Step]) -> set[tuple[int, int]]:
    """The pairs of steps that touch the same words without an order, one of them writing."""
    count = len(program)
    before = np.zeros((count, count), bool)
    for first, second in _edges(program):
        before[first, second] = True
    for middle in range(count):  # all paths (Warshall)
        before |= before[:, middle, None] & before[None, middle, :]
    races = set()
    for second, now in enumerate(program):
        for first in range(second):
            then = program[first]
            touches = (
                _overlap(then.writes, now.writes)
                or _overlap(then.reads, now.writes)
                or _overlap(then.writes, now.reads)
            )
            if touches and not before[first, second]:
                races.add((first, second))
    return races
