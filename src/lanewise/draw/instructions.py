"""Pictures of instructions and of their single operands: which lane holds which element, as which value.

Of ldmatrix and stmatrix, each row is shown with the lane that gives its address.
"""

from collections.abc import Iterable
from dataclasses import replace

from lanewise.draw.options import Options
from lanewise.draw.owners import Owner, Ownership, colour_legends, highlights, is_called, panel_of
from lanewise.draw.picture import FADED, PASTELS, Axis, Cell, Panel, Picture, check_extent
from lanewise.errors import LanewiseError
from lanewise.isa import Instruction, Metadata, Operand, SelectedOperand, describe_targets

#: Where the panel of each operand stands: C at the origin, A at its left, B above.
PLACES = {
    "scale_b": (0, 3),
    "b": (1, 3),
    "scale_a": (2, 0),
    "metadata": (2, 1),
    "a": (2, 2),
    "c": (2, 3),
    "d": (2, 4),
}
AXES = {"A": ("m", "k"), "B": ("k", "n"), "C": ("m", "n"), "D": ("m", "n")}


def ownership(
    operand: Operand, product: int = 0, name: str = "", axes: tuple[str, str] | None = None
) -> Ownership:
    """Who holds each element of an operand."""
    rows, cols = operand.shape
    check_extent(operand.name, rows, cols, "choose a smaller instruction")
    shared = operand.where != "registers"
    owners = [
        [_owners(operand, row, col, product) for col in range(0 if shared else cols)] for row in range(rows)
    ]
    name = name or operand.name
    where = f", {operand.where}" if operand.where != "registers" else ""
    row_axis, col_axis = axes or axes_of(operand)
    return Ownership(
        name,
        f"{name}: {rows}×{cols} {_unit(operand)}{where}",
        owners,
        Axis.counted(row_axis, rows),
        Axis.counted(col_axis, cols),
        threads=operand.threads,
        slots=operand.slots,
        shared=shared,
        thread="thread" if operand.threads > 32 else "lane",
    )


def _owners(operand: Operand, row: int, col: int, product: int) -> list[Owner]:
    """Who holds an element."""
    return [Owner(h.lane, h.register * operand.slots + h.slot) for h in operand.holders(row, col, product)]


def _unit(operand: Operand) -> str:
    return "codes" if isinstance(operand, Metadata) else operand.format.name


def axes_of(operand: Operand) -> tuple[str, str]:
    """The names of an operand's rows and columns."""
    if isinstance(operand, Metadata):
        return "m", "group"
    if isinstance(operand, SelectedOperand):
        return ("s", "n") if operand.transposed else ("m", "s")
    if operand.name == "A" and ".sp" in operand.instruction:
        return "m", "k/2"  # packed
    return AXES.get(operand.name, ("m", "n"))


def picture_of_operand(operand: Operand, options: Options) -> Picture:
    """The picture of one operand: a matrix in which each element names its lane and register."""
    if options.operand is not None and not is_called(operand.name, options.operand):
        raise LanewiseError(f"operand={options.operand!r}: the picture is of {operand.name} alone")
    matrix = ownership(operand, options.product)
    return Picture(
        operand.instruction or str(operand),
        str(operand),
        (panel_of(matrix, options),),
        colour_legends([matrix], options),
        (*meaning([(operand, operand.name)]), *highlights([matrix], options)),
    )


def picture_of_product(instruction: Instruction, options: Options) -> Picture:
    """An instruction's operands, C at the origin, A left, B above."""
    chosen = choose(instruction, options)
    matrices = {key: ownership(operand, options.product, name) for key, (operand, name) in chosen.items()}
    panels = tuple(panel_of(matrices[key], options, at=PLACES[key]) for key in matrices)
    return Picture(
        instruction.text,
        _subtitle(instruction),
        panels,
        colour_legends(list(matrices.values()), options),
        (*meaning(chosen.values()), *highlights(list(matrices.values()), options)),
    )


def choose(instruction: Instruction, options: Options) -> dict[str, tuple[Operand, str]]:
    """The operands to draw and the names to draw them by; C and D share a panel where they are held alike."""
    operands = {key: (operand, operand.name) for key, operand in instruction.operands.items()}
    if "c" in operands and "d" in operands and _alike(operands["c"][0], operands["d"][0]):
        operands.pop("d")
        operands["c"] = (operands["c"][0], "C, D")
    if options.operand is None:
        return operands
    wanted = {key: pair for key, pair in operands.items() if is_called(pair[1], options.operand)}
    if not wanted:
        names = ", ".join(operand.name for operand in instruction.operands.values())
        raise LanewiseError(f"{instruction.text} has no operand {options.operand!r}; it has {names}")
    return wanted


def _alike(c: Operand, d: Operand) -> bool:
    return (c.layout, c.format) == (d.layout, d.format)


def _subtitle(instruction: Instruction) -> str:
    groups = {128: "a warpgroup (128 threads)", 32: "a warp (32 lanes)"}
    group = groups[instruction.threads]
    does = "D = A·B + C" if instruction.multiplies else instruction.family
    return f"{does} by {group}; legal on {describe_targets(instruction.archs)}"


