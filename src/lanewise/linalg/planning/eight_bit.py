"""Plans for products of 8-bit types that fill a GPU: a few kernels, each with what it took on an H200.

Products of 8-bit numbers are so fast that L2, shared memory and epilogues bound them, each tile in its own
way. So there is no formula for their speed: each kernel's time for 128 of K, and for what a tile takes beside
that, was fitted to measured products. What is left to compute is how many tiles there are for each block.
"""

from __future__ import annotations

from typing import NamedTuple

from lanewise.linalg.families.candidates import RESIDENT
from lanewise.linalg.plan import Plan
from lanewise.linalg.problem import Problem

#: Elements of K in a stage, microseconds of a launch, and tiles of 128 × 128 from which on a GPU is full.
_STEP, _LAUNCH, _FULL = 128, 3.5, 132


class Kernel(NamedTuple):
    """A kernel with its microseconds: of a step of a tile, and of a tile beside its steps."""

    tile: tuple[int, int]
    cluster: tuple[int, int]
    schedule: str
    step: float
    rest: float

    def microseconds(self, m: int, n: int, k: int, batch: int) -> float:
        """Return the time of a product; in a pingpong schedule only the last tile's epilogue takes time."""
        (rows, columns), (across, along) = self.tile, self.cluster
        tiles = -(-m // (rows * across)) * -(-n // (columns * along)) * batch
        waves = -(-tiles // (RESIDENT[across * along] // (across * along)))
        steps = -(-k // _STEP)
        epilogues = 1 if self.schedule == "pingpong" else waves
        return _LAUNCH + waves * steps * self.step + epilogues * self.rest

    @property
    def plan(self) -> Plan:
        """The plan, its stages left open."""
        return Plan("warpgroup", "sm_90a", (*self.tile, _STEP), 2, self.cluster, schedule=self.schedule)


#: Kernels of sums that are kept in the accumulators, and of sums that are promoted.
_KERNELS = (Kernel((128, 256), (2, 1), "cooperative", 0.65, 1.5),)
_PROMOTING = (Kernel((128, 128), (2, 1), "cooperative", 0.4, 1.0),)


def eight_bit_kernels(problem: Problem) -> list[tuple[float, Kernel]]:
    """Return kernels with their times in microseconds, the fastest first; none for what they are not for.

    They are for 8-bit types, and for enough tiles that K need not be cut.
    """
    if problem.precision or problem.a.dtype.word_bits != 8 or problem.experts:
        return []
    m, n = (problem.m, problem.n) if problem.out.k_major else (problem.n, problem.m)
    if -(-m // 128) * -(-n // 128) * problem.batch < _FULL:
        return []
    kernels = _KERNELS if problem.promote is None else _PROMOTING
    timed = [(each.microseconds(m, n, problem.k, problem.batch), each) for each in kernels]
    return sorted(timed, key=lambda each: each[0])
