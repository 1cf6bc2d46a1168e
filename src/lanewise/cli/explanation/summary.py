"""What an instruction is: `lanewise explain` without a question."""

from itertools import groupby
from typing import Any

from lanewise.cli.terminal.answer import Answer, Cell, Table, facts, span
from lanewise.draw.in_words import does, runs_of
from lanewise.isa import Instruction, Operand, describe_targets
from lanewise.isa.operands import VOLTA_ARCHS, has_volta_fragments

#: The most rows and columns of an operand that a summary shows.
_CORNER = 16


def of_instruction(subject: Instruction, arch: str | None) -> Answer:
    """Shape, operands, archs, how each runs it, CuTe layouts, and who holds a first operand.

    >>> from lanewise.isa import instruction
    >>> mma = instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    >>> of_instruction(mma, "sm_86").data["lowering"]
    {'sm_86': {'kind': 'native', 'detail': '1 HMMA'}}
    """
    archs = (subject.require(arch),) if arch else subject.archs
    properties = _properties(subject)
    runs = runs_of(subject, archs)
    held = next(
        subject.operands[name]
        for name in "adbc"
        if name in subject.operands and subject.operands[name].where == "registers"
    )
    tables = [facts("", properties), _operands(subject), *_formulas(subject), _archs(runs)]
    notes = [*_sources(subject), *_other_fragments(subject), *_selectors(subject)]
    if subject.family in ("ldmatrix", "stmatrix"):
        tables.append(_addresses(subject))
    tables.append(_corner(held))
    names = "|".join(operand.name.replace(" ", "-") for operand in subject.operands.values())
    notes.append(
        f"Ask further: --operand {names}, --lane 5, --element {held.name} 3 2, --register {held.name} 5 0."
    )
    data = _data(subject, runs)
    flat = Table("", ("about", "property", "value"), _flattened(properties, subject, runs))
    return Answer(tuple(tables), data, tuple(notes), flat)


# what it is ---------------------------------------------------------------------------------------------


def _properties(instruction: Instruction) -> list[tuple[str, Cell]]:
    layouts = ", ".join(
        f"{name} .{layout}"
        for name, layout in (("A", instruction.layout_a), ("B", instruction.layout_b))
        if layout
    )
    return [
        ("instruction", instruction.text),
        ("does", does(instruction)),
        ("family", instruction.family),
        ("shape", _shape(instruction)),
        ("layouts", layouts),
        ("threads", "32, a warp" if instruction.threads == 32 else "128, a warpgroup of four warps"),
        ("operations", _operations(instruction)),
        ("modifiers", _modifiers(instruction)),
        ("legal on", describe_targets(instruction.archs)),
        ("PTX", f"{instruction.since} {'and later' if not instruction.until else f'to {instruction.until}'}"),
    ]


def _shape(instruction: Instruction) -> str:
    if len(instruction.shape) == 2:
        return f"{instruction.m}×{instruction.n}" + (
            f", {instruction.num} times" if instruction.num > 1 else ""
        )
    return f"M {instruction.m}, N {instruction.n}, K {instruction.k}"


def _operations(instruction: Instruction) -> str:
    if not instruction.multiplies:
        return ""
    m, n, k, products = instruction.m, instruction.n, instruction.k, instruction.products
    factors = f"2·{m}·{n}·{k}" + (f"·{products}" if products > 1 else "")
    half = "; half of them with zeros, which are left out" if instruction.sparse else ""
    return f"{2 * m * n * k * products} ({factors}){half}"


def _modifiers(instruction: Instruction) -> str:
    written = [
        f"kind::{instruction.kind}" if instruction.kind else "",
        f"scales {instruction.scale_type}, {instruction.scale_vec} along K" if instruction.scale_type else "",
        "satfinite" if instruction.satfinite else "",
        instruction.rounding,
        f"{instruction.bitop}.popc" if instruction.bitop else "",
    ]
    return ", ".join(word for word in written if word)


def _operands(instruction: Instruction) -> Table:
    rows = [
        (
            operand.name,
            f"{operand.rows}×{operand.cols}",
            operand.format.name,
            operand.registers,
            operand.packing,
            str(operand.layout),
        )
        for operand in instruction.operands.values()
    ]
    columns = ("operand", "matrix", "format", "registers", "packing", "CuTe layout (thread, value)")
    return Table("Operands", columns, rows)


def _formulas(instruction: Instruction) -> list[Table]:
    """The row and column of a lane's value-th element, as C would compute them."""
    rows = [
        (operand.name, *operand.formulas)
        for name, operand in instruction.operands.items()
        if name in "abcd" and operand.formulas is not None
    ]
    return [Table("Index formulas", ("operand", "row", "column"), rows)] if rows else []


def _sources(instruction: Instruction) -> list[str]:
    """Where layouts are known from, if not simply from the PTX ISA."""
    by_source = groupby(instruction.operands.values(), key=lambda operand: operand.source)
    return [
        f"Layout of {', '.join(operand.name for operand in operands)}: {source}."
        for source, operands in by_source
        if source != "PTX ISA"
    ]


def _other_fragments(instruction: Instruction) -> list[str]:
    """A warning where archs hold different elements of a fragment in the same register."""
    if not has_volta_fragments(instruction):
        return []
    warning = "Code that uses single elements of a fragment by their place is right for one of the two only."
    if instruction.fragments_of:
        return [f"GPUs from sm_75 on hold other elements than {' and '.join(VOLTA_ARCHS)} do. {warning}"]
    return [f"{' and '.join(VOLTA_ARCHS)} hold other elements: --arch {VOLTA_ARCHS[0]} shows them. {warning}"]


