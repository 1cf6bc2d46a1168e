"""What `explain` says of tcgen05, bulk and tensor copies, and of copy atoms without a matrix instruction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lanewise.cli.terminal.answer import Answer, Table, facts
from lanewise.isa import describe_targets
from lanewise.isa.asynchronous import async_instruction
from lanewise.isa.asynchronous.descriptor import product_of, shapes

if TYPE_CHECKING:
    from lanewise.atoms import Copy_Atom


def of_async(text: str, arch: str | None) -> Answer:
    """Explain an asynchronous instruction, for an arch if one is given.

    >>> of_async("tcgen05.mma.cta_group::1.kind::f16", None).data["shapes"]["k"]
    '16'
    """
    found = async_instruction(text, arch=arch)
    rows: list[tuple[str, Any]] = [("instruction", found.text), ("does", found.does)]
    rows += [("operands", found.operands)] if found.operands else []
    rows += [("archs", describe_targets(found.archs)), ("PTX", f"{found.since} and later")]
    data: dict[str, Any] = {
        "text": found.text,
        "family": found.family,
        "does": found.does,
        "operands": found.operands,
        "archs": list(found.archs),
        "since": found.since,
        "words": dict(found.words),
    }
    tables = []
    if ".mma." in found.text:
        sizes = shapes(found.text)
        rows += [("M", sizes.m), ("N", sizes.n), ("K", sizes.k)]
        data["shapes"] = sizes._asdict()
        fields = product_of(found.text).kind.fields()
        data["instruction_descriptor"] = [field._asdict() for field in fields]
        tables.append(
            Table(
                "instruction descriptor, 32 bits",
                ("field", "bits", "says"),
                [(field.name, _bits(field.first, field.bits), field.says) for field in fields],
            )
        )
    words = Table("words", ("word", "says"), list(found.words))
    note = (
        "The CPU machine does not run tcgen05: a launch with it is refused."
        if found.family.startswith("tcgen05")
        else "docs/hopper.md says which of these copies the CPU machine runs."
    )
    return Answer((facts("", rows), *((words,) if found.words else ()), *tables), data, (note,))


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
