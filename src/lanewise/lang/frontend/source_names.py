"""Collects the names of a traced kernel: which registers of its PTX hold which Python variables."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Set
from itertools import count
from typing import Any

from lanewise.lang.matrix.tensor_memory import TmemMatrix
from lanewise.lang.memory.array import Array, Strided
from lanewise.lang.trace.builder import Register, Symbol
from lanewise.lang.trace.scalar import Scalar
from lanewise.ptx.model.source_names import (
    SourceArray,
    SourceMatrix,
    SourceNames,
    SourceValue,
    SourceVariable,
)


def source_names(
    bound: Mapping[str, list[object]], by_hint: Mapping[str, list[str]], computed: Set[Symbol | None]
) -> SourceNames:
    """Return the names of a kernel, from what each variable was bound to, and its registers by their hint.

    `computed` has the variables in which the kernel computes with pointers; None stands for all.
    """
    variables: dict[str, SourceVariable] = {}
    arrays: dict[str, SourceArray] = {}
    for name, values in bound.items():
        for value in values:
            if isinstance(value, Array):
                array = _array(value, computed)
                if array is not None:
                    arrays[name] = array
            elif name not in variables:
                variable = _variable(name, value, by_hint)
                if variable is not None:
                    variables[name] = variable
    others = {
        name: _value(name, value[-1], by_hint, count())
        for name, value in bound.items()
        if name not in variables and name not in arrays
    }
    matrices = {
        name: matrix
        for name, values in bound.items()
        for value in values
        if isinstance(value, TmemMatrix) and (matrix := _matrix(name, value, by_hint)) is not None
    }
    for hint, registers in by_hint.items():  # parameters, and what only loops and branches have named
        variables.setdefault(hint, SourceVariable((tuple(registers),)))
    return SourceNames(variables, arrays, others, matrices)


def _value(name: str, value: object, by_hint: Mapping[str, list[str]], leaves: Iterator[int]) -> SourceValue:
    """Return what a Python variable holds, and what its lists, tuples and dicts hold; None if it is unknown.

    A loop or a branch that changes a list gives its registers the name of the list and a number, counted
    over all that the list holds: `leaves` counts them.
    """
    match value:
        case int() | float():
            return value
        case list() | tuple():
            return tuple(_value(name, item, by_hint, leaves) for item in value)
        case dict():
            return {key: _value(name, item, by_hint, leaves) for key, item in value.items()}
        case Scalar(constant=int() | float() as number) if value.register is None:
            registers = by_hint.get(f"{name}{next(leaves)}")
            return SourceVariable((tuple(registers),), value.dtype) if registers else number
    held = [value] if isinstance(value, Scalar) else getattr(value, "registers", None)
    if not isinstance(held, tuple | list) or not all(isinstance(item, Scalar) for item in held):
        return None
    elements = []
    for item in held:
        own = _register_name(item)
        names = [*([own] if own else []), *by_hint.get(f"{name}{next(leaves)}", ())]
        elements.append(tuple(dict.fromkeys(names)))
    if not elements or not all(elements):
        return None
    return SourceVariable(tuple(elements), held[0].dtype, getattr(value, "operand", None))


def _array(array: Array, computed: Set[Symbol | None]) -> SourceArray | None:
    """Return an array in shared memory; None for others, and if its layout is not known while tracing."""
    base, offset = array.pointer.base, array.pointer.offset
    if array.space != "shared" or not isinstance(base, Symbol) or not isinstance(offset, int):
        return None
    if isinstance(array.layout, Strided):
        return None
    by_pointers = base in computed or None in computed
    return SourceArray(base.name, offset, array.dtype, array.layout, by_pointers)


def _matrix(name: str, matrix: TmemMatrix, by_hint: Mapping[str, list[str]]) -> SourceMatrix | None:
    """Return a matrix in tensor memory; None if no register holds its address."""
    own = _register_name(matrix.address)
    names = (*([own] if own else ()), *by_hint.get(name, ()), *by_hint.get(f"{name}0", ()))
    if not names:
        return None
    return SourceMatrix(tuple(dict.fromkeys(names)), matrix.dtype, matrix.slot_bits, matrix.spread)


def _variable(name: str, value: object, by_hint: Mapping[str, list[str]]) -> SourceVariable | None:
    """Return the registers of a variable; None if it has none of its own."""
    if isinstance(value, Scalar):
        registers = by_hint.get(name)
        return SourceVariable((tuple(registers),), value.dtype) if registers else None
    held = getattr(value, "registers", None)
    if not isinstance(held, tuple | list) or not held:
        return None
    hints = [f"{name}{number}" for number in range(len(held))]
    if len(held) == 1 and name in by_hint:
        hints = [name]
    if not all(hint in by_hint for hint in hints):
        return None
    elements = tuple(tuple(by_hint[hint]) for hint in hints)
    return SourceVariable(elements, getattr(held[0], "dtype", None), getattr(value, "operand", None))


def _register_name(value: Scalar) -> str:
    """Return the name in the PTX of the register that holds a value; empty if none does."""
    register: Any = value.register
    while register is not None and register.alias is not None:
        register = register.alias if isinstance(register.alias, Register) else None
    return register.name if register is not None else ""


def captured_numbers(function: Callable[..., object]) -> dict[str, int | float]:
    """Return the numbers that a kernel reads from its module and from functions around it, by name."""
    captured = inspect.getclosurevars(function)
    names = {**captured.globals, **captured.nonlocals}
    return {name: value for name, value in names.items() if isinstance(value, int | float)}
