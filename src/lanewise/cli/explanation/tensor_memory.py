"""What `explain` says of tensor memory: lanes and columns of products, loads, stores and copies."""

from collections.abc import Iterable, Sequence
from typing import Any

from lanewise.cli.terminal.answer import Answer, Cell, Table, facts
from lanewise.draw.tcgen05 import copy_form, load_form
from lanewise.errors import LanewiseError
from lanewise.isa.asynchronous import AsyncInstruction, Tcgen05Instruction
from lanewise.isa.asynchronous.tensor_places import Bits, stored_bits
from lanewise.isa.tensor_memory.accumulators import COLUMNS, LANES, METADATA, Place
from lanewise.isa.tensor_memory.load_shapes import PARTITION, WARP

Data = dict[str, Any]
#: Registers of a thread that a table shows.
_REGISTERS = 8


def span(first: int, count: int) -> str:
    """Return so many numbers from one on, in words.

    >>> span(16, 16), span(3, 1)
    ('16-31', '3')
    """
    return f"{first}-{first + count - 1}" if count > 1 else str(first)


# products ---------------------------------------------------------------------------------------------------


def product_tables(product: Tcgen05Instruction, data: Data) -> list[Table]:
    """Return where the operands of a tcgen05.mma lie, block by block, and how A, E and scales lie."""
    tables = [_parts(product, data)] if product.cta_group == 2 else []
    tables.append(_in_tensor_memory(product, data))
    tables.append(_other_operands(product, data))
    return tables


def _parts(product: Tcgen05Instruction, data: Data) -> Table:
    """Return what each block of a pair has of A, B and D."""
    rows: list[Sequence[Cell]] = []
    data["pair"] = []
    for key in "abd":
        for part in product.block_parts(key):
            row = (key.upper(), part.block, span(part.rows.start, len(part.rows)))
            rows.append((*row, span(part.columns.start, len(part.columns))))
            names = ("operand", "block", "rows", "columns")
            data["pair"].append(dict(zip(names, rows[-1], strict=True)))
    return Table("a pair of blocks", ("operand", "block", "rows", "columns"), rows)


