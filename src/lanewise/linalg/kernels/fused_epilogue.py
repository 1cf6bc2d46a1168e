"""The epilogue of a product in the kernel language: what becomes of a sum before it is rounded and stored.

Everything is made of exact operations (`add`, `mul`, `fma`, rounded once each): an H200 and the CPU machine
give the same bits, activations included. The steps and their order are `Epilogue`'s.
"""

from __future__ import annotations

from lanewise import lang as lw
from lanewise.errors import LanewiseError
from lanewise.formats import Format, f32
from lanewise.lang.trace.scalar import Scalar
from lanewise.linalg.problem import Epilogue

ACTIVATIONS = ("relu", "gelu_tanh", "gelu_erf", "silu", "sigmoid")
#: log2(e); √(2/π) and the cubic term of gelu's tanh form; Φ by Abramowitz and Stegun, 7.1.26.
LOG2_E = 1.4426950408889634
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
#: The same function with the least relative error that a degree allows: 7.5e-5 for the third, which is a
#: fiftieth of half a unit of bf16, and 2.6e-6 for the fourth, a ninetieth of half a unit of f16.
_SHORT_EXP2 = {
    3: (0.9999280735394012, 0.6932609854606555, 0.24261112219321604, 0.055171669057925),
    4: (
        0.9999992614457122, 0.6931218147366892, 0.2402474482786378, 0.055917860319388245,
        0.009570101911165427,
    ),
}  # fmt: skip
#: Exponents of a short power of two lie in a range of 128: mapped to 0 … 1, they are clamped at no cost.
#: Those of a sigmoid begin at -28, where 1 + 2^x is 1; those of Φ's tail end at 28.
_RANGE, _SIGMOID_LEAST, _TAIL_LEAST = 128, -28, -100
#: Φ(-x) · e^(x²/2) as a polynomial in t = 1 / (1 + p·x), of t and higher powers, with p before it, by the
#: degree of the power of two that goes with it; relative errors of 3.1e-5 and 3.9e-6 for x from 0 to 14.
_SHORT_TAIL = {
    3: (
        0.375,
        (0.14906084176050427, 0.1577357383478365, 0.08355845767787261, 0.20028888326963806,
         -0.09064604214204529),
    ),
    4: (
        0.308,
        (0.12312274676009645, 0.11888070472256096, 0.1365357867026888, 0.007268526924963886,
         0.18962214903482127, -0.07543147116202958),
    ),
}  # fmt: skip
#: From this size on Φ is 0 or 1 in f32.
_LARGE = 64.0
#: From this size on silu and gelu of negative numbers are less than 2⁻⁹⁰.
_FAR = 128.0
#: Degree of the polynomial by the bits of a result's significand; results with more take the long form.
_DEGREES = ((8, 3), (11, 4))


