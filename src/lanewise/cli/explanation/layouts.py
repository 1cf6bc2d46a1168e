"""Whole layouts of an operand: every element with its holders, or every lane with its registers."""

from collections.abc import Sequence

from lanewise.cli.explanation.holdings import Holding, holdings_in, holdings_of, places
from lanewise.cli.terminal.answer import Answer, Cell, Table
from lanewise.isa import Instruction, Operand, SelectedOperand


def by_element(instruction: Instruction, operand: Operand, product: int | None, transpose: bool) -> Answer:
    """The operand's matrix, in each cell the lane, register and slot that hold it.

    >>> from lanewise.isa import instruction
    >>> mma = instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    >>> by_element(mma, mma.a, None, transpose=False).tables[0].rows[3][1:4]
    ['12:0.0', '12:0.1', '13:0.0']
    """
    wanted = range(operand.products) if product is None else (product,)
    tables = tuple(_matrix(instruction, operand, product, transpose) for product in wanted)
    data = _heading(instruction, operand)
    data["elements"] = [
        _element(holdings_of(operand, row, col, product))
        for product in wanted
        for row in range(operand.rows)
        for col in range(operand.cols)
    ]
    notes = [
        "Each cell: lane:register.slot" + ("." if operand.slots > 1 else ", slot 0 being the whole register.")
    ]
    if isinstance(operand, SelectedOperand):
        notes.append("Of several places the selectors say which is read; --element shows when.")
    flat = tables[0]
    if len(tables) > 1:
        rows = [(product, *row) for product, table in zip(wanted, tables, strict=True) for row in table.rows]
        flat = Table("", ("product", *flat.columns), rows)
    return Answer(tables, data, tuple(notes), flat)


def by_lane(instruction: Instruction, operand: Operand, product: int | None, transpose: bool) -> Answer:
    """Every lane, with the elements that each of its registers holds.

    >>> from lanewise.isa import instruction
    >>> mma = instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    >>> by_lane(mma, mma.a, None, transpose=False).tables[0].rows[12]
    [12, '[3][0..1]', '[11][0..1]', '[3][8..9]', '[11][8..9]']
    """
    rows: list[list[Cell]] = []
    lanes = []
    several = operand.products > 1
    operand.holders(0, 0, product or 0)  # says what is wrong with the product, or that no lane holds it
    for lane in range(operand.threads):
        registers = [holdings_in(operand, lane, register) for register in range(operand.registers)]
        its_product = registers[0][0].product
        if product is not None and its_product != product:
            continue
        rows.append([lane, *([its_product] if several else []), *(_elements(held) for held in registers)])
        lanes.append({"lane": lane, "holds": [holding.record() for held in registers for holding in held]})
    columns = ("lane", *(("product",) if several else ()), *map(str, range(operand.registers)))
    title = f"{_name(instruction, operand)}: registers of each lane, lowest slot first"
    table = Table(title, columns, rows, grid=True)
    data = _heading(instruction, operand) | {"lanes": lanes}
    return Answer((_transposed(table, "register") if transpose else table,), data)


def _matrix(instruction: Instruction, operand: Operand, product: int, transpose: bool) -> Table:
    operand.holders(0, 0, product)  # says what is wrong with the product
    rows: list[list[Cell]] = [
        [row, *(places(operand.holders(row, col, product)) for col in range(operand.cols))]
        for row in range(operand.rows)
    ]
    which = f", product {product}" if operand.products > 1 else ""
    title = f"{_name(instruction, operand)}{which}: rows × columns"
    table = Table(title, ("row", *map(str, range(operand.cols))), rows, grid=True)
    return _transposed(table, "col") if transpose else table


def _transposed(table: Table, corner: str) -> Table:
    turned = list(zip(table.columns, *table.rows, strict=True))
    columns = (corner, *map(str, turned[0][1:]))
    return Table(table.title.replace("rows × columns", "columns × rows"), columns, turned[1:], grid=True)


def _name(instruction: Instruction, operand: Operand) -> str:
    return f"{operand.name} ({operand.rows}×{operand.cols} {operand.format.name}) of {instruction.text}"


def _heading(instruction: Instruction, operand: Operand) -> dict[str, object]:
    return {
        "instruction": instruction.text,
        "operand": operand.name,
        "rows": operand.rows,
        "cols": operand.cols,
        "format": operand.format.name,
        "layout": str(operand.layout),
    }


def _element(holdings: Sequence[Holding]) -> dict[str, object]:
    return holdings[0].element() | {"holders": [holding.place() for holding in holdings]}


def _elements(held: Sequence[Holding]) -> str:
    """The elements of a register as short text: neighbours of a row or a column as one run.

    A register with [0][0] and [0][1] is `[0][0..1]`.
    """
    runs: list[list[tuple[int, int]]] = []
    for holding in held:
        cell = holding.row, holding.col
        if runs and _continues(runs[-1], cell):
            runs[-1].append(cell)
        else:
            runs.append([cell])
    return "/".join(f"[{_span(run[0][0], run[-1][0])}][{_span(run[0][1], run[-1][1])}]" for run in runs)


def _continues(run: list[tuple[int, int]], cell: tuple[int, int]) -> bool:
    step = cell[0] - run[-1][0], cell[1] - run[-1][1]
    before = (run[-1][0] - run[-2][0], run[-1][1] - run[-2][1]) if len(run) > 1 else step
    return step == before and step in ((0, 1), (1, 0))


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}..{last}"
