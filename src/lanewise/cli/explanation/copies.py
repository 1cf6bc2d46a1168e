"""What `explain` says of a copy atom that is no matrix instruction: cp.async, bulk and plain copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lanewise.cli.terminal.answer import Answer, facts

if TYPE_CHECKING:
    from lanewise.atoms import Copy_Atom


def of_copy(copy: Copy_Atom) -> Answer:
    """Return what there is to know of a copy by one thread."""
    pairs: list[tuple[str, str | int]] = [
        ("operation", copy.name),
        ("threads", copy.ThrID.size()),
        ("bits of one copy", copy.operation.bits),
        ("value type", str(copy.ValType)),
        ("source", f"{copy.ValLayoutSrc}  (thread, value)"),
        ("destination", f"{copy.ValLayoutDst}  (thread, value)"),
    ]
    data = {
        "operation": copy.name,
        "threads": copy.ThrID.size(),
        "bits": copy.operation.bits,
        "value_type": str(copy.ValType),
        "source": str(copy.ValLayoutSrc),
        "destination": str(copy.ValLayoutDst),
    }
    note = "It is no matrix instruction: one thread issues it, and each value goes where it lay."
    return Answer((facts("", pairs),), data, (note,))
