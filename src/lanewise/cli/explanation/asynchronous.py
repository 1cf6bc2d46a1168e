"""What `explain` says of tcgen05, tensor memory, bulk and tensor copies, and of atoms of plain copies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

from lanewise.cli.terminal.answer import Answer, Cell, Table, facts, span
from lanewise.draw.tcgen05 import copy_form, load_form
from lanewise.errors import LanewiseError
from lanewise.isa import describe_targets, instruction
from lanewise.isa.asynchronous import AsyncInstruction, Tcgen05Instruction
from lanewise.isa.asynchronous.descriptor import shapes
from lanewise.isa.asynchronous.tensor_places import Bits, stored_bits
from lanewise.isa.tensor_memory.accumulators import COLUMNS, LANES, METADATA, Place
from lanewise.isa.tensor_memory.load_shapes import PARTITION, WARP

if TYPE_CHECKING:
    from lanewise.atoms import Copy_Atom, MMA_Atom

Data = dict[str, Any]
#: Registers of a thread that a table shows.
_REGISTERS = 8


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
    if instruction.family in MOVES:
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


#: Instructions that move words between tensor memory and registers.
MOVES = ("tcgen05.ld", "tcgen05.st", "tcgen05.ld.red")


def of_async(text: str, arch: str | None, descriptor: int | None = None) -> Answer:
    """Explain an asynchronous instruction, for an arch if one is given.

    >>> of_async("tcgen05.mma.cta_group::1.kind::f16", None).data["shapes"]["k"]
    '16'
    """
    subject = instruction(text, arch=arch, descriptor=descriptor)
    product = subject if isinstance(subject, Tcgen05Instruction) else None
    form = product.form if product is not None else cast(AsyncInstruction, subject)
    rows: list[tuple[str, Any]] = [("instruction", form.text), ("does", form.does)]
    rows += [("operands", form.operands)] if form.operands else []
    rows += [("archs", describe_targets(form.archs)), ("PTX", f"{form.since} and later")]
    data: dict[str, Any] = {
        "text": form.text,
        "family": form.family,
        "does": form.does,
        "operands": form.operands,
        "archs": list(form.archs),
        "since": form.since,
        "words": dict(form.words),
    }
    tables = [Table("words", ("word", "says"), list(form.words))] if form.words else []
    if product is not None:
        rows += _shape_facts(product, data)
        tables += [*product_tables(product, data), _descriptor(product, data)]
        tables.append(_bits_of_archs(product, arch, data))
        note = "On arrays: lw.instruction, `lanewise compute`. What is not chosen follows the arrays."
    elif form.family.startswith("tcgen05"):
        tables += move_tables(form, data)
        note = "docs/blackwell.md says what of tcgen05 the CPU machine runs."
    else:
        note = "docs/hopper.md says which of these copies the CPU machine runs."
    return Answer((facts("", rows), *tables), data, (note,))


def text_of_atom(atom: MMA_Atom | Copy_Atom) -> str:
    """Return how an atom that stands for tcgen05 is asked for: by its name, or the PTX of a copy."""
    from lanewise.atoms import Copy_Atom

    if isinstance(atom, Copy_Atom) and atom.operation.move is not None:
        return atom.operation.move.text
    return atom.name


def of_atom(atom: MMA_Atom | Copy_Atom, arch: str | None) -> Answer:
    """Explain the instruction of an atom that stands for tcgen05, and CuTe's layouts of it.

    >>> from lanewise.atoms import atom
    >>> of_atom(atom("SM100_TMEM_LOAD_32dp32b4x"), None).data["cute"]["ThrID"]
    '32:1'
    """
    answer = of_async(text_of_atom(atom), arch)
    names = ["ThrID"]
    if hasattr(atom, "Shape_MNK"):
        names += ["Shape_MNK", "ALayout", "BLayout", "CLayout", "FrgTypeA", "FrgTypeB", "FrgTypeC"]
    else:
        names += ["ValID", "SrcLayout", "DstLayout"]
    said = {name: str(getattr(atom, name)) for name in names}
    table = facts(f"CuTe: {atom.name}", list(said.items()))
    data = {**answer.data, "atom": atom.name, "cute": said}
    return Answer((*answer.tables, table), data, answer.notes, answer.flat)


def _shape_facts(product: Tcgen05Instruction, data: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return M, N and K in words: those that were chosen, and those that there are."""
    sizes = shapes(product.text)
    data["shapes"] = sizes._asdict()
    rows = [("M", sizes.m), ("N", sizes.n), ("K", sizes.k)]
    if product.chosen:
        d, a, b = product.types
        data |= {"shape": list(product.shape), "formats": {"d": d, "a": a, "b": b}}
        rows.append(("chosen", f"{product.shape_text}, A {a}, B {b}, D {d}"))
    if product.scale_type:
        m, n, vector = product.m, product.n, product.scale_vec
        data["scales"] = {"format": product.scale_type, "a": [m, vector], "b": [vector, n]}
        rows.append(("scales", f"{product.scale_type}, {vector} along K: A {m}×{vector}, B {vector}×{n}"))
    return rows


