"""Matrix descriptors of wgmma and tcgen05: where each row lies in shared memory, and its banks."""

from dataclasses import dataclass
from operator import index

from lanewise.draw.options import Options
from lanewise.draw.palette import PASTELS
from lanewise.draw.picture import Axis, Cell, Panel, Picture
from lanewise.draw.shared_lines import (
    CHUNK_BYTES,
    LINE_BYTES,
    MOST_LINES,
    Held,
    banks_of,
    chunk_legend,
    lines_panel,
)
from lanewise.engines import Drawn
from lanewise.errors import LanewiseError
from lanewise.isa.matrix_descriptor import TCGEN05_VERSION, Major, MatrixDescriptor

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
