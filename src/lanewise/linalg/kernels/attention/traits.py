"""What is compiled into an attention kernel, and how its shared memory is divided.

Sizes, strides and the scale are arguments, so that one kernel serves all lengths and numbers of heads. Shared
memory lies as TMA writes it and as wgmma reads it: panels of swizzled rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from lanewise import lang as lw
from lanewise.errors import InternalError
from lanewise.formats import Format
from lanewise.lang.memory.array import Array
from lanewise.layout import Layout, Swizzle
from lanewise.linalg.kernels.attention.sizes import Tile
from lanewise.linalg.kernels.hopper.shared_memory import line_swizzle
from lanewise.linalg.kernels.hopper.traits import MOST_SHARED, ROWS, WARPGROUP

#: Registers of a thread of the producer, and of a consumer, by the number of consumers of a multiprocessor.
_REGISTERS = {2: (24, 240), 3: (32, 160)}
#: The same where two blocks of one consumer each share a multiprocessor.
_REGISTERS_OF_TWO = (40, 216)


@dataclass(frozen=True)
class Traits:
    """The constants of one kernel."""

    dtype: Format
    #: Elements of a head.
    depth: int
    tile: Tile
    causal: bool = False
    #: Whether the diagonal begins at the corner of a tile, so that a warpgroup has one masked tile of keys.
    aligned: bool = True
    #: Whether the keys of a tile of queries are divided among blocks, whose sums `split_keys` adds.
    divided: bool = False

    def __post_init__(self) -> None:
        if self.shared_bytes > MOST_SHARED:
            raise InternalError(f"{self} takes {self.shared_bytes} bytes of shared memory")

    @property
    def threads(self) -> int:
        """Threads of a block: a producer and its consumers."""
        return (1 + self.tile.consumers) * WARPGROUP

    @property
    def blocks_at_once(self) -> int:
        """Blocks of a multiprocessor: two with one consumer each, if their shared memory and sums fit."""
        return 2 if self.tile.consumers == 1 and 2 * self.shared_bytes <= MOST_SHARED else 1

    @property
    def registers(self) -> tuple[int, int] | None:
        """Registers of a thread of the producer, and of a consumer; none if all have enough as it is."""
        return _REGISTERS_OF_TWO if self.blocks_at_once == 2 else _REGISTERS.get(self.tile.consumers)

    @property
    def width(self) -> int:
        """Columns of a panel, the widest that TMA swizzles and that divides a head."""
        return 64 if self.depth % 64 == 0 else 32

    @property
    def panels(self) -> int:
        """Panels of a head: columns of 128 or 64 bytes, one below the other in shared memory."""
        return self.depth // self.width

    @property
    def line(self) -> int:
        """Bytes of a panel's row, which is as long as its swizzle."""
        return 2 * self.width

    @property
    def swizzle(self) -> Swizzle:
        """The swizzle of a panel's rows."""
        return line_swizzle(2, self.line)

    @property
    def tile_bytes(self) -> int:
        """Bytes of a tile of keys or of values."""
        return 2 * self.tile.keys * self.depth

    @property
    def query_bytes(self) -> int:
        """Bytes of a block's queries, and of its results."""
        return 2 * self.tile.queries * self.depth

    @property
    def _beside(self) -> int:
        """Bytes of shared memory beside queries, keys and values."""
        return MOST_SHARED - self.query_bytes - self.stage_bytes

    @property
    def in_place(self) -> bool:
        """Whether results are gathered in the place of the queries: no others are loaded while they are
        stored, or there is not even room for half of them beside the queries."""
        return not self.tile.persistent or 2 * self._beside < self.query_bytes

    @property
    def result_columns(self) -> int:
        """Columns of results that are gathered at a time: half of them if there is no room for more."""
        whole = self.in_place or self._beside >= self.query_bytes
        return self.depth if whole else self.depth // 2

    @property
    def stage_bytes(self) -> int:
        """Bytes of all stages of keys and values."""
        return 2 * self.tile.stages * self.tile_bytes

    @property
    def results_offset(self) -> int:
        """Where results are gathered: behind the queries, or in their place."""
        return 0 if self.in_place else self.query_bytes

    @property
    def keys_offset(self) -> int:
        """Where the first stage of keys begins."""
        return self.results_offset + 2 * self.tile.queries * self.result_columns

    @property
    def values_offset(self) -> int:
        """Where the first stage of values begins."""
        return self.keys_offset + self.tile.stages * self.tile_bytes

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block."""
        return self.keys_offset + self.stage_bytes

    @property
    def same_tiles(self) -> bool:
        """Whether all consumers of a block see the same tiles of keys."""
        aligned = self.aligned and self.tile.keys % self.tile.queries == 0
        return not self.causal or self.divided or aligned

    @property
    def masks_more(self) -> bool:
        """Whether tiles before a warpgroup's last one may have keys that some of its queries do not see."""
        return self.causal and (self.divided or not (self.aligned and self.tile.keys % ROWS == 0))


# shared memory ----------------------------------------------------------------------------------------------


def boxes(T: Traits, rows: int, stages: int, offset: int) -> Array:
    """Return tiles as TMA writes them: (1, 1, row, column of a panel, panel, stage)."""
    panel = rows * T.width
    shape = (1, 1, rows, T.width, T.panels, stages)
    strides = (panel, panel, T.width, 1, panel, rows * T.depth)
    return lw.dynamic_shared(T.dtype, Layout(shape, strides), swizzle=T.swizzle, offset=offset)


def along_depth(T: Traits, rows: int, stages: int, offset: int) -> Array:
    """Return queries or keys as wgmma reads them: (row, column, stage), neighbours along a head."""
    layout = Layout((rows, (T.width, T.panels), stages), (T.width, (1, rows * T.width), rows * T.depth))
    return lw.dynamic_shared(T.dtype, layout, swizzle=T.swizzle, offset=offset)


def along_keys(T: Traits) -> Array:
    """Return values as wgmma reads them: (column, key, stage), transposed."""
    keys = T.tile.keys
    shape, strides = (
        ((T.width, T.panels), keys, T.tile.stages),
        ((1, keys * T.width), T.width, keys * T.depth),
    )
    return lw.dynamic_shared(T.dtype, Layout(shape, strides), swizzle=T.swizzle, offset=T.values_offset)


def results(T: Traits) -> Array:
    """Return gathered results as TMA reads them: (1, 1, row, column of a panel, panel, consumer)."""
    shape = (1, 1, ROWS, T.width, T.result_columns // T.width, T.tile.consumers)
    one = ROWS * T.width
    strides = (one, one, T.width, 1, T.tile.queries * T.width, one)
    return lw.dynamic_shared(T.dtype, Layout(shape, strides), swizzle=T.swizzle, offset=T.results_offset)
