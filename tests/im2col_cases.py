"""Copies of columns of pixels (im2col) as cases that the CPU machine and a GPU run alike, and a model.

The record of an H200, benchmarks/results/h200_im2col_copies.json, has such cases and digests of the results.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import numpy as np

import lanewise as lw
from lanewise.isa.tensor_map import Im2colTensor
from tensor_copy_cases import (
    FILLS,
    IMAGE,
    INTERLEAVES,
    SIZES,
    SWIZZLES,
    THREADS,
    TYPES,
    UNTOUCHED,
    Bytes,
    kernel_text,
)

#: Bytes of global memory that a case sees.
MEMORY = 1 << 19
_SWIZZLE_BYTES = (0, 32, 64, 128)
_FLOATS = TYPES.index("f16")


class Case(NamedTuple):
    """A copy of a column of pixels, the innermost axis first; `type` … are the driver's numbers."""

    verb: str
    type: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    lower: tuple[int, ...]
    upper: tuple[int, ...]
    channels: int
    pixels: int
    element_strides: tuple[int, ...]
    interleave: int
    swizzle: int
    fill: int
    coordinates: tuple[int, ...]
    offsets: tuple[int, ...]
    where: int

    @classmethod
    def from_json(cls, row: list[Any]) -> Case:
        """Return a case of the record."""
        values: list[Any] = [tuple(value) if isinstance(value, list) else value for value in row]
        return cls(*values)

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.dims)

    @property
    def size(self) -> int:
        """The bytes of an element."""
        return SIZES[self.type]

    def tensor(self) -> Im2colTensor:
        """Return the tensor that the map is of."""
        return Im2colTensor(
            TYPES[self.type], self.dims, self.strides, self.lower, self.upper, self.channels, self.pixels,
            self.element_strides, INTERLEAVES[self.interleave], SWIZZLES[self.swizzle], "none",
            FILLS[self.fill],
        )  # fmt: skip


