"""An A that goes through registers, and that other warps than the producer's load.

They do not wait until B is copied. Where TMA cannot load A, all idle warps of the producer's warpgroup do, by
cp.async.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from lanewise import lang as lw
from lanewise.linalg.kernels.hopper.tile_scheduler import numbers
from lanewise.linalg.kernels.hopper.traits import Traits

#: Threads that load A where TMA cannot, those of three warps, and how each says that its loads are there.
LOADING = 96
_ARRIVE = "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [{barrier}];"


def arrive_when_copied(barrier) -> None:
    """Arrive at a barrier when this thread's copies by cp.async are there."""
    lw.asm(_ARRIVE, needs=("sm_80", "7.0"), barrier=barrier.pointer)


class LoadedApart(ABC):
    """`rows` × `bk` elements in each of several stages."""

    def __init__(self, traits: Traits) -> None:
        self.k_major, self.stages = traits.problem.a.k_major, traits.plan.stages
        self.rows, self.bk = traits.bm, traits.bk

    @property
    def arrivals(self) -> int:
        """How many threads arrive at a stage's barrier for A."""
        return LOADING

    @lw.device
    def run(self, T, pipeline, tiles, place, A, sizes, strides, steps) -> None:
        """Load all stages of this block's tiles; `steps` are the first step of K, and how many there are."""
        first_step, count = steps
        filling = pipeline.producer_state()
        for number in numbers(tiles, tiles.first, tiles.step):
            row, column, matrix = tiles[number]
            first_row, _ = place.first_element(T, row, column)
            matrix = lw.i32(0 if T.repeats(T.problem.a) else matrix)
            tile = self.of_tile(A, sizes, strides, (first_row, lw.i32(first_step * self.bk), matrix))
            for step in lw.range(count):
                pipeline.acquire(filling)
                self.load_stage(tile, step, filling.stage, pipeline.barrier(filling))
                filling = filling.next()

    @abstractmethod
    def of_tile(self, A, sizes, strides, at) -> Any:
        """Return what loads of a tile need; `at` is its first row, its first k, its matrix of the batch."""

    @abstractmethod
    def load_stage(self, tile, step, stage, full) -> None:
        """Begin to load a step of a tile's K, and arrive at the barrier of its stage."""
