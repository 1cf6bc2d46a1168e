"""The arrays of a kernel in shared memory as its source declares them: where, of what element, how laid out.

A kernel of the language brings its arrays along. For CUDA C++ the declaration is looked up in the source,
and trusted if its size is the variable's. Of PTX only the bytes of a variable are known.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal

import numpy as np

from lanewise.layout import ComposedLayout, Layout, Swizzle, flatten
from lanewise.machine.analysis.pointer_provenance import shared_variables
from lanewise.machine.checker.cost.requests import Offsets
from lanewise.machine.program.operands import Symbol
from lanewise.machine.program.ops import Program
from lanewise.machine.program.ptx_types import in_memory_bytes
from lanewise.machine.runtime.shared_names import plain_name
from lanewise.ptx import Module
from lanewise.ptx.model.source_names import SourceArray

Source = Literal["python", "cuda", "ptx"]
#: The variable in which the language has its arrays of dynamic shared memory.
_DYNAMIC = "dynamic_shared"
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_CONSTANT = re.compile(
    r"(?:\bconst(?:expr)?\s+(?:static\s+)?[\w ]*?\b(\w+)\s*=\s*([^;,{}]+);)"
    r"|(?:^\s*#\s*define\s+(\w+)\s+([^\n]+)$)",
    re.MULTILINE,
)
_OPERATIONS: dict[type, Any] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv,
    ast.LShift: operator.lshift, ast.RShift: operator.rshift,
}  # fmt: skip


@dataclass(frozen=True)
class SharedArray:
    """An array in shared memory: its first byte, its bytes in all, an element's bytes, its layout."""

    name: str
    start: int
    size: int
    element_bytes: int
    #: The type of an element as the source writes it; empty if that is not known.
    element: str
    #: The extents and the distances of neighbours along them, both in elements.
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    source: Source
    swizzle: Swizzle | None = None
    #: Whether memory after it is its own, so that it may become longer.
    may_grow: bool = True
    #: Whether its extents are nested: then only a swizzle can be written without them.
    nested: bool = False
    #: Whether the kernel computes with pointers into it, which another layout would not move.
    by_pointers: bool = False

    @property
    def elements(self) -> int:
        """How many elements lie between its first and its last byte."""
        return self.size // self.element_bytes

    def holds(self, low: int, high: int) -> bool:
        """Return whether some bytes lie in it."""
        return self.start <= low and high <= self.start + self.size

    def moved(self, offsets: Offsets, stride: tuple[int, ...], swizzle: Swizzle | None) -> Offsets:
        """Return where the bytes at some offsets would lie with other strides, and swizzled."""
        place = offsets - self.start
        index, byte = place // self.element_bytes, place % self.element_bytes
        if self.swizzle is not None:
            index = self.swizzle(index)
        rest, index = index, np.zeros_like(index)
        for old, new, extent in sorted(zip(self.stride, stride, self.shape, strict=True), reverse=True):
            if extent > 1:
                index += rest // old * new
                rest = rest % old
        index += rest
        if swizzle is not None:
            index = swizzle(index)
        return self.start + index * self.element_bytes + byte

    def in_rows(self, row: int) -> SharedArray:
        """Return an array of one dimension as one of rows of so many elements, the first extent fastest."""
        return replace(self, shape=(row, -(-self.elements // row)), stride=(1, row))


def shared_arrays(program: Program, accessed: dict[Symbol, set[str]]) -> list[SharedArray]:
    """Return the arrays of a program; `accessed` are the types with which instructions access variables.

    A variable of PTX counts as an array of the type that all of them have, and else as one of bytes.
    """
    module = program.module
    variables = shared_variables(program)
    if module.names is not None:
        return list(_of_language(module.names.arrays.items(), variables, program))
    arrays = []
    for variable in variables:
        if not variable.size:
            continue  # dynamic shared memory: where its arrays begin, nobody says
        declared = _declared(module, variable)
        types = accessed.get(variable, set())
        sizes = {in_memory_bytes(one) for one in types}
        size = sizes.pop() if len(sizes) == 1 else 1
        element = types.pop() if len(types) == 1 else ""
        fallback = SharedArray(
            plain_name(variable.name),
            variable.address,
            variable.size,
            size,
            element,
            (variable.size // size,),
            (1,),
            "ptx",
        )
        arrays.append(declared or fallback)
    return arrays


# the language -----------------------------------------------------------------------------------------------


def _of_language(named: Any, variables: tuple[Symbol, ...], program: Program) -> Iterator[SharedArray]:
    """Return the arrays of a kernel of the language, but none that shares its memory with another one."""
    addresses = {variable.name: variable for variable in variables}
    arrays: list[SharedArray] = []
    for name, array in named:
        symbol = addresses.get(array.symbol)
        if array.symbol == _DYNAMIC:
            symbol = Symbol(_DYNAMIC, "shared", program.dynamic_offset, 0)
        if symbol is not None:
            shared = _of_array(name, array, symbol)
            arrays += [shared] if shared is not None else []
    distinct = {(shared.start, shared.size, shared.stride, shared.swizzle): shared for shared in arrays}
    for one in distinct.values():
        others = [other for other in distinct.values() if other is not one]
        if not any(
            other.start < one.start + one.size and one.start < other.start + other.size for other in others
        ):
            yield one


def _of_array(name: str, array: SourceArray, symbol: Symbol) -> SharedArray | None:
    layout, swizzle = array.layout, None
    if isinstance(layout, ComposedLayout):
        if not isinstance(layout.layoutB, Swizzle) or layout.offset != 0:
            return None
        swizzle, layout = layout.layoutB, layout.layoutA
    if not isinstance(layout, Layout):
        return None
    shape, stride = flatten((layout.shape,)), flatten((layout.stride,))
    if not all(isinstance(number, int) and number > 0 for number in (*shape, *stride)):
        return None
    size = -(-array.format.bits // 8)
    elements = int(layout.cosize())
    if swizzle is not None:
        elements = -(-elements // swizzle.size()) * swizzle.size()
    is_static = symbol.size > 0 and array.offset == 0
    nested = any(
        isinstance(mode, tuple) for mode in (layout.shape if isinstance(layout.shape, tuple) else ())
    )
    return SharedArray(
        name, symbol.address + array.offset, elements * size, size, array.format.name, shape, stride,
        "python", swizzle, is_static, nested, array.by_pointers,
    )  # fmt: skip


# CUDA C++ ---------------------------------------------------------------------------------------------------


def _declared(module: Module, symbol: Symbol) -> SharedArray | None:
    """Return a variable as the source declares it; None if no declaration, or several, have its size."""
    if module.cuda is None:
        return None
    text = _COMMENT.sub(" ", module.cuda.text)
    name = plain_name(symbol.name)
    shapes: dict[tuple[int, ...], str] = {}
    for declaration in re.finditer(
        rf"__shared__\s+([^;(){{}}]*?[\w>\s])\b{re.escape(name)}\s*((?:\[[^\]]*\]\s*)+)", text
    ):
        extents = [_number(extent, text) for extent in re.findall(r"\[([^\]]*)\]", declaration[2])]
        shape = tuple(extent for extent in extents if extent)
        if len(shape) == len(extents) and symbol.size % prod(shape) == 0:
            shapes[shape] = " ".join(declaration[1].split())
    sized = [shape for shape in shapes if symbol.size // prod(shape) in (1, 2, 4, 8, 16)]
    if len(sized) != 1:
        return None
    (shape,) = sized
    stride = tuple(prod(shape[number + 1 :]) for number in range(len(shape)))
    element_bytes = symbol.size // prod(shape)
    element = re.sub(r"\b(?:alignas|__align__)\b.*|\b(?:volatile|static)\b", "", shapes[shape]).strip()
    return SharedArray(name, symbol.address, symbol.size, element_bytes, element, shape, stride, "cuda")


def _number(text: str, source: str, depth: int = 4) -> int | None:
    """Return the value of a constant expression of numbers and constants that a source defines; else None."""
    try:
        return _value(ast.parse(text.strip(), mode="eval").body, source, depth)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        return None


def _value(node: ast.expr, source: str, depth: int) -> int:
    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return number
        case ast.BinOp() if type(node.op) in _OPERATIONS:
            left, right = (_value(operand, source, depth) for operand in (node.left, node.right))
            return int(_OPERATIONS[type(node.op)](left, right))
        case ast.Name(id=name) if depth:
            values = {(a or b) for one, a, two, b in _CONSTANT.findall(source) if name in (one, two)}
            if len(values) == 1:
                value = _number(values.pop(), source, depth - 1)
                if value is not None:
                    return value
    raise ValueError("not a constant")
