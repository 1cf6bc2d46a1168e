"""Finds the lowering functions of instructions by the names in the instruction table."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import cast

from lanewise.errors import InternalError, LanewiseError
from lanewise.jit import ir
from lanewise.jit.simd import Code, Type, Value
from lanewise.machine.codegen.function_code import BlockCode, Kernel, shared
from lanewise.machine.codegen.lane_vectors import Lanes, Lower
from lanewise.machine.codegen.threaded_code import Step
from lanewise.machine.errors import UnfitOperand
from lanewise.machine.program.instruction_record import CodeLength
from lanewise.machine.program.operands import Register, ResolvedOperand
from lanewise.machine.program.ops import Op
from lanewise.machine.program.ptx_types import SMALL_FLOATS
from lanewise.ptx import Immediate
from lanewise.recently_used import RecentlyUsed
from lanewise.tracebacks import RAISE_AS_IS

#: Lowers an instruction of a warp.
LowerWarp = Callable[[BlockCode, Op], None]
#: Returns an instruction as a step that all kernels share; None if its form has no such step.
ShareStep = Callable[[ir.Module, Op, Kernel], Step | None]


@cache
def function_of(name: str) -> object:
    """Return a function by "package.module:function", below `lanewise.machine`."""
    module, _, function = name.partition(":")
    return getattr(import_module(f"lanewise.machine.{module}"), function)


def lane_lowering(op: Op) -> Lower:
    """Return the function that lowers an instruction of each lane alone."""
    return cast(Lower, function_of(op.record.lowering))


def warp_lowering(op: Op) -> LowerWarp:
    """Return the function that lowers an instruction of a warp."""
    return cast(LowerWarp, function_of(op.record.lowering))


def shared_step(op: Op) -> ShareStep | None:
    """Return the function that gives an instruction as a shared step; None if there is none."""
    return cast(ShareStep, function_of(op.record.shared_step)) if op.record.shared_step else None


@contextmanager
def naming(op: Op | None) -> Iterator[None]:
    """Let an error of the compiler name the instruction that it happened at, with its line.

    What the compiler refuses, it refuses by a LanewiseError. Any other exception is a mistake in the
    compiler, and must not read as if the PTX were at fault.
    """
    try:
        yield
    except LanewiseError:
        raise
    except UnfitOperand as error:
        if op is None:
            raise
        raise op.unsupported(str(error)) from None
    except Exception as error:
        if op is None or os.environ.get(RAISE_AS_IS):
            raise
        raise InternalError(f"line {op.line}: '{op.source}' could not be compiled", error) from error


#: Names of functions that were written once without an error.
_TRIED: RecentlyUsed[str, bool] = RecentlyUsed(4096)


def is_long(op: Op) -> bool:
    """Return whether the code of an instruction is long enough to be a function of its own."""
    match op.record.length:
        case CodeLength.LONG:
            return True
        case CodeLength.LONG_BUT_FOR_FLOATS:
            return op.types[-1:] not in (("f32",), ("f64",))
        case CodeLength.LONG_FOR_SMALL_FLOATS:
            return not SMALL_FLOATS.isdisjoint(op.types)
    return False


class OperationCode(Code):
    """A function that takes and returns vectors, while it is written."""

    unrolled = False

    def __init__(self, module: ir.Module, name: str, operands: list[Type], result: Type) -> None:
        self.module = module
        self.function = ir.Function(module, operation_type(operands, result), name)
        self.builder = ir.IRBuilder(self.function.append_basic_block("entry"))
        body = self.function.append_basic_block("body")
        self.builder.branch(body)
        self.builder.position_at_end(body)
        self.values = [
            Value(self, type, handle) for type, handle in zip(operands, self.function.args, strict=True)
        ]


def operation_type(operands: list[Type], result: Type) -> ir.Type:
    """Return the LLVM type of a function of vectors."""
    return ir.FunctionType(result.ir, [operand.ir for operand in operands])


def outlined(lanes: Lanes, op: Op, lower: Lower) -> bool:
    """Write an instruction as a call if it is long and all its operands are registers or numbers.

    Returns whether it did.
    """
    target, *sources = op.operands
    if not is_long(op) or not isinstance(target, Register):
        return False
    if not all(isinstance(operand, Register | Immediate) for operand in sources):
        return False
    # Registers are named by their positions, so that the function is the same whichever they are.
    registers = [operand for operand in sources if isinstance(operand, Register)]
    canonical = {
        position: Register(f"operand {position}", operand.type, operand.bits, position)
        for position, operand in enumerate(op.operands)
        if isinstance(operand, Register)
    }
    operands: tuple[ResolvedOperand, ...] = tuple(
        canonical.get(position, operand) for position, operand in enumerate(op.operands)
    )
    alike = replace(op, operands=operands, guard=None)
    result = canonical.pop(0)
    kinds = [_passed(value, lanes.count) for value in canonical.values()]
    returned = _passed(result, lanes.count)

    def write(module: ir.Module, name: str) -> None:
        code = OperationCode(module, name, kinds, returned)
        inner = Lanes(code, None, code.constant(Type("i", 64), 0), lanes.count)
        for register, value in zip(canonical.values(), code.values, strict=True):
            inner.values[register] = value.differs(0) if register.type == "pred" else value
        lower(inner, alike)
        answer = inner.register(result)
        code.builder.ret(answer.to(returned).handle)

    described = ", ".join(
        f"{operand.type} {operand.bits}" if isinstance(operand, Register) else f"{operand}"
        for operand in operands
    )
    name = f"{'.'.join((op.opcode, *op.modifiers))} {described} by {lanes.count}"
    if _TRIED.get(name) is None:
        write(ir.Module(), name)  # errors are raised here, where the line is known
        _TRIED.put(name, True)
    function = shared(lanes.code.module, name, operation_type(kinds, returned), write)
    handles = []
    for register, kind in zip(registers, kinds, strict=True):
        handles.append(lanes.register(register).to(kind).handle)
    answer = Value(lanes.code, returned, lanes.code.builder.call(function, handles))
    lanes.write(target, answer.differs(0) if target.type == "pred" else answer)
    return True


def _passed(register: Register, lanes: int) -> Type:
    """Return the type by which a register's values are passed: predicates as bytes."""
    return Type("u", register.bits, lanes)
