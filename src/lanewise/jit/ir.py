"""LLVM IR written as text: types, constants, modules, and a builder that appends a line for each instruction.

A small part of `llvmlite.ir` under the same names, some ten times faster: a kernel is tens of thousands of
lines. What is written is checked by LLVM when it reads it; `simd.py` is what kernels are written with.
"""

from lanewise.jit.ir_builder import IRBuilder
from lanewise.jit.ir_module import Block, Function, GlobalVariable, Module, Phi
from lanewise.jit.ir_types import (
    BOOL,
    BYTES,
    LONG,
    WORD,
    ArrayType,
    Constant,
    Content,
    DoubleType,
    FloatType,
    FunctionType,
    HalfType,
    IntType,
    Operand,
    Type,
    Undefined,
    VectorType,
    VoidType,
)

__all__ = [
    "BOOL",
    "BYTES",
    "LONG",
    "WORD",
    "ArrayType",
    "Block",
    "Constant",
    "Content",
    "DoubleType",
    "FloatType",
    "Function",
    "FunctionType",
    "GlobalVariable",
    "HalfType",
    "IRBuilder",
    "IntType",
    "Module",
    "Operand",
    "Phi",
    "Type",
    "Undefined",
    "VectorType",
    "VoidType",
]
