"""Whatever the language traces for a dtype, ptxas takes: operators, conversions, intrinsics, for every dtype.

What PTX has no form for is refused while tracing. The kernels of a dtype are assembled as one module.
"""

import operator
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import sampled
from ptxas import assemble, find_ptxas

_NAMES = [
    "i8",
    "u8",
    "i16",
    "bf16",
    "e4m3",
    "f16x2",
    "e2m1x2",
    "u16",
    "i32",
    "u32",
    "i64",
    "u64",
    "f16",
    "f32",
    "f64",
    "bf16x2",
    "e5m2",
    "e2m3",
    "e3m2",
    "e2m1",
    "ue8m0",
    "e4m3x2",
    "e2m3x2",
    "ue8m0x2",
]
_OF_ONE = [
    "abs",
    "ceil",
    "floor",
    "trunc",
    "round",
    "sqrt",
    "rsqrt",
    "rcp",
    "exp",
    "exp2",
    "log",
    "log2",
    "sin",
    "cos",
    "tanh",
    "isnan",
    "popc",
    "clz",
    "brev",
    "unpack",
    "warp_reduce",
    "match_any_sync",
    "match_all_sync",
    "ballot_sync",
    "any_sync",
    "reduce_add_sync",
    "reduce_and_sync",
    "reduce_max_sync",
]
_OF_TWO = ("min", "max", "div", "rem", "cdiv", "mulhi", "mul_wide", "pack")
_OPERATORS = [
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "and_",
    "or_",
    "xor",
    "lshift",
    "rshift",
    "lt",
    "le",
    "gt",
    "ge",
    "eq",
    "ne",
]
_REDUCTIONS = ("sum", "min", "max", "argmax", "argmin")

Operation = Callable[[Any, Any], Any]


def _operations() -> Iterator[tuple[str, Operation]]:
    for name in _OF_ONE:
        function = getattr(lw, name)
        yield name, lambda x, y, f=function: f(x)
    for name in _OF_TWO:
        function = getattr(lw, name)
        yield name, lambda x, y, f=function: f(x, y)
        yield f"{name} 1", lambda x, y, f=function: f(x, 1)
        yield f"{name} 0", lambda x, y, f=function: f(x, 0)
    for name in ("min", "max"):
        function = getattr(lw, name)
        yield f"{name} NaN", lambda x, y, f=function: f(x, y, nan=True)
    for name in _OPERATORS:
        function = getattr(operator, name)
        yield f"x {name} y", lambda x, y, f=function: f(x, y)
        yield f"x {name} 1", lambda x, y, f=function: f(x, 1)
        yield f"x {name} 0", lambda x, y, f=function: f(x, 0)
        yield f"1 {name} x", lambda x, y, f=function: f(1, x)
        yield f"x {name} i32", lambda x, y, f=function: f(x, lw.thread_idx.x)
    for name in ("neg", "invert"):
        function = getattr(operator, name)
        yield name, lambda x, y, f=function: f(x)
    for name in _REDUCTIONS:
        yield f"warp_reduce {name}", lambda x, y, op=name: lw.warp_reduce(x, op)
        yield f"warp_scan {name}", lambda x, y, op=name: lw.warp_scan(x, op)
        yield f"block_reduce {name}", lambda x, y, op=name: lw.block_reduce(x, op)
    for name in _NAMES:
        dtype = getattr(lw, name)
        yield f"to {name}", lambda x, y, dtype=dtype: x.to(dtype)
        yield f"to {name}, saturated", lambda x, y, dtype=dtype: x.to(dtype, saturate=True)
        yield f"bits as {name}", lambda x, y, dtype=dtype: lw.bitcast(x, dtype)
    yield "square", lambda x, y: x**2
    yield "fma", lambda x, y: lw.fma(x, y, x)
    yield "fma 0", lambda x, y: lw.fma(x, y, 0)
    yield "fma 1", lambda x, y: lw.fma(1, x, y)
    yield "where", lambda x, y: lw.where(lw.thread_idx.x < 3, x, y)
    yield "where 1", lambda x, y: lw.where(lw.thread_idx.x < 3, x, 1)
    yield "shuffle", lambda x, y: lw.shfl_xor_sync(x, 1)
    yield "any of the block", lambda x, y: lw.block_reduce(x != y, lambda a, b: a | b)


OPERATIONS = dict(_operations())


