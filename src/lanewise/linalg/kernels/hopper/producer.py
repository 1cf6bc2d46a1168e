"""The producer: one thread that loads A and B by TMA for all tiles of its block, stage after stage."""

from __future__ import annotations

from lanewise import lang as lw
from lanewise.lang.hopper.tma import TensorMap
from lanewise.lang.memory.pointer import Pointer
from lanewise.linalg.kernels.hopper.operand_tiles import operand_tiles
from lanewise.linalg.kernels.hopper.tile_scheduler import numbers
from lanewise.linalg.kernels.hopper.traits import WARPGROUP, Traits


class Producer:
    """The loads of one block; `tiles` is the tile scheduler, `maps` are the tensor maps of A and B."""

    def __init__(
        self, traits: Traits, pipeline, tiles, maps: tuple[TensorMap | Pointer, TensorMap], place
    ) -> None:
        self.traits, self.pipeline, self.tiles, self.place = traits, pipeline, tiles, place
        self.tile_a, self.tile_b = operand_tiles(traits)
        self.A, self.B = maps

    @lw.device
    def run(self, first_step, steps) -> None:
        """Load all stages of this block's tiles: `steps` of K from a first one on."""
        T, pipeline, tiles, place = self.traits, self.pipeline, self.tiles, self.place
        tile_a, tile_b = self.tile_a, self.tile_b
        to_a, to_b = None if T.loads_a_apart else tile_a.target(), tile_b.target()
        mask_a, mask_b = place.targets(T)
        if T.after_copy:
            lw.wait_on_dependencies()
        filling = pipeline.producer_state()
        state = tiles.begin() if T.grouped else None
        for number in numbers(tiles, tiles.first, tiles.step):
            if T.grouped:
                state = tiles.move(number, state)
                if state.expert >= tiles.experts:
                    break
                first_row, first_column, shares = tiles.first_element(number, state)
                matrix = state.expert
            else:
                row, column, matrix = tiles[number]
                first_row, first_column = place.first_element(T, row, column)
                shares = True  # all blocks of a cluster have tiles of the same columns
            self.begin_tile(first_row)
            for step in lw.range(steps):
                pipeline.acquire(filling)
                pipeline.commit(filling)
                full = pipeline.barrier(filling)
                k_of_a = (first_step + step) * tile_a.bk
                k_of_b = k_of_a if tile_a.bk == tile_b.bk else (first_step + step) * tile_b.bk
                at_a = (first_row, k_of_a, 0 if T.repeats(T.problem.a) else matrix)
                at_b = (first_column, k_of_b, 0 if T.repeats(T.problem.b) else matrix)
                if not T.loads_a_apart:
                    tile_a.load(self.A, to_a, at_a, filling.stage, full, place.column, mask_a)
                if shares:
                    tile_b.load(self.B, to_b, at_b, filling.stage, full, place.row, mask_b)
                else:
                    for part in range(T.plan.cluster[0]):
                        tile_b.load(self.B, to_b, at_b, filling.stage, full, part, None)
                self.load_more(step, filling.stage, full)
                filling = filling.next()
        if T.multicasting > 1 and not T.one_tile:
            # other blocks release all stages of this one, which must not end before
            for _ in range(T.plan.stages):
                pipeline.acquire(filling)
                filling = filling.next()

    def begin_tile(self, first_row) -> None:
        """Prepare what else is loaded for a tile: nothing."""

    def load_more(self, step, stage, full) -> None:
        """Load what else a stage has: nothing."""


@lw.device
def clear_rest(T, tiles, C, M, N, leading) -> None:
    """Store zeros to the rows after those of the last expert, by the warps that neither load nor multiply."""
    per_store = 128 // T.out.bits if T.aligned_rows else 1
    first, chunks = tiles.last_row().to(lw.i64), lw.cdiv(N, per_store).to(lw.i64)
    threads = WARPGROUP - 32
    begin = (lw.block_idx.x * threads + lw.thread_idx.x - 32).to(lw.i64)
    step = (lw.grid_dim.x * threads).to(lw.i64)
    for chunk in lw.range(begin, (M.to(lw.i64) - first) * chunks, step):
        row = chunk // chunks
        place = C + ((row + first) * leading + (chunk - row * chunks) * per_store)
        if T.aligned_rows:
            lw.pointer(place.address, lw.u32, "global", 16).store((lw.u32(0),) * 4)
        else:
            place[0] = T.out(0)
