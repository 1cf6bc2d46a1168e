"""Fragments to matrices and back, as vector shuffles worked out from the catalogue's layouts.

Every layout here moves the bits of an element's index: (register, lane, slot) on one side, the place in a
matrix on the other. Moving bits between a vector's number and its lanes takes one shuffle for each bit.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from lanewise.isa import Operand
from lanewise.jit import ir, machine_code
from lanewise.jit.simd import Code, Pointer, Type, Value
from lanewise.machine import abi

Places = npt.NDArray[np.intp]
#: Bits of the vectors that shuffles work on: what every processor of ours has.
VECTOR = 128


def widest_shuffle() -> int:
    """Bits of the widest vectors that one instruction shuffles in any order, of words as well as bytes.

    AVX2 has 256-bit vectors, but moves words only within each half of them.
    """
    widest = machine_code.lanes_of(1)
    return widest if widest > 256 else VECTOR


@dataclass(frozen=True)
class Step:
    """Every two vectors whose numbers differ in one bit become two others: elements of both for each."""

    bit: int
    masks: tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class Moves:
    """Steps, a last shuffle within each vector if need be, and which vector then is which."""

    steps: tuple[Step, ...]
    within: tuple[int, ...] | None
    chosen: tuple[int, ...]


def index_bits(places: Places) -> tuple[int, ...] | None:
    """For each bit of an index, the bit of the place that it is; None if places are not such a map.

    -1 stands for a bit that makes no difference: the elements are there twice.

    >>> index_bits(np.array([0, 4, 1, 5, 2, 6, 3, 7]))
    (2, 0, 1)
    """
    count = len(places)
    if count & (count - 1) or places[0] != 0:
        return None
    bits = tuple(int(places[1 << bit]).bit_length() - 1 for bit in range(count.bit_length() - 1))
    indices = np.arange(count)
    kept = [(bit, place) for bit, place in enumerate(bits) if place >= 0]
    expected = sum(((indices >> bit & 1) << place for bit, place in kept), np.zeros_like(indices))
    distinct = len({place for _, place in kept}) == len(kept)
    return bits if distinct and (expected == places).all() else None


@lru_cache(maxsize=1024)
def moves(bits: tuple[int, ...], lanes: int, vectors: int) -> Moves:
    """How vectors become others of which element i is the one whose place has bits[j] where i has bit j."""
    width = lanes.bit_length() - 1
    order = list(range(width + (vectors.bit_length() - 1)))
    wanted = list(bits[:width])
    assert min(wanted) >= 0, bits
    steps = []
    while set(order[:width]) != set(wanted):
        coming = next(bit for bit in wanted if bit not in order[:width])
        going = next(bit for bit in order[:width] if bit not in wanted)
        after = [coming if bit == going else bit for bit in order[:width]]
        if set(after) == set(wanted):
            after = wanted
        place = order.index(coming)
        masks = tuple(_mask(order[:width], after, coming, going, side) for side in (0, 1))
        steps.append(Step(place - width, (masks[0], masks[1])))
        order[:width], order[place] = after, going
    within = None
    if order[:width] != wanted:
        within = tuple(_mask(order[:width], wanted, -1, -1, 0))
    numbers = [(place, order[width:].index(bit)) for place, bit in enumerate(bits[width:]) if bit >= 0]
    count = 1 << (len(bits) - width)
    chosen = tuple(sum((v >> bit & 1) << place for bit, place in numbers) for v in range(count))
    return Moves(tuple(steps), within, chosen)


def _mask(before: list[int], after: list[int], coming: int, going: int, side: int) -> tuple[int, ...]:
    """Where each lane comes from: lanes of the first vector, then those of the second."""
    mask = []
    for lane in range(1 << len(after)):
        values = {bit: lane >> place & 1 for place, bit in enumerate(after)} | {going: side}
        source = sum(values[bit] << place for place, bit in enumerate(before))
        mask.append(source + (values.get(coming, 0) << len(before) if coming >= 0 else 0))
    return tuple(mask)


def shuffled(code: Code, first: Value, second: Value | None, mask: tuple[int, ...]) -> Value:
    """Elements of one vector or two."""
    other = ir.Constant(first.type.ir, ir.Undefined) if second is None else second.handle
    constant = ir.Constant(ir.VectorType(ir.IntType(32), len(mask)), list(mask))
    handle = code.builder.shuffle_vector(first.handle, other, constant)
    return Value(code, first.type.by(len(mask)), handle)


def joined(code: Code, vectors: list[Value], count: int) -> list[Value]:
    """Every so many vectors as one, the elements of each behind those of the one before."""
    while count > 1:
        both = tuple(range(2 * vectors[0].type.lanes))
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors, count = [shuffled(code, *pair, both) for pair in pairs], count // 2
    return vectors


def permuted(code: Code, vectors: list[Value], bits: tuple[int, ...]) -> list[Value]:
    """Vectors with their elements in another order."""
    plan = moves(bits, vectors[0].type.lanes, len(vectors))
    now = list(vectors)
    for step in plan.steps:
        low = [number for number in range(len(now)) if not number >> step.bit & 1]
        for number in low:
            pair = now[number], now[number | 1 << step.bit]
            now[number], now[number | 1 << step.bit] = (
                shuffled(code, pair[0], pair[1], mask) for mask in step.masks
            )
    if plan.within is not None:
        now = [shuffled(code, vector, None, plan.within) for vector in now]
    return [now[number] for number in plan.chosen]


# places of elements ---------------------------------------------------------------------------------------


def held_places(operand: Operand) -> Places:
    """For each element of the flattened matrix: its place in (register, lane, slot), of the first holder."""
    lane, register, slot = np.unravel_index(
        operand.scatter, (operand.threads, operand.registers, operand.slots)
    )
    return np.asarray((register * operand.threads + lane) * operand.slots + slot)


def holding(operand: Operand) -> Places:
    """For each (register, lane, slot): the element of the flattened matrix that it holds."""
    return np.asarray(operand.gather.transpose(1, 0, 2).ravel())


@dataclass(frozen=True)
class Registers:
    """The registers of one operand in a warp's frame, whose offsets are known only when the code runs."""

    code: Code
    base: ir.Operand
    offsets: list[Value]
    bits: int

    def load(self, word: Type, vector_bits: int = VECTOR) -> list[Value]:
        """All of their elements, in vectors."""
        lanes = vector_bits // word.bits
        words = []
        for offset in self.offsets:
            place = self._place(offset, word)
            whole = abi.LANES * self.bits // word.bits
            words += [place.load(start, lanes) for start in range(0, whole, lanes)]
        return words

    def store(self, vectors: list[Value]) -> None:
        """Put elements there, in vectors."""
        word = vectors[0].type.by(1)
        lanes = vectors[0].type.lanes
        per_lane = abi.LANES * self.bits // word.bits // lanes
        for number, offset in enumerate(self.offsets):
            place = self._place(offset, word)
            for part in range(per_lane):
                place.store(vectors[number * per_lane + part], part * lanes)

    def _place(self, offset: Value, word: Type) -> Pointer:
        return Pointer(self.code, word, self.code.builder.gep(self.base, [offset.handle]))