def meaning(named: Iterable[tuple[Operand, str]]) -> list[str]:
    """What the letters mean, and what is particular to these operands."""
    named = list(named)
    operands = [operand for operand, _ in named]
    held = [operand for operand in operands if operand.where == "registers"]
    notes = []
    if held:
        thread = "thread" if held[0].threads > 32 else "lane"
        notes.append(
            f"T is the {thread}. V is the number of the value in the {thread}, counted through registers."
        )
        notes += [f"{name}: {operand.packing}." for operand, name in named]
        for operand, name in named:
            if operand.formulas is not None:
                row, column = operand.formulas
                notes += [f"{name}: row = {row}", f"{' ' * len(name)}  column = {column}"]
    if held and held[0].products > 1:
        notes.append(
            "Four products go side by side; product q has the same picture with every lane 4·q higher."
        )
    if any(isinstance(operand, SelectedOperand) for operand in operands):
        notes.append(
            "Where a cell names several lanes or values, the instruction's selectors say which one is read."
        )
    elif any(len(operand.holders(0, 0)) > 1 for operand in held):
        notes.append("Where a cell names several values, the lane holds the element in each of them.")
    if any(isinstance(operand, Metadata) for operand in operands):
        notes.append("A is packed: E's 4-bit codes say which columns of the dense A its elements belong to.")
    sources = {operand.source for operand in held} - {"PTX ISA"}
    notes += [f"Layouts: {source}." for source in sorted(sources)]
    return notes


def picture_of_rows(instruction: Instruction, options: Options) -> Picture:
    """ldmatrix or stmatrix: the rows in shared memory, who addresses them, and who holds their elements."""
    matrices = _fragments(instruction, options)
    fragment = matrices[0]
    rows = instruction.row_addresses
    per_matrix = rows.rows // rows.matrices
    addresses = Panel(
        "row address",
        "address",
        [[_address(row, rows.lane(row), options)] for row in range(rows.rows)],
        Axis.counted("row", rows.rows),
        Axis("", ("lane",)),
        rule=(per_matrix, 0),
    )
    loads = instruction.family == "ldmatrix"
    does = "loads" if loads else "stores"
    count = f"{rows.matrices} matrices" if rows.matrices > 1 else "one matrix"
    where = "destination" if loads else "source"
    tile = _tile(fragment, rows.matrices)
    panels = [addresses, panel_of(fragment, options, at=(0, 1), rule=(per_matrix, 0))]
    notes = []
    if tile is not None:
        panels.append(panel_of(tile, replace(options, element=None), at=(1, 1), rule=(8, 8)))
        notes.append(
            "Below, the same as a 16×16 tile: lane l gives the address of row l % 16 of it, at column 0, or "
            "at column 8 from lane 16 on. Matrix 0 is its upper left, 1 its lower left, 2 its upper right, "
            "3 its lower right."
        )
    return Picture(
        instruction.text,
        f"{does} {count} of {per_matrix} rows of {rows.row_bytes} bytes; "
        f"legal on {describe_targets(instruction.archs)}",
        tuple(panels),
        colour_legends(matrices, options),
        (
            "At the left, the lane that gives the shared-memory address of the row; beside it, who holds "
            f"the row's elements in the {where} registers. Matrices are stacked, {per_matrix} rows each.",
            *notes,
            *meaning(choose(instruction, options).values()),
            *highlights(matrices, options),
        ),
    )


def _tile(stacked: Ownership, matrices: int) -> Ownership | None:
    """The 16×16 tile that four 8×8 matrices are taken from, as A of m16n8k16 is; None for other numbers."""
    if matrices != 4 or stacked.extent != (32, 8):
        return None
    owners = [
        [stacked.owners[8 * (row // 8 + 2 * (col // 8)) + row % 8][col % 8] for col in range(16)]
        for row in range(16)
    ]
    return replace(
        stacked,
        name="tile",
        caption="the same as a 16×16 tile",
        owners=owners,
        rows=Axis.counted("row", 16),
        cols=Axis.counted("col", 16),
    )


def picture_of_transpose(instruction: Instruction, options: Options) -> Picture:
    """movmatrix: the source matrix beside its transpose."""
    matrices = _fragments(instruction, options)
    return Picture(
        instruction.text,
        f"D is A transposed, across the registers of a warp; legal on {describe_targets(instruction.archs)}",
        tuple(panel_of(matrix, options, at=(0, i)) for i, matrix in enumerate(matrices)),
        colour_legends(matrices, options),
        (
            "D[i][j] = A[j][i]: an element leaves the lane in A's cell and arrives in the lane in D's.",
            *meaning(choose(instruction, options).values()),
            *highlights(matrices, options),
        ),
    )


def _fragments(instruction: Instruction, options: Options) -> list[Ownership]:
    return [
        ownership(operand, options.product, name, ("row", "col"))
        for operand, name in choose(instruction, options).values()
    ]


def _address(row: int, lane: int, options: Options) -> Cell:
    faded = options.lane not in (None, lane)
    fill = FADED if faded else PASTELS[lane % 8]
    title = f"row {row}: lane {lane} gives its address" if options.explains(1) else ""
    return Cell((f"T{lane}",), fill, title, faded=faded)
