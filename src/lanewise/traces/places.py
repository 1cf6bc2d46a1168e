"""Places that hold values: bytes of a register in one lane, bytes of memory; and how users name them."""

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from lanewise.errors import LanewiseError
from lanewise.machine import abi
from lanewise.machine.abi import LANES
from lanewise.machine.program.operands import Register
from lanewise.machine.tensor_memory_records import LANE_BYTES, TENSOR_COLUMNS, TENSOR_LANES
from lanewise.numpy_types import AnyArray
from lanewise.traces.arrays import ArgumentArray
from lanewise.traces.fragments import packed_operand
from lanewise.traces.names import Meaning, meant, typed
from lanewise.traces.recording import TENSOR_NAME, Recording
from lanewise.traces.tensor_memory import tensor_reading


def is_integer(value: object) -> bool:
    """Return whether a value is an integer, of Python or NumPy; True and False are none."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def coordinates(asked: Any, extents: tuple[int, int, int]) -> tuple[int, int, int] | None:
    """Return the coordinates of a block in a grid, from up to three integers; None if there is none such.

    >>> coordinates(3, (4, 1, 1)), coordinates((1, 2), (4, 4, 1)), coordinates(1.5, (4, 1, 1))
    ((3, 0, 0), (1, 2, 0), None)
    """
    several = isinstance(asked, tuple | list) or getattr(asked, "ndim", 0) == 1
    given = tuple(asked) if several else (asked,)
    if not 1 <= len(given) <= 3 or not all(map(is_integer, given)):
        return None
    x, y, z = (int(value) for value in (*given, 0, 0)[:3])
    inside = all(0 <= coordinate < extent for coordinate, extent in zip((x, y, z), extents, strict=True))
    return (x, y, z) if inside else None


@dataclass(frozen=True)
class RegisterPlace:
    """Bytes of a register of one lane; of several registers, the one that was written last."""

    block: int
    warp: int
    lane: int
    registers: tuple[Register, ...]
    first: int
    size: int
    #: What the bits mean, if the source or an instruction says it.
    format: Meaning | None = field(default=None, compare=False)

    def of_lanes(self, bits: AnyArray) -> npt.NDArray[np.uint8]:
        """Return the place's bytes of each lane, given what the lanes hold in the register."""
        raw = np.ascontiguousarray(bits).view(np.uint8).reshape(LANES, -1)
        return np.ascontiguousarray(raw[:, self.first : self.first + self.size])

    def shown(self, raw: npt.NDArray[np.uint8]) -> AnyArray:
        """Return such bytes as the numbers that they mean; more than eight as they are."""
        if self.size > 8:
            return raw
        bits = raw.view(f"uint{8 * self.size}").ravel()
        values = meant(bits, self.format)
        return typed(bits, self.registers[0].type) if values is None else values


@dataclass(frozen=True)
class MemoryPlace:
    """Bytes of memory at a generic address; the thread counts for local memory, the block for shared."""

    address: int
    size: int
    block: int
    warp: int = 0
    lane: int = 0


Place = RegisterPlace | MemoryPlace

#: A name and an index; each coordinate is followed by a comma or ends the index.
_ELEMENT = re.compile(r"\s*([^\[\]]+?)\s*\[((?:\s*-?\d+\s*(?:,|(?=\])))*\s*)\]\s*")


