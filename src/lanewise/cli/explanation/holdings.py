"""Who holds what: the lanes and registers of elements, as records and tables.

Answers about a lane, an element, a register or a whole operand; the instruction itself is in `summary`."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from lanewise.cli.terminal.answer import Answer, Cell, Table
from lanewise.errors import LanewiseError
from lanewise.isa import Holder, Instruction, Operand, SelectedOperand

#: What people call the operands besides their letters.
_NAMES = {
    "e": "metadata", "scale-a": "scale_a", "scale-b": "scale_b", "scale a": "scale_a", "scale b": "scale_b",
    "sfa": "scale_a", "sfb": "scale_b",
}  # fmt: skip


class Holding(NamedTuple):
    """One element of an operand with one of its holders: lane, register and slot."""

    operand: Operand
    product: int
    row: int
    col: int
    lane: int
    register: int
    slot: int

    @property
    def first_bit(self) -> int:
        """The lowest of the element's bits in its register."""
        return self.slot * self.operand.slot_bits + self.operand.shift

    @property
    def last_bit(self) -> int:
        """The highest of the element's bits in its register."""
        return self.first_bit + self.operand.format.bits - 1

    @property
    def bits(self) -> str:
        """The bits as manuals write them, `31:16`, or one number if it is one bit."""
        return f"{self.last_bit}:{self.first_bit}" if self.last_bit > self.first_bit else str(self.first_bit)

    @property
    def selectors(self) -> dict[str, int]:
        """The selectors under which the instruction reads this holder; empty where it always does."""
        operand = self.operand
        if not isinstance(operand, SelectedOperand):
            return {}
        value = self.register * operand.slots + self.slot
        for thread in range(operand.lane_choices):
            for byte in range(0, operand.byte_choices * operand.byte_step, operand.byte_step):
                if operand.selected(self.lane, value, thread, byte):
                    return _named_selectors(operand, thread, byte)
        return {}

    def place(self) -> dict[str, Any]:
        """Where it is, for JSON."""
        where: dict[str, object] = {"lane": self.lane, "register": self.register, "slot": self.slot}
        where |= {"first_bit": self.first_bit, "last_bit": self.last_bit}
        return where | ({"read_when": self.selectors} if self.selectors else {})

    def element(self) -> dict[str, Any]:
        """What it is, for JSON."""
        what: dict[str, object] = {"operand": self.operand.name, "row": self.row, "col": self.col}
        return what | ({"product": self.product} if self.operand.products > 1 else {})

    def record(self) -> dict[str, object]:
        """What and where, for JSON."""
        return self.element() | self.place()


def _named_selectors(operand: SelectedOperand, thread: int, byte: int) -> dict[str, int]:
    metadata = operand.name == "E"
    selectors = {"sparsity-selector" if metadata else "thread-id": thread} if operand.lane_choices > 1 else {}
    return selectors | ({"byte-id": byte} if operand.byte_choices > 1 else {})


def operand_named(instruction: Instruction, name: str) -> Operand:
    """The operand that a person means by A, b, E, metadata, scale-a, …

    >>> from lanewise.isa import instruction
    >>> operand_named(instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"), "B").name
    'B'
    """
    key = name.strip().lower()
    key = _NAMES.get(key, key)
    if key not in instruction.operands:
        known = ", ".join(operand.name.replace(" ", "-") for operand in instruction.operands.values())
        raise LanewiseError(f"{instruction.text} has no operand {name}; it has {known}")
    return instruction.operands[key]


def holdings_of(operand: Operand, row: int, col: int, product: int = 0) -> list[Holding]:
    """Every lane, register and slot that holds an element.

    >>> from lanewise.isa import instruction
    >>> mma = instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    >>> [(holding.lane, holding.register, holding.bits) for holding in holdings_of(mma.a, 3, 9)]
    [(12, 2, '31:16')]
    """
    return [Holding(operand, product, row, col, *holder) for holder in operand.holders(row, col, product)]