def of_place(text: str, arch: str | None, descriptor: int | None, element: tuple[str, int, int]) -> Answer:
    """Explain where an element of a product lies, or who holds a word of tensor memory that is moved.

    >>> of_place("tcgen05 m64n8k16 f16", None, None, ("D", 20, 3)).data["lane"]
    36
    """
    subject = instruction(text, arch=arch, descriptor=descriptor)
    name, row, column = element
    if isinstance(subject, Tcgen05Instruction):
        return of_element(subject, element)
    form = cast(AsyncInstruction, subject)
    if form.family in MOVES and name.lower() == "tmem":
        return of_word(form, row, column)
    raise LanewiseError(
        f"{name} is no matrix of {form.text}: tcgen05.mma has A, B and D (and E, scale-a, scale-b), and of "
        "tcgen05.ld and st a word is named by lane and column, as in --element tmem 3 5"
    )


def of_lane(text: str, arch: str | None, descriptor: int | None, lane: int) -> Answer:
    """Explain what a thread's registers hold for a load or store, or what a lane holds of a product's D."""
    subject = instruction(text, arch=arch, descriptor=descriptor)
    if isinstance(subject, Tcgen05Instruction):
        return of_tensor_lane(subject, lane)
    form = cast(AsyncInstruction, subject)
    if form.family not in MOVES:
        raise LanewiseError(f"{form.text} has no lanes: tcgen05.mma, ld and st have")
    return of_thread(form, lane)


def _descriptor(product: Tcgen05Instruction, data: dict[str, Any]) -> Table:
    """Return the fields of the instruction descriptor, with their values where some were chosen."""
    bits = product.descriptor.encode()
    fields = product.descriptor.fields
    data["instruction_descriptor"] = [field._asdict() for field in fields]
    title = "instruction descriptor, 32 bits"
    if not product.chosen:
        rows = [(field.name, span(field.first, field.bits), field.says) for field in fields]
        return Table(title, ("field", "bits", "says"), rows)
    data["descriptor"] = f"{bits:#010x}"
    values = {field.name: getattr(product.descriptor, field.attribute) for field in fields}
    for row in data["instruction_descriptor"]:
        row["value"] = values[row["name"]]
    chosen = [
        (field.name, span(field.first, field.bits), field.of(bits), str(values[field.name]), field.says)
        for field in fields
    ]
    return Table(f"{title}: {bits:#010x}", ("field", "bits", "number", "means", "says"), chosen)


def _bits_of_archs(product: Tcgen05Instruction, arch: str | None, data: dict[str, object]) -> Table:
    """Return how archs add the products, and how far that is known."""
    archs = (product.require(arch),) if arch is not None else product.archs
    models = {name: product.model(name) for name in archs}
    data["bits"] = {
        name: {"model": str(model), "fidelity": model.fidelity, "source": model.source}
        for name, model in models.items()
    }
    same: dict[tuple[str, str, str], list[str]] = {}
    for name, model in models.items():
        same.setdefault((str(model), model.fidelity, model.source), []).append(name)
    rows = [(" ".join(names), *known) for known, names in same.items()]
    return Table("computed bits", ("archs", "sum", "known", "source"), rows)


#: What a copy does, by how its PTX begins.
_NOTES = {
    "cp.async.bulk.tensor": "One thread starts the copy of a whole box of an array, which a tensor map "
    "describes (lw.tensor_map). The layouts here are those of one unit of 128 bits.",
    "cp.reduce.async.bulk.tensor": "One thread starts the addition of a box to an array, which a tensor "
    "map describes (lw.tensor_map). The layouts here are those of one unit of 128 bits.",
    "cp.async.bulk": "One thread starts the copy of as many bytes as it asks for, a multiple of 16. The "
    "layouts here are those of one unit of 128 bits.",
    "cp.async": "Each thread starts the copy of its own values from global to shared memory, and waits for "
    "it later. The values keep their order.",
    "ld, st": "Each thread copies its own values. The values keep their order.",
}


def of_copy(copy: Copy_Atom) -> Answer:
    """Return what there is to know of a copy by one thread."""
    pairs: list[tuple[str, str | int]] = [
        ("operation", copy.name),
        ("PTX", copy.operation.opcode),
        ("threads", copy.ThrID.size()),
        ("bits of one copy", copy.operation.bits),
        ("value type", str(copy.ValType)),
        ("source", f"{copy.ValLayoutSrc}  (thread, value)"),
        ("destination", f"{copy.ValLayoutDst}  (thread, value)"),
    ]
    data = {
        "operation": copy.name,
        "ptx": copy.operation.opcode,
        "threads": copy.ThrID.size(),
        "bits": copy.operation.bits,
        "value_type": str(copy.ValType),
        "source": str(copy.ValLayoutSrc),
        "destination": str(copy.ValLayoutDst),
    }
    note = f"This is no matrix instruction. {_NOTES[copy.operation.opcode]}"
    return Answer((facts("", pairs),), data, (note,))