def _keep(value: Any) -> None:
    """Store what an operation gave: else it is no part of the kernel."""
    for each in value if isinstance(value, tuple) else (value,):
        if hasattr(each, "dtype"):
            kept = each.to(lw.u8) if each.dtype is lw.pred else each
            lw.shared(kept.dtype, 64)[lw.thread_idx.x] = kept


def _kernel(dtype: Any, operation: Operation) -> lw.Kernel:
    @lw.kernel
    def kernel(a: lw.Ptr[dtype], b: lw.Ptr[dtype]):
        _keep(operation(a[lw.thread_idx.x], b[lw.thread_idx.x]))

    return kernel


@pytest.mark.skipif(find_ptxas() is None, reason="needs ptxas")
@sampled(32)
@pytest.mark.parametrize("name", _NAMES)
def test_ptxas_takes_whatever_is_traced(name: str) -> None:
    lines, owners, version = ["", ".target sm_90", ".address_size 64"], {}, (7, 0)
    for what, operation in OPERATIONS.items():
        try:
            text = _kernel(getattr(lw, name), operation).ptx("sm_90")
        except lw.KernelError:
            continue
        version = max(version, tuple(map(int, re.findall(r"\.version (\d+)\.(\d+)", text)[0])))
        entry = text[text.index(".visible .entry") :].replace(".entry kernel", f".entry kernel{len(lines)}")
        for line in entry.splitlines():
            if not line.strip().startswith((".file", ".loc")):
                lines.append(line)
                owners[len(lines)] = what
    lines[0] = f".version {version[0]}.{version[1]}"
    assert len(set(owners.values())) > 10
    complaints = assemble("\n".join(lines) + "\n", "sm_90")
    assert [(owners.get(line), lines[line - 1], message) for line, message in complaints] == []


@pytest.mark.parametrize("dtype", [lw.i8, lw.u8])
@pytest.mark.parametrize("what", ["min", "max", "warp_reduce min", "warp_reduce max", "block_reduce max"])
def test_extremes_of_bytes_are_refused_with_the_remedy(dtype: Any, what: str) -> None:
    with pytest.raises(
        lw.KernelError, match=r"does not work on [iu]8: convert it first, as in x\.to\(lw\.i32\)"
    ):
        _kernel(dtype, OPERATIONS[what]).ptx()


@pytest.mark.parametrize("dtype", [lw.f16x2, lw.bf16x2])
@pytest.mark.parametrize("what", ["x add 1", "1 mul x", "x eq 1", "max 1", "where 1", "fma 1"])
def test_one_number_is_no_pair(dtype: Any, what: str) -> None:
    with pytest.raises(lw.KernelError, match=r"1 is one number, and it takes two: lw\.pack"):
        _kernel(dtype, OPERATIONS[what]).ptx()


@pytest.mark.parametrize("dtype", [lw.e4m3, lw.e2m1, lw.ue8m0])
def test_small_floats_are_converted_before_they_are_compared(dtype: Any) -> None:
    for what in ("x lt y", "x eq y", "warp_reduce argmax"):
        with pytest.raises(lw.KernelError, match=r"convert it first, as in x\.to\(lw\.f32\)"):
            _kernel(dtype, OPERATIONS[what]).ptx()


def test_memory_holds_no_truth_values() -> None:
    for declare in (lw.shared, lw.local, lw.dynamic_shared):

        @lw.kernel
        def kernel(out: lw.Ptr[lw.i32]):
            declare(lw.pred, 32)  # noqa: B023  # traced within the loop

        with pytest.raises(lw.KernelError, match="holds no truth values"):
            kernel.ptx()


def test_truth_values_are_combined_over_a_block() -> None:
    @lw.kernel
    def kernel(x: lw.Ptr[lw.i32], out: lw.Ptr[lw.i32]):
        positive = x[lw.thread_idx.x] > 0
        some = lw.block_reduce(positive, lambda a, b: a | b)
        every = lw.block_reduce(positive, lambda a, b: a & b)
        out[lw.thread_idx.x] = some.to(lw.i32) + 2 * every.to(lw.i32)

    out = np.zeros(96, np.int32)
    for positive, wanted in ((0, 0), (1, 1), (95, 1), (96, 3)):
        kernel[1, 96](np.array([0] * (96 - positive) + [1] * positive, np.int32), out)
        assert (out == wanted).all()
