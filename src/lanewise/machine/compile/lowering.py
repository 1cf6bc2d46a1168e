"""Finds the lowering functions of instructions by the names in the instruction table."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import cast

from lanewise.errors import InternalError, LanewiseError
from lanewise.jit import ir
from lanewise.machine.codegen.function_code import BlockCode, Kernel
from lanewise.machine.codegen.lane_vectors import Lower
from lanewise.machine.codegen.threaded_code import Step
from lanewise.machine.errors import UnfitOperand
from lanewise.machine.program.ops import Op
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
