"""An instruction written out with its operands: taking the statement apart, and what operands a form expects.

The modifiers are read by `syntax.py`; which registers hold which elements is the operands' own business.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from lanewise.errors import IllegalInstruction

if TYPE_CHECKING:
    from lanewise.isa.instruction import Instruction

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_PREDICATE = re.compile(r"@!?[%\w$]+\s+")
_HEAD = re.compile(r"[^\s{\[]+")
#: Far longer than any instruction's text.
_LONGEST = 400


class Place(NamedTuple):
    """An operand that a statement wants at its place: a vector of so many in braces, or (0) a single one."""

    name: str
    registers: int = 0


def split_statement(statement: str) -> tuple[str, list[str]]:
    """The instruction's text, and the operands after it (none if only the text was given).

    >>> split_statement("@p movmatrix.sync.aligned.m8n8.trans.b16 %r0, %r1;")
    ('movmatrix.sync.aligned.m8n8.trans.b16', ['%r0', '%r1'])
    """
    if not isinstance(statement, str):
        raise IllegalInstruction(f"an instruction is text such as 'mma.sync.aligned…', not {statement!r}")
    text = _PREDICATE.sub("", _COMMENT.sub(" ", statement).strip(), count=1)
    text = text.removesuffix(";").strip()
    match = _HEAD.match(text)
    if match is None:
        raise IllegalInstruction(
            f"an instruction such as 'mma.sync.aligned…' was expected, not {_shortened(statement)!r}"
        )
    head, operands = match.group(), text[match.end() :].strip()
    if len(head) > _LONGEST or ";" in text:
        raise IllegalInstruction(f"one instruction was expected, not {_shortened(statement)!r}")
    return head, _split_operands(head, operands) if operands else []


def _shortened(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}…"


def _split_operands(head: str, text: str) -> list[str]:
    """Split at the commas outside of braces and brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "{[(") - (letter in "}])")
        if depth < 0:
            break
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    if depth != 0:
        raise IllegalInstruction(f"{head}: the brackets of its operands do not match: {_shortened(text)}")
    return [part.strip() for part in parts]


def places(found: Instruction) -> list[Place]:
    """The operands that a statement of this instruction takes, in order.

    >>> from lanewise.isa import instruction
    >>> [place.name for place in places(instruction("ldmatrix.sync.aligned.m8n8.x1.shared.b16"))]
    ['D', 'address']
    """

    def vector(name: str) -> Place:
        return Place(name.upper(), found.operands[name].registers)

    match found.family:
        case "ldmatrix":
            return [vector("d"), Place("address")]
        case "stmatrix":
            return [Place("address"), vector("a")]
        case "movmatrix":
            return [Place("D"), Place("A")]
        case "wmma.load" | "wmma.store":
            moved = vector(found.matrix), Place("address")
            return [
                *(moved if found.family == "wmma.load" else moved[::-1]),
                *[Place("stride")] * found.stride,
            ]
        case "wgmma" | "wgmma.sp":
            return _wgmma_places(found, vector("d"), vector("a"))
    sparse = [Place("metadata"), Place("sparsity selector")] if found.sparse else []
    scales = [Place("scale A"), Place("byte-id and thread-id of A", 2)] if found.scale_type else []
    scales += [Place("scale B"), Place("byte-id and thread-id of B", 2)] if found.scale_type else []
    return [*(vector(name) for name in "dabc"), *sparse, *scales]


def _wgmma_places(found: Instruction, d: Place, a: Place) -> list[Place]:
    in_registers = found.a_source == "registers"
    parts = [d, a if in_registers else Place("A's descriptor"), Place("B's descriptor")]
    if found.sparse:
        parts += [Place("metadata"), Place("sparsity selector")]
    parts.append(Place("scale-d"))
    if found.types[0] != "s32":
        parts += [Place("imm-scale-a"), Place("imm-scale-b")]
    if found.types[1] in ("f16", "bf16"):
        parts += [Place("imm-trans-b")] if in_registers else [Place("imm-trans-a"), Place("imm-trans-b")]
    return parts


def check_operands(found: Instruction, written: list[str]) -> None:
    """Raise unless the operands written are as many as the instruction takes, and each vector as long."""
    expected = places(found)
    if len(written) != len(expected):
        names = ", ".join(place.name for place in expected)
        raise IllegalInstruction(
            f"{found.text}: takes {len(expected)} operands ({names}); {len(written)} are written"
        )
    for number, (place, operand) in enumerate(zip(expected, written, strict=True), start=1):
        where = f"{found.text}: operand {number} ({place.name})"
        if not operand:
            raise IllegalInstruction(f"{where} is empty")
        braced = operand.startswith("{") and operand.endswith("}")
        if not place.registers:
            if braced:
                raise IllegalInstruction(f"{where} is a single one; '{_shortened(operand)}' is written")
            continue
        if not braced:
            raise IllegalInstruction(
                f"{where} is a vector of {place.registers} in braces; '{_shortened(operand)}' is written"
            )
        count = sum(1 for part in operand[1:-1].split(",") if part.strip())
        if count != place.registers:
            raise IllegalInstruction(f"{where} has {place.registers} registers; {count} are written")
