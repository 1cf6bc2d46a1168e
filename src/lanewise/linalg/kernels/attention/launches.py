"""How an attention becomes a launch: its kernel, tensor maps and grid."""

from __future__ import annotations

from typing import Any, NamedTuple

from lanewise.formats import Format
from lanewise.linalg.kernels.attention.kernel import compiled
from lanewise.linalg.kernels.attention.traits import ROWS, TILES, Tile, Traits
from lanewise.linalg.kernels.family import Launch
from lanewise.tensor_maps import tensor_map


class Sizes(NamedTuple):
    """The sizes of an attention: batches, heads of queries and of keys, lengths, the size of a head."""

    batch: int
    heads: int
    key_heads: int
    queries: int
    keys: int
    depth: int


def traits_of(sizes: Sizes, dtype: Format, causal: bool, lse: bool, tile: Tile | None = None) -> Traits:
    """Return what is compiled into the kernel of an attention; `tile` is for measurements.

    A causal attention of one query sees all keys, as one that is not.
    """
    causal = causal and sizes.queries > 1
    tile = tile or TILES[sizes.depth, causal]
    aligned = (sizes.keys - sizes.queries) % tile.keys == 0 if causal else True
    return Traits(dtype, sizes.depth, tile, causal, aligned, lse)


def launch_of(
    traits: Traits, sizes: Sizes, arrays: tuple[Any, Any, Any, Any], lse: Any, scale: float,
    multiprocessors: int,
) -> Launch:  # fmt: skip
    """Return the launch: `arrays` are queries, keys, values and results, (batch, head, row, column) each."""
    T = traits
    swizzle: Any = f"{T.line}B"
    rows = (T.queries, T.tile.keys, T.tile.keys, ROWS)
    maps = (
        tensor_map(array, (1, 1, count, T.width), swizzle=swizzle)
        for array, count in zip(arrays, rows, strict=True)
    )
    blocks = -(-sizes.queries // T.queries) * sizes.batch * sizes.heads
    if T.tile.persistent:
        blocks = min(blocks, multiprocessors)
    arguments = (
        *maps, lse, sizes.queries, sizes.keys, sizes.batch, sizes.heads, sizes.heads // sizes.key_heads,
        scale,
    )  # fmt: skip
    return Launch(compiled(T)[blocks, T.threads, T.shared_bytes], arguments)
