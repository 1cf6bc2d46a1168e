"""Pictures of ldmatrix and stmatrix, each row with the lane that gives its address, and of movmatrix."""

from dataclasses import replace

from lanewise.draw.instructions import choose, meaning, ownership
from lanewise.draw.options import Options
from lanewise.draw.owners import Ownership, colour_legends, highlights, panel_of
from lanewise.draw.palette import FADED, PASTELS
from lanewise.draw.picture import Axis, Cell, Panel, Picture
from lanewise.isa import Instruction, describe_targets


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
