"""PTX in and out: parse, print, and the outside tools (NVRTC, ptxas, nvdisasm), each behind one function.

What PTX computes is the machine's business; what a matrix instruction is, `lanewise.isa`'s.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from lanewise.hints import not_called
from lanewise.ptx.launch_shape import (
    Shape,
    cluster_refusal,
    register_refusals,
    required_cluster,
    resources_or_none,
    shape_refusals,
    shared_refusals,
)
from lanewise.ptx.lexer import PtxSyntaxError
from lanewise.ptx.model.directives import (
    Alias,
    Attribute,
    Data,
    Dwarf,
    File,
    Initialiser,
    Limit,
    Pointer,
    Pragma,
    Prototype,
    Section,
    Setting,
    SymbolAddress,
    Targets,
    Value,
    Variable,
)
from lanewise.ptx.model.function import Function, Scope, Statement
from lanewise.ptx.model.module import Entry, Item, Module
from lanewise.ptx.model.names import demangle
from lanewise.ptx.model.statements import (
    Address,
    BlockEnd,
    BlockStart,
    Call,
    Element,
    Group,
    Guard,
    Immediate,
    Index,
    Label,
    Loc,
    Name,
    Offset,
    Operand,
    Operation,
    Pair,
    Unary,
    Vector,
)
from lanewise.ptx.syntax.operand_parser import constant
from lanewise.ptx.syntax.parser import load, parse
from lanewise.tracebacks import short_functions

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

#: What serves in place of names of other libraries.
INSTEAD = dict.fromkeys(("compile", "compiler"), "cuda(source, arch=…) compiles CUDA C++")
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


short_functions(__name__)
not_called(
    __name__, 'kernel.ptx(arch="sm_90") is the PTX of a kernel, lanewise.load("kernel.ptx") reads a file'
)
