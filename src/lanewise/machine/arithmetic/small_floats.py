"""Conversions between small floats (f16, bf16, tf32, 8 bits and fewer) and f32, in every rounding mode.

They use integer arithmetic, so that the bits do not depend on the host's processor.
"""

from dataclasses import dataclass

from lanewise.jit.simd import Type, Value, f32, f64
from lanewise.machine.arithmetic.integer import U32, U64


@dataclass(frozen=True)
class Small:
    """A small floating-point format: bits of exponent and mantissa, and the meaning of its largest codes."""

    name: str
    bits: int
    exponent: int
    mantissa: int
    has_inf: bool = True
    nan: int = 0
    has_nan: bool = True

    @property
    def bias(self) -> int:
        """The bias of the exponent."""
        return (1 << self.exponent - 1) - 1

    @property
    def infinity(self) -> int:
        """The first code beyond the finite numbers."""
        if not self.has_nan:
            return 1 << self.bits - 1
        return ((1 << self.exponent) - 1) << self.mantissa if self.has_inf else self.nan

    @property
    def from_nan(self) -> int:
        """The code that NaN becomes; in a format without NaN the largest number (PTX ISA, cvt.satfinite)."""
        return self.nan if self.has_nan else self.infinity - 1

    @property
    def container(self) -> int:
        """The bits that one element of a packed pair takes."""
        return 16 if self.bits == 16 else 4 if self.bits == 4 else 8


SMALL = {
    "f16": Small("f16", 16, 5, 10, nan=0x7FFF),
    "bf16": Small("bf16", 16, 8, 7, nan=0x7FFF),
    "tf32": Small("tf32", 19, 8, 10, nan=0x3FFFF),
    "e4m3": Small("e4m3", 8, 4, 3, has_inf=False, nan=0x7F),
    "e5m2": Small("e5m2", 8, 5, 2, nan=0x7F),
    "e3m2": Small("e3m2", 6, 3, 2, has_inf=False, has_nan=False),
    "e2m3": Small("e2m3", 6, 2, 3, has_inf=False, has_nan=False),
    "e2m1": Small("e2m1", 4, 2, 1, has_inf=False, has_nan=False),
}


def widen(word: Value, name: str) -> Value:
    """Return the f32 number that a word of a small format stands for; NaNs keep their payload."""
    fmt = SMALL[name]
    word = word.to(U32)
    if name == "bf16":
        return (word << 16).view(f32)
    if name == "tf32":
        return word.view(f32)
    sign = (word >> (fmt.bits - 1)) << 31
    magnitude = word & ((1 << fmt.bits - 1) - 1)
    moved = (magnitude << (23 - fmt.mantissa)).view(f32)
    # Multiplying by a power of two moves the exponent and makes subnormal numbers normal, exactly.
    scaled = (moved * 2.0 ** (127 - fmt.bias)).view(U32)
    beyond = magnitude > fmt.infinity - 1
    if fmt.has_inf:
        top = (magnitude << (23 - fmt.mantissa)) | 0x7F800000
    else:
        top = scaled.code.constant(scaled.type, 0x7FFFFFFF)
    return (beyond.select(top, scaled) | sign).view(f32)


def is_nan(value: Value) -> Value:
    """Return a predicate that is true where a float is NaN."""
    builder = value.code.builder
    return Value(
        value.code, Type("u", 1, value.type.lanes), builder.fcmp_unordered("uno", value.handle, value.handle)
    )


def to_odd(total: Value, error: Value) -> Value:
    """Return a rounded f64 sum, given its error, as the sum rounded to odd; this can be rounded once more."""
    bits = total.view(U64)
    inexact = (error > 0.0) | (error < 0.0)
    opposite = ((bits ^ error.view(U64)) >> 63).differs(0)
    odd = (bits - opposite.to(U64)) | 1
    return inexact.select(odd, bits).view(f64)


def two_sum(a: Value, b: Value) -> tuple[Value, Value]:
    """Return the rounded sum of two floats and its exact error (Knuth's TwoSum)."""
    total = a + b
    added = total - a
    return total, (a - (total - added)) + (b - added)


def single_odd(value: Value) -> Value:
    """Convert f64 to f32, rounded to odd."""
    near = value.to(f32)
    back = near.to(f64)
    bits, wide, exact_bits = near.view(U32), back.view(U64), value.view(U64)
    clear = (1 << 63) - 1
    exact = wide.equals(exact_bits) | is_nan(value)
    above = (wide & clear) > (exact_bits & clear)
    return exact.select(bits, (bits - above.to(U32)) | 1).view(f32)


