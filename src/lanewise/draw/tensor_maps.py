"""Tensor maps: the boxes of a tensor, and how one box lies in shared memory."""

from lanewise.draw.options import Options
from lanewise.draw.palette import PASTELS, SHARED, WHITE
from lanewise.draw.picture import Axis, Cell, Panel, Picture
from lanewise.draw.shared_lines import CHUNK_BYTES, LINE_BYTES, MOST_LINES, Held, chunk_legend, lines_panel
from lanewise.isa.tensor_map import TiledTensor

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