def sources(case: Case) -> tuple[Bytes, Bytes]:
    """Return the tensor's memory and the shared memory before a copy: words that name their own place."""
    if case.verb == "load":
        numbers = np.arange(MEMORY)
        memory = (numbers * 7 + (numbers >> 8) * 13).astype(np.uint8)
        if case.size > 1:
            memory = np.arange(MEMORY // 2).astype(np.uint16).view(np.uint8).copy()
        return memory, np.full(IMAGE, UNTOUCHED, np.uint8)
    if case.verb == "store":
        image = (np.arange(IMAGE // 2) ^ 0x8000).astype(np.uint16)
        return np.arange(MEMORY // 2).astype(np.uint16).view(np.uint8).copy(), image.view(np.uint8).copy()
    image = (np.arange(IMAGE // 4, dtype=np.uint32) * 65536 + 0x1000000).astype(np.uint32)
    return np.arange(MEMORY // 4).astype(np.uint32).view(np.uint8).copy(), image.view(np.uint8).copy()


def pixels(case: Case) -> list[tuple[int, ...]]:
    """Return the coordinates of the pixels of a column without offsets, with the number of the image."""
    axes = case.rank - 2
    first = 0 if case.interleave else 1
    last = [case.dims[first + axis] - 1 + case.upper[axis] for axis in range(axes)]
    steps = [case.element_strides[first + axis] for axis in range(axes)]
    at, image = list(case.coordinates[first : first + axes]), case.coordinates[-1]
    found = []
    for _ in range(case.pixels):
        found.append((*at, image))
        for axis in range(axes):
            at[axis] += steps[axis]
            if at[axis] <= last[axis]:
                break
            at[axis] = case.lower[axis]
        else:
            image += case.element_strides[-1]
    return found


def tf32(words: Any) -> Any:
    """Return f32 as TMA rounds it to tf32: to the nearest, halves to even; a NaN is one of all ones."""
    words = words.astype(np.uint64)
    rounded = (words + 0xFFF + ((words >> 13) & 1)) & ~np.uint64(0x1FFF)
    is_nan = (words & 0x7FFFFFFF) > 0x7F800000
    return np.where(is_nan, 0x7FFFE000, rounded).astype(np.uint32)


def model(case: Case) -> tuple[Bytes, Bytes]:
    """Return shared memory and the tensor's memory after a copy, computed pixel by pixel."""
    memory, image = sources(case)
    axes, size = case.rank - 2, case.size
    first = 0 if case.interleave else 1
    pitches = (size if first else 16 * case.interleave, *case.strides)
    width = case.channels * size if first else 16 * case.interleave
    pitch = max(width, _SWIZZLE_BYTES[case.swizzle]) if first else width
    mask = max(_SWIZZLE_BYTES[case.swizzle] - 16, 0)
    offsets = case.offsets if case.verb == "load" else (0,) * axes
    for number, pixel in enumerate(pixels(case)):
        at = [coordinate + offset for coordinate, offset in zip(pixel, offsets, strict=False)]
        inside = all(0 <= at[axis] < case.dims[first + axis] for axis in range(axes))
        inside &= 0 <= pixel[-1] < case.dims[-1]
        start = sum(at[axis] * pitches[first + axis] for axis in range(axes)) + pixel[-1] * pitches[-1]
        if not first:
            inside &= 0 <= case.coordinates[-2] < case.dims[-2]
            start += case.coordinates[-2] * pitches[-2]
        places = case.where + number * pitch + np.arange(width)
        places ^= (places >> 3) & mask
        channel = case.coordinates[0] * size + np.arange(width) if first else np.arange(width)
        row_end = case.dims[0] * size if first else width
        if case.verb != "load":
            row_end = -(-row_end // 16) * 16  # whole 16 bytes are written
        good = (channel >= 0) & (channel < row_end) & inside
        if case.verb == "load":
            image[places] = np.resize([0xF7, 0x7F], width) if case.fill else 0
            image[places[good]] = memory[start + channel[good]]
            if TYPES[case.type].startswith("tf32"):
                words = places.reshape(-1, 4)
                whole = words[good.reshape(-1, 4).all(1)]
                image[whole] = tf32(image[whole].copy().view(np.uint32)).view(np.uint8).reshape(-1, 4)
        elif case.verb == "store":
            memory[start + channel[good]] = image[places[good]]
        else:
            target = start + channel[good]
            sums = memory[target].view(np.uint32) + image[places[good]].view(np.uint32)
            memory[target] = sums.view(np.uint8)
    return image, memory


def random_case(chance: random.Random, verb: str = "load") -> Case:
    """Return a copy that no GPU refuses: its first pixel lies in the bounding box."""
    rank = chance.choice((3, 4, 5))
    axes = rank - 2
    type = TYPES.index("u32") if verb == "add" else chance.randrange(len(TYPES))
    size = SIZES[type]
    unit = 16 // size
    swizzle = chance.randrange(4)
    most = (_SWIZZLE_BYTES[swizzle] or chance.choice((16, 64, 256))) // size
    channels = unit * chance.randint(1, max(1, min(most, 256) // unit))
    spread = [chance.randint(1, {1: 24, 2: 9, 3: 5}[axes]) for _ in range(axes)]
    dims = (chance.randint(1, 40), *spread, chance.randint(1, 3))
    strides = [-(-dims[0] * size // 16) * 16 + 16 * chance.choice((0, 0, 1))]
    for extent in dims[1:-1]:
        strides.append(strides[-1] * extent + 16 * chance.choice((0, 0, 1)))
    lower, upper, first = _bounding_box(chance, spread, verb)
    steps = [1] * rank
    if chance.random() < 0.6:
        steps = [chance.choice((1, 1, 2, 3, chance.randint(1, 8))) for _ in range(rank)]
    pitch = max(channels * size, _SWIZZLE_BYTES[swizzle])
    count = chance.choice((chance.randint(1, 24), chance.randint(1, 64), chance.randint(64, 300)))
    limit = {1: 65535, 2: 255, 3: 31}[axes]
    offsets = [chance.choice((0, 0, 1, 2, 3, chance.randint(0, min(limit, 40)))) for _ in range(axes)]
    return Case(
        verb, type, dims, tuple(strides), tuple(lower), tuple(upper), channels,
        max(1, min(count, (IMAGE - 1024) // pitch, 1024)), tuple(steps), 0, swizzle,
        chance.randrange(2) if type >= _FLOATS else 0,
        (unit * chance.choice((0, 0, 0, 1, 2, -1 if verb == "load" else 0)), *first,
         chance.randint(-1 if verb == "load" else 0, dims[-1])),
        tuple(offsets), 128 * chance.choice((0, 0, 1, 3)),
    )  # fmt: skip


def _bounding_box(
    chance: random.Random, spread: list[int], verb: str
) -> tuple[list[int], list[int], list[int]]:
    """Return the corners of a bounding box and a pixel in it; that of a store does not leave the tensor."""
    reach = chance.choice((1, 3, 8))
    lower, upper, first = [], [], []
    for extent in spread:
        least, most = (-reach, reach) if verb == "load" else (0, 0)
        low = chance.randint(least, min(reach, extent - 1 + most))
        high = chance.randint(min(max(-reach, low - extent + 1), most), most)
        lower.append(low)
        upper.append(high)
        first.append(chance.randint(low, extent - 1 + high))
    return lower, upper, first


def random_interleaved(chance: random.Random, verb: str = "load") -> Case:
    """Return a copy of an interleaved tensor (N, slices of channels, …, W) that no GPU refuses."""
    rank, interleave = chance.choice((3, 4, 5)), chance.choice((1, 2))
    axes, align = rank - 2, 16 * interleave
    type = chance.choice([TYPES.index(name) for name in ("u8", "u16", "f16", "f32")])
    swizzle = chance.randrange(4) if interleave == 1 else chance.choice((0, 1))
    spread = [chance.randint(1, {1: 24, 2: 9, 3: 5}[axes]) for _ in range(axes)]
    dims = (*spread, chance.randint(1, 3), chance.randint(1, 3))
    strides = [align * dims[0] + align * chance.choice((0, 0, 1))]
    for extent in dims[1:-1]:
        strides.append(strides[-1] * extent + align * chance.choice((0, 0, 1)))
    lower, upper, first = _bounding_box(chance, spread, verb)
    steps = [1] * rank
    if chance.random() < 0.6:
        steps = [chance.choice((1, 1, 2, 3)) for _ in range(rank)]
    least = -1 if verb == "load" else 0
    return Case(
        verb, type, dims, tuple(strides), tuple(lower), tuple(upper),
        16 // SIZES[type] * chance.choice((1, 1, 2, 4)), chance.choice((1, 7, 24, 64, 200)), tuple(steps),
        interleave, swizzle, chance.randrange(2) if type >= _FLOATS else 0,
        (*first, chance.randint(least, dims[-2]), chance.randint(least, dims[-1])),
        tuple(chance.choice((0, 0, 1, 2, 3)) for _ in range(axes)), 128 * chance.choice((0, 0, 1, 3)),
    )  # fmt: skip


_MODULES: dict[tuple[str, int], lw.Module] = {}


def text(verb: str, rank: int) -> str:
    """Return a kernel that issues one copy between a tensor and shared memory, given and returned."""
    offsets = [f"offset{axis}" for axis in range(3)]
    plain = kernel_text(verb, rank).replace(".param .u32 where,", ".param .u32 where, .param .u32 bytes,")
    declared = ", ".join(f".param .u32 {name}" for name in offsets)
    plain = plain.replace(".param .u32 bytes, .param .u32 bytes)", f".param .u32 bytes, {declared})")
    loads = " ".join(f"ld.param.u16 %h{axis}, [{name}];" for axis, name in enumerate(offsets))
    plain = plain.replace(".reg .b32 %c<5>;", ".reg .b32 %c<5>; .reg .b16 %h<3>;")
    plain = plain.replace("mov.b64 %rd3, map;", f"{loads} mov.b64 %rd3, map;")
    if verb == "load":
        given = ", ".join(f"%h{axis}" for axis in range(rank - 2))
        return plain.replace(".tile", ".im2col").replace(", [bar];\n    \n", f", [bar], {{{given}}};\n    \n")
    return plain.replace(".tile", ".im2col_no_offs")


def arguments(case: Case, encoded: Any, image: Any) -> list[Any]:
    """Return the arguments of a launch."""
    coordinates = [each % (1 << 32) for each in (*case.coordinates, 0, 0)[:5]]
    expected = case.tensor().box_bytes if case.verb == "load" else 0
    return [encoded, image, *coordinates, case.where, expected, *(*case.offsets, 0, 0)[:3]]


def module(case: Case) -> lw.Module:
    """Return the module of a case's kernel."""
    key = case.verb, case.rank
    if key not in _MODULES:
        _MODULES[key] = lw.load(text(*key))
    return _MODULES[key]


def run(case: Case, **options: Any) -> tuple[Bytes, Bytes]:
    """Run a case on the CPU machine; return shared memory and the tensor's memory after it."""
    memory, image = sources(case)
    encoded = np.frombuffer(case.tensor().encode(int(lw.address(memory))), np.uint8)
    module(case)["copy"][1, THREADS, IMAGE](*arguments(case, encoded, image), **options)
    return image, memory