class PlaceNames:
    """Finds the place that a user names: `"C[3, 5]"`, `"As[1, 2]"`, `(c, (3, 5))`, or `"acc"` with a lane."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording

    def find(self, of: object, lane: int | None, warp: int | None, block: object) -> Place:
        """Return the place that is named; an error that says which there are if it is not one."""
        run = self.recording.run
        linear = self.block(block)
        number = run.warps[0] if warp is None else warp
        if not is_integer(number) or number not in run.warps:
            raise LanewiseError(f"warp {number!r} was not traced; traced are {_listed(run.warps)}")
        if lane is not None and (not is_integer(lane) or not 0 <= lane < LANES):
            raise LanewiseError(f"a lane is 0 to {LANES - 1}, not {lane!r}")
        if isinstance(of, RegisterPlace | MemoryPlace):
            return of
        if isinstance(of, tuple) and len(of) == 2 and isinstance(of[0], np.ndarray):
            index = of[1] if isinstance(of[1], tuple) else (of[1],)
            if not all(is_integer(coordinate) for coordinate in index):
                raise LanewiseError(f"the index of an element is made of integers, not {of[1]!r}")
            return self._argument(self._by_array(of[0]), index, linear)
        if not isinstance(of, str):
            raise LanewiseError(
                'what is asked for is named as "C[3, 5]", as (array, index), or as a register or variable '
                f"with lane=; not as {of!r}"
            )
        match = _ELEMENT.fullmatch(of)
        if match is None:
            return self._register(of, of, None, lane, number, linear)
        index = tuple(int(word) for word in match.group(2).split(",") if word.strip())
        place = self._element(match.group(1), index, linear)
        return place or self._register(of, match.group(1), index, lane, number, linear)

    def block(self, asked: object) -> int:
        """Return the number of a block that was traced, from its coordinates; the first if none is given."""
        run, recording = self.recording.run, self.recording
        if asked is None:
            return run.blocks[0]
        wanted = coordinates(asked, run.shape.grid)
        for linear in run.blocks:
            if recording.block_at(linear) == wanted:
                return linear
        traced = _listed([recording.block_at(block) for block in run.blocks])
        raise LanewiseError(
            f"block {asked if wanted is None else wanted!r} was not traced; traced are {traced}"
        )

    def _by_array(self, array: AnyArray) -> ArgumentArray:
        for argument in self.recording.arguments:
            if argument.array is array:
                return argument
        names = _listed([argument.name for argument in self.recording.arguments])
        raise LanewiseError(f"this array was no argument of the traced launch; its arrays are {names}")

    def _argument(self, array: ArgumentArray, index: tuple[int, ...], block: int) -> MemoryPlace:
        address, size = array.element(from_the_end(index, array.array.shape))
        return MemoryPlace(address, size, block)

    def _element(self, name: str, index: tuple[int, ...], block: int) -> MemoryPlace | None:
        """Return an element of an array by its name; None if there is no such array."""
        for argument in self.recording.arguments:
            if argument.name == name:
                return self._argument(argument, index, block)
        shared = self.recording.shared_arrays.declared.get(name)
        tensor = tensor_reading(self.recording)
        if shared is None and name in tensor.matrices:
            return self._tensor_element(name, index, block)
        if shared is None and name == TENSOR_NAME and tensor.is_used:
            return _tensor_word(index, block)
        if shared is None:
            return None
        address, size = shared.element(from_the_end(index, shared.shape))
        return MemoryPlace(address, size, block)

    def _tensor_element(self, name: str, index: tuple[int, ...], block: int) -> MemoryPlace:
        """Return an element of a matrix of the source in tensor memory, at the address that it had last."""
        recording = self.recording
        lanes, columns, bits, fmt = tensor_reading(recording).matrix_places(
            name, block, recording.run.warps[0], len(recording.log)
        )
        index = from_the_end(index, lanes.shape)
        if len(index) != 2 or not all(0 <= i < n for i, n in zip(index, lanes.shape, strict=False)):
            raise LanewiseError(f"{name} has the shape {lanes.shape}; there is no element {list(index)}")
        address = abi.TENSOR_WINDOW + int(lanes[index]) * LANE_BYTES + 4 * int(columns[index])
        return MemoryPlace(address + int(bits[index]) // 8, max(fmt.bits // 8, 1), block)

    def _register(
        self, of: str, name: str, index: tuple[int, ...] | None, lane: int | None, warp: int, block: int
    ) -> RegisterPlace:
        """Return a register or variable; `acc[2]` is its third element."""
        try:
            variable = self.recording.names.find(name)
        except LanewiseError as error:
            known = [argument.name for argument in self.recording.arguments]
            known += list(self.recording.shared_arrays.declared)
            arrays = f"; arrays are {_listed(known)}" if known else ""
            raise LanewiseError(f"{error}{arrays}") from None
        if index is None and variable.length > 1:
            raise LanewiseError(f"{name} has {variable.length} elements a lane: name one, as in {name}[0]")
        element = from_the_end((0,) if index is None else index, (variable.length,))
        if len(element) != 1 or not 0 <= element[0] < variable.length:
            raise LanewiseError(f"{name} has elements 0 to {variable.length - 1}, not {of}")
        if lane is None:
            of_arrays = [argument.name for argument in self.recording.arguments]
            of_arrays += list(self.recording.shared_arrays.declared)
            hint = f'; an element of the array is asked for as "{of}[0]"' if of in of_arrays else ""
            raise LanewiseError(f"{of} is a register, and each lane has its own: give lane={hint}")
        packed = packed_operand(self.recording.program, self.recording.run.arch, variable)
        if packed is None:
            registers = variable.elements[element[0]]
            meaning = variable.format or variable.type or None
            return RegisterPlace(block, warp, lane, registers, 0, registers[0].bits // 8, meaning)
        number, slot = divmod(element[0], packed.slots)
        bits, registers = packed.slot_bits, variable.elements[number]
        meaning = packed.format if packed.format.bits == bits else None
        return RegisterPlace(block, warp, lane, registers, slot * bits // 8, max(bits // 8, 1), meaning)


def from_the_end(index: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return an index in which negative coordinates, which count from the end, are replaced.

    An index that does not fit the shape is left for the caller to refuse.

    >>> from_the_end((-1, 0), (4, 8)), from_the_end((-5, 0), (4, 8)), from_the_end((-1,), (4, 8))
    ((3, 0), (-5, 0), (-1,))
    """
    if len(index) != len(shape):
        return index
    return tuple(i + n if -n <= i < 0 else i for i, n in zip(index, shape, strict=True))


def _tensor_word(index: tuple[int, ...], block: int) -> MemoryPlace:
    """Return a word of tensor memory by its lane and column."""
    index = from_the_end(index, (TENSOR_LANES, TENSOR_COLUMNS))
    if len(index) != 2 or not (0 <= index[0] < TENSOR_LANES and 0 <= index[1] < TENSOR_COLUMNS):
        raise LanewiseError(
            f"{TENSOR_NAME}[lane, column] has lanes 0 to {TENSOR_LANES - 1} and columns 0 to "
            f"{TENSOR_COLUMNS - 1}; there is no {list(index)}"
        )
    return MemoryPlace(abi.TENSOR_WINDOW + index[0] * LANE_BYTES + 4 * index[1], 4, block)


def _listed(items: Any) -> str:
    """Return some items in words, not more than a reader takes in."""
    texts = [str(item) for item in items]
    if not texts:
        return "none"
    return ", ".join(texts[:8]) + (f" and {len(texts) - 8} more" if len(texts) > 8 else "")


@dataclass(frozen=True)
class Source:
    """A value that an instruction took: a place, a constant or a special register, under a name."""

    place: Place | None
    text: str = ""
    format: Meaning | None = None
    #: The entry before which the place had the value; None: the instruction's own.
    entry: int | None = None
    #: Of memory: the bytes that the instruction has read there, if the log has them.
    read: bytes = b""
