"""The models in plain Python on exact fractions: slow, and written to be read as the specification.

It computes one instruction on one pair of matrices. The compiled loops (`fused_kernel.py`, `plain_kernel.py`)
are tested against it, bit for bit.
"""

import math
import struct
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from lanewise.arith.models import NAN_BITS, FmaChain, FusedSum, IntegerSum, Model, PopcountSum
from lanewise.formats import Format, f16, f32, f64
from lanewise.numpy_types import AnyArray as Array

#: The NaN of an operation that has no NaN operand: infinity times zero, infinity less infinity.
NEW_NAN = float(np.uint64(NAN_BITS["f64"]).view(np.float64))


def multiply(
    model: Model,
    a: Array,
    b: Array,
    c: Array | None = None,
    *,
    columns: Array | None = None,
    scale_a: Array | None = None,
    scale_b: Array | None = None,
) -> Array:
    """D = A·B + C for one instruction: A (M, K), B (K, N), C (M, N) in the formats' dtypes.

    A sparse A is (M, K/2), with `columns` the dense column of each of its elements.

    >>> from lanewise.arith.models import model_of
    >>> from lanewise.isa import instruction
    >>> mma = instruction("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32")
    >>> ones = np.ones((16, 8), np.float16)
    >>> float(multiply(model_of(mma, "sm_80"), ones, ones.T[:, :8])[3, 5])
    8.0
    """
    rows, cols = a.shape[0], b.shape[1]
    values_a, values_b = numbers(model.a, a), numbers(model.b, b)
    values_c = numbers(model.c, np.zeros((rows, cols), model.c.dtype) if c is None else c)
    scales_a = None if scale_a is None or model.scale is None else numbers(model.scale, scale_a)
    scales_b = None if scale_b is None or model.scale is None else numbers(model.scale, scale_b)
    words = np.zeros((rows, cols), model.d.word_dtype)
    for i in range(rows):
        places = range(a.shape[1]) if columns is None else [int(k) for k in columns[i]]
        for j in range(cols):
            pairs = [(values_a[i][p], values_b[k][j]) for p, k in enumerate(places)]
            start = values_c[i][j]
            match model.scheme:
                case FusedSum():
                    scales = None
                    if scales_a is not None and scales_b is not None:
                        scales = [(scales_a[i][s], scales_b[s][j]) for s in range(model.scale_vec)]
                    word = fused_sum(model, model.scheme, pairs, start, scales)
                case FmaChain():
                    word = fma_chain(model, model.scheme, pairs, start)
                case IntegerSum():
                    word = integer_sum(model, pairs, start)
                case PopcountSum():
                    hits = sum((x != y) if model.bitop == "xor" else (x and y) for x, y in pairs)
                    word = (int(start) + int(hits)) % (1 << 32)
            words[i, j] = word
    return model.d.from_bits(words)


def numbers(fmt: Format, array: Array) -> list[list[Any]]:
    """The array's exact values as Python numbers."""
    values: list[list[object]] = fmt.decode(fmt.to_bits(array)).tolist()
    return values


# The truncated fused sum ------------------------------------------------------------------------------------


def exponent(value: float, emin: int) -> int:
    """The exponent of a number other than zero; subnormal numbers are not normalised and have emin."""
    return max(math.frexp(value)[1] - 1, emin)


