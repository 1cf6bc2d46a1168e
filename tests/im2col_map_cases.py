"""Tensor maps of the mode im2col for tests: random ones, and the driver's answers in the record."""

import json
import lzma
import random
from collections.abc import Iterator
from pathlib import Path

from lanewise.isa.tensor_map import Im2colTensor
from lanewise.isa.tensor_map_fields import (
    CORNER_BITS,
    ELEMENT_TYPES,
    FILLS,
    INTERLEAVES,
    L2_PROMOTIONS,
    SWIZZLES,
)
from tensor_map_cases import FILL_NAMES, INTERLEAVE_NAMES, PROMOTION_NAMES, SWIZZLE_NAMES, TYPES

RECORD = Path(__file__).parents[1] / "benchmarks" / "results" / "h200_im2col_maps.json"


def recorded() -> Iterator[tuple[Im2colTensor, int, int, int]]:
    """Return the calls of the record: the tensor, its address, the driver's status, a digest of the bytes."""
    record = json.loads(RECORD.read_text())
    for row in json.loads(lzma.decompress(bytes.fromhex("".join(record["calls"])))):
        values = dict(zip(record["columns"], row, strict=True))
        rank = values["rank"]
        lengths = {
            "dims": rank, "strides": rank - 1, "lower": rank - 2, "upper": rank - 2, "element_strides": rank,
        }  # fmt: skip
        sizes = {name: (tuple(values[name]) + (1,) * 6)[: max(count, 0)] for name, count in lengths.items()}
        tensor = Im2colTensor(
            TYPES.get(values["type"], str(values["type"])), sizes["dims"], sizes["strides"], sizes["lower"],
            sizes["upper"], values["channels"], values["pixels"], sizes["element_strides"],
            INTERLEAVE_NAMES.get(values["interleave"], "?"), SWIZZLE_NAMES.get(values["swizzle"], "?"),
            PROMOTION_NAMES.get(values["promotion"], "?"), FILL_NAMES.get(values["fill"], "?"),
        )  # fmt: skip
        yield tensor, values["address"], values["status"], values["digest"]


def random_im2col(chance: random.Random) -> tuple[Im2colTensor, int]:
    """Return a tensor and an address for it; most are legal."""
    rank = chance.choice((3, 4, 5))
    element = chance.choice(list(ELEMENT_TYPES.values()))
    interleave = chance.choice(list(INTERLEAVES.values()))
    swizzle = chance.choice(list(SWIZZLES.values()))
    unit, align = 16 // element.bytes, interleave.alignment
    most = swizzle.row_bytes // element.bytes if swizzle.row_bytes and interleave.code == 0 else 256
    half = 1 << (CORNER_BITS[rank] - 1)
    tensor = Im2colTensor(
        element.name,
        tuple(chance.randint(1, 1 << chance.randint(0, 31)) for _ in range(rank)),
        tuple(chance.randrange(1 << chance.randint(5, 40)) // align * align for _ in range(rank - 1)),
        tuple(chance.randint(-half, half // 4) for _ in range(rank - 2)),
        tuple(chance.randint(-half // 4, half - 1) for _ in range(rank - 2)),
        unit * chance.randint(1, max(1, most // unit)),
        chance.choice((chance.randint(1, 1024), chance.randint(1, 64))),
        tuple(chance.choice((1, 1, chance.randint(1, 8))) for _ in range(rank)),
        interleave.name,
        swizzle.name,
        chance.choice(list(L2_PROMOTIONS)),
        chance.choice(list(FILLS)) if element.is_float else "zeros",
    )
    return tensor, chance.randrange(1 << chance.randint(10, 57)) // align * align
