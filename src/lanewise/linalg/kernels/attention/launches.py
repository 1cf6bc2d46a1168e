"""How an attention becomes a launch: its kernel, tensor maps and grid."""

from __future__ import annotations

from typing import Any

from lanewise.formats import Format
from lanewise.linalg.arrays import Memory
from lanewise.linalg.kernels.attention.kernel import compiled
from lanewise.linalg.kernels.attention.sizes import Sizes, Tile, tile_of
from lanewise.linalg.kernels.attention.traits import ROWS, Traits
from lanewise.linalg.kernels.family import Launch
from lanewise.tensor_maps import tensor_map


def traits_of(sizes: Sizes, dtype: Format, causal: bool, tile: Tile | None = None) -> Traits:
    """Return what is compiled into the kernel of an attention; `tile` is for measurements."""
    tile = tile or tile_of(sizes, causal)
    aligned = (sizes.keys - sizes.queries) % tile.keys == 0 if causal else True
    return Traits(dtype, sizes.depth, tile, causal, aligned)


def launch_of(
    traits: Traits, sizes: Sizes, arrays: tuple[Memory, Memory, Memory, Memory], lse: Memory | None,
    scale: float, multiprocessors: int, counter: Memory | None = None,
) -> Launch:  # fmt: skip
    """Return the launch: `arrays` are queries, keys, values and results, (batch, head, row, column) each.

    `counter` is a word that is zero, as `QueryTiles` has it.
    """
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
        *maps, 0 if lse is None else lse, 0 if counter is None else counter, sizes.queries, sizes.keys,
        sizes.batch, sizes.heads, sizes.heads // sizes.key_heads, scale,
    )  # fmt: skip
    return Launch(compiled(T)[blocks, T.threads, T.shared_bytes], arguments)