def _in_tensor_memory(product: Tcgen05Instruction, data: Data) -> Table:
    """Return which lanes and columns of tensor memory hold which part of D."""
    d = product.d
    first = [block * d.rows // d.cta_group for block in range(d.cta_group)]
    rows: list[Sequence[Cell]] = [
        (
            block,
            span(start + region.row, region.rows),
            span(region.column, region.columns),
            span(region.lane, region.rows),
            span(0, region.columns),
            _warps(region.lane, region.rows),
        )
        for block, start in enumerate(first)
        for region in d.regions
    ]
    names = ("block", "rows", "columns", "lanes", "tensor_columns", "warps")
    data["d"] = [dict(zip(names, row, strict=True)) for row in rows]
    title = f"D in tensor memory, for {product.shape_text}"
    return Table(title, ("block", "rows of D", "columns of D", "lanes", "columns", "loaded by warps"), rows)


def _warps(lane: int, lanes: int) -> str:
    """Return the warps that reach some lanes, by their numbers modulo 4."""
    first, last = lane // PARTITION, (lane + lanes - 1) // PARTITION
    return f"{span(first, last - first + 1)} mod 4"


def _other_operands(product: Tcgen05Instruction, data: Data) -> Table:
    """Return how A (if it is in tensor memory), metadata and scale factors lie there."""
    descriptor, form = product.descriptor, product.product
    bits, first = stored_bits(descriptor, form, "a")
    terms = product.operands["a"].cols
    copies = len(product.tensor_bits("a", 0, 0))
    more = f", a copy in each of {copies} groups of lanes" if copies > 1 else ""
    offset = f", from bit {first} of a byte on" if first else ""
    rows: list[tuple[Cell, Cell, Cell]] = [
        (
            "A (if it is there)",
            terms * bits // 32,
            f"row of D's lane{more}; {32 // bits} element{'s' if bits < 32 else ''} in a column{offset}",
        )
    ]
    if "metadata" in product.operands:
        width = 4 if form.kind.narrow else 32 if descriptor.a == "tf32" else max(8, product.a.format.bits)
        layout = METADATA[width]
        paired = (
            "two rows 8 apart share two lanes; the selector is a column" if layout.paired else "a row a lane"
        )
        rows.append(
            ("E", layout.columns, f"{layout.bits} bits a row, a code of 4 bits for {layout.group}; {paired}")
        )
    for key, name in (("scale_a", "scale A"), ("scale_b", "scale B")):
        if key in product.operands:
            operand = product.operands[key]
            last = product.tensor_bits(
                key, *((operand.rows - 1, 0) if key == "scale_a" else (0, operand.cols - 1))
            )
            line = "row" if key == "scale_a" else "column"
            says = f"{line} n: lane n mod 32 of each partition, column n div 32, a byte for each block of K"
            rows.append((name, last[0].column + 1, says))
    data["in_tensor_memory"] = [dict(zip(("operand", "columns", "lies"), row, strict=True)) for row in rows]
    return Table("what else lies in tensor memory", ("operand", "columns", "how"), rows)


def of_element(product: Tcgen05Instruction, element: tuple[str, int, int]) -> Answer:
    """Explain where an element of an operand lies: in tensor memory, or in which block's shared memory.

    >>> from lanewise.isa import instruction
    >>> of_element(instruction("tcgen05 m64n8k16 f16"), ("D", 20, 3)).data["lane"]
    36
    """
    name, row, column = element
    key = product.operand_key(name)
    title = product.operands[key].name
    rows: list[tuple[str, Cell]] = [("instruction", str(product)), ("element", f"{title}[{row}][{column}]")]
    data: Data = {"instruction": product.text, "shape": list(product.shape), "element": [row, column]}
    if key == "b":
        parts = product.block_parts("b")
        held = next((part for part in parts if row in part.rows and column in part.columns), None)
        if held is None:
            b = product.b
            raise LanewiseError(
                f"B of {product.text} is {b.rows}×{b.cols}: there is no element [{row}][{column}]"
            )
        rows.append(("block", f"{held.block}, in its shared memory"))
        return Answer((facts("", rows),), data | {"block": held.block, "where": "shared memory"})
    places = product.tensor_bits(key, row, column)
    data |= {"places": [place._asdict() for place in places], **places[0]._asdict()}
    if key == "a":
        part = next(part for part in product.block_parts("a") if row in part.rows)
        rows.append(("behind a descriptor", f"in shared memory of block {part.block}"))
    table = Table(
        "in tensor memory", ("block", "lane", "column from its address", "bits", "warps"), _lines(places)
    )
    return Answer((facts("", rows), table), data)


def _lines(places: Iterable[Bits]) -> list[Sequence[Cell]]:
    return [
        (
            place.block,
            place.lane,
            place.column,
            span(place.first_bit, place.bits),
            Place(place.block, place.lane, place.column).warps.removeprefix("warps "),
        )
        for place in places
    ]


def of_tensor_lane(product: Tcgen05Instruction, lane: int) -> Answer:
    """Explain what a lane of tensor memory holds of D: a row, and which of its columns."""
    if not 0 <= lane < LANES:
        raise LanewiseError(f"tensor memory has lanes 0 to {LANES - 1}, not {lane}")
    d = product.d
    lines: list[Sequence[Cell]] = []
    words = []
    for block in range(product.cta_group):
        for region in d.regions:
            if region.lane <= lane < region.lane + region.rows:
                row = block * d.rows // d.cta_group + region.row + lane - region.lane
                lines.append(
                    (block, f"D[{row}][{span(region.column, region.columns)}]", span(0, region.columns))
                )
                words.append(
                    {"block": block, "row": row, "first_column": region.column, "columns": region.columns}
                )
    rows: list[tuple[str, Cell]] = [("instruction", str(product)), ("lane", lane)]
    rows.append(("loaded by", Place(0, lane, 0).warps))
    tables = [Table("holds", ("block", "elements", "columns"), lines)] if lines else []
    if not lines:
        rows.append(("holds", "nothing of D"))
    return Answer((facts("", rows), *tables), {"instruction": product.text, "lane": lane, "holds": words})


# loads, stores, copies --------------------------------------------------------------------------------------


def move_tables(instruction: AsyncInstruction, data: Data) -> list[Table]:
    """Return the tables of a tcgen05.ld, st, cp or alloc; none for others."""
    if instruction.family in ("tcgen05.ld", "tcgen05.st", "tcgen05.ld.red"):
        return _of_load(instruction, data)
    if instruction.family == "tcgen05.cp":
        return [_of_copy(instruction, data)]
    if instruction.family in ("tcgen05.alloc", "tcgen05.dealloc"):
        data["columns"] = [32, 64, 128, 256, 512]
        return [
            Table(
                "tensor memory of a block",
                ("what", "how many"),
                [
                    ("lanes", f"{LANES}: 32 for the warps of each number modulo 4"),
                    ("columns of 32 bits", COLUMNS),
                    ("allocated", "32, 64, 128, 256 or 512 columns, of all lanes"),
                    ("address", "bits 31-16 the lane, bits 15-0 the column"),
                ],
            )
        ]
    return []


def _of_load(instruction: AsyncInstruction, data: Data) -> list[Table]:
    """Return the lanes and columns that a load or store reaches, and who holds which word."""
    shape, num, packed = load_form(instruction)
    registers, columns = shape.registers_of(num), shape.columns_of(num, packed)
    halves = "" if shape.halves == 1 else ", in each of two halves"
    data |= {
        "lanes": shape.lanes, "columns": columns, "registers": registers, "halves": shape.halves,
        "layout": str(shape.layout(num)),
    }  # fmt: skip
    about = facts(
        "tensor memory",
        [
            ("lanes", f"{shape.lanes} of the warp's 32" if shape.lanes < PARTITION else "the warp's 32"),
            ("columns", f"{columns}{halves}"),
            ("registers", f"{registers} a thread"),
            ("CuTe layout", f"{shape.layout(num)}  (thread, register) to lane + {shape.lanes} * column"),
        ],
    )
    lanes, places = shape.places(num, packed)
    shown = min(registers, _REGISTERS)
    half = [
        "" if shape.halves == 1 else f" of half {thread * shape.halves // WARP}" for thread in range(WARP)
    ]
    rows = [
        [
            str(thread),
            *(
                f"{lanes[thread, n]}:{_columns(int(places[thread, n]), packed)}{half[thread]}"
                for n in range(shown)
            ),
        ]
        for thread in range(WARP)
    ]
    title = "lane:column of each thread's registers" + (f", the first {shown}" if shown < registers else "")
    return [about, Table(title, ("thread", *(f"R{n}" for n in range(shown))), rows, grid=True)]


def _columns(column: int, packed: bool) -> str:
    return f"{column}+{column + 1}" if packed else str(column)


def of_thread(instruction: AsyncInstruction, thread: int) -> Answer:
    """Explain which words of tensor memory a thread's registers hold, for a load or store.

    >>> from lanewise.isa.asynchronous import async_instruction
    >>> of_thread(async_instruction("tcgen05.ld.sync.aligned.16x256b.x1.b32"), 5).data["words"][1]
    {'register': 1, 'lane': 1, 'column': 3}
    """
    shape, num, packed = load_form(instruction)
    if not 0 <= thread < WARP:
        raise LanewiseError(f"a warp has threads 0 to {WARP - 1}, not {thread}")
    lanes, places = shape.places(num, packed)
    words = [
        {"register": n, "lane": int(lanes[thread, n]), "column": int(places[thread, n])}
        for n in range(shape.registers_of(num))
    ]
    half = f" of half {thread * shape.halves // WARP}" if shape.halves > 1 else ""
    rows = [(f"R{word['register']}", word["lane"], _columns(word["column"], packed) + half) for word in words]
    about = facts("", [("instruction", instruction.text), ("thread", thread)])
    table = Table("holds", ("register", "lane", "column"), rows)
    return Answer((about, table), {"instruction": instruction.text, "thread": thread, "words": words})


def of_word(instruction: AsyncInstruction, lane: int, column: int) -> Answer:
    """Explain which thread and register hold a word, by its lane and column from the address on."""
    shape, num, packed = load_form(instruction)
    lanes, places = shape.places(num, packed)
    width = 2 if packed else 1
    elements = [
        {"thread": thread, "register": register}
        for thread in range(WARP // shape.halves)
        for register in range(shape.registers_of(num))
        if lanes[thread, register] == lane and places[thread, register] // width == column // width
    ]
    if not elements:
        raise LanewiseError(
            f"{instruction.text} reaches lanes 0 to {shape.lanes - 1} and columns 0 to "
            f"{shape.columns_of(num, packed) - 1} from its address on, not lane {lane}, column {column}"
        )
    rows: list[tuple[str, Cell]] = [
        ("instruction", instruction.text),
        ("word", f"lane {lane}, column {column}"),
        ("thread", elements[0]["thread"]),
        ("register", f"R{elements[0]['register']}"),
    ]
    return Answer(
        (facts("", rows),), {"instruction": instruction.text, "lane": lane, "column": column, **elements[0]}
    )


def _of_copy(instruction: AsyncInstruction, data: Data) -> Table:
    """Return which lanes get which rows of the matrix that a tcgen05.cp copies."""
    shape, expansion = copy_form(instruction)
    data |= {"rows": shape.rows, "columns": shape.columns, "copies": shape.copies}
    rows: list[Sequence[Cell]] = []
    start = 0
    while start < shape.rows:
        count = 1
        while start + count < shape.rows and _follow(
            shape.lanes_of(start), shape.lanes_of(start + count), count
        ):
            count += 1
        lanes = ", ".join(span(lane, count) for lane in shape.lanes_of(start))
        rows.append((span(start, count), lanes, span(0, shape.columns), shape.bits // 8))
        start += count
    title = "rows in shared memory → lanes, from the address on"
    if expansion is not None:
        title += f"; each {expansion.bits}-bit element becomes a byte, from bit {expansion.first_bit} on"
    return Table(title, ("rows", "lanes", "columns", "bytes of a row"), rows)


def _follow(first: tuple[int, ...], later: tuple[int, ...], count: int) -> bool:
    return all(b == a + count for a, b in zip(first, later, strict=True))