def holdings_in(operand: Operand, lane: int, register: int | None = None) -> list[Holding]:
    """Everything that a lane, or one register of it, holds of an operand.

    >>> from lanewise.isa import instruction
    >>> mma = instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    >>> [(holding.row, holding.col) for holding in holdings_in(mma.a, 12, 2)]
    [(3, 8), (3, 9)]
    """
    values: Iterable[int] = range(operand.values)
    if register is not None:
        if not 0 <= register < operand.registers:
            operand.cell(lane, 0)  # says first what is wrong with the lane, or that nothing is in registers
            span = f"registers 0 to {operand.registers - 1}" if operand.registers > 1 else "register 0 only"
            raise LanewiseError(
                f"{operand.name} of {operand.instruction} has {span}; register {register} was asked for"
            )
        values = range(register * operand.slots, min((register + 1) * operand.slots, operand.values))
    return [
        Holding(operand, *operand.cell(lane, value), lane, *divmod(value, operand.slots)) for value in values
    ]


def table_of(title: str, holdings: Sequence[Holding]) -> Table:
    """Holdings as a table: what it is, then where it is."""
    several = any(holding.operand.products > 1 for holding in holdings)
    selected = any(holding.selectors for holding in holdings)
    columns = ["operand", "row", "col", *(["product"] if several else []), "lane", "register", "slot", "bits"]
    columns += ["read when"] if selected else []
    rows: list[list[Cell]] = []
    for holding in holdings:
        row: list[Cell] = [holding.operand.name, holding.row, holding.col]
        row += [holding.product] if several else []
        row += [holding.lane, holding.register, holding.slot, holding.bits]
        row += [" ".join(f"{name}={value}" for name, value in holding.selectors.items())] if selected else []
        rows.append(row)
    return Table(title, tuple(columns), rows)


# answers ------------------------------------------------------------------------------------------------


def of_lane(instruction: Instruction, lane: int, only: Operand | None, product: int | None) -> Answer:
    """Everything that one lane holds.

    >>> from lanewise.isa import instruction
    >>> mma = instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    >>> len(of_lane(mma, 5, None, None).data["holds"])
    20
    """
    chosen = (
        [only]
        if only
        else [operand for operand in instruction.operands.values() if operand.where == "registers"]
    )
    holdings = [holding for operand in chosen for holding in holdings_in(operand, lane)]
    if product is not None:
        chosen[0].holders(0, 0, product)  # says what is wrong with the product
        holdings = [holding for holding in holdings if holding.product == product]
    notes = list(_address_note(instruction, lane))
    if product is not None and not holdings:
        notes.append(f"Lane {lane} has no part in product {product}.")
    data: dict[str, object] = {"instruction": instruction.text, "lane": lane}
    data["holds"] = [holding.record() for holding in holdings]
    if instruction.family in ("ldmatrix", "stmatrix"):
        data["row_address"] = lane if lane < instruction.row_addresses.rows else None
    title = f"{_unit(instruction)} {lane} of {instruction.text}"
    return Answer((table_of(title, holdings),), data, tuple(notes))


def of_element(
    instruction: Instruction, operand: Operand, row: int, col: int, product: int, inputs: bool
) -> Answer:
    """Every holder of one element, with its metadata and scale, or all that it is computed from.

    >>> from lanewise.isa import instruction
    >>> mma = instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    >>> len(of_element(mma, mma.d, 3, 4, 0, inputs=True).data["inputs"])
    33
    """
    holdings = holdings_of(operand, row, col, product)
    data: dict[str, object] = {"instruction": instruction.text, **holdings[0].element()}
    data["holders"] = [holding.place() for holding in holdings]
    companions, notes = _companions(instruction, operand, row, col)
    if inputs:
        more, remarks = _inputs(instruction, operand, row, col, product)
        companions, notes = [*companions, *more], [*notes, *remarks]
        data["inputs"] = [holding.record() for holding in more]
    elif companions:
        data["with"] = [companion.record() for companion in companions]
    if instruction.family in ("ldmatrix", "stmatrix"):
        lane = instruction.row_addresses.lane(row)
        data["address_from_lane"] = lane
        notes.append(f"Row {row} {_matrix_words(instruction, row)}: lane {lane} gives its address.")
    title = f"{operand.name}[{row}][{col}] of {instruction.text}"
    return Answer((table_of(title, [*holdings, *companions]),), data, tuple(notes))


