"""What `explain` says of tcgen05, bulk and tensor copies, and of copy atoms without a matrix instruction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from lanewise.cli.explanation import tensor_memory
from lanewise.cli.terminal.answer import Answer, Table, facts
from lanewise.errors import LanewiseError
from lanewise.isa import describe_targets, instruction
from lanewise.isa.asynchronous import AsyncInstruction, Tcgen05Instruction
from lanewise.isa.asynchronous.descriptor import shapes

if TYPE_CHECKING:
    from lanewise.atoms import Copy_Atom, MMA_Atom

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
        tables += [*tensor_memory.product_tables(product, data), _descriptor(product, data)]
        tables.append(_bits_of_archs(product, arch, data))
        note = "On arrays: lw.instruction, `lanewise compute`. What is not chosen follows the arrays."
    elif form.family.startswith("tcgen05"):
        tables += tensor_memory.move_tables(form, data)
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
        return tensor_memory.of_element(subject, element)
    form = cast(AsyncInstruction, subject)
    if form.family in MOVES and name.lower() == "tmem":
        return tensor_memory.of_word(form, row, column)
    raise LanewiseError(
        f"{name} is no matrix of {form.text}: tcgen05.mma has A, B and D (and E, scale-a, scale-b), and of "
        "tcgen05.ld and st a word is named by lane and column, as in --element tmem 3 5"
    )


def of_lane(text: str, arch: str | None, descriptor: int | None, lane: int) -> Answer:
    """Explain what a thread's registers hold for a load or store, or what a lane holds of a product's D."""
    subject = instruction(text, arch=arch, descriptor=descriptor)
    if isinstance(subject, Tcgen05Instruction):
        return tensor_memory.of_tensor_lane(subject, lane)
    form = cast(AsyncInstruction, subject)
    if form.family not in MOVES:
        raise LanewiseError(f"{form.text} has no lanes: tcgen05.mma, ld and st have")
    return tensor_memory.of_thread(form, lane)


def _descriptor(product: Tcgen05Instruction, data: dict[str, Any]) -> Table:
    """Return the fields of the instruction descriptor, with their values where some were chosen."""
    bits = product.descriptor.encode()
    fields = product.descriptor.fields
    data["instruction_descriptor"] = [field._asdict() for field in fields]
    title = "instruction descriptor, 32 bits"
    if not product.chosen:
        rows = [(field.name, _bits(field.first, field.bits), field.says) for field in fields]
        return Table(title, ("field", "bits", "says"), rows)
    data["descriptor"] = f"{bits:#010x}"
    values = {field.name: getattr(product.descriptor, field.attribute) for field in fields}
    for row in data["instruction_descriptor"]:
        row["value"] = values[row["name"]]
    chosen = [
        (field.name, _bits(field.first, field.bits), field.of(bits), str(values[field.name]), field.says)
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


def _bits(first: int, count: int) -> str:
    return str(first) if count == 1 else f"{first}-{first + count - 1}"


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
