"""Random tensor maps that a driver encodes, for tests with and without a GPU."""

from __future__ import annotations

import random

from lanewise.isa.tensor_map import TiledTensor
from lanewise.isa.tensor_map_fields import (
    ELEMENT_TYPES,
    FILLS,
    INTERLEAVES,
    L2_PROMOTIONS,
    MOST_AXES,
    SWIZZLES,
)
from lanewise.isa.tensor_map_rules import MOST_BOX_BYTES


def random_tensor(chance: random.Random) -> tuple[TiledTensor, int]:
    """Return a legal tensor and an address for it."""
    rank = chance.randint(1, MOST_AXES)
    element = chance.choice(list(ELEMENT_TYPES.values()))
    interleave = chance.choice(list(INTERLEAVES.values())) if rank > 2 else INTERLEAVES["none"]
    swizzle = chance.choice(list(SWIZZLES.values()))
    unit = 16 // element.bytes
    most = swizzle.row_bytes // element.bytes if swizzle.row_bytes and interleave.code == 0 else 256
    box = [unit * chance.randint(1, most // unit)]
    for _ in range(rank - 1):
        room = MOST_BOX_BYTES // element.bytes
        for size in box:
            room //= size
        box.append(chance.randint(1, max(1, min(256, room))))
    align = interleave.alignment
    tensor = TiledTensor(
        element.name,
        tuple(chance.randint(1, 1 << chance.randint(0, 32)) for _ in range(rank)),
        tuple(chance.randrange(1 << chance.randint(5, 40)) // align * align for _ in range(rank - 1)),
        tuple(box),
        tuple(chance.choice((1, 1, chance.randint(1, 8))) for _ in range(rank)),
        interleave.name,
        swizzle.name,
        chance.choice(list(L2_PROMOTIONS)),
        chance.choice(list(FILLS)) if element.is_float else "zeros",
    )
    return tensor, chance.randrange(1 << chance.randint(10, 57)) // align * align