def of_register(instruction: Instruction, operand: Operand, lane: int, register: int, inputs: bool) -> Answer:
    """What one register of one lane holds.

    >>> from lanewise.isa import instruction
    >>> mma = instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    >>> of_register(mma, mma.d, 5, 2, inputs=False).data["holds"][0]["row"]
    9
    """
    holdings = holdings_in(operand, lane, register)
    data: dict[str, object] = {"instruction": instruction.text, "operand": operand.name}
    data |= {"lane": lane, "register": register, "holds": [holding.record() for holding in holdings]}
    shown = list(holdings)
    notes: list[str] = []
    if inputs:
        made_of: dict[Holding, None] = {}
        for holding in holdings:
            more, notes = _inputs(instruction, operand, holding.row, holding.col, holding.product)
            made_of.update(dict.fromkeys(more))
        shown += made_of
        data["inputs"] = [holding.record() for holding in made_of]
    title = f"{operand.name}, {_unit(instruction).lower()} {lane}, register {register} of {instruction.text}"
    return Answer((table_of(title, shown),), data, tuple(notes))


def _unit(instruction: Instruction) -> str:
    return "Lane" if instruction.threads == 32 else "Thread"


def _matrix_words(instruction: Instruction, row: int) -> str:
    addresses = instruction.row_addresses
    matrix, inner = divmod(row, addresses.rows // addresses.matrices)
    return f"is row {inner} of matrix {matrix}"


def _address_note(instruction: Instruction, lane: int) -> Iterator[str]:
    if instruction.family in ("ldmatrix", "stmatrix"):
        if lane < instruction.row_addresses.rows:
            yield f"Lane {lane} gives the address of row {lane}, which {_matrix_words(instruction, lane)}."
        else:
            yield f"The address that lane {lane} gives is not used."


def _companions(
    instruction: Instruction, operand: Operand, row: int, col: int
) -> tuple[list[Holding], list[str]]:
    """The metadata code and the scale factor that an element of A or B goes with."""
    holdings: list[Holding] = []
    notes: list[str] = []
    k, along_k = instruction.k, col if operand.name == "A" else row
    if operand.name == "A" and instruction.sparse:
        metadata = instruction.metadata
        index = col // metadata.run
        group = index // metadata.per_code
        holdings += holdings_of(metadata, row, group)
        start = group * metadata.group
        what = "pair of columns" if metadata.run == 2 else "column"
        notes.append(
            f"A is packed, half of the dense K = {k}: E[{row}][{group}] says which {what} of {start} to "
            f"{start + metadata.group - 1} A[{row}][{col}] stands for."
        )
        along_k = start
    if operand.name == "A" and "scale_a" in instruction.operands:
        holdings += holdings_of(instruction.scale_a, row, along_k * instruction.scale_vec // k)
    if operand.name == "B" and "scale_b" in instruction.operands:
        holdings += holdings_of(instruction.scale_b, along_k * instruction.scale_vec // k, col)
    return holdings, notes


def _inputs(
    instruction: Instruction, operand: Operand, row: int, col: int, product: int
) -> tuple[list[Holding], list[str]]:
    """All that one element of D is computed from."""
    if operand.name != "D" or not instruction.multiplies:
        raise LanewiseError(
            "--inputs asks what an element of D is computed from: give it with an element of D"
        )
    holdings: list[Holding] = []
    notes = []
    for name, other in instruction.operands.items():
        if other.where != "registers":
            notes.append(f"{other.name} lies in shared memory behind a descriptor; no lane holds it.")
            continue
        match name:
            case "a" | "metadata" | "scale_a":
                cells = [(row, k) for k in range(other.cols)]
            case "b" | "scale_b":
                cells = [(k, col) for k in range(other.rows)]
            case "c":
                cells = [(row, col)]
            case _:
                continue
        holdings += [holding for cell in cells for holding in holdings_of(other, *cell, product)]
    if instruction.sparse:
        notes.append(f"Of the rows of B, those that E selects for row {row} take part.")
    return holdings, notes


def places(holders: Sequence[Holder]) -> str:
    """Places as short text, `lane:register.slot`, several joined by a slash.

    >>> places([Holder(12, 2, 1)])
    '12:2.1'
    """
    return "/".join(f"{lane}:{register}.{slot}" for lane, register, slot in holders)


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
