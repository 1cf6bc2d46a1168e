"""PTX in and out: parse, print, and the outside tools (NVRTC, ptxas, nvdisasm), each behind one function.

What PTX computes is the machine's business; what a matrix instruction is, `lanewise.isa`'s.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from lanewise.ptx.directives import Alias, Data, Dwarf, File, Limit, Pragma, Prototype, Section, Targets
from lanewise.ptx.launch_shape import Shape
from lanewise.ptx.loading import load
from lanewise.ptx.module import Entry, Function, Item, Module, Scope, Statement
from lanewise.ptx.names import demangle
from lanewise.ptx.operand_parser import constant
from lanewise.ptx.operands import (
    Address,
    Element,
    Group,
    Guard,
    Immediate,
    Index,
    Name,
    Offset,
    Operand,
    Pair,
    Unary,
    Vector,
)
from lanewise.ptx.parser import parse
from lanewise.ptx.statements import BlockEnd, BlockStart, Call, Label, Loc, Operation
from lanewise.ptx.syntax_error import PtxSyntaxError
from lanewise.ptx.variables import Attribute, Initialiser, Pointer, Setting, SymbolAddress, Value, Variable

if TYPE_CHECKING:
    from lanewise.ptx.assembler import Cubin, Resources, nvdisasm, ptxas
    from lanewise.ptx.cuda_source import CudaSource, cuda
    from lanewise.ptx.runtime_compiler import nvrtc
    from lanewise.ptx.toolkit import ToolFailed, ToolMissing

#: Loaded on first use: the outside tools, which PTX that is there does without.
_LATER = {
    "Cubin": "assembler",
    "Resources": "assembler",
    "nvdisasm": "assembler",
    "ptxas": "assembler",
    "CudaSource": "cuda_source",
    "cuda": "cuda_source",
    "nvrtc": "runtime_compiler",
    "ToolFailed": "toolkit",
    "ToolMissing": "toolkit",
}

__all__ = [
    "Address",
    "Alias",
    "Attribute",
    "BlockEnd",
    "BlockStart",
    "Call",
    "Cubin",
    "CudaSource",
    "Data",
    "Dwarf",
    "Element",
    "Entry",
    "File",
    "Function",
    "Group",
    "Guard",
    "Immediate",
    "Index",
    "Initialiser",
    "Item",
    "Label",
    "Limit",
    "Loc",
    "Module",
    "Name",
    "Offset",
    "Operand",
    "Operation",
    "Pair",
    "Pointer",
    "Pragma",
    "Prototype",
    "PtxSyntaxError",
    "Resources",
    "Scope",
    "Section",
    "Setting",
    "Shape",
    "Statement",
    "SymbolAddress",
    "Targets",
    "ToolFailed",
    "ToolMissing",
    "Unary",
    "Value",
    "Variable",
    "Vector",
    "constant",
    "cuda",
    "demangle",
    "load",
    "nvdisasm",
    "nvrtc",
    "parse",
    "ptxas",
]


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module 'lanewise.ptx' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"lanewise.ptx.{_LATER[name]}"), name)
    return value
