"""A call of `lw.attention`, its sizes, and what a tile is by which it is computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from lanewise.formats import Format
from lanewise.linalg.arrays import Memory
from lanewise.linalg.operands import View


class Sizes(NamedTuple):
    """The sizes of an attention: batches, heads of queries and of keys, lengths, the size of a head."""

    batch: int
    heads: int
    key_heads: int
    queries: int
    keys: int
    depth: int


@dataclass(frozen=True)
class Tile:
    """How an attention is computed: keys of a tile, warpgroups that multiply, stages of keys and values."""

    keys: int = 128
    consumers: int = 2
    stages: int = 2
    #: Whether consumers multiply one after the other, so that one computes exponentials while another does.
    ordered: bool = False
    #: Whether a block computes many tiles of queries, and loads the next while it finishes one.
    persistent: bool = False
    #: Into how many parts the keys are divided; a block computes one of them.
    parts: int = 1

    @property
    def queries(self) -> int:
        """Queries of a tile: 64 of each consumer."""
        return 64 * self.consumers


class Operands(NamedTuple):
    """The memory of an attention: queries, keys, values and results are (batch, head, row, column) each."""

    q: Memory
    k: Memory
    v: Memory
    out: Memory
    lse: Memory | None = None
    #: A word that is zero, as `QueryTiles` has it.
    counter: Memory | None = None
    #: Sums of parts of keys, f32: `partial_bytes`.
    partial: Memory | None = None


class AttentionCall(NamedTuple):
    """A call of `lw.attention` whose arguments fit together; views have four axes."""

    q: View
    k: View
    v: View
    out: View
    lse: View | None
    sizes: Sizes
    causal: bool
    scale: float
    tile: Tile

    @property
    def dtype(self) -> Format:
        """The type of queries, keys, values and results."""
        return self.q.format

    @property
    def views(self) -> tuple[View, View, View, View]:
        """Queries, keys, values and results."""
        return self.q, self.k, self.v, self.out
