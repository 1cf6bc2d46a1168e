"""Plans for products of 8-bit types that fill a GPU: a few kernels, each with what it took on an H200.

Products of 8-bit numbers are so fast that L2, shared memory and epilogues bound them, each tile in its own
way. So there is no formula for their speed: each kernel's time for 128 of K, and for what a tile takes beside
that, was fitted to measured products. What is left to compute is how many tiles there are for each block.
"""

from __future__ import annotations

from typing import NamedTuple

from lanewise.linalg.orientation import oriented
from lanewise.linalg.plan import Plan
from lanewise.linalg.planning.gpus import GPUS
from lanewise.linalg.problem import Problem

#: Elements of K in a stage, and microseconds of a launch.
_STEP, _LAUNCH = 128, 3.5
#: Rows and columns up to which memory bounds a product.
_FEW = 128
_GPU = GPUS["sm_90a"]


class Kernel(NamedTuple):
    """A kernel with its microseconds: of a tile's step, of a tile beside its steps, and of the last tile."""

    tile: tuple[int, int]
    cluster: tuple[int, int]
    schedule: str
    step: float
    beside: float
    last: float = 0.0

    def microseconds(self, m: int, n: int, k: int, batch: int) -> float:
        """Return the time that a product is expected to take."""
        (rows, columns), (across, along) = self.tile, self.cluster
        tiles = -(-m // (rows * across)) * -(-n // (columns * along)) * batch
        waves = -(-tiles // _GPU.slots(across * along))
        return _LAUNCH + waves * (-(-k // _STEP) * self.step + self.beside) + self.last

    @property
    def plan(self) -> Plan:
        """The plan, its stages left open."""
        return Plan("warpgroup", "sm_90a", (*self.tile, _STEP), 2, self.cluster, schedule=self.schedule)


#: Kernels whose sums stay in the accumulators. Pingpong hides all epilogues but the last.
_KERNELS = (
    Kernel((128, 256), (2, 1), "cooperative", 0.670, 2.2),
    Kernel((128, 256), (1, 2), "cooperative", 0.680, 2.2),
    Kernel((256, 128), (1, 2), "cooperative", 0.675, 2.2),
    Kernel((128, 128), (2, 1), "pingpong", 0.345, 0.35, 2.0),
    Kernel((128, 128), (1, 2), "pingpong", 0.358, 0.40, 2.0),
    Kernel((128, 160), (2, 1), "pingpong", 0.432, 0.25, 2.2),
    Kernel((128, 192), (2, 1), "pingpong", 0.515, 0.30, 2.5),
    Kernel((128, 192), (1, 2), "pingpong", 0.530, 0.35, 2.5),
)
#: Kernels whose sums are promoted. They have no pingpong: totals take the registers.
_PROMOTING = (
    Kernel((128, 128), (2, 1), "by turns", 0.412, 0.70),
    Kernel((128, 256), (2, 1), "cooperative", 0.790, 2.1),
    Kernel((128, 192), (2, 1), "cooperative", 0.623, 0.90),
    Kernel((192, 128), (1, 2), "cooperative", 0.640, 0.95),
)
#: Kernels for up to 64 rows, and for up to 128, which memory bounds.
_FEW_ROWS = (
    Kernel((64, 64), (1, 1), "cooperative", 0.273, 2.3),
    Kernel((64, 128), (2, 1), "cooperative", 0.28, 2.4),
)


def eight_bit_kernels(problem: Problem) -> list[tuple[float, Kernel]]:
    """Return kernels with their times in microseconds, the fastest first; none for what they are not for.

    They are for 8-bit types, and for so many tiles that K need not be cut.

    >>> from lanewise.linalg.planning.sizes import problem_of_sizes
    >>> eight_bit_kernels(problem_of_sizes(4096, 4096, 4096, "e4m3", layout="nt"))[0][1].schedule
    'pingpong'
    """
    if problem.precision or problem.a.dtype.word_bits != 8 or problem.experts:
        return []
    seen = oriented(problem, _KERNELS[0].plan)
    m, n = seen.m, seen.n
    if m <= _FEW < n and -(-n // 128) * problem.batch >= _GPU.multiprocessors // 3:
        kernel = _FEW_ROWS[m > 64]
        kernel = kernel if problem.promote is None else kernel._replace(schedule="by turns")
        return [(kernel.microseconds(m, n, problem.k, problem.batch), kernel)]
    if min(m, n) <= _FEW or -(-m // 128) * -(-n // 128) * problem.batch < _GPU.multiprocessors:
        return []
    kernels = _KERNELS if problem.promote is None else _PROMOTING
    timed = [(each.microseconds(m, n, problem.k, problem.batch), each) for each in kernels]
    return sorted(timed, key=lambda each: each[0])


def eight_bit_microseconds(problem: Problem, plan: Plan) -> float | None:
    """Return the time of a plan by the measurements of its kernel; None if it is not among these kernels."""
    for microseconds, kernel in eight_bit_kernels(problem):
        if (plan.tile[:2], plan.cluster, plan.schedule) == (kernel.tile, kernel.cluster, kernel.schedule):
            return microseconds if (plan.split, plan.groups, plan.swap) == (1, 1, False) else None
    return None
