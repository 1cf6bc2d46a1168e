"""Where a GPU may give other bits than the machine: approximate functions, and sums that ptxas may fuse."""

from __future__ import annotations

from lanewise.machine.blocks import Block
from lanewise.machine.lanes import types
from lanewise.machine.resolve import Op, Register

#: Rounding modifiers: an instruction that has one is never fused.
ROUNDED = frozenset(("rn", "rz", "rm", "rp"))
_FUSED = frozenset(("f32", "f64", "f16", "f16x2", "bf16", "bf16x2"))
_APPROXIMATE = frozenset(("ex2", "lg2", "sin", "cos", "tanh"))


def approximate(op: Op) -> bool:
    """Whether the PTX ISA states an error for an instruction instead of its bits."""
    return op.has("approx") or op.opcode in _APPROXIMATE or (op.opcode == "div" and op.has("full"))


def _fusible(op: Op) -> bool:
    found = types(op)
    return bool(found) and found[-1] in _FUSED and not ROUNDED.intersection(op.modifiers)


def notes(blocks: list[Block]) -> list[str]:
    """What to know of a kernel's fidelity, a sentence each."""
    loose: dict[str, list[int]] = {}
    pairs: set[tuple[int, int]] = set()
    for block in blocks:
        products: dict[Register, Op] = {}
        for op in block.ops:
            if approximate(op):
                loose.setdefault(op.head, []).append(op.line)
            if op.opcode in ("add", "sub") and _fusible(op):
                for operand in op.operands[1:]:
                    made = products.get(operand) if isinstance(operand, Register) else None
                    if made is not None and types(made)[-1] == types(op)[-1]:
                        pairs.add((made.line, op.line))
            target = op.operands[0] if op.operands else None
            if isinstance(target, Register):
                products.pop(target, None)
                if op.opcode == "mul" and _fusible(op):
                    products[target] = op
    found = [
        f"{head} is approximate: a GPU may differ within the error of the PTX ISA (line{_lines(lines)})"
        for head, lines in sorted(loose.items())
    ]
    return found + [
        f"ptxas may fuse the mul of line {first} with the add of line {second}: the machine rounds twice"
        for first, second in sorted(pairs)
    ]


def _lines(lines: list[int]) -> str:
    first = sorted(set(lines))
    names = ", ".join(str(line) for line in first[:6])
    return f"{'s' if len(first) > 1 else ''} {names}{', …' if len(first) > 6 else ''}"