@lw.device
def polynomial(coefficients, x):
    """Return Σ cᵢ · xⁱ of an f32 by Horner's scheme, one fma for each coefficient but the last."""
    total = f32(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = lw.fma(total, x, f32(coefficient))
    return total


@lw.device
def exp2(x):
    """Return 2^x of an f32, about 1 ulp, 2^±126 beyond the range; made of exact operations."""
    x = lw.max(lw.min(x, f32(126.0), nan=True), f32(-126.0), nan=True)
    shifted = x + _ROUNDER
    fraction = x - (shifted - _ROUNDER)
    power = polynomial(_EXP2, fraction)
    return lw.bitcast(lw.bitcast(power, lw.i32) + (lw.bitcast(shifted, lw.i32) << 23), f32)


@lw.device
def short_exp2(x, factor, degree, lowest):
    """Return 2^(x · factor) of an f32, with a polynomial of few terms; `lowest` is the least exponent.

    The exponent is computed by one fma that clamps, so `factor` is divided by the length of the range. What
    is added to it rounds the exponent to an integer in the low bits.
    """
    text = "fma.rn.sat.f32 {d}, {x}, {factor}, {zero};"
    scaled = lw.asm(text, d=f32, x=x, factor=factor, zero=f32(-lowest / _RANGE))
    rounder = _ROUNDER / _RANGE
    shifted = scaled + rounder
    fraction = scaled - (shifted - rounder)
    terms = [
        coefficient * 2.0**lowest * float(_RANGE) ** n for n, coefficient in enumerate(_SHORT_EXP2[degree])
    ]
    power = polynomial(terms, fraction)
    return lw.bitcast(lw.bitcast(power, lw.i32) + (lw.bitcast(shifted, lw.i32) << 23), f32)


@lw.device
def reciprocal(x):
    """Return 1/x of an f32 from 1 to 2^126, rounded to nearest.

    A guess within 1 ulp becomes the nearest number by one step of Newton's method with fma (Markstein, 1990),
    whatever its last bit was: so a GPU's approximation does not show in the result. The proof leaves out
    significands of ones alone; for them an H200 gives the nearest too.
    """
    guess = lw.asm("rcp.approx.ftz.f32 {d}, {x};", d=f32, x=x)
    return lw.fma(guess, lw.fma(-x, guess, f32(1.0)), guess)


@lw.device
def sigmoid(x, factor=1.0, squares=0.0, degree=None):
    """Return 1 / (1 + e^-u) of an f32, u = x · (factor + squares · x²).

    With a degree the power of two is a short one, and the factors are multiplied by the compiler.
    """
    scale = -LOG2_E if degree is None else -LOG2_E / _RANGE
    factor = f32(factor * scale)
    if squares:
        factor = lw.fma(x * x, f32(squares * scale), factor)
    power = exp2(x * factor) if degree is None else short_exp2(x, factor, degree, _SIGMOID_LEAST)
    return reciprocal(power + 1.0)


@lw.device
def short_tail(x, degree):
    """Return Φ(-x) of an f32 from 0 to 64: a polynomial times e^(-x²/2), whose exponent ends at -100."""
    p, terms = _SHORT_TAIL[degree]
    t = reciprocal(lw.fma(x, f32(p), f32(1.0)))
    return polynomial(terms, t) * t * short_exp2(x, x * (-0.5 * LOG2_E / _RANGE), degree, _TAIL_LEAST)


@lw.device
def not_far_below(x):
    """Return an f32, but -128 for all that is below: the factor that goes with it does not become 0 there."""
    return lw.where(x < -_FAR, f32(-_FAR), x)


def short_degree(dtype: Format) -> int | None:
    """Return the degree of the power of two that is enough for results of a format; None: as f32 has it."""
    if dtype.kind != "float":
        return None
    return next((degree for most, degree in _DEGREES if dtype.mantissa_bits < most), None)


def activated(name: str, x, dtype: Format = f32) -> Scalar:
    """Return the activation of an f32 by its name, as accurate as results of a format can show."""
    degree = short_degree(dtype)
    if name == "relu":
        return lw.max(x, f32(0.0), nan=True)
    if name == "sigmoid":
        return lw.where(lw.isnan(x), x, sigmoid(x, degree=degree))
    if name == "silu":
        return not_far_below(x) * sigmoid(x, degree=degree)
    if name == "gelu_tanh":  # ½(1 + tanh(u)) is sigmoid(2u)
        return not_far_below(x) * sigmoid(x, 2 * _GELU_LINEAR, 2 * _GELU_LINEAR * _GELU_CUBIC, degree)
    if name == "gelu_erf":
        size = lw.min(lw.abs(x), f32(_LARGE), nan=True)
        if degree is not None:
            return lw.fma(-size, short_tail(size, degree), lw.max(x, f32(0.0)))
        t = reciprocal(lw.fma(size, f32(_ERF_P * 0.7071067811865476), f32(1.0)))
        tail = polynomial(_ERF, t) * t * 0.5 * exp2(x * x * (-0.5 * LOG2_E))  # Φ(-|x|)
        return not_far_below(x) * lw.where(x < 0.0, tail, 1.0 - tail)
    raise LanewiseError(f"no activation is called {name!r}; there are {', '.join(ACTIVATIONS)}")


def changes_values(epilogue: Epilogue) -> bool:
    """Return whether an epilogue does more than round."""
    return epilogue != Epilogue()


def row_terms(epilogue: Epilogue, given, row) -> tuple[Scalar | None, Scalar | None]:
    """Return what depends on the row alone: the factor of A, and the bias of a column vector."""
    return line_terms(epilogue.scale_a, given.scale_a, given.bias if epilogue.bias == "column" else None, row)


def column_terms(epilogue: Epilogue, given, column) -> tuple[Scalar | None, Scalar | None]:
    """Return what depends on the column alone: the factor of B, and the bias of a row vector."""
    return line_terms(epilogue.scale_b, given.scale_b, given.bias if epilogue.bias == "row" else None, column)


def line_terms(form: str | None, scales, bias, line) -> tuple[Scalar | None, Scalar | None]:
    """Return the factor of a row or column, by the form of its scales, and its bias, if there is one."""
    factor = None if form is None else scales[line if form == "row" else 0]
    return factor, None if bias is None else bias[line].to(f32)


@lw.device
def finished(epilogue, given, value, of_row, of_column, residual, at, dtype):
    """Return the f32 that is rounded and stored, for a sum, its row's and column's terms and its residual.

    `dtype` is the result's format: activations are as accurate as it can show.
    """
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
        value = activated(epilogue.activation, value, dtype)
    if residual is not None:
        value = lw.fma(given.beta, residual, value) if epilogue.beta else value + residual
    if epilogue.scale_out:
        value = value * given.scale_out[0]
    if epilogue.function is not None:
        row, column = at
        if epilogue.folded == "row":
            row = row % lw.assume(given.folded_rows, nonnegative=True)
        elif epilogue.folded == "column":
            column = column % lw.assume(given.folded_rows, nonnegative=True)
        value = epilogue.function(value, row, column)
    return value


def rounded(value, dtype: Format) -> Scalar:
    """Return a finished value, or a sum, in the format of the result: by way of f32, unless it has it."""
    return value if value.dtype == dtype else value.to(f32).to(dtype)


def pair_of_small(low, high, dtype: Format) -> Scalar:
    """Return two f32 as neighbours of e4m3 or e5m2 in one register."""
    text = f"cvt.rn.satfinite.{dtype.name}x2.f32 {{d}}, {{high}}, {{low}};"
    return lw.asm(text, needs=("sm_89", "8.1"), d=lw.u16, high=high, low=low)
