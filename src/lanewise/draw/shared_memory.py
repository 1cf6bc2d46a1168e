"""How matrices lie in shared memory: the operand of a matrix descriptor, and the box of a tensor map.

Lines of 128 bytes are drawn with a cell for each 16 bytes, under the four banks that they lie in.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import index
from typing import NamedTuple

from lanewise.draw.options import Options
from lanewise.draw.picture import PASTELS, SHARED, WHITE, Axis, Cell, Legend, Panel, Picture
from lanewise.engines import Drawn
from lanewise.errors import LanewiseError
from lanewise.isa.matrix_descriptor import TCGEN05_VERSION, Major, MatrixDescriptor
from lanewise.isa.tensor_map import TiledTensor

CHUNK_BYTES = 16
LINE_BYTES = 128
_CHUNKS = LINE_BYTES // CHUNK_BYTES
_BANK_BYTES = 4
#: Lines that a picture shows; swizzles repeat after eight.
MOST_LINES = 32


class Held(NamedTuple):
    """What 16 bytes of shared memory hold: two words for the cell, its colour, a sentence."""

    row: str
    columns: str
    colour: int
    title: str


def banks_of(address: int) -> str:
    """Return the banks of the 16 bytes at an address.

    >>> banks_of(0x410)
    '4–7'
    """
    first = address % LINE_BYTES // _BANK_BYTES
    return f"{first}–{first + CHUNK_BYTES // _BANK_BYTES - 1}"


def lines_panel(
    caption: str, held: Mapping[int, Held], first: int, lines: int, options: Options, at: tuple[int, int]
) -> Panel:
    """Return the panel of so many lines from an address on; `held` has what lies at each address."""
    cells = []
    for line in range(first, first + lines * LINE_BYTES, LINE_BYTES):
        row = []
        for address in range(line, line + LINE_BYTES, CHUNK_BYTES):
            piece = held.get(address)
            if piece is None:
                row.append(Cell((), SHARED))
                continue
            last = address + CHUNK_BYTES - 1
            tooltip = f"bytes {address:#x} to {last:#x}, banks {banks_of(address)}: {piece.title}"
            title = tooltip if options.explains(lines * _CHUNKS) else ""
            row.append(Cell((piece.row, piece.columns), PASTELS[piece.colour % len(PASTELS)], title))
        cells.append(row)
    return Panel(
        "memory",
        caption,
        cells,
        Axis("byte", tuple(f"{first + LINE_BYTES * line:#x}" for line in range(lines))),
        Axis("bank", tuple(banks_of(CHUNK_BYTES * chunk) for chunk in range(_CHUNKS))),
        at=at,
        rule=(8, 0),
    )


def chunk_legend(heading: str) -> Legend:
    """Return the legend of cells that are coloured by the place of 16 bytes in their row."""
    return Legend(heading, tuple((colour, str(number)) for number, colour in enumerate(PASTELS)))


#: Bytes of a row that a wgmma reads along K.
_K_BYTES = 32
#: Rows of an operand that a picture shows.
_MOST_ROWS = 32
_ELEMENT_BITS, _TCGEN05_BITS = (1, 8, 16, 32), (4, 8, 16, 32)
_MOST_SIZE = 256


@dataclass(frozen=True)
class DescribedMatrix(Drawn):
    """A matrix descriptor with what it leaves to the instruction: rows, K, bits of an element, the order."""

    descriptor: MatrixDescriptor
    rows: int
    k: int
    bits: int
    major: Major


def described_matrix(
    descriptor: MatrixDescriptor | int,
    rows: int = 64,
    k: int | None = None,
    bits: int = 16,
    major: object = "K",
) -> DescribedMatrix:
    """Return a descriptor as the operand of an instruction, to be drawn; of B, N are the rows.

    >>> described_matrix(0x4000004000000040).descriptor.swizzle
    '128B'
    """
    if not isinstance(descriptor, MatrixDescriptor):
        descriptor = MatrixDescriptor.read(index(descriptor))
    of, sizes = (
        ("tcgen05", _TCGEN05_BITS) if descriptor.version == TCGEN05_VERSION else ("wgmma", _ELEMENT_BITS)
    )
    if bits not in sizes:
        raise LanewiseError(f"elements of {of} have {', '.join(map(str, sizes))} bits, not {bits}")
    if major not in ("K", "MN"):
        raise LanewiseError(f'a matrix is "K"-major or "MN"-major, not {major!r}')
    depth = 8 * _K_BYTES // bits if k is None else k
    for name, size, unit in (("rows", rows, 8), ("k", depth, 8 * CHUNK_BYTES // bits)):
        if not 0 < size <= _MOST_SIZE or size % unit:
            raise LanewiseError(f"{name}={size}: give a multiple of {unit} up to {_MOST_SIZE}")
    return DescribedMatrix(descriptor, rows, depth, bits, major)


def picture_of_matrix(matrix: DescribedMatrix, options: Options) -> Picture:
    """Return the address and the banks of each 16 bytes of the operand, and the lines of shared memory."""
    options.refuse("a matrix descriptor", "lane", "operand", "element", "product", "colour")
    descriptor, along_k = matrix.descriptor, matrix.major == "K"
    count = 8 * CHUNK_BYTES // matrix.bits
    elements = descriptor.element_addresses(matrix.rows, matrix.k, matrix.bits, matrix.major)
    # A line of pieces is a row of a K-major operand, and one k of an MN-major one.
    pieces = (elements if along_k else elements.T)[:_MOST_ROWS, ::count].tolist()
    names = ("row", "k") if along_k else ("k", "row")
    held: dict[int, Held] = {}
    for number, line in enumerate(pieces):
        for place, address in enumerate(line):
            span = f"{place * count}–{place * count + count - 1}"
            title = f"{names[0]} {number}, {names[1]} {span}"
            if address in held:  # offsets that let pieces lie on one another
                title, span = f"{held[address].title}; {title}", f"{held[address].columns}+"
                held[address] = held[address]._replace(columns=span, title=title)
                continue
            held[address] = Held(f"{names[0][0]}{number}", span, place, title)
    first = min(held) // LINE_BYTES * LINE_BYTES
    lines = (max(held) - first) // LINE_BYTES + 1
    shown = min(lines, MOST_LINES)
    caption = "shared memory" + (f": its first {shown} of {lines} lines" if shown < lines else "")
    return Picture(
        f"Matrix descriptor {descriptor.encode():#018x}",
        f"{matrix.major}-major operand of {matrix.rows} rows, K {matrix.k}, elements of {matrix.bits} bits; "
        f"start {descriptor.start_address:#x}, leading offset {descriptor.leading_byte_offset}, stride "
        f"offset {descriptor.stride_byte_offset} bytes, swizzle {descriptor.swizzle}",
        (
            _operand(pieces, names, count, options),
            lines_panel(caption, held, first, shown, options, (0, 1)),
        ),
        (chunk_legend("number of the 16 bytes along " + names[1]),),
        _notes(matrix, len(pieces)),
    )


def _operand(pieces: list[list[int]], names: tuple[str, str], count: int, options: Options) -> Panel:
    """Return the operand, a cell for each 16 bytes: its address and banks."""
    cells = []
    for number, line in enumerate(pieces):
        row = []
        for place, address in enumerate(line):
            tooltip = f"{names[0]} {number}: bytes {address:#x} to {address + CHUNK_BYTES - 1:#x}"
            title = tooltip if options.explains(len(pieces) * len(line)) else ""
            row.append(Cell((f"{address:#x}", f"b{banks_of(address)}"), PASTELS[place % len(PASTELS)], title))
        cells.append(row)
    columns = tuple(f"{place * count}" for place in range(len(pieces[0])))
    return Panel(
        "operand",
        "16 bytes of the operand: where they lie",
        cells,
        Axis.counted(names[0], len(pieces)),
        Axis(names[1], columns),
        rule=(8, 0),
    )


def _notes(matrix: DescribedMatrix, shown: int) -> tuple[str, ...]:
    """Return what the picture leaves out, and what follows for the banks."""
    notes = [
        "Left, the address and the banks of each 16 bytes of the operand; right, the lines of 128 bytes that "
        "they lie in. Grey bytes are not read."
    ]
    lines = matrix.rows if matrix.major == "K" else matrix.k
    if shown < lines:
        notes.append(f"Drawn are the first {shown} of {lines}.")
    return tuple(notes)


#: Boxes of a tensor that a picture shows along an axis.
_MOST_BOXES = 7


def picture_of_tensor_map(tensor: TiledTensor, options: Options) -> Picture:
    """Return the tensor cut into boxes, and a box as it lies in shared memory."""
    options.refuse("a tensor map", "lane", "operand", "element", "product", "colour")
    tensor.require_legal()
    notes = list(_tensor_notes(tensor))
    panels = [_boxes(tensor, options)]
    lines = -(-tensor.shared_bytes // LINE_BYTES)
    shown = min(lines, MOST_LINES)
    caption = "a box in shared memory" + (f": its first {shown} of {lines} lines" if shown < lines else "")
    panels.append(lines_panel(caption, _held(tensor, shown), 0, shown, options, (1, 0)))
    notes += _memory_notes(tensor)
    return Picture(
        f"Tensor map of {tensor.described()}",
        f"{tensor.rank} axes, strides {(*tensor.strides[::-1], tensor.element.bytes)} bytes; a box has "
        f"{tensor.box_bytes} bytes",
        tuple(panels),
        (chunk_legend("16 bytes of a row, by their number"),),
        tuple(notes),
    )


def _tensor_notes(tensor: TiledTensor) -> list[str]:
    """Return what the picture of the boxes does not show."""
    notes = [
        "Above, a cell is a box, at coordinates that are multiples of it; its elements inside the tensor."
    ]
    if tensor.rank > 2:
        notes.append(f"Drawn are the two innermost axes of {tensor.rank}.")
    if any(step > 1 for step in tensor.element_strides):
        steps = tensor.element_strides[::-1]
        notes.append(f"Of a box, {tensor.copied[::-1]} elements are copied, by element strides of {steps}.")
        if tensor.element_strides[0] > 1 and not tensor.is_interleaved:
            notes.append("The innermost axis is copied whole: it has a stride in interleaved layouts only.")
    filled = "NaN" if tensor.fill == "nan" else "zeros"
    notes.append(f"Elements outside of the tensor are read as {filled} and never written.")
    return notes


def _memory_notes(tensor: TiledTensor) -> list[str]:
    """Return what the picture of shared memory shows."""
    notes = [
        "Below, a cell is 16 bytes of shared memory: the row of the box, and its elements along the "
        f"innermost axis. The box drawn begins at a multiple of {tensor.swizzle_mode.alignment} bytes."
    ]
    if tensor.is_interleaved:
        notes.append(
            f"Interleaved by {tensor.interleave}: {tensor.place_bytes} bytes of channels take the place of "
            "an element of the innermost axis; of the slices of channels, the axis before the outermost, a "
            "box has one."
        )
    if tensor.swizzle != "none":
        notes.append(
            f"Swizzle {tensor.swizzle}: the number of 16 bytes in {tensor.swizzle_mode.row_bytes} is XORed "
            "with the number of the line of 128 bytes, so that a column of the box meets all its banks."
        )
        if tensor.row_pitch > tensor.row_bytes:
            notes.append(
                f"A row has {tensor.row_bytes} bytes and takes {tensor.row_pitch}, the width of the swizzle; "
                "the bytes between are left as they are."
            )
    return notes


def _boxes(tensor: TiledTensor, options: Options) -> Panel:
    """Return the two innermost axes, a cell for each box; of many, the first and the last."""
    tall, wide = (*tensor.dims, 1)[1], tensor.dims[0]
    high, broad = (*tensor.box, 1)[1], tensor.box[0]
    rows, cols = -(-tall // high), -(-wide // broad)
    shown = _shown(rows), _shown(cols)

    def cell(i: int | None, j: int | None) -> Cell:
        if i is None or j is None:
            return Cell(("…",))
        inside = min(high, tall - i * high), min(broad, wide - j * broad)
        fill = PASTELS[0] if (i, j) == (0, 0) else WHITE if inside == (high, broad) else SHARED
        words = f"{inside[0]}×{inside[1]}" if tensor.rank > 1 else str(inside[1])
        title = f"the box at coordinates {(j * broad, i * high)[: tensor.rank]}: {words} elements inside"
        return Cell((words,), fill, title if options.explains(len(shown[0]) * len(shown[1])) else "")

    names = ("", "axis 0") if tensor.rank == 1 else tuple(f"axis {tensor.rank - 2 + n}" for n in range(2))
    labels = tuple(
        tuple("…" if number is None else str(number * size) for number in numbers)
        for numbers, size in zip(shown, (high, broad), strict=True)
    )
    return Panel(
        "tensor",
        f"the tensor in {rows}×{cols} boxes" if tensor.rank > 1 else f"the tensor in {cols} boxes",
        [[cell(i, j) for j in shown[1]] for i in shown[0]],
        Axis(names[0], labels[0]),
        Axis(names[1], labels[1]),
    )


def _shown(count: int) -> list[int | None]:
    """Return the numbers of the boxes along an axis that are drawn; None stands for those left out.

    >>> _shown(3), _shown(100)
    ([0, 1, 2], [0, 1, 2, 3, 4, None, 99])
    """
    if count <= _MOST_BOXES:
        return list(range(count))
    return [*range(_MOST_BOXES - 2), None, count - 1]


def _held(tensor: TiledTensor, lines: int) -> dict[int, Held]:
    """Return what lies in the first lines of shared memory, 16 bytes at a time."""
    size = tensor.place_bytes
    held = {}
    for address in range(0, lines * LINE_BYTES, CHUNK_BYTES):
        # A swizzle undoes itself: what lies at an address would, without it, lie where it sends the address.
        row, within = divmod(tensor.swizzled(address), tensor.row_pitch)
        if within >= tensor.row_bytes or row >= tensor.rows:
            continue
        first = within // size
        last = min(first + max(CHUNK_BYTES // size, 1), tensor.copied[0]) - 1
        place = ",".join(map(str, _coordinates(tensor, row)))
        columns = f"{first}–{last}" if last > first else str(first)
        if within + CHUNK_BYTES > tensor.row_pitch:  # the next row begins in these bytes
            columns += "…"
        title = f"elements {columns} of row {place}" if place else f"elements {columns}"
        held[address] = Held(place, columns, within // CHUNK_BYTES, title)
    return held


def _coordinates(tensor: TiledTensor, row: int) -> tuple[int, ...]:
    """Return the coordinates of a row of the box, the outermost axis first."""
    coordinates: list[int] = []
    for extent in tensor.copied[1:]:
        row, part = divmod(row, extent)
        coordinates.append(part)
    return tuple(reversed(coordinates))
