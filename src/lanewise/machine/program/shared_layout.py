"""Where the variables of a kernel lie in static shared memory: those that it and its callees name.

ptxas charges a kernel for no other variable of its module, but for every one that its functions declare. It
puts the kernel's own first, then the module's in the order of their declarations, then those of callees, and
at last what is declared and never named (read from the SASS of ptxas 13).

Sizes and alignments that no GPU has are refused before anything is allocated. What a launch adds (dynamic
shared memory, threads) is checked by `lanewise.launch`.
"""

from collections.abc import Iterable, Iterator, Sequence

from lanewise.errors import LanewiseError
from lanewise.machine.abi import aligned
from lanewise.machine.program.operands import Symbol
from lanewise.machine.program.ops import Program
from lanewise.ptx import (
    Address,
    Element,
    Function,
    Group,
    Index,
    Module,
    Name,
    Offset,
    Operand,
    Pair,
    Unary,
    Variable,
    Vector,
)

#: Bytes in all by state space: local memory is a thread's; a program's static data stay within 2 GiB, so that
#: 32-bit relocations reach them; the PTX ISA gives constants ten banks of 64 KiB and one for the compiler.
MOST = {"local": 512 << 10, "const": 11 * (64 << 10), "global": 2 << 30}
#: Bytes that a variable may be aligned to.
COARSEST = 1 << 16


def check_variable(variable: Variable) -> None:
    """Raise an error if the alignment or size of a variable is not possible."""
    alignment = variable.alignment
    if alignment & (alignment - 1) or alignment > COARSEST:
        raise LanewiseError(
            f"line {variable.line}: {variable.name} cannot be aligned to {alignment} bytes; "
            f"an alignment is a power of two up to {COARSEST}"
        )
    if variable.size > MOST["global"]:
        raise LanewiseError(
            f"line {variable.line}: {variable.name} has {variable.size} bytes; "
            f"a variable has at most {MOST['global']}"
        )


def check_program(program: Program) -> None:
    """Raise an error if all variables together exceed what a GPU has."""
    totals = dict.fromkeys(MOST, 0) | {"local": program.local_bytes}
    for symbol in program.globals.values():
        if symbol.space in ("const", "global"):
            totals[symbol.space] += symbol.size
    for space, most in MOST.items():
        if totals[space] > most:
            whose = "a thread of " if space == "local" else ""
            raise LanewiseError(
                f"{whose}{program.entry.name} needs {totals[space]} bytes of .{space} memory; "
                f"there are at most {most}"
            )


def place_shared_variables(
    module: Module, functions: Sequence[Function], start: int
) -> tuple[dict[int, Symbol], int]:
    """Return the symbols of shared variables by the identity of their declaration, and where they end.

    `functions` are the kernel and the device functions that it may call; `start` is the first free byte.
    """
    symbols: dict[int, Symbol] = {}
    end = start
    for variable in _in_order(module, functions):
        check_variable(variable)
        address = aligned(end, variable.alignment)
        symbols[id(variable)] = Symbol(
            variable.name, "shared", address, variable.size, alignment=variable.alignment
        )
        end = address + variable.size
    return symbols, end


def _in_order(module: Module, functions: Sequence[Function]) -> list[Variable]:
    """Return the variables to place in the order of their addresses; those without a size are dynamic."""
    named = {id(variable) for function in functions for variable in _named(module, function)}
    entry = [function for function in functions if function.is_entry]
    callees = [function for function in functions if not function.is_entry]
    own, further = _declared(entry), _declared(callees)
    ordered = [*own, *module.variables.values(), *further]
    placed = [variable for variable in ordered if id(variable) in named]
    placed += [variable for variable in (*own, *further) if id(variable) not in named]
    return [variable for variable in placed if variable.space == "shared" and variable.size]


def _declared(functions: Iterable[Function]) -> list[Variable]:
    """Return all variables that functions declare in their bodies, in the order of the text."""
    bodies = (function.body or () for function in functions)
    return [statement for body in bodies for statement in body if isinstance(statement, Variable)]


def _named(module: Module, function: Function) -> Iterator[Variable]:
    """Yield the variables that the instructions of a function name."""
    for operation in function.operations:
        for operand in operation.operands:
            for name in _names(operand):
                variable = function.variable(name, operation.scope) or module.variables.get(name)
                if variable is not None:
                    yield variable


def _names(operand: Operand) -> Iterator[str]:
    """Yield every name that an operand holds."""
    match operand:
        case Name(name) | Element(name) | Offset(name) | Index(name):
            yield name
        case Unary(_, inner):
            yield from _names(inner)
        case Pair(first, second):
            yield from _names(first)
            yield from _names(second)
        case Vector(elements) | Group(elements):
            for element in elements:
                yield from _names(element)
        case Address(base, _, rest):
            for address in (base, *rest):
                yield from _names(address)
