"""Finds where a GPU may give other bits than the machine: approximate functions, fused sums, torn atomics.

And where a kernel relies on which elements of a wmma fragment a lane holds, which PTX leaves open: Volta
holds other elements than later GPUs. Code that does the same to every element is right on all; what is seen
are elements that are stored one by one with st, and fragments that are loaded one by one with ld.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from lanewise.isa import find_arch
from lanewise.isa.multiprocessor import TORN_IN_CLUSTERS
from lanewise.isa.operands import has_volta_fragments
from lanewise.machine.program.instruction_record import AccessKind, BlockEnd, Fusion, Level, Role
from lanewise.machine.program.operands import Register, elements_of, registers_in
from lanewise.machine.program.ops import FunctionBody, Op, Program
from lanewise.machine.program.ptx_types import ROUNDINGS
from lanewise.machine.program.resolve import resolve
from lanewise.ptx import Entry, Function, Module

Kind = Literal["approximate", "may be fused", "inferred", "not atomic"]
_FUSED = frozenset(("f32", "f64", "f32x2", "f16", "f16x2", "bf16", "bf16x2"))


@dataclass(frozen=True)
class Note:
    """An instruction whose bits may differ on a GPU: its line and text, why (`kind`), and a sentence."""

    line: int
    text: str
    kind: Kind
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}"


def fidelity(module: Module, entry: str | Function | Entry, arch: str | None = None) -> list[Note]:
    """Return notes on the instructions of a kernel that may give other bits on a GPU than on the machine.

    >>> import lanewise as lw
    >>> from lanewise.machine import fidelity
    >>> module = lw.load('''.version 8.0
    ... .target sm_80
    ... .address_size 64
    ... .visible .entry k() {
    ...     .reg .f32 %f<4>;
    ...     mul.f32 %f2, %f0, %f1;
    ...     add.f32 %f3, %f2, %f1;
    ...     ex2.approx.f32 %f3, %f3;
    ...     ret;
    ... }''')
    >>> [(note.line, note.kind) for note in fidelity(module, "k")]
    [(7, 'may be fused'), (8, 'approximate')]
    """
    function = module[entry].function if isinstance(entry, str) else entry
    function = function.function if isinstance(function, Entry) else function
    return of_program(resolve(module, function), find_arch(arch if arch is not None else module.arch))


def of_entry(entry: Entry, arch: str | None = None) -> list[Note]:
    """Return the notes of an entry; `module["k"].fidelity(arch)` calls this."""
    return fidelity(entry.module, entry.function, arch)


def of_program(program: Program, arch: str) -> list[Note]:
    """Return the notes of a kernel and of the functions that it calls, sorted by line."""
    collected = [note for body in program.bodies for note in _of_body(body, arch)]
    return sorted(dict.fromkeys(collected), key=lambda note: (note.line, note.kind))


def approximate(op: Op) -> bool:
    """Return whether the PTX ISA states an error bound for an instruction instead of its bits."""
    return op.has("approx") or op.record.approximate


#: Approximate functions whose bits were seen on an H200 and are those of the machine.
_MEASURED = ("ex2",)


def _measured(op: Op, arch: str) -> bool:
    """Return whether the machine has the bits of an approximate function as they were seen on an arch."""
    return op.record.pattern in _MEASURED and op.has("f32") and arch.rstrip("af") == "sm_90"


def _guessed(op: Op, arch: str) -> str:
    """Return why the result of an instruction is not certain on an arch; empty if it is."""
    if op.record.inferred:
        confirmed = op.record.confirmed_on and arch.rstrip("af") == op.record.confirmed_on
        return "" if confirmed else op.record.inferred
    if not op.record.multiplies:
        return ""
    instruction = op.source.instruction()
    trust = "unknown" if instruction is None or arch not in instruction.archs else instruction.fidelity(arch)
    if trust == "confirmed on hardware":
        return ""
    return f"what {arch} computes is {trust if trust != 'unknown' else 'not known'}"


def _torn(op: Op) -> bool:
    """Return whether an atomic of 64 bits loses updates where the memory is another block's."""
    is_atomic = any(
        access.kind is AccessKind.ATOMIC and not access.asynchronous for access in op.record.memory
    )
    return (
        is_atomic
        and op.has("shared::cluster")
        and any(map(op.has, TORN_IN_CLUSTERS))
        and any(name.endswith("64") for name in op.types)
    )


