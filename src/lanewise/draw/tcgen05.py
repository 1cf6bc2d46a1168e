"""Pictures of tcgen05: which lane and column of tensor memory holds an element, and which block of a pair.

The layouts are tables of `isa/tensor_memory`. The tensor memory of a running kernel is in `tensor_memory.py`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from lanewise.draw.options import Options
from lanewise.draw.owners import Owner, Ownership, colour_legends, is_called, panel_of
from lanewise.draw.picture import PASTELS, SHARED, WHITE, Axis, Cell, Legend, Panel, Picture, check_extent
from lanewise.draw.tensor_memory import UNWRITTEN, TensorMemory, picture_of_memory
from lanewise.errors import LanewiseError
from lanewise.isa import describe_targets
from lanewise.isa.asynchronous import AsyncInstruction, Tcgen05Instruction
from lanewise.isa.asynchronous.tensor_places import BlockPart, block_parts, regions_of
from lanewise.isa.tensor_memory import copy_shapes, load_shapes
from lanewise.isa.tensor_memory.accumulators import COLUMNS, LANES, Accumulator, Region, block_rows

#: Where panels stand within the part of a block: as for other products, with tensor memory at the right.
_PLACES = {"scale_b": (0, 3), "b": (1, 3), "scale_a": (2, 0), "metadata": (2, 1), "a": (2, 2), "d": (2, 3)}
_MEMORY, _ROWS_OF_BLOCK = (2, 4), 3
#: Lanes of a cell in the picture of all lanes, and the most cells across.
_LANES, _CELLS = 16, 16
_FIRST = {"A": "m", "B": "k", "D": "m", "scale A": "m", "scale B": "block", "E": "m"}
_SECOND = {"A": "k", "B": "n", "D": "n", "scale A": "block", "scale B": "n", "E": "group"}


# products ---------------------------------------------------------------------------------------------------


def picture_of_tensor_product(instruction: Tcgen05Instruction, options: Options) -> Picture:
    """Return the operands of a tcgen05.mma, block by block: D and what else lies in tensor memory by lane."""
    options.refuse("tcgen05.mma", "product")
    keys = [key for key in instruction.operands if key != "c"]
    wanted = options.operand
    if wanted is not None:
        key = instruction.operand_key(wanted)
        keys = ["d" if key == "c" else key]
    matrices: list[tuple[Ownership, tuple[int, int], Options]] = []
    for block in range(instruction.cta_group):
        for key in keys:
            if key in ("a", "b") or key in _PLACES:
                matrix, part = _ownership(instruction, key, block, a_in_tensor=wanted is not None)
                at = _PLACES[key][0] + _ROWS_OF_BLOCK * block, _PLACES[key][1]
                matrices.append((matrix, at, _within(options, key, matrix.name, part)))
    _refuse_element(instruction, options)
    panels = [panel_of(matrix, own, at=at) for matrix, at, own in matrices]
    if wanted is None or is_called("C, D", wanted):
        panels += [
            _lanes_panel(instruction, block, (_MEMORY[0] + _ROWS_OF_BLOCK * block, _MEMORY[1]))
            for block in range(instruction.cta_group)
        ]
    return Picture(
        str(instruction),
        f"D = A·B + D, started by one thread; legal on {describe_targets(instruction.archs)}",
        tuple(panels),
        colour_legends([matrix for matrix, *_ in matrices], options),
        tuple(_notes(instruction, keys, options)),
    )


def _ownership(
    instruction: Tcgen05Instruction, key: str, block: int, a_in_tensor: bool
) -> tuple[Ownership, BlockPart]:
    """Return who holds each element of an operand that a block has: a lane of tensor memory, or nobody."""
    operand = instruction.operands[key]
    pair = instruction.cta_group == 2
    part = _part(instruction, key, block)
    rows, cols = part.rows, part.columns
    check_extent(operand.name, len(rows), len(cols), "choose a smaller N")
    in_tensor = key not in ("a", "b") or (key == "a" and a_in_tensor)
    owners: list[list[list[Owner]]] = [[] for _ in rows]
    if in_tensor:
        owners = [
            [
                [
                    Owner(tensor_bit.lane, tensor_bit.column)
                    for tensor_bit in instruction.tensor_bits(key, row, col)
                    if tensor_bit.block == block
                ]
                for col in cols
            ]
            for row in rows
        ]
    name = ("C, D" if key == "d" else operand.name) + (f", block {block}" if pair else "")
    where = "tensor memory" if in_tensor else "shared memory"
    unit = "codes" if key == "metadata" else operand.format.name
    matrix = Ownership(
        name, f"{name}: {len(rows)}×{len(cols)} {unit}, {where}", owners,
        Axis(_FIRST.get(operand.name, "m"), tuple(map(str, rows))),
        Axis(_SECOND.get(operand.name, "n"), tuple(map(str, cols))),
        threads=LANES, shared=not in_tensor, thread="lane", value="column", letters=("L", "C"),
    )  # fmt: skip
    return matrix, part


def _part(instruction: Tcgen05Instruction, key: str, block: int) -> BlockPart:
    """Return the rows and columns of an operand that a block holds; scale factors of B are in both."""
    operand = instruction.operands[key]
    if key in ("a", "b", "d"):
        return block_parts(instruction.descriptor, instruction.product, key)[block]
    if key == "scale_b":
        return BlockPart(block, range(operand.rows), range(operand.cols))
    count = operand.rows // instruction.cta_group
    return BlockPart(block, range(count * block, count * (block + 1)), range(operand.cols))


def _within(options: Options, key: str, name: str, part: BlockPart) -> Options:
    """Return the options of a panel: an element is named by its row and column in the block's part."""
    if options.element is None:
        return replace(options, operand=None)
    if len(options.element) != 3:
        raise LanewiseError(f'element={options.element!r}: name the matrix, too, as in ("D", row, col)')
    matrix, row, col = options.element
    row, col = int(row) - part.rows.start, int(col) - part.columns.start
    inside = 0 <= row < len(part.rows) and 0 <= col < len(part.columns)
    reads = options.inputs and is_called("C, D", matrix)
    marked = inside if is_called(name, matrix) else reads
    if reads and key == "a":
        marked &= 0 <= row < len(part.rows)
    elif reads and key == "b":
        marked &= 0 <= col < len(part.columns)
    elif reads and key != "d":
        marked = False
    if not marked:
        return replace(options, operand=None, element=None, inputs=False)
    return replace(options, operand=None, element=(matrix, row, col), inputs=reads)


