"""Exact arithmetic on words of floating-point formats, by fractions: what the machine is held against."""

import math
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Fmt:
    exponent: int
    mantissa: int
    nan: int

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.mantissa

    @property
    def bias(self) -> int:
        return 2 ** (self.exponent - 1) - 1

    @property
    def inf(self) -> int:
        return (2**self.exponent - 1) << self.mantissa


F16, BF16 = Fmt(5, 10, 0x7FFF), Fmt(8, 7, 0x7FFF)
F32, F64 = Fmt(8, 23, 0x7FFFFFFF), Fmt(11, 52, 0x7FF8000000000000)
FMTS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}

Number = Fraction | float  # fractions, or inf, -inf, nan as floats; -0.0 as a float


def decode(word: int, fmt: Fmt) -> Number:
    sign = -1 if word >> (fmt.bits - 1) else 1
    magnitude = word & ((1 << fmt.bits - 1) - 1)
    if magnitude > fmt.inf:
        return math.nan
    if magnitude == fmt.inf:
        return sign * math.inf
    exponent, fraction = magnitude >> fmt.mantissa, magnitude & ((1 << fmt.mantissa) - 1)
    if exponent:
        fraction |= 1 << fmt.mantissa
    if fraction == 0 and sign < 0:
        return -0.0
    return sign * Fraction(fraction) * Fraction(2) ** (max(exponent, 1) - fmt.bias - fmt.mantissa)


def encode(value: Number, fmt: Fmt, mode: str = "rn", negative_zero: bool = False) -> int:
    top = 1 << fmt.bits - 1
    if isinstance(value, float):
        if math.isnan(value):
            return fmt.nan
        if math.isinf(value):
            return fmt.inf | (top if value < 0 else 0)
        return top if math.copysign(1, value) < 0 else 0
    if value == 0:
        return top if negative_zero else 0
    negative, size = value < 0, abs(value)
    exponent = max(size.numerator.bit_length() - size.denominator.bit_length(), 1 - fmt.bias)
    while Fraction(2) ** exponent > size and exponent > 1 - fmt.bias:
        exponent -= 1
    while Fraction(2) ** (exponent + 1) <= size:
        exponent += 1
    scaled = size / Fraction(2) ** (exponent - fmt.mantissa)
    whole, rest = divmod(scaled, 1)
    up = {
        "rn": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1),
        "rz": False,
        "rm": negative and rest > 0,
        "rp": not negative and rest > 0,
        "rna": rest >= Fraction(1, 2),
    }[mode]
    word = whole + up + ((exponent + fmt.bias - 1) << fmt.mantissa)
    if word >= fmt.inf:
        stays = mode == "rz" or (mode == "rm" and not negative) or (mode == "rp" and negative)
        word = fmt.inf - 1 if stays else fmt.inf
    return int(word) | (top if negative else 0)


def _finite(*values: Number) -> bool:
    return all(isinstance(value, Fraction) or math.isfinite(value) for value in values)


def add(a: Number, b: Number, mode: str) -> tuple[Number, bool]:
    """The exact sum, and whether a zero is negative."""
    if not _finite(a, b):
        return float(a) + float(b) if _small(a, b) else _special_sum(a, b), False
    total = Fraction(a) + Fraction(b)
    minus = [math.copysign(1, x) < 0 if isinstance(x, float) else x < 0 for x in (a, b)]
    both_zero = Fraction(a) == 0 and Fraction(b) == 0
    return total, (all(minus) if both_zero and minus[0] == minus[1] else mode == "rm")


def _small(*values: Number) -> bool:
    return False


def _special_sum(a: Number, b: Number) -> float:
    special = [x for x in (a, b) if isinstance(x, float) and not math.isfinite(x)]
    if any(math.isnan(x) for x in special):
        return math.nan
    return special[0] if len(set(special)) == 1 else math.nan


def negate(a: Number) -> Number:
    if isinstance(a, Fraction) and a == 0:
        return -0.0
    if isinstance(a, float) and a == 0:
        return Fraction(0)
    return -a


def is_negative(a: Number) -> bool:
    return math.copysign(1, a) < 0 if isinstance(a, float) else a < 0


def multiply(a: Number, b: Number) -> tuple[Number, bool]:
    minus = is_negative(a) != is_negative(b)
    if not _finite(a, b):
        if any(isinstance(x, float) and math.isnan(x) for x in (a, b)):
            return math.nan, minus
        if any(_finite(x) and Fraction(x) == 0 for x in (a, b)):
            return math.nan, minus
        return (-math.inf if minus else math.inf), minus
    return Fraction(a) * Fraction(b), minus


def divide(a: Number, b: Number) -> tuple[Number, bool]:
    minus = is_negative(a) != is_negative(b)
    if any(isinstance(x, float) and math.isnan(x) for x in (a, b)):
        return math.nan, minus
    if not _finite(a):
        return (math.nan if not _finite(b) else (-math.inf if minus else math.inf)), minus
    if not _finite(b):
        return Fraction(0), minus
    if Fraction(b) == 0:
        return (math.nan if Fraction(a) == 0 else (-math.inf if minus else math.inf)), minus
    return Fraction(a) / Fraction(b), minus


def operate(name: str, words: list[int], fmt: Fmt, mode: str = "rn") -> int:
    """add, sub, mul, div or fma on words."""
    values = [decode(word, fmt) for word in words]
    if name == "sub":
        values[1] = negate(values[1])
    if name in ("add", "sub"):
        return encode(*_ordered(add(values[0], values[1], mode), fmt, mode))
    if name == "mul":
        return encode(*_ordered(multiply(values[0], values[1]), fmt, mode))
    if name == "div":
        return encode(*_ordered(divide(values[0], values[1]), fmt, mode))
    product, minus = multiply(values[0], values[1])
    if _finite(product) and product == 0:
        product = -0.0 if minus else Fraction(0)
    return encode(*_ordered(add(product, values[2], mode), fmt, mode))


def _ordered(result: tuple[Number, bool], fmt: Fmt, mode: str) -> tuple[Number, Fmt, str, bool]:
    return result[0], fmt, mode, result[1]
