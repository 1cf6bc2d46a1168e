"""`lw.asm`, which is no instruction of its own: PTX text of the user's in a kernel, with typed operands.

The text is written as it stands; the assembler says what is wrong with it.
"""

import re
from typing import Any

from lanewise.formats import Format
from lanewise.isa import arch_number
from lanewise.lang.memory.pointer import Pointer
from lanewise.lang.trace.builder import InlineText, Register, current
from lanewise.lang.trace.scalar import Scalar, scalar
from lanewise.lang.trace.types import register_kind

_OPERAND = re.compile(r"\{(\w+)\}")


def asm(text: str, *, needs: tuple[str, str] = ("sm_50", "6.0"), **operands: object) -> Any:
    """Emit PTX as it is written, with `{name}` for its operands: a dtype for a result, a value for a source.

    Inside a kernel: `d = lw.asm("add.u32 {d}, {a}, {b};", d=lw.u32, a=x, b=y)`. Several results come as a
    tuple, in the order in which they are named. A pointer stands for its address. Other braces are PTX's
    own: `"mov.b64 {{lo}, {hi}}, {x};"`. `needs` says the arch and the PTX version that the text takes.
    """
    builder = current()
    if not isinstance(text, str):
        raise builder.error(f"lw.asm takes PTX text first, not {text!r}")
    names = set(_OPERAND.findall(text))
    for name in sorted(names - operands.keys()):
        raise builder.error(f"lw.asm: the text has {{{name}}}, and no {name}= is given")
    for name in sorted(operands.keys() - names):
        raise builder.error(f"lw.asm: {name}= is given, and the text has no {{{name}}}")
    builder.need("lw.asm", arch_number(needs[0]), needs[1])
    results: list[Scalar] = []
    written: dict[str, object] = {}
    for name, operand in operands.items():
        if isinstance(operand, Format):
            register = Register(register_kind(operand), name)
            results.append(Scalar(operand, register))
            written[name] = register
        elif isinstance(operand, Pointer):
            written[name] = operand.address.in_register
        else:
            written[name] = scalar(operand, None, f"{name}= of lw.asm").operand
    pieces: list[object] = []
    end = 0
    for match in _OPERAND.finditer(text):
        pieces += [text[end : match.start()], written[match.group(1)]]
        end = match.end()
    builder.emit("", InlineText((*pieces, text[end:].rstrip().rstrip(";"))))
    if not results:
        return None
    return results[0] if len(results) == 1 else tuple(results)