def fused_sum(
    model: Model,
    scheme: FusedSum,
    pairs: Sequence[tuple[float, float]],
    c: float,
    scales: Sequence[tuple[float, float]] | None = None,
) -> int:
    """One element of D as raw bits: blocks one after the other, each block's result the next one's C."""
    if scheme.k_order == "halves of four":
        order = sorted(range(len(pairs)), key=lambda k: (k % 4 // 2, k))
        pairs = [pairs[k] for k in order]
    accumulator = f16 if scheme.rounding == "RNE-FP16" else f32
    total = c if scheme.c_enters == "first" else 0.0
    for start in range(0, len(pairs), model.block):
        total = fused_block(model, scheme, pairs[start : start + model.block], total, accumulator, scales)
    if scheme.c_enters == "last":
        total = nearest(add(total, c), accumulator)
    return bits_of(nearest(total, model.d), model.d)


def fused_block(
    model: Model,
    scheme: FusedSum,
    pairs: Sequence[tuple[float, float]],
    c: float,
    accumulator: Format,
    scales: Sequence[tuple[float, float]] | None,
) -> float:
    """Align on the largest exponent, truncate each term, sum exactly, round once."""
    assert scales is None or model.block == model.k, "block scales span an instruction, which is one block"
    terms = []
    for start in range(0, len(pairs), scheme.group):
        group = pairs[start : start + scheme.group]
        alpha, beta = (1.0, 1.0) if scales is None else scales[start * len(scales) // len(pairs)]
        terms.append(scaled_term(model, scheme, group, alpha, beta))
    special = sum((value for value, _ in terms if not math.isfinite(value)), 0.0) + (
        c if not math.isfinite(c) else 0.0
    )
    if not math.isfinite(special):
        return special
    e_c = scheme.e_zero if c == 0 else exponent(c, accumulator.emin)
    e_max = max(e_c, *(e for _, e in terms))
    unit = Fraction(2) ** (e_max - scheme.fraction)
    steps = sum(int(Fraction(value) / unit) for value, _ in [*terms, (c, e_c)])  # int() truncates toward zero
    return round_sum(steps * unit, scheme)


def scaled_term(
    model: Model, scheme: FusedSum, group: Sequence[tuple[float, float]], alpha: float, beta: float
) -> tuple[Any, int]:
    """A term's exact value and the exponent it is aligned by.

    A lone product counts with the sum of its factors' exponents. A group's exact dot product counts with its
    scales' exponents alone, whatever its size.
    """
    special = sum((x * y for x, y in group if not math.isfinite(x * y)), 0.0) + (alpha * beta) * 0.0
    if not math.isfinite(special):
        return special, 0
    value = sum((Fraction(x) * Fraction(y) for x, y in group), Fraction(0)) * Fraction(alpha) * Fraction(beta)
    if alpha * beta == 0 or all(x * y == 0 for x, y in group):
        return value, scheme.e_zero
    e = 0
    if model.scale is not None:
        e += exponent(alpha, model.scale.emin) + exponent(beta, model.scale.emin)
    if scheme.group == 1:
        ((x, y),) = group
        e += exponent(x, model.emin("a")) + exponent(y, model.emin("b"))
    return value, e


def round_sum(total: Fraction, scheme: FusedSum) -> float:
    """The one rounding at a block's end. Overflow gives infinity, under truncation too."""
    if total == 0:
        return 0.0
    match scheme.rounding:
        case "RNE-FP16":
            rounded = nearest(total, f16)
        case "RZ-FP32":
            rounded = truncate(total, f32.mantissa_bits)
        case "RZ-E8M13":
            rounded = truncate(total, 13)
    if rounded == 0:
        return -0.0 if total < 0 and scheme.underflow == "signed" else 0.0
    return rounded


def truncate(total: Fraction, mantissa_bits: int) -> float:
    """Toward zero, to f32's exponents and so many mantissa bits."""
    unit = Fraction(2) ** (exponent_of(total, f32.emin) - mantissa_bits)
    value = int(total / unit) * unit
    return (
        math.copysign(math.inf, 1 if total > 0 else -1) if abs(value) >= Fraction(2) ** 128 else float(value)
    )


def exponent_of(value: Fraction, emin: int) -> int:
    """floor(log2 |value|), and emin at least."""
    estimate = abs(value.numerator).bit_length() - value.denominator.bit_length()
    return max(estimate if abs(value) >= Fraction(2) ** estimate else estimate - 1, emin)


# Ordinary rounded arithmetic --------------------------------------------------------------------------------


def finite(value: float | Fraction) -> bool:
    """Neither infinite nor NaN; a fraction never is, however large."""
    return isinstance(value, Fraction) or math.isfinite(value)


def add(x: float | Fraction, y: float | Fraction) -> float | Fraction:
    """The exact sum; infinities and NaNs, and the sign of a zero, as IEEE has them."""
    if finite(x) and finite(y) and (x != 0 or y != 0):
        return Fraction(x) + Fraction(y)
    return float(x) + float(y)


_ROUNDERS: dict[str, Callable[[Fraction], int]] = {
    "rn": round,
    "rz": math.trunc,
    "rm": math.floor,
    "rp": math.ceil,
}


def nearest(value: float | Fraction, fmt: Format, mode: str = "rn") -> float:
    """Rounded to a float format: to nearest even, or in the directed mode rz, rm (down) or rp (up)."""
    if not finite(value) or value == 0:
        return float(value)
    exact = Fraction(value)
    unit = Fraction(2) ** (exponent_of(exact, fmt.emin) - fmt.mantissa_bits)
    rounded: float | Fraction = abs(_ROUNDERS[mode](exact / unit) * unit)
    if rounded > fmt.max:
        toward_zero = mode == "rz" or (mode == "rm" and exact > 0) or (mode == "rp" and exact < 0)
        rounded = fmt.max if toward_zero else math.inf
    return math.copysign(rounded, 1 if exact > 0 else -1)


def bits_of(value: float, fmt: Format) -> int:
    """Raw bits, every NaN the hardware's own."""
    return NAN_BITS[fmt.name] if math.isnan(value) else int(fmt.encode(value))


def quiet(nan: float) -> float:
    """The NaN with its payload and its sign, made quiet."""
    (bits,) = struct.unpack("<Q", struct.pack("<d", nan))
    (same,) = struct.unpack("<d", struct.pack("<Q", bits | 1 << 51))
    return float(same)


def fused_multiply_add(x: float, y: float, z: float, fmt: Format, mode: str) -> float:
    """x·y + z rounded once."""
    for operand in (y, z, x):
        if math.isnan(operand):
            return quiet(operand)
    if not all(math.isfinite(number) for number in (x, y, z)):
        # The product of finite factors is finite before rounding, however large.
        result = (x * y if not (math.isfinite(x) and math.isfinite(y)) else 0.0) + z
        return NEW_NAN if math.isnan(result) else result
    if x == 0 or y == 0:
        total: float | Fraction = add(x * y, z)
    else:
        total = Fraction(x) * Fraction(y) + Fraction(z)
    if total == 0:
        signs = {math.copysign(1, x) * math.copysign(1, y), math.copysign(1, z)}
        negative = signs == {-1.0} or (len(signs) == 2 and mode == "rm")
        return -0.0 if negative else 0.0
    return nearest(total, fmt, mode)


def fma_chain(model: Model, scheme: FmaChain, pairs: Sequence[tuple[float, float]], c: float) -> int:
    """Fused multiply-adds, from C or group by group from zero."""
    fmt = f64 if scheme.format == "f64" else f32
    group = scheme.group or len(pairs)
    total = c
    for start in range(0, len(pairs), group):
        chain = float(scheme.zero) if scheme.group else total
        for x, y in pairs[start : start + group]:
            chain = fused_multiply_add(x, y, chain, fmt, model.rounding)
        total = nearest(add(total, chain), fmt) if scheme.group else chain
    if math.isnan(total) and scheme.nan != "one":
        return int(np.float64(total).view(np.uint64))
    return bits_of(nearest(total, model.d), model.d)


# Integers ---------------------------------------------------------------------------------------------------


def integer_sum(model: Model, pairs: Sequence[tuple[int, int]], c: int) -> int:
    """The exact sum, wrapped or clamped once to 32 bits."""
    total = int(c) + sum(int(x) * int(y) for x, y in pairs)
    if model.satfinite:
        total = min(max(total, -(1 << 31)), (1 << 31) - 1)
    return total % (1 << 32)