def _selectors(instruction: Instruction) -> list[str]:
    selectors = []
    if "metadata" in instruction.operands:
        metadata = instruction.metadata
        kept = (
            f"{metadata.per_code} of {metadata.group // metadata.run}{' pairs' if metadata.run == 2 else ''}"
        )
        which = (
            f"; the sparsity selector, 0 to {metadata.lane_choices - 1}, says which lanes of a quad hold them"
            if metadata.lane_choices > 1
            else ""
        )
        selectors.append(f"E: a 4-bit code for each group of {metadata.group} along K keeps {kept}{which}.")
    if instruction.scale_type:
        block = instruction.k // instruction.scale_vec
        selectors.append(
            f"Scales: one for each {block} along K; thread-id and byte-id say which lane and byte are read."
        )
    return selectors


# where it runs ------------------------------------------------------------------------------------------


def _archs(runs: list[tuple[tuple[str, ...], str, str]]) -> Table:
    if not any(fidelity for *_, fidelity in runs):
        return Table("Archs", ("runs as", "on"), [(how, " ".join(archs)) for archs, how, _ in runs])
    rows = [(how, fidelity, " ".join(archs)) for archs, how, fidelity in runs]
    return Table("Archs", ("runs as", "computed bits", "on"), rows)


def _addresses(instruction: Instruction) -> Table:
    addresses = instruction.row_addresses
    rows_of_matrix = addresses.rows // addresses.matrices
    rows = [
        (
            f"{matrix * rows_of_matrix} to {matrix * rows_of_matrix + rows_of_matrix - 1}",
            f"rows 0 to {rows_of_matrix - 1} of matrix {matrix}",
        )
        for matrix in range(addresses.matrices)
    ]
    if addresses.rows < 32:
        rows.append((f"{addresses.rows} to 31", "not used"))
    return Table(
        f"Row addresses ({addresses.row_bytes} bytes a row)", ("lanes", "give the addresses of"), rows
    )


# who holds what, in short -------------------------------------------------------------------------------


def _corner(operand: Operand) -> Table:
    """Lane and register of each block of neighbours that share them; the upper left corner of many."""
    owner = [[operand.holder(row, col)[:2] for col in range(operand.cols)] for row in range(operand.rows)]
    tall = _run(list(zip(*owner, strict=True)))
    wide = _run(owner)
    columns = range(0, operand.cols, wide)[:_CORNER]
    rows = range(0, operand.rows, tall)[:_CORNER]
    cells = [
        [span(row, tall), *(f"{lane}:{register}" for lane, register in (owner[row][col] for col in columns))]
        for row in rows
    ]
    more = len(columns) * wide < operand.cols or len(rows) * tall < operand.rows
    which = ", product 0" if operand.products > 1 else ", the upper left corner" if more else ""
    title = f"Lane:register of {operand.name}{which}"
    names = tuple(span(col, wide) for col in columns)
    return Table(title, ("row\\col", *names), cells, grid=True)


def _run(lines: Any) -> int:
    """The longest power of two into which every line falls apart with equal neighbours."""
    length = 1
    while len(lines[0]) % (2 * length) == 0 and all(
        len(set(line[start : start + 2 * length])) == 1
        for line in lines
        for start in range(0, len(line), 2 * length)
    ):
        length *= 2
    return length


# for programs -------------------------------------------------------------------------------------------


def _data(instruction: Instruction, runs: list[tuple[tuple[str, ...], str, str]]) -> dict[str, object]:
    data: dict[str, object] = {
        "instruction": instruction.text,
        "does": does(instruction),
        "family": instruction.family,
        "shape": list(instruction.shape),
        "threads": instruction.threads,
        "products": instruction.products,
        "archs": list(instruction.archs),
        "since": instruction.since,
        "until": instruction.until,
        "operands": {name: _operand_data(operand) for name, operand in instruction.operands.items()},
        "lowering": {arch: instruction.lowering(arch)._asdict() for archs, *_ in runs for arch in archs},
    }
    if instruction.multiplies:
        data["fidelity"] = {arch: fidelity for archs, _, fidelity in runs for arch in archs}
    if instruction.family in ("ldmatrix", "stmatrix"):
        data["row_addresses"] = instruction.row_addresses._asdict()
    return data


def _operand_data(operand: Operand) -> dict[str, Any]:
    names = (
        "name", "rows", "cols", "format", "where", "registers", "register_bits", "slots", "slot_bits",
        "packing", "layout", "formulas", "source",
    )  # fmt: skip
    data = {name: getattr(operand, name) for name in names}
    return data | {"format": operand.format.name, "layout": str(operand.layout)}


def _flattened(
    properties: list[tuple[str, Cell]], instruction: Instruction, runs: list[tuple[tuple[str, ...], str, str]]
) -> list[tuple[Cell, ...]]:
    rows: list[tuple[Cell, ...]] = [("instruction", name, value) for name, value in properties if value != ""]
    for operand in instruction.operands.values():
        rows += [
            (operand.name, name, value) for name, value in _operand_data(operand).items() if name != "name"
        ]
    for archs, how, fidelity in runs:
        for arch in archs:
            rows.append((arch, "runs as", how))
            rows += [(arch, "computed bits", fidelity)] if fidelity else []
    return rows