def round_to(
    value: Value,
    name: str,
    mode: str = "rn",
    saturate: bool = False,
    relu: bool = False,
    random: tuple[Value, int] | None = None,
) -> Value:
    """Return the word of a small format that an f32 rounds to in a mode (rn, rz, rm, rp, rna, rs).

    tf32 is returned in the upper bits of an f32, as instructions take it. Stochastic rounding (rs) adds
    `random`, a pair of random bits and their count, to the bits that are cut off; a carry rounds up.
    """
    fmt = SMALL[name]
    bits = value.view(U32)
    code = bits.code
    negative = bits > 0x7FFFFFFF
    magnitude = bits & 0x7FFFFFFF
    exponent = magnitude >> 23
    lowest = 127 - fmt.bias + 1
    normal = exponent.max(1)
    fraction = magnitude & 0x7FFFFF
    significand = (exponent > 0).select(fraction | 0x800000, fraction)
    base = 23 - fmt.mantissa
    lacking = (normal < lowest).select(lowest - normal, 0)
    amount = lacking + base
    amount = (amount > 25).select(code.constant(amount.type, 25), amount)
    quotient = significand >> amount
    rest = significand & ((code.constant(amount.type, 1) << amount) - 1)
    half = code.constant(amount.type, 1) << (amount - 1)
    if mode == "rn":
        up = (rest > half) | (rest.equals(half) & (quotient & 1).differs(0))
    elif mode == "rna":
        up = ~(rest < half)
    elif mode == "rs":
        assert random is not None
        random_bits, count = random
        # The bits that are cut off are at least as many as the random ones.
        up = (rest + (random_bits << (amount - count))) > (half << 1) - 1
    elif mode == "rz":
        up = rest < 0
    else:
        up = rest.differs(0) & (negative if mode == "rm" else ~negative)
    rounded = quotient + up.to(U32)
    word = rounded + ((normal > lowest).select((normal - lowest) << fmt.mantissa, 0))
    infinite = magnitude.equals(0x7F800000)
    over = (word > fmt.infinity - 1) | infinite
    largest = code.constant(word.type, fmt.infinity - 1)
    top = code.constant(word.type, fmt.infinity)
    if saturate or not fmt.has_inf:
        top = largest
    elif mode in ("rz", "rs"):
        top = infinite.select(top, largest)
    elif mode in ("rm", "rp"):
        away = negative if mode == "rm" else ~negative
        top = (infinite | away).select(top, largest)
    word = over.select(top, word)
    sign = negative.to(U32) << (fmt.bits - 1)
    signed = word | sign
    if relu:
        signed = negative.select(code.constant(word.type, 0), signed)
    word = (magnitude > 0x7F800000).select(code.constant(word.type, fmt.from_nan), signed)
    if name == "tf32":
        return word << 13
    return word.to(Type("u", 16 if fmt.bits == 16 else 8))


#: A factor that moves subnormal f32 numbers well into the range of normal ones.
SCALE = 2.0**64


def flush(value: Value, scaled: Value | None = None) -> Value:
    """Flush subnormal f32 numbers to zeros of their sign; `scaled`, the result times SCALE, decides if given.

    An H200 flushes results as if exponents had no lower end: just below the smallest normal number, 24 bits
    are finer than what a subnormal number has, and fewer numbers are rounded up to it.
    """
    bits = value.view(U32)
    # Either way the smallest normal number is the least that is kept.
    tested, least = (value, 1 << 23) if scaled is None else (scaled, (1 + 64) << 23)
    small = (tested.view(U32) & 0x7FFFFFFF) < least
    return small.select(bits & 0x80000000, bits).view(f32)


def flush_to_half(value: Value) -> Value:
    """Flush f32 numbers, rounded to odd, that would be subnormal f16 numbers to zeros of their sign.

    Like results of f32, they are judged before rounding: what 11 bits round up to the smallest normal number
    is flushed.
    """
    bits = value.view(U32)
    small = (bits & 0x7FFFFFFF) < (((127 - 14) << 23) - (1 << 12))
    return small.select(bits & 0x80000000, bits).view(f32)


def flush_half(word: Value) -> Value:
    """Flush subnormal f16 numbers to zeros of their sign."""
    small = (word & 0x7C00).equals(0)
    return small.select(word & 0x8000, word)
