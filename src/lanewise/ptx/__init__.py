"""PTX in and out: parse, print, and the outside tools (NVRTC, ptxas, nvdisasm), each behind one function.

What PTX computes is the machine's business; what a matrix instruction is, `lanewise.isa`'s.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from lanewise.hints import not_called
from lanewise.ptx.launch_refusals import (
    cluster_refusal,
    register_refusals,
    required_cluster,
    resources_or_none,
    shape_refusals,
    shared_refusals,
)
from lanewise.ptx.launch_shape import Shape
from lanewise.ptx.model.directives import Alias, Data, Dwarf, File, Limit, Pragma, Prototype, Section, Targets
from lanewise.ptx.model.function import Function, Scope, Statement
from lanewise.ptx.model.module import Entry, Item, Module
from lanewise.ptx.model.names import demangle
from lanewise.ptx.model.operands import (
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
from lanewise.ptx.model.statements import BlockEnd, BlockStart, Call, Label, Loc, Operation
from lanewise.ptx.model.variables import (
    Attribute,
    Initialiser,
    Pointer,
    Setting,
    SymbolAddress,
    Value,
    Variable,
)
from lanewise.ptx.syntax.operand_parser import constant
from lanewise.ptx.syntax.parser import load, parse
from lanewise.ptx.syntax_error import PtxSyntaxError

if TYPE_CHECKING:
    from lanewise.ptx.cuda_source import CudaSource, cuda
    from lanewise.ptx.tools.assembler import Cubin, Resources, nvdisasm, ptxas
    from lanewise.ptx.tools.runtime_compiler import nvrtc
    from lanewise.ptx.tools.toolkit import ToolFailed, ToolMissing

#: Loaded on first use: the outside tools, which PTX that is there does without.
_HOMES = {
    "tools.assembler": "Cubin Resources nvdisasm ptxas",
    "cuda_source": "CudaSource cuda",
    "tools.runtime_compiler": "nvrtc",
    "tools.toolkit": "ToolFailed ToolMissing",
}
_LATER = {name: home for home, names in _HOMES.items() for name in names.split()}

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
    "cluster_refusal",
    "constant",
    "cuda",
    "demangle",
    "load",
    "nvdisasm",
    "nvrtc",
    "parse",
    "ptxas",
    "register_refusals",
    "required_cluster",
    "resources_or_none",
    "shape_refusals",
    "shared_refusals",
]


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module 'lanewise.ptx' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"lanewise.ptx.{_LATER[name]}"), name)
    return value


not_called(
    __name__, 'kernel.ptx(arch="sm_90") is the PTX of a kernel, lanewise.load("kernel.ptx") reads a file'
)
