"""Tensor maps for tests: random legal ones, calls of the driver's encoder at its limits, and their record."""

from __future__ import annotations

import hashlib
import lzma
import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lanewise.isa.tensor_map import MOST_BOX_BYTES, TiledTensor, address_violation
from lanewise.isa.tensor_map_fields import (
    ELEMENT_TYPES,
    FILLS,
    INTERLEAVES,
    L2_PROMOTIONS,
    LATER_SWIZZLES,
    MOST_AXES,
    PACKED_TYPES,
    SWIZZLES,
)

#: Names by the driver's numbers.
_TYPES = {each.driver_code: each.name for each in ELEMENT_TYPES.values()}
TYPES = _TYPES | {len(_TYPES) + n: name for n, name in enumerate(PACKED_TYPES)}
SWIZZLE_NAMES = {each.code: each.name for each in SWIZZLES.values()} | {
    code: name for name, code in LATER_SWIZZLES.items()
}
INTERLEAVE_NAMES = {each.code: each.name for each in INTERLEAVES.values()}
PROMOTION_NAMES = {code: name for name, code in L2_PROMOTIONS.items()}
FILL_NAMES = {code: name for name, code in FILLS.items()}


class Call(NamedTuple):
    """The arguments of cuTensorMapEncodeTiled, legal or not; axis 0 is the innermost."""

    type: int
    rank: int
    address: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    interleave: int = 0
    swizzle: int = 0
    l2_promotion: int = 0
    fill: int = 0

    @classmethod
    def of(cls, tensor: TiledTensor, address: int) -> Call:
        """Return the call for a legal tensor."""
        return cls(
            tensor.element.driver_code,
            tensor.rank,
            address,
            tensor.dims,
            tensor.strides,
            tensor.box,
            tensor.element_strides,
            tensor.interleaving.code,
            tensor.swizzle_mode.code,
            L2_PROMOTIONS[tensor.l2_promotion],
            FILLS[tensor.fill],
        )

    @property
    def tensor(self) -> TiledTensor:
        """The tensor it asks for; numbers without a name stand as they are."""

        def sizes(values: tuple[int, ...], count: int) -> tuple[int, ...]:
            return (*values, *(1,) * count)[: max(count, 0)]

        return TiledTensor(
            TYPES.get(self.type, str(self.type)),
            sizes(self.dims, self.rank),
            sizes(self.strides, self.rank - 1),
            sizes(self.box, self.rank),
            sizes(self.element_strides, self.rank),
            INTERLEAVE_NAMES.get(self.interleave, str(self.interleave)),
            SWIZZLE_NAMES.get(self.swizzle, str(self.swizzle)),
            PROMOTION_NAMES.get(self.l2_promotion, str(self.l2_promotion)),
            FILL_NAMES.get(self.fill, str(self.fill)),
        )

    @property
    def broken_rule(self) -> str | None:
        """The rule that it breaks, in words; None if lanewise encodes it."""
        tensor = self.tensor
        return tensor.violation() or address_violation(tensor.interleave, self.address)


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


#: Values at and around the limits of each argument, to put into a legal call.
LIMITS: dict[str, tuple[int, ...]] = {
    "type": (*range(17),),
    "address": (1, 8, 15, 16, 17, 24, 31, 32, 48, (1 << 57) - 32, 1 << 57, 1 << 63, (1 << 64) - 16),
    "dims": (0, 1, 2, (1 << 32) - 1, 1 << 32, (1 << 32) + 1, 1 << 63),
    "strides": (0, 1, 8, 15, 16, 24, 32, 40, 48, (1 << 40) - 32, (1 << 40) - 16, 1 << 40, (1 << 64) - 16),
    "box": (0, 1, 2, 3, 4, 7, 8, 12, 15, 16, 17, 24, 31, 32, 33, 64, 65, 128, 129, 255, 256, 257, 1 << 16),
    "element_strides": (0, 1, 2, 7, 8, 9, 16, 1 << 31),
    "interleave": (0, 1, 2, 3),
    "swizzle": (*range(8),),
    "l2_promotion": (0, 1, 2, 3, 4),
    "fill": (0, 1, 2),
    "rank": (0, 1, 2, 3, 4, 5, 6),
}


def call_at_limits(chance: random.Random) -> Call:
    """Return a legal call with one argument, at times two, put at its limits."""
    call = Call.of(*random_tensor(chance))
    for _ in range(chance.choice((1, 1, 1, 2))):
        name = chance.choice(list(LIMITS))
        value: Any = chance.choice(LIMITS[name])
        old = getattr(call, name)
        if isinstance(old, tuple):
            if not old:
                continue
            axis = chance.randrange(len(old)) if chance.random() < 0.5 else 0
            value = (*old[:axis], value, *old[axis + 1 :])
        call = call._replace(**{name: value})
    if call.rank > len(call.dims):
        more = call.rank - len(call.dims)
        call = call._replace(
            dims=(*call.dims, *(64,) * more),
            strides=(*call.strides, *(1 << 20,) * more),
            box=(*call.box, *(1,) * more),
            element_strides=(*call.element_strides, *(1,) * more),
        )
    return call


# the record ---------------------------------------------------------------------------------------------

_ROW = np.dtype(
    [
        ("address", "<u8"),
        ("dims", "<u8", MOST_AXES),
        ("strides", "<u8", MOST_AXES - 1),
        ("box", "<u4", MOST_AXES),
        ("element_strides", "<u4", MOST_AXES),
        *((name, "u1") for name in ("type", "rank", "interleave", "swizzle", "l2_promotion", "fill")),
        ("status", "<u2"),
        ("digest", "<u8"),
    ]
)


class Answer(NamedTuple):
    """A call, the driver's status, and a digest of the 128 bytes that it gave."""

    call: Call
    status: int
    digest: int


def digest(raw: bytes) -> int:
    """Return 64 bits that tell a map from any other."""
    return int.from_bytes(hashlib.blake2b(raw, digest_size=8).digest(), "little")


#: Digits of a line of a record.
_DIGITS = 120


def packed(answers: Sequence[Answer]) -> list[str]:
    """Return answers as lines of a record: compressed, in hexadecimal digits."""
    rows: NDArray[Any] = np.zeros(len(answers), _ROW)
    for row, (call, status, mark) in zip(rows, answers, strict=True):
        for name, value in call._asdict().items():
            if isinstance(value, tuple):
                room = row[name].shape[0]
                row[name][: min(len(value), room)] = value[:room]
            else:
                row[name] = value
        row["status"], row["digest"] = status, mark
    columns = rows.view(np.uint8).reshape(len(rows), -1).T  # alike bytes side by side
    digits = lzma.compress(columns.tobytes(), preset=9).hex()
    return [digits[start : start + _DIGITS] for start in range(0, len(digits), _DIGITS)]


def unpacked(lines: list[str]) -> list[Answer]:
    """Return the answers of a record."""
    data = lzma.decompress(bytes.fromhex("".join(lines)))
    columns = np.frombuffer(data, np.uint8).reshape(_ROW.itemsize, -1)
    rows = np.ascontiguousarray(columns.T).view(_ROW)[:, 0]
    found = []
    for row in rows:
        rank = int(row["rank"])
        lengths = {"dims": rank, "strides": rank - 1, "box": rank, "element_strides": rank}
        values: dict[str, Any] = {
            name: tuple(row[name][: max(lengths[name], 0)].tolist()) if name in lengths else int(row[name])
            for name in Call._fields
        }
        found.append(Answer(Call(**values), int(row["status"]), int(row["digest"])))
    return found
