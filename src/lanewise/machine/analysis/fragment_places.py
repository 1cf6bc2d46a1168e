"""Finds where a kernel relies on which elements of a wmma fragment a lane holds.

PTX leaves that open. Volta holds other elements than later GPUs, so such code is right for one of them only.
Code that does the same to every element is right on all; what is seen here are elements that are stored one
by one with st, and fragments that are loaded one by one with ld.
"""

from lanewise.isa.operands import has_volta_fragments
from lanewise.machine.program.instruction_record import Level, Role
from lanewise.machine.program.operands import Register, registers_in
from lanewise.machine.program.ops import FunctionBody, Op, Program

_WHY = (
    "PTX leaves open which element that is, and sm_70 has another than later GPUs "
    "(lanewise explain shows both, with --arch sm_70 and without)"
)


def notes(program: Program) -> list[tuple[int, str]]:
    """Return lines that take a wmma fragment apart by place, or put one together, each with a sentence."""
    return [note for body in program.bodies for note in (*_stored(body), *_loaded(body))]


def _is_fragment_op(op: Op) -> bool:
    """Return whether an instruction takes or gives wmma fragments that Volta has of its own."""
    instruction = op.source.instruction()
    return instruction is not None and has_volta_fragments(instruction)


def _stored(body: FunctionBody) -> list[tuple[int, str]]:
    """Return notes on stores of single elements."""
    holds: set[Register] = set()
    lines: list[tuple[int, str]] = []
    for op in body.ops:
        sources = [register for register in op.registers(Role.USED) if register in holds]
        if op.record.is_plain_store and sources:
            lines.append((op.line, f"{op.opcode} stores an element of a wmma fragment: {_WHY}"))
        defined = op.registers(Role.DEFINED)
        if _is_fragment_op(op):
            holds |= defined
        elif op.record.level is Level.LANE and len(sources) == 1:
            holds |= defined  # the element, moved or changed; sums over several belong to no place
        else:
            holds -= defined
    return lines


def _loaded(body: FunctionBody) -> list[tuple[int, str]]:
    """Return notes on fragments whose elements come from several loads; one value for all is portable."""
    origins: dict[Register, Op] = {}
    lines: list[tuple[int, str]] = []
    for op in body.ops:
        if _is_fragment_op(op):
            for number, operand in enumerate(op.operands):
                if op.record.role(number) is not Role.USED:
                    continue
                loads = {
                    origins[register].site: origins[register]
                    for register in registers_in(operand)
                    if register in origins
                }
                if len(loads) > 1:
                    text = f"{{}} loads an element of a wmma fragment: {_WHY}"
                    lines += [(load.line, text.format(load.opcode)) for load in loads.values()]
        sources = [register for register in op.registers(Role.USED) if register in origins]
        for register in op.registers(Role.DEFINED):
            if op.record.is_plain_load and op.space != "param":
                origins[register] = op
            elif op.record.level is Level.LANE and len(sources) == 1:
                origins[register] = origins[sources[0]]
            else:
                origins.pop(register, None)
    return lines
