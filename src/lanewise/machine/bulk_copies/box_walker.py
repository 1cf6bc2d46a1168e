"""The walker of a tensor copy: calls a body for each run of bytes of a box that are contiguous on both sides.

Which bytes a tensor copy touches is written here alone. What is done with them is the body's: copies reduce,
fill or move them, a checker looks at them. Seen on an H200 (benchmarks/results/h200_tensor_copies.json):

- The rows of a box lie side by side in shared memory, each as wide as the swizzle's pattern if that is wider.
- A swizzle changes bits 4 to 6 of the shared address by bits 7 to 9.
- With element strides a dimension beyond the first has ceil(box / stride) places.
- In an interleaved layout 16 or 32 bytes take the place of an element of the first dimension, which may have
  a stride then; of the dimension before the last, the slices of channels, a box has one.
- A store or reduction writes whole 16 bytes: past the end of a tensor's row up to the next multiple of 16.
- A column of pixels (im2col) has a row for each pixel. The pixels follow each other in the bounding box by
  the steps of the innermost dimension; behind its last coordinate the count begins at its first one, and
  goes on in the next dimension. Offsets are added to what is counted (h200_im2col_copies.json beside it).
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from lanewise.jit.simd import Value, Variable, i64
from lanewise.machine.async_records import AsyncOperation
from lanewise.machine.codegen.function_code import FunctionCode, Record

#: The most dimensions of a tensor.
DIMENSIONS = 5
#: Bytes that a swizzle keeps together.
ATOM = 16
#: Handles a run: the device address in the tensor, the shared address, the bytes.
Inside = Callable[[Value, Value, Value], None]
#: Handles a run beyond the tensor: the shared address, the bytes.
Outside = Callable[[Value, Value], None]
#: Handles a row of the box: the device address, the shared address without a swizzle, and the span of the
#: bytes that lie in the tensor, and how many bytes of the row lie before and after the tensor.
EachRow = Callable[[Value, Value, Value, Value, Value], None]


@dataclass(frozen=True)
class AtomCopy:
    """A short way for rows of whole atoms that lie in the tensor from end to end, as most rows do.

    It is taken where `applies`, given the device address of the row and its bytes, is true. `copy` then takes
    the place of `inside`: it handles one atom, given its device address and its shared address.
    """

    applies: Callable[[Value, Value], Value]
    copy: Callable[[Value, Value], None]


def at(field: int, dimension: int) -> int:
    """Return the offset of a field of a box in one dimension."""
    return field + 8 * dimension


def least(a: Value, b: Value | int) -> Value:
    """Return the smaller of two signed numbers."""
    other = b if isinstance(b, Value) else a.code.constant(a.type, b)
    return (a < other).select(a, other)


def clamped(value: Value, low: int, high: Value) -> Value:
    """Return a number moved into a range."""
    return least(value.max(low), high)


def divided_up(number: Value, by: Value) -> Value:
    """Return a signed number divided by a positive one, rounded up."""
    code = number.code
    dividend = (number > 0).select(number + by - 1, number)
    return Value(code, i64, code.builder.sdiv(dividend.handle, by.handle))


def swizzled(box: Record, address: Value) -> Value:
    """Return where a byte of a box lies in shared memory, given where it would without a swizzle."""
    mask, shift, flip = (
        box.get(field)
        for field in (AsyncOperation.swizzle_mask, AsyncOperation.swizzle_shift, AsyncOperation.swizzle_flip)
    )
    return address ^ ((address >> shift) & mask) ^ ((address >> 4) & flip)


class Column:
    """The coordinates of a column of pixels, which are counted on from one pixel to the next."""

    def __init__(self, code: FunctionCode, box: Record) -> None:
        self.code, self.box = code, box
        self.is_column = box.get(AsyncOperation.is_column).differs(0)
        self.counted, self.last = (
            [code.variable(box.get(at(AsyncOperation.first_pixel, axis))) for axis in range(DIMENSIONS)]
            for _ in range(2)
        )
        #: The number of the pixel since the last halo began or ended.
        self.number = code.variable(code.number(0))

    @property
    def into_halo(self) -> Value:
        """How many pixels into the halo the pixel is, 1 for its first one; 0 or less if it is in none."""
        return self.number.get() - self.box.get(AsyncOperation.halo_period) + 1

    def pixel(self) -> tuple[Value, Value]:
        """Return how many bytes the pixel is from the tensor's first one, and whether it is in the tensor.

        A halo goes on along the innermost axis of pixels, from the last pixel before it, without an end.
        """
        box, distance = self.box, self.code.number(0)
        inside, into_halo = self.code.number(1).equals(1), self.into_halo
        in_halo = into_halo > 0
        for axis, (counted, last) in enumerate(zip(self.counted, self.last, strict=True)):
            position = in_halo.select(last.get(), counted.get())
            if axis == 0:
                steps = in_halo.select(into_halo, self.code.number(0))
                position = position + steps * box.get(AsyncOperation.pixel_steps)
            position = position + box.get(at(AsyncOperation.offsets, axis))
            inside = inside & ~(position < 0) & (position < box.get(at(AsyncOperation.pixel_sizes, axis)))
            distance = distance + position * box.get(at(AsyncOperation.pixel_pitches, axis))
        return distance, inside

    def advance(self) -> None:
        """Count on to the next pixel, unless this one is in a halo."""
        box, in_halo = self.box, self.into_halo > 0
        carries = self.is_column & ~in_halo
        following = self.number.get() + 1
        period = box.get(AsyncOperation.halo_period) + box.get(AsyncOperation.halo)
        self.number.set((following < period).select(following, self.code.number(0)))
        for axis, (counted, last) in enumerate(zip(self.counted, self.last, strict=True)):
            last.set(in_halo.select(last.get(), counted.get()))
            further = counted.get() + box.get(at(AsyncOperation.pixel_steps, axis))
            wraps = further > box.get(at(AsyncOperation.highs, axis))
            next_one = wraps.select(box.get(at(AsyncOperation.lows, axis)), further)
            counted.set(carries.select(next_one, counted.get()))
            carries = carries & wraps


class RowBytes:
    """The bytes of a row of a box: those in the tensor, and the pieces in which it is walked over."""

    def __init__(self, code: FunctionCode, box: Record, whole_granules: bool) -> None:
        self.size, self.step = (
            box.get(at(field, 0)) for field in (AsyncOperation.element_bytes, AsyncOperation.steps)
        )
        places, elements, coordinate = (
            box.get(at(field, 0))
            for field in (AsyncOperation.boxes, AsyncOperation.sizes, AsyncOperation.coordinates)
        )
        size, step = self.size, self.step
        self.width = places * size
        if whole_granules:  # a place of padded elements is a granule
            elements = divided_up((elements * size + (ATOM - 1)) & -ATOM, size)
        self.packed = box.get(AsyncOperation.packed_bytes)
        self.is_packed = self.packed.differs(0)
        self.start = self.in_tensor(coordinate * size)
        # The places of a row that lie in the tensor, as bytes of the box.
        self.first, self.last = (
            clamped(divided_up(edge - coordinate, step), 0, places) * size
            for edge in (code.number(0), elements)
        )
        self.is_stretched = step.differs(1)
        mask = box.get(AsyncOperation.swizzle_mask)
        in_atoms = mask.differs(0) | self.is_stretched | self.is_packed
        is_flipped = box.get(AsyncOperation.swizzle_flip).differs(0)
        atom = is_flipped.select(code.number(ATOM // 2), ATOM)
        self.piece = in_atoms.select(atom, self.width)
        atoms = Value(code, i64, code.builder.sdiv((self.width + atom - 1).handle, atom.handle))
        self.pieces = in_atoms.select(atoms, code.number(1))
        is_plain = ~self.is_stretched & ~self.is_packed & ~is_flipped
        is_even = mask.differs(0) & is_plain & (self.width & (ATOM - 1)).equals(0)
        #: Whether it lies in the tensor and consists of whole atoms that are only swizzled.
        self.is_covered = is_even & self.first.equals(0) & self.last.equals(self.width)

    def in_tensor(self, bytes: Value) -> Value:
        """Return how many bytes of the tensor some bytes of shared memory hold: fewer if they are padded."""
        return self.is_packed.select((bytes >> 4) * self.packed, bytes)


def walk(
    code: FunctionCode,
    box: Record,
    whole_granules: bool,
    inside: Inside,
    outside: Outside | None,
    each_row: EachRow | None = None,
    atom_copy: AtomCopy | None = None,
) -> None:
    """Write loops over a box, a record like AsyncOperation, that call a body for each run of bytes.

    With a swizzle a run has 16 bytes at most; without one it is a row. `whole_granules`: rows of the tensor
    end on multiples of 16 bytes, as stores see them. Without `outside`, bytes beyond the tensor are left out.
    With `atom_copy`, rows for which it applies are handled by it.
    """

    def get(field: int, dimension: int) -> Value:
        return box.get(at(field, dimension))

    of_row = RowBytes(code, box, whole_granules)
    size, step, width = of_row.size, of_row.step, of_row.width
    start, in_tensor = of_row.start, of_row.in_tensor
    row = code.variable(box.get(AsyncOperation.shared_address))
    column = Column(code, box)
    is_gather = box.get(AsyncOperation.is_gather).differs(0)
    with ExitStack() as loops:
        tensor = box.get(AsyncOperation.tensor)
        address, good = tensor, code.number(1).equals(1)
        for dimension in range(DIMENSIONS - 1, 0, -1):
            index = loops.enter_context(code.loop(get(AsyncOperation.boxes, dimension)))
            steps = index * get(AsyncOperation.steps, dimension)
            position = get(AsyncOperation.coordinates, dimension) + steps
            if dimension == 1:
                position = is_gather.select(gathered_row(box, is_gather, index), position)
            good = good & ~(position < 0) & (position < get(AsyncOperation.sizes, dimension))
            address = address + position * get(AsyncOperation.pitches, dimension)
        located, lies_inside = code.variable(address), code.variable(good)
        with code.when(column.is_column):
            distance, inside_tensor = column.pixel()
            located.set(tensor + distance)
            lies_inside.set(inside_tensor)
            column.advance()
        address, good = located.get(), lies_inside.get()
        first, last = (good.select(end, width) for end in (of_row.first, of_row.last))
        if each_row is not None:
            span = (first < last).select((last - first) * step - (step - 1) * size, code.number(0))
            begin = address + start + in_tensor(first * step)
            each_row(begin, row.get() + first, in_tensor(span), first, width - last)
        left = of_row.pieces
        if atom_copy is not None:
            is_short = good & of_row.is_covered & atom_copy.applies(address + start, width)
            with code.loop(is_short.select(of_row.pieces, code.number(0))) as number:
                offset = number * ATOM
                atom_copy.copy(address + start + offset, swizzled(box, row.get() + offset))
            left = is_short.select(code.number(0), of_row.pieces)
        with code.loop(left) as number:
            offset = number * of_row.piece
            end = least(offset + of_row.piece, width) - offset
            low, high = (clamped(bound - offset, 0, end) for bound in (first, last))
            place = swizzled(box, row.get() + offset)
            if outside is not None:
                with code.when(low > 0):
                    outside(place, low)
            with code.when(high > low):
                along = code.variable(offset)
                with code.when(of_row.is_stretched):
                    index = Value(code, i64, code.builder.sdiv(offset.handle, size.handle))
                    along.set(offset + index * size * (step - 1))
                begin = address + start + in_tensor(along.get() + low)
                inside(begin, place + low, of_row.is_packed.select(of_row.packed, high - low))
            if outside is not None:
                with code.when(end > high):
                    outside(place + high, end - high)
        row.set(row.get() + box.get(AsyncOperation.row_bytes))


#: Rows of a matrix that gather4 and scatter4 copy.
GATHERED = 4


def gathered_row(box: Record, is_gather: Value, index: Value) -> Value:
    """Return the coordinate of one of four rows, by its number; of other boxes, what does not matter."""
    place = is_gather.select(index, box.code.constant(i64, 0)) * 8
    return Record(box.code, box.address + place).get(AsyncOperation.gathered_rows)


def bounds(code: FunctionCode, box: Record) -> tuple[Value, Value]:
    """Return the addresses of the tensor's first byte in a box and past its last one; equal if none is."""
    zero = box.get(AsyncOperation.tensor)
    low, high, some = zero, zero, code.number(1).equals(1)
    packed = box.get(AsyncOperation.packed_bytes)
    size = packed.equals(0).select(box.get(AsyncOperation.element_bytes), packed)
    row_low, row_high, in_row = zero, zero, some
    for dimension in range(DIMENSIONS):
        first = box.get(at(AsyncOperation.coordinates, dimension))
        step = box.get(at(AsyncOperation.steps, dimension))
        count = box.get(at(AsyncOperation.boxes, dimension))
        elements = box.get(at(AsyncOperation.sizes, dimension))
        pitch = box.get(at(AsyncOperation.pitches, dimension))

        # The first place of the box that lies in the tensor, and the last one.
        begin = divided_up(0 - first, step).max(0)
        end = least(divided_up(elements - first, step), count) - 1
        some = some & ~(begin > end)
        low = low + (first + begin * step) * pitch
        high = high + (first + end * step) * pitch
        if dimension == 0:
            row_low, row_high, in_row = low, high, some
    lowest, highest = (code.variable(zero) for _ in range(2))
    lowest.set(some.select(low, zero))
    highest.set(some.select(high + size, zero))
    column = Column(code, box)
    with code.when(column.is_column):
        _column_bounds(code, box, column, (row_low, row_high + size), in_row, (lowest, highest))
    is_gather = box.get(AsyncOperation.is_gather).differs(0)
    with code.when(is_gather):
        lowest.set(zero)
        highest.set(zero)
        elements, pitch = (box.get(at(field, 1)) for field in (AsyncOperation.sizes, AsyncOperation.pitches))
        for number in range(GATHERED):
            row = gathered_row(box, is_gather, code.number(number))
            with code.when(in_row & ~(row < 0) & (row < elements)):
                _widen((lowest, highest), row_low + row * pitch, row_high + size + row * pitch)
    return lowest.get(), highest.get()


def _column_bounds(
    code: FunctionCode,
    box: Record,
    column: Column,
    row: tuple[Value, Value],
    in_row: Value,
    bounds: tuple[Variable, Variable],
) -> None:
    """Write the bounds of a column of pixels: those of the rows of its pixels that lie in the tensor."""
    lowest, highest = bounds
    zero = box.get(AsyncOperation.tensor)
    lowest.set(zero)
    highest.set(zero)
    with code.loop(box.get(at(AsyncOperation.boxes, 1))):
        offset, inside = column.pixel()
        with code.when(in_row & inside):
            _widen(bounds, row[0] + offset, row[1] + offset)
        column.advance()


def _widen(bounds: tuple[Variable, Variable], first: Value, end: Value) -> None:
    """Let bounds include a row; they are equal before the first one."""
    lowest, highest = bounds
    is_first = lowest.get().equals(highest.get())
    lowest.set(is_first.select(first, least(lowest.get(), first)))
    highest.set(end.max(highest.get()))