def _refuse_element(instruction: Tcgen05Instruction, options: Options) -> None:
    """Raise an error if an element is marked that the operand does not have."""
    if options.element is not None:
        name, row, col = options.element
        operand = instruction.operands[instruction.operand_key(name)]
        if not (0 <= int(row) < operand.rows and 0 <= int(col) < operand.cols):
            raise LanewiseError(
                f"{operand.name} is {operand.rows}×{operand.cols}: there is no element [{row}][{col}]"
            )
    elif options.inputs:
        raise LanewiseError('inputs=True is about an element of D: element=("D", row, col)')


def _lanes_panel(instruction: Tcgen05Instruction, block: int, at: tuple[int, int]) -> Panel:
    """Return all lanes of a block with the rows and columns of D that they hold: a cell for 16 lanes."""
    descriptor, product = instruction.descriptor, instruction.product
    first = block * block_rows(descriptor.m, product.cta_group)
    return lanes_panel(regions_of(descriptor, product), first, block if product.cta_group == 2 else None, at)


def lanes_panel(
    spread: Sequence[Region], first_row: int, block: int | None, at: tuple[int, int] = (0, 0)
) -> Panel:
    """Return the lanes of tensor memory in groups of 16, with the rows and columns of D in each.

    Region by region, as the table of data paths has them.
    """
    columns = max(part.columns for part in spread)
    wide = max(8, -(-columns // _CELLS))
    cells = []
    for lane in range(0, LANES, _LANES):
        line = []
        for column in range(0, columns, wide):
            span = next((part for part in spread if part.lane <= lane < part.lane + part.rows), None)
            place = f"lanes {lane}–{lane + _LANES - 1}, columns {column}–{min(column + wide, columns) - 1}"
            if span is None:
                line.append(Cell((), SHARED, f"{place}: nothing of D"))
                continue
            row, col = first_row + span.row + lane - span.lane, span.column + column
            last = min(col + wide, span.column + span.columns) - 1
            line.append(
                Cell(
                    (f"m{row}–{row + _LANES - 1}", f"n{col}–{last}"),
                    PASTELS[lane // 32],
                    f"{place}: rows {row} to {row + _LANES - 1}, columns {col} to {last} of D",
                )
            )
        cells.append(line)
    name = "tensor memory" if block is None else f"tensor memory, block {block}"
    return Panel(
        name, f"{name}: rows and columns of D in 16 lanes", cells,
        Axis("lane", tuple(str(lane) for lane in range(0, LANES, _LANES))),
        Axis("column", tuple(str(column) for column in range(0, columns, wide))), at, rule=(2, 0),
    )  # fmt: skip


def _notes(instruction: Tcgen05Instruction, keys: Iterable[str], options: Options) -> list[str]:
    """Return what the letters mean, and what is particular to these operands."""
    notes = [
        "L is the lane of tensor memory and C the column of 32 bits, counted from the operand's address. "
        "Lanes 0–31 are loaded by warps 0, 4, …; 32–63 by 1, 5, …; 64–95 by 2, 6, …; 96–127 by 3, 7, …"
    ]
    if instruction.cta_group == 2:
        notes.append(
            "A pair of blocks: each has half of the rows of A and D and half of the columns of B in its own "
            "memory. Block 0 issues the instruction; its Tensor Core reads B of both."
        )
    if "a" in keys and options.operand is not None:
        bits = instruction.tensor_bits("a", 0, 0)[0].bits
        notes.append(
            f"This is A where it lies in tensor memory, {32 // bits} elements of {bits} bits in a column; "
            "behind a descriptor it lies in shared memory: lanewise draw descriptor."
        )
    if {"scale_a", "scale_b"} & set(keys):
        notes.append("A scale factor is a byte of its word; every partition of 32 lanes has its own copy.")
    if options.element is not None:
        name, row, col = options.element
        key = instruction.operand_key(name)
        if key != "b":
            held = instruction.tensor_bits(key, int(row), int(col))
            pair = instruction.cta_group == 2
            places = "; ".join(
                f"{f'block {place.block}, ' if pair else ''}lane {place.lane}, column {place.text}"
                for place in held
            )
            notes.append(f"Marked: {instruction.operands[key].name}[{row}][{col}], {places}.")
    if options.lane is not None:
        notes.append(f"Marked: lane {options.lane}.")
    return notes


def picture_of_accumulator(operand: Accumulator, options: Options) -> Picture:
    """Return C or D of a tcgen05.mma alone, a panel for each block."""
    if options.operand is not None and not is_called(operand.name, options.operand):
        raise LanewiseError(f"operand={options.operand!r}: the picture is of {operand.name} alone")
    rows = block_rows(operand.rows, operand.cta_group)
    panels, matrices = [], []
    for block in range(operand.cta_group):
        name = operand.name + (f", block {block}" if operand.cta_group == 2 else "")
        owners = []
        for row in range(block * rows, (block + 1) * rows):
            places = [operand.place(row, col) for col in range(operand.cols)]
            owners.append([[Owner(place.lane, place.column)] for place in places])
        matrix = Ownership(
            name, f"{name}: {rows}×{operand.cols} {operand.format.name}, tensor memory", owners,
            Axis("m", tuple(map(str, range(block * rows, (block + 1) * rows)))),
            Axis.counted("n", operand.cols),
            threads=LANES, thread="lane", value="column", letters=("L", "C"),
        )  # fmt: skip
        part = BlockPart(block, range(block * rows, (block + 1) * rows), range(operand.cols))
        asked = (
            options
            if options.element is None or len(options.element) == 3
            else replace(options, element=(operand.name, *options.element))
        )
        panels.append(panel_of(matrix, _within(asked, "d", name, part), at=(block, 0)))
        panels.append(
            lanes_panel(operand.regions, block * rows, block if operand.cta_group == 2 else None, (block, 1))
        )
        matrices.append(matrix)
    return Picture(
        operand.instruction or str(operand), str(operand), tuple(panels), colour_legends(matrices, options),
        ("L is the lane of tensor memory and C the column of 32 bits, counted from the operand's address.",),
    )  # fmt: skip


# loads, stores, copies, allocation --------------------------------------------------------------------------


def picture_of_async(instruction: AsyncInstruction, options: Options) -> Picture:
    """Return the picture of a tcgen05 instruction that is no product; an error for those without one."""
    family = instruction.family
    if family in ("tcgen05.ld", "tcgen05.st", "tcgen05.ld.red"):
        return _picture_of_move(instruction, options)
    if family == "tcgen05.cp":
        return _picture_of_copy(instruction, options)
    if family in ("tcgen05.alloc", "tcgen05.dealloc"):
        import numpy as np  # here: answers without a picture must not load it

        empty = np.zeros((LANES, COLUMNS), np.uint32)
        memory = TensorMemory(empty, np.full(empty.shape, UNWRITTEN), (range(32),), (), instruction.text)
        picture = picture_of_memory(memory, options)
        note = "Columns are allocated for all 128 lanes, by 32, 64, 128, 256 or 512; drawn are the first 32."
        return replace(picture, subtitle=instruction.does, notes=(note, *picture.notes))
    drawn = "tcgen05.mma, ld, st, cp and alloc"
    raise LanewiseError(f"{instruction.text} has no picture: of tcgen05 and bulk copies, {drawn} have")


def _picture_of_move(instruction: AsyncInstruction, options: Options) -> Picture:
    """Return which register of which thread holds each word that a tcgen05.ld or st moves."""
    options.refuse(instruction.family, "operand", "element", "product", "inputs")
    shape, num, packed = load_form(instruction)
    columns = shape.columns_of(num, packed)
    check_extent(instruction.text, shape.lanes, columns, "choose a smaller .x")
    lanes, places = shape.places(num, packed)
    half = load_shapes.WARP // shape.halves
    matrices = []
    for number in range(shape.halves):
        owners: list[list[list[Owner]]] = [[[] for _ in range(columns)] for _ in range(shape.lanes)]
        for thread in range(half * number, half * (number + 1)):
            for register, (lane, column) in enumerate(zip(lanes[thread], places[thread], strict=True)):
                for offset in range(2 if packed else 1):
                    owners[int(lane)][int(column) + offset].append(Owner(thread, register))
        name = "tensor memory" if shape.halves == 1 else ("first half", "second half")[number]
        matrices.append(
            Ownership(
                name,
                f"{name}: {shape.lanes} lanes × {columns} columns",
                owners,
                Axis.counted("lane", shape.lanes),
                Axis.counted("column", columns),
                threads=load_shapes.WARP,
                thread="thread",
                value="register",
                letters=("T", "R"),
            )
        )
    panels = tuple(panel_of(matrix, options, at=(number, 0)) for number, matrix in enumerate(matrices))
    return Picture(
        instruction.text, instruction.does, panels, colour_legends(matrices, options),
        tuple(_move_notes(instruction, options)),
    )  # fmt: skip


def load_form(instruction: AsyncInstruction) -> tuple[load_shapes.LoadShape, int, bool]:
    """Return the shape of a tcgen05.ld or st, how often it is repeated, and whether columns are packed."""
    words = instruction.text.split(".")
    shape = next(load_shapes.SHAPES[word] for word in words if word in load_shapes.SHAPES)
    num = next(int(word[1:]) for word in words if word[0] == "x" and word[1:].isdigit())
    return shape, num, "pack::16b" in words or "unpack::16b" in words


def _move_notes(instruction: AsyncInstruction, options: Options) -> list[str]:
    shape, num, packed = load_form(instruction)
    notes = [
        f"T is the thread of the warp and R its register, 0 to {shape.registers_of(num) - 1}. Lanes and "
        "columns are counted from the address; a warp reaches the 32 lanes of its number modulo 4."
    ]
    if shape.lanes < load_shapes.PARTITION:
        notes.append("The address may begin at lane 0 or 16 of the warp's 32.")
    if shape.halves == 2:
        notes.append("The second half lies as many columns further as the instruction's constant says.")
    if packed:
        notes.append("Two columns share a register: the low 16 bits of each, the first one in the low half.")
    return notes + ([f"Marked: thread {options.lane}."] if options.lane is not None else [])


def copy_form(instruction: AsyncInstruction) -> tuple[copy_shapes.CopyShape, copy_shapes.Expansion | None]:
    """Return the shape of a tcgen05.cp, and how elements are expanded."""
    words = set(instruction.text.split("."))
    shape = next(shape for name, shape in copy_shapes.SHAPES.items() if set(name.split(".")) <= words)
    return shape, next(
        (expansion for name, expansion in copy_shapes.EXPANSIONS.items() if name in words), None
    )


def _picture_of_copy(instruction: AsyncInstruction, options: Options) -> Picture:
    """Return which row of the matrix in shared memory each lane gets, and which columns its pieces fill."""
    options.refuse(instruction.family, "operand", "element", "product", "inputs", "colour", "lane")
    shape, expansion = copy_form(instruction)
    bytes_each = copy_shapes.PIECE_BYTES
    source = [
        [
            Cell(
                (f"r{row}", f"p{piece}"), PASTELS[row % 8],
                f"row {row}, bytes {piece * bytes_each} to {(piece + 1) * bytes_each - 1}: lanes "
                f"{', '.join(map(str, shape.lanes_of(row)))}",
            )
            for piece in range(shape.pieces)
        ]
        for row in range(shape.rows)
    ]  # fmt: skip
    rows = {lane: row for row in range(shape.rows) for lane in shape.lanes_of(row)}
    target = [
        [
            Cell((f"r{rows[lane]}", f"p{piece}"), PASTELS[rows[lane] % 8], f"lane {lane}: row {rows[lane]}")
            if lane in rows
            else Cell((), WHITE, f"lane {lane} is not written")
            for piece in range(shape.pieces)
        ]
        for lane in range(LANES)
    ]
    wide = copy_shapes.PIECE_BYTES // 4
    panels = (
        Panel(
            "shared memory", f"shared memory: {shape.rows} rows of {shape.bits // 8} bytes", source,
            Axis.counted("row", shape.rows), Axis("byte", tuple(str(16 * n) for n in range(shape.pieces))),
        ),
        Panel(
            "tensor memory", f"tensor memory: {LANES} lanes × {shape.columns} columns", target,
            Axis.counted("lane", LANES), Axis("column", tuple(str(wide * n) for n in range(shape.pieces))),
            at=(0, 1), rule=(32, 0),
        ),
    )  # fmt: skip
    notes = [
        "r is the row of the matrix that the descriptor names, p the 16 bytes of it; a cell fills 4 columns."
    ]
    if shape.copies > 1:
        notes.append(f"Each row goes to {shape.copies} lanes.")
    if expansion is not None:
        notes.append(
            f"The 16 bytes have 16 elements of {expansion.bits} bits; each becomes a byte, from bit "
            f"{expansion.first_bit} on."
        )
    if "cta_group::2" in instruction.text:
        notes.append("Both blocks of the pair copy from their own shared memory to their own tensor memory.")
    legend = Legend("colour: row mod 8", tuple((pastel, str(n)) for n, pastel in enumerate(PASTELS)))
    return Picture(instruction.text, instruction.does, panels, (legend,), tuple(notes))
