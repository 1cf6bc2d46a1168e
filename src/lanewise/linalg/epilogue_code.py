"""The epilogue of a product in the kernel language: what becomes of a sum before it is rounded and stored.

Everything is made of exact operations (`add`, `mul`, `fma`, rounded once each): an H200 and the CPU machine
give the same bits, activations included. The steps and their order are `Epilogue`'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lanewise import lang as lw
from lanewise.errors import LanewiseError
from lanewise.formats import Format, f32
from lanewise.linalg.problem import Epilogue

ACTIVATIONS = ("relu", "gelu_tanh", "gelu_erf", "silu", "sigmoid")
#: log2(e); √(2/π) and the cubic term of gelu's tanh form; Φ by Abramowitz and Stegun, 7.1.26.
_LOG2_E = 1.4426950408889634
_GELU_LINEAR, _GELU_CUBIC = 0.7978845608028654, 0.044715
_ERF_P = 0.3275911
_ERF = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
#: 2^x for x from -½ to ½ as a polynomial, fitted at Chebyshev's points; the error is 2e-8.
_EXP2 = (
    1.0, 0.6931471824645996, 0.24022650718688965, 0.05550327152013779, 0.00961802527308464,
    0.0013400432653725147, 0.00015469732170458883,
)  # fmt: skip
#: 1.5 · 2²³: a float that is added to it is rounded to an integer in the low bits.
_ROUNDER = 12582912.0


@dataclass
class EpilogueValues:
    """The traced arguments of an epilogue: pointers and numbers; those that the epilogue lacks are not read."""

    alpha: Any = None
    beta: Any = None
    bias: Any = None
    residual: Any = None
    residual_row: Any = None
    residual_column: Any = None
    scale_a: Any = None
    scale_b: Any = None
    scale_out: Any = None


@lw.device
def exp2(x: Any) -> Any:
    """Return 2^x of an f32, about 1 ulp, 2^±126 beyond the range; made of exact operations."""
    x = lw.max(lw.min(x, f32(126.0), nan=True), f32(-126.0), nan=True)
    shifted = x + _ROUNDER
    fraction = x - (shifted - _ROUNDER)
    power = f32(_EXP2[-1])
    for each in reversed(_EXP2[:-1]):
        power = lw.fma(power, fraction, f32(each))
    return lw.bitcast(lw.bitcast(power, lw.i32) + (lw.bitcast(shifted, lw.i32) << 23), f32)


@lw.device
def reciprocal(x: Any) -> Any:
    """Return 1/x of an f32 from 1 to 2^126, within 1 ulp: Newton's method from a guess by the exponent."""
    guess = lw.bitcast(lw.i32(0x7EF311C3) - lw.bitcast(x, lw.i32), f32)
    for _ in range(3):
        guess = lw.fma(guess, lw.fma(-x, guess, f32(1.0)), guess)
    return guess


@lw.device
def sigmoid(x: Any) -> Any:
    """Return 1 / (1 + e^-x) of an f32."""
    return reciprocal(exp2(x * -_LOG2_E) + 1.0)


def activated(name: str, x: Any) -> Any:
    """Return the activation of an f32 by its name."""
    if name == "relu":
        return lw.max(x, f32(0.0), nan=True)
    if name == "sigmoid":
        return lw.where(lw.isnan(x), x, sigmoid(x))
    if name == "silu":
        return x * sigmoid(x)
    if name == "gelu_tanh":  # ½(1 + tanh(u)) is sigmoid(2u)
        inner = lw.fma(x * x, f32(2 * _GELU_LINEAR * _GELU_CUBIC), f32(2 * _GELU_LINEAR))
        return x * sigmoid(x * inner)
    if name == "gelu_erf":
        size = lw.abs(x) * 0.7071067811865476
        t = reciprocal(lw.fma(size, f32(_ERF_P), f32(1.0)))
        series = f32(_ERF[-1])
        for each in reversed(_ERF[:-1]):
            series = lw.fma(series, t, f32(each))
        tail = series * t * 0.5 * exp2(x * x * (-0.5 * _LOG2_E))  # Φ(-|x|)
        return x * lw.where(x < 0.0, tail, 1.0 - tail)
    raise LanewiseError(f"no activation is called {name!r}; there are {', '.join(ACTIVATIONS)}")


def changes_values(epilogue: Epilogue) -> bool:
    """Return whether an epilogue does more than round."""
    return epilogue != Epilogue()


@lw.device
def row_terms(epilogue: Any, given: Any, row: Any) -> Any:
    """Return what depends on the row alone: the factor of A, and the bias of a column vector."""
    factor = bias = None
    if epilogue.scale_a == "row":
        factor = given.scale_a[row]
    elif epilogue.scale_a is not None:
        factor = given.scale_a[0]
    if epilogue.bias == "column":
        bias = given.bias[row].to(f32)
    return factor, bias


@lw.device
def column_terms(epilogue: Any, given: Any, column: Any) -> Any:
    """Return what depends on the column alone: the factor of B, and the bias of a row vector."""
    factor = bias = None
    if epilogue.scale_b == "row":
        factor = given.scale_b[column]
    elif epilogue.scale_b is not None:
        factor = given.scale_b[0]
    if epilogue.bias == "row":
        bias = given.bias[column].to(f32)
    return factor, bias


@lw.device
def finished(epilogue: Any, given: Any, value: Any, of_row: Any, of_column: Any, residual: Any, at: Any) -> Any:
    """Return the f32 that is rounded and stored, for a sum, its row's and column's terms and its residual."""
    value = value.to(f32)
    factor = of_row[0]
    if of_column[0] is not None:
        factor = of_column[0] if factor is None else factor * of_column[0]
    if epilogue.alpha:
        factor = given.alpha if factor is None else factor * given.alpha
    if factor is not None:
        value = value * factor
    for bias in (of_row[1], of_column[1]):
        if bias is not None:
            value = value + bias
    if epilogue.activation is not None:
        value = activated(epilogue.activation, value)
    if residual is not None:
        value = lw.fma(given.beta, residual, value) if epilogue.beta else value + residual
    if epilogue.scale_out:
        value = value * given.scale_out[0]
    if epilogue.function is not None:
        value = epilogue.function(value, *at)
    return value


def rounded(value: Any, dtype: Format) -> Any:
    """Return a finished value in the format of the result."""
    return value if value.dtype == dtype else value.to(dtype)
