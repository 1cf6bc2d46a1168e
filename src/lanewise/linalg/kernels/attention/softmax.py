"""Softmax in registers, a tile of keys at a time: exponentials below the highest score so far."""

from __future__ import annotations

import numpy as np

from lanewise import lang as lw
from lanewise.formats import f32
from lanewise.linalg.kernels.attention.traits import Traits
from lanewise.linalg.kernels.fused_epilogue import polynomial

_LN2 = 0.6931471805599453
#: ln(1 + x) = x − x²/2 + x³ · P(x) from √½ − 1 to √2 − 1 (Cephes, logf).
_LOGARITHM = (
    3.3333331174e-1, -2.4999993993e-1, 2.0000714765e-1, -1.6668057665e-1, 1.4249322787e-1,
    -1.2420140846e-1, 1.1676998740e-1, -1.1514610310e-1, 7.0376836292e-2,
)  # fmt: skip
#: The bits of √½, and of the exponent's unit.
_HALF_ROOT, _EXPONENT = 0x3F3504F3, 23


def over_row(combine, value):
    """Return a value over the four lanes that share a row of an accumulator."""
    for distance in (1, 2):
        value = combine(value, lw.shfl_xor_sync(value, distance))
    return value


@lw.device
def exp2_approx(x):
    """Return 2^x of an f32 by the tensor cores' neighbour, the special function unit: one instruction."""
    return lw.asm("ex2.approx.ftz.f32 {d}, {x};", d=f32, x=x)


@lw.device
def logarithm(x):
    """Return ln(x) of a normal f32 above 0, about 1 ulp, made of exact operations; NaN of NaN and inf."""
    exponent = (lw.bitcast(x, lw.i32) - _HALF_ROOT) >> _EXPONENT
    y = lw.bitcast(lw.bitcast(x, lw.i32) - (exponent << _EXPONENT), f32) - 1.0
    series = polynomial(_LOGARITHM, y)
    square = y * y
    value = lw.fma(exponent.to(f32), f32(_LN2), lw.fma(square, lw.fma(series, y, f32(-0.5)), y))
    return lw.where(x < f32(np.inf), value, x - x)


@lw.device
def base_of(highest, factor):
    """Return what is subtracted from exponents: the highest score times a factor, rounded; 0 if it is -inf.

    Sums lie on their base: what multiplies them later is 2 to the difference of bases as they were rounded,
    which is 1 if the highest score stays the same.
    """
    return lw.where(highest == f32(-np.inf), f32(0.0), highest * factor)


@lw.device
def share_of(total):
    """Return what sums are multiplied by at the end: 1 over the total, 0 of a row that saw no key."""
    return lw.where(total == f32(0.0), f32(0.0), lw.rcp(total))


@lw.device
def of_seen(total, value):
    """Return a value, or zero in a row that saw no key: keys that others of its tile see are times 0 in its
    sums, and 0 · inf is no number."""
    return lw.where(total == f32(0.0), f32(0.0), value)


@lw.device
def lse_of(highest, total, scale):
    """Return ln(Σ exp(scale · score)) of a row; -inf of one that saw no key."""
    value = lw.fma(highest, scale, logarithm(total))
    return lw.where(total == f32(0.0), f32(-np.inf), value)


class Softmax:
    """The highest scores and the sums of exponentials of a lane's two rows, as they go."""

    def __init__(self, traits: Traits, scale, row, lengths) -> None:
        self.traits, self.scale, self.row = traits, scale, row
        self.queries, self.keys = lengths

    @lw.device
    def begin(self):
        """Return the highest scores and the sums before the first tile."""
        return [f32(-np.inf), f32(-np.inf)], [f32(0.0), f32(0.0)]

    @lw.device
    def visible(self, scores, first_key):
        """Return the scores of a tile, -inf where the row does not see the key."""
        lane, scores = lw.lane_id(), list(scores)
        for half in range(2):
            last = self.keys - 1
            if self.traits.causal:
                last = lw.min(self.row + 8 * half + (self.keys - self.queries), last)
            last = last - first_key - 2 * (lane % 4)
            for i in range(2 * half, len(scores), 4):
                for n in range(2):
                    scores[i + n] = lw.where(i // 4 * 8 + n <= last, scores[i + n], f32(-np.inf))
        return scores

    @lw.device
    def step(self, scores, highest, total, first_key, masked):
        """Return the exponentials of a tile, the new highest scores and sums, and factors for older sums."""
        values = [scores[i] for i in range(len(scores))]
        if masked:
            values = self.visible(values, first_key)
        raised, totals, factors = [], [], []
        for half in range(2):
            columns = [i + n for i in range(2 * half, len(values), 4) for n in range(2)]
            top = highest[half]
            for i in columns:
                top = lw.max(top, values[i])
            top = over_row(lw.max, top)
            base = base_of(top, self.scale)
            factor = exp2_approx(highest[half] * self.scale - base)
            sums = [None, None]
            for i in columns:
                values[i] = exp2_approx(lw.fma(values[i], self.scale, -base))
                sums[i % 2] = values[i] if sums[i % 2] is None else sums[i % 2] + values[i]
            raised.append(top)
            totals.append(lw.fma(total[half], factor, sums[0] + sums[1]))
            factors.append(factor)
        return values, raised, totals, factors
