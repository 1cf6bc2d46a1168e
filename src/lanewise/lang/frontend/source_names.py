"""Collects the names of a traced kernel: which registers of its PTX hold which Python variables."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from lanewise.lang.memory.array import Array, Strided
from lanewise.lang.trace.ir import Symbol
from lanewise.lang.trace.scalar import Scalar
from lanewise.ptx.model.source_names import SourceArray, SourceNames, SourceVariable


def source_names(
    bound: Mapping[str, list[Any]], by_hint: Mapping[str, list[str]], computed: Set[Symbol | None]
) -> SourceNames:
    """Return the names of a kernel, from what each variable was bound to, and its registers by their hint.

    `computed` has the variables in which the kernel computes with pointers; None stands for all.
    """
    variables: dict[str, SourceVariable] = {}
    arrays: dict[str, SourceArray] = {}
    for name, values in bound.items():
        for value in values:
            if isinstance(value, Array):
                found = _array(value, computed)
                if found is not None:
                    arrays[name] = found
            elif name not in variables:
                variable = _variable(name, value, by_hint)
                if variable is not None:
                    variables[name] = variable
    for hint, registers in by_hint.items():  # parameters, and what only loops and branches have named
        variables.setdefault(hint, SourceVariable((tuple(registers),)))
    return SourceNames(variables, arrays)


def _array(array: Array, computed: Set[Symbol | None]) -> SourceArray | None:
    """Return an array in shared memory; None for others, and if its layout is not known while tracing."""
    base, offset = array.pointer.base, array.pointer.offset
    if array.space != "shared" or not isinstance(base, Symbol) or not isinstance(offset, int):
        return None
    if isinstance(array.layout, Strided):
        return None
    by_pointers = base in computed or None in computed
    return SourceArray(base.name, offset, array.dtype, array.layout, by_pointers)


def _variable(name: str, value: Any, by_hint: Mapping[str, list[str]]) -> SourceVariable | None:
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
