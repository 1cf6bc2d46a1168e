"""Problems for the Hopper families on the CPU machine, and what their instruction gives for them."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from everything import EVERYTHING
from lanewise import isa
from lanewise.formats import Format, f32, tf32
from lanewise.linalg.arrays import Pointers
from lanewise.linalg.plan import Plan
from lanewise.linalg.problem import Epilogue, Operand, Problem

#: The epilogue that rounds alone.
PLAIN = Epilogue()


def some(cases: Iterable[Any], *kept: Any) -> list[Any]:
    """Return all cases if everything is asked for, else those that are kept."""
    return list(cases) if EVERYTHING else list(kept)


def matrix(rng: Any, shape: tuple[int, ...], dtype: Format, rows_contiguous: bool) -> Any:
    """Random elements of a format, contiguous along the last axis or the one before it."""
    kind = np.float32 if dtype is tf32 else dtype.dtype
    if dtype.kind == "int":
        found = rng.integers(-128, 128, shape).astype(kind)
    else:
        found = rng.normal(size=shape).astype(np.float32).astype(kind)
    if not rows_contiguous:
        found = np.ascontiguousarray(found.swapaxes(-1, -2)).swapaxes(-1, -2)
    return found


def operand(array: Any, contiguous_last: bool, k_major: bool, dtype: Format) -> Operand:
    """What the planner knows of an array."""
    leading = array.strides[-2 if contiguous_last else -1] // array.itemsize
    stride = array.strides[0] // array.itemsize if array.ndim == 3 else 0
    bytes_ = [leading * array.itemsize, stride * array.itemsize, array.ctypes.data]
    alignment = 16
    while any(each % alignment for each in bytes_):
        alignment //= 2
    return Operand(dtype, k_major, leading, stride, alignment)


def product(
    m: int, n: int, k: int, a: Format, b: Format, out: Format, sums: Format = f32, layout: str = "NN",
    batch: int = 1, rows_of_out: bool = True, seed: int = 0, epilogue: Epilogue = PLAIN, **given: Any,
) -> tuple[Problem, Any, Any]:  # fmt: skip
    """Return a problem, its arrays (`Pointers`), and the sums that the wgmma of its types gives."""
    rng = np.random.default_rng(seed)
    lead = (batch,) if batch > 1 else ()
    array_a = matrix(rng, (*lead, m, k), a, layout[0] == "N")
    array_b = matrix(rng, (*lead, k, n), b, layout[1] == "N")
    kind = np.float32 if out is tf32 else out.dtype
    result = np.zeros((*lead, m, n), kind)
    if not rows_of_out:
        result = np.zeros((*lead, n, m), kind).swapaxes(-1, -2)
    problem = Problem(
        m, n, k,
        operand(array_a, layout[0] == "N", layout[0] == "N", a if a is not tf32 else f32),
        operand(array_b, layout[1] == "N", layout[1] == "T", b if b is not tf32 else f32),
        operand(result, rows_of_out, rows_of_out, out),
        sums, batch, epilogue, "tf32" if a is tf32 else "",
    )  # fmt: skip
    if (scales := given.get("scale_b")) is not None and scales.ndim > 1:
        given["scale_b"] = scales.swapaxes(-1, -2)
    pointers = Pointers(array_a, array_b.swapaxes(-1, -2), result, **given)
    return problem, pointers, sums_of(array_a, array_b, a, b, sums)


def sums_of(a: Any, b: Any, of_a: Format, of_b: Format, sums: Format) -> Any:
    """Return the product by the instruction's own sums, in order of K."""
    depth = 32 // (4 if of_a is tf32 else of_a.bits // 8)
    mma = isa.instruction(f"wgmma.mma_async.sync.aligned.m64n8k{depth}.{sums.name}.{of_a.name}.{of_b.name}")
    if of_a is tf32:
        a, b = (rounded_to_tf32(each) for each in (a, b))
    if a.ndim == 3:
        return np.stack([mma.gemm(x, y, arch="sm_90a") for x, y in zip(a, b, strict=True)])
    return mma.gemm(a, b, arch="sm_90a")


def rounded_to_tf32(values: Any) -> Any:
    """Return f32 values rounded to nearest even with 10 bits of mantissa, as TMA loads them."""
    bits = values.view(np.uint32).astype(np.uint64)
    bits = (bits + 0xFFF + ((bits >> 13) & 1)) & ~np.uint64(0x1FFF)
    return bits.astype(np.uint32).view(np.float32)


def plan(tile: tuple[int, int, int], **given: Any) -> Plan:
    """Return a plan of the warpgroup family."""
    return Plan("warpgroup", "sm_90a", tile, **{"stages": 4, **given})
