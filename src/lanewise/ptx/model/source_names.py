"""The names of the source behind a module of the kernel language: its variables, and its arrays.

The language fills them in when it traces a kernel. Whoever shows what a kernel did reads them.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from lanewise.formats import Format
from lanewise.isa import Operand
from lanewise.records import record


@record(frozen=True)
class SourceVariable:
    """A variable of the source: the registers that may hold it, its format, the fragment that it is.

    A variable has one element for each register of a lane; each may lie in another register of the PTX at
    another time, and `registers` lists them all.
    """

    registers: tuple[tuple[str, ...], ...]
    format: Format | None = None
    operand: Operand | None = None


#: What a Python variable holds: registers, a number, or a list, tuple or dict of these; None is unknown.
SourceValue = SourceVariable | int | float | tuple["SourceValue", ...] | dict[object, "SourceValue"] | None


@record(frozen=True)
class SourceArray:
    """An array of the source in shared memory: the PTX variable it lies in, where, and how."""

    symbol: str
    offset: int
    format: Format
    layout: Any
    #: Whether the kernel computes with pointers into its variable: another layout would not move those.
    by_pointers: bool = False


@record(frozen=True)
class SourceMatrix:
    """A matrix of the source in tensor memory: the registers that may hold its address, and how it lies.

    `spread.place(lane, column)` is the row and column of the matrix that a lane holds; an element takes
    `slot_bits` bits, and `spread.lane_columns` of them lie in a lane.
    """

    registers: tuple[str, ...]
    format: Format
    slot_bits: int
    spread: Any


@record(frozen=True)
class SourceNames:
    """All variables and arrays of a kernel, by the names that the source gives them."""

    variables: Mapping[str, SourceVariable] = field(default_factory=dict)
    arrays: Mapping[str, SourceArray] = field(default_factory=dict)
    #: Variables that are numbers, lists, tuples or dicts while the kernel is traced.
    values: Mapping[str, SourceValue] = field(default_factory=dict)
    #: Matrices in tensor memory.
    matrices: Mapping[str, SourceMatrix] = field(default_factory=dict)