def _of_body(body: FunctionBody, arch: str) -> Iterator[Note]:
    """Yield the notes of one function, following which registers hold a product."""
    leaders = set(body.labels.values())
    products: dict[Register, Op] = {}
    for position, op in enumerate(body.ops):
        text = str(op.source)
        if approximate(op) and not _measured(op, arch):
            message = f"{op.head} is approximate: a GPU may differ within the error that the PTX ISA states"
            yield Note(op.line, text, "approximate", message)
        guessed = _guessed(op, arch)
        if guessed:
            yield Note(op.line, text, "inferred", f"{op.head}: {guessed}")
        if _torn(op):
            message = (
                f"{op.head} is not atomic on a GPU if the memory is another block's: updates are lost; "
                "use 32 bits, or a loop with atom.cas"
            )
            yield Note(op.line, text, "not atomic", message)
        if position in leaders:
            products = {}
        fused = _product(op, products)
        if fused is not None:
            message = f"ptxas may fuse it with the mul of line {fused.line}: the machine rounds twice"
            yield Note(op.line, text, "may be fused", message)
        _follow(op, products)
        if op.record.ends is not BlockEnd.FALLTHROUGH:  # lanes may diverge: ptxas fuses nothing across it
            products = {}


def _plain(op: Op) -> bool:
    """Return whether an instruction computes with floats and names no rounding mode."""
    types = op.types
    return bool(types) and types[-1] in _FUSED and not set(ROUNDINGS).intersection(op.modifiers)


def _product(op: Op, products: dict[Register, Op]) -> Op | None:
    """Return the product that a sum may be fused with. ptxas fuses only if both or neither have .ftz."""
    if op.record.fusion is not Fusion.SUM or not _plain(op):
        return None
    made = [products.get(operand) if isinstance(operand, Register) else None for operand in op.operands[1:]]
    for product, other in (made, made[::-1]):
        if product is None or product is other:
            continue
        if product.types == op.types and product.has("ftz") == op.has("ftz"):
            return product
    return None


def _follow(op: Op, products: dict[Register, Op]) -> None:
    """Update which registers hold a product after an instruction; mov and neg pass it on."""
    target = op.operands[0] if op.operands else None
    for register in () if target is None else elements_of(target):
        if not isinstance(register, Register):
            continue
        source = op.operands[1] if len(op.operands) > 1 else None
        passed = products.get(source) if isinstance(source, Register) else None
        products.pop(register, None)
        if op.guard is not None:
            continue
        if op.record.fusion is Fusion.PRODUCT and _plain(op) and not op.has("sat"):
            products[register] = op
        elif op.record.fusion is Fusion.PASSES and passed is not None:
            products[register] = passed


def notes(program: Program, arch: str) -> list[str]:
    """Return the notes as few sentences: instructions with the same note share one that lists their lines."""
    lines: dict[str, list[int]] = {}
    for note in of_program(program, arch):
        if note.kind == "may be fused":
            text = "ptxas may fuse a mul with this add or sub, the machine rounds twice"
        else:
            text = note.message
        lines.setdefault(text, []).append(note.line)
    for line, text in fragment_notes(program):
        lines.setdefault(text, []).append(line)
    return [f"{text} (line{_lines(numbers)})" for text, numbers in lines.items()]


def _lines(lines: list[int]) -> str:
    """Return line numbers as text, at most six of them."""
    first = sorted(set(lines))
    names = ", ".join(str(line) for line in first[:6])
    return f"{'s' if len(first) > 1 else ''} {names}{', …' if len(first) > 6 else ''}"


# wmma fragments --------------------------------------------------------------------------------------------

_WHY = (
    "PTX leaves open which element that is, and sm_70 has another than later GPUs "
    "(lanewise explain shows both, with --arch sm_70 and without)"
)


def fragment_notes(program: Program) -> list[tuple[int, str]]:
    """Return lines that take a wmma fragment apart by place, or put one together, each with a sentence."""
    return [note for body in program.bodies for note in (*_stored_elements(body), *_loaded_elements(body))]


def _is_fragment_op(op: Op) -> bool:
    """Return whether an instruction takes or gives wmma fragments that Volta has of its own."""
    instruction = op.source.instruction()
    return instruction is not None and has_volta_fragments(instruction)


def _stored_elements(body: FunctionBody) -> list[tuple[int, str]]:
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


def _loaded_elements(body: FunctionBody) -> list[tuple[int, str]]:
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
