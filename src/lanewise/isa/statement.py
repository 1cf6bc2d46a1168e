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


class Expected(NamedTuple):
    """An operand that a statement takes: a vector of so many registers in braces, or (0) a single one."""

    name: str
    registers: int = 0


def split_statement(statement: str) -> tuple[str, list[str]]:
    """The instruction's text, and the operands after it (none if only the text was given).

    >>> split_statement("@p movmatrix.sync.aligned.m8n8.trans.b16 %r0, %r1;")
    ('movmatrix.sync.aligned.m8n8.trans.b16', ['%r0', '%r1'])
    """
    if not isinstance(statement, str):
        own = f"; it is one already, that of {text!r}" if (text := getattr(statement, "text", "")) else ""
        raise IllegalInstruction(
            f"an instruction is text such as 'mma.sync.aligned…', not {statement!r}{own}"
        )
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


def expected_operands(instruction: Instruction) -> list[Expected]:
    """The operands that a statement of this instruction takes, in order.

    >>> from lanewise.isa import instruction
    >>> load = instruction("ldmatrix.sync.aligned.m8n8.x1.shared.b16")
    >>> [operand.name for operand in expected_operands(load)]
    ['D', 'address']
    """

    def vector(name: str) -> Expected:
        return Expected(name.upper(), instruction.operands[name].registers)

    match instruction.family:
        case "ldmatrix":
            return [vector("d"), Expected("address")]
        case "stmatrix":
            return [Expected("address"), vector("a")]
        case "movmatrix":
            return [Expected("D"), Expected("A")]
        case "wmma.load" | "wmma.store":
            moved = vector(instruction.matrix), Expected("address")
            return [
                *(moved if instruction.family == "wmma.load" else moved[::-1]),
                *[Expected("stride")] * instruction.stride,
            ]
        case "wgmma" | "wgmma.sp":
            return _wgmma_operands(instruction, vector("d"), vector("a"))
    sparse = [Expected("metadata"), Expected("sparsity selector")] if instruction.sparse else []
    scales = [
        part
        for name in ("AB" if instruction.scale_type else "")
        for part in (Expected(f"scale {name}"), Expected(f"byte-id and thread-id of {name}", 2))
    ]
    return [*(vector(name) for name in "dabc"), *sparse, *scales]


def _wgmma_operands(instruction: Instruction, d: Expected, a: Expected) -> list[Expected]:
    in_registers = instruction.a_source == "registers"
    parts = [d, a if in_registers else Expected("A's descriptor"), Expected("B's descriptor")]
    if instruction.sparse:
        parts += [Expected("metadata"), Expected("sparsity selector")]
    parts.append(Expected("scale-d"))
    if instruction.types[0] != "s32":
        parts += [Expected("imm-scale-a"), Expected("imm-scale-b")]
    if instruction.types[1] in ("f16", "bf16"):
        parts += [Expected(f"imm-trans-{name}") for name in ("b" if in_registers else "ab")]
    return parts


def check_operands(instruction: Instruction, written: list[str]) -> None:
    """Raise unless the operands written are as many as the instruction takes, and each vector as long."""
    expected = expected_operands(instruction)
    if len(written) != len(expected):
        names = ", ".join(wanted.name for wanted in expected)
        raise IllegalInstruction(
            f"{instruction.text}: takes {len(expected)} operands ({names}); {len(written)} "
            f"{'is' if len(written) == 1 else 'are'} written"
        )
    for number, (wanted, operand) in enumerate(zip(expected, written, strict=True), start=1):
        where = f"{instruction.text}: operand {number} ({wanted.name})"
        if not operand:
            raise IllegalInstruction(f"{where} is empty")
        braced = operand.startswith("{") and operand.endswith("}")
        if not wanted.registers:
            # CUTLASS writes a scale factor's register in braces, and ptxas takes it.
            if braced and ("," in operand or not wanted.name.startswith("scale")):
                raise IllegalInstruction(f"{where} is a single one; '{_shortened(operand)}' is written")
            continue
        if not braced:
            raise IllegalInstruction(
                f"{where} is a vector of {wanted.registers} in braces; '{_shortened(operand)}' is written"
            )
        count = sum(1 for part in operand[1:-1].split(",") if part.strip())
        if count != wanted.registers:
            raise IllegalInstruction(f"{where} has {wanted.registers} registers; {count} are written")
