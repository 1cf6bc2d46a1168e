"""What `explain` says of a copy atom that is no matrix instruction: cp.async, bulk and plain copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lanewise.cli.terminal.answer import Answer, facts

if TYPE_CHECKING:
    from lanewise.atoms import Copy_Atom


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
