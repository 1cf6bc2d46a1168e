"""Inputs made to show what hardware does: seeded families of operands for any instruction that multiplies.

Each family returns raw words of a, b and c. Patterns along K live in A, so that they hold for a sparse A too,
whichever rows of B its metadata selects.
"""

import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.drawing import Draw, Operands, Words
from lanewise.isa import Instruction

Triple = tuple[Words, Words, Words]
Family = Callable[[Draw], Triple]


# floats --------------------------------------------------------------------------------------------------


def any_bits(draw: Draw) -> Triple:
    """Any bits at all, NaN and Inf among them."""
    return draw.bits("a"), draw.bits("b"), draw.bits("c")


def finite_bits(draw: Draw) -> Triple:
    """Any finite bits: all exponents alike."""

    def finite(name: str) -> Words:
        words = draw.bits(name)
        return draw.where(name, np.isfinite(draw.format(name).decode(words)), words, draw.floats(name, 0))

    return finite("a"), finite("b"), finite("c")


def ordinary(draw: Draw) -> Triple:
    """Normally distributed numbers."""
    a, b, c = (draw.rng.normal(size=draw.shape(name)) for name in "abc")
    scale = np.sqrt(draw.instruction.a.cols)
    return draw.encode("a", a), draw.encode("b", b), draw.encode("c", c * scale)


def near_equal_exponents(draw: Draw) -> Triple:
    """Products within a few binades, C up to eight above or below."""
    centre = draw.middle + draw.tile(range(-2, 3))
    beta = draw.format("b").emin // 2 + draw.tile([0, 1, 2])
    a = draw.floats("a", centre - beta + draw.integers(-1, 1, "a"))
    b = draw.floats("b", beta + draw.integers(0, 1, "b"))
    return a, b, draw.floats("c", centre + draw.tile(range(-8, 9)) + draw.integers(-1, 1, "c"))


def cancelling(draw: Draw) -> Triple:
    """The second half of A's row is the first negated; B repeats itself but for last bits; C is small."""
    exponent = draw.middle // 2 + draw.integers(-2, 2, "a")
    a = draw.floats("a", exponent)
    half = a.shape[-1] // 2
    sign = a.dtype.type(1 << (draw.format("a").bits - 1)) if draw.format("a").signed else a.dtype.type(0)
    a[..., half:] = a[..., :half] ^ sign
    b = draw.floats("b", draw.middle - draw.middle // 2)
    if draw.instruction.sparse:
        b[..., :, :] = b[..., :1, :]
    else:
        b[..., half:, :] = b[..., :half, :]
    last = b.dtype.type(1 << draw.format("b").ignored_low_bits)
    b = draw.where("b", draw.chance(1 / 8, "b"), b ^ last, b)
    c = draw.floats("c", draw.middle + draw.tile(range(-30, 3)))
    return a, b, draw.where("c", draw.chance(1 / 4, "c"), draw.zeros("c"), c)


def spread(draw: Draw) -> Triple:
    """One large product a row, the others just above and below the bit where alignment cuts them off."""
    low, high = draw.format("a").emin - draw.format("a").mantissa_bits, draw.format("a").emax
    top = min(high, 20) - draw.tile(range(6))
    fall = draw.tile(range(min(6, draw.widest - 1), draw.widest)) + draw.integers(-3, 3, "a")
    alpha = np.maximum(np.where(draw.one_per_row(), top, top - fall), low)
    beta = draw.tile(range(-3, 4))
    c = draw.floats("c", top + beta - draw.tile(range(-3, draw.widest)))
    return draw.floats("a", alpha), draw.floats("b", beta), c


def ties(draw: Draw) -> Triple:
    """Short significands under a C so much larger that sums fall on, beside or between the roundings of D."""
    beta = draw.tile(range(-2, 3))
    alpha = draw.tile(range(-1, 2)) + draw.integers(0, 1, "a")
    above = draw.format("d").mantissa_bits + draw.tile(range(-3, 4))
    a = draw.where("a", draw.one_per_row(3), draw.floats("a", alpha, coarse=1), draw.zeros("a"))
    return a, draw.floats("b", beta, coarse=1), draw.floats("c", alpha[..., :1, :1] + beta + above)


def subnormals(draw: Draw) -> Triple:
    """Subnormal numbers and the smallest normal ones, in B beside numbers of any size; C the same."""

    def tiny(name: str) -> Words:
        fmt = draw.format(name)
        code = draw.integers(0, (2 << fmt.mantissa_bits) - 1, name) << fmt.ignored_low_bits
        sign = draw.integers(0, 1, name) << (fmt.bits - 1) if fmt.signed else 0
        return np.asarray(code | sign).astype(fmt.word_dtype)

    fmt = draw.format("b")
    sized = draw.floats("b", draw.integers(fmt.emin, fmt.emax, "b"))
    return tiny("a"), draw.where("b", draw.kind(2) == 1, tiny("b"), sized), tiny("c")


def smallest_products(draw: Draw) -> Triple:
    """Products around the smallest subnormal of D (or the smallest there are), C of that size or zero."""
    a, b, d = draw.format("a"), draw.format("b"), draw.format("d")
    beta = b.emin // 2
    floor = max(d.emin - d.mantissa_bits, a.emin - a.mantissa_bits + beta)
    exponent = floor + draw.tile(range(-8, 24)) + draw.integers(-3, 3, "a")
    c = draw.floats("c", floor + draw.tile(range(-2, 24)) + draw.integers(-2, 2, "c"))
    few = draw.where("a", draw.one_per_row(3), draw.floats("a", exponent - beta), draw.zeros("a"))
    dense = draw.floats("a", exponent - beta)
    return (
        draw.where("a", draw.kind(2) == 1, few, dense),
        draw.floats("b", beta),
        draw.where("c", draw.chance(1 / 2, "c"), draw.zeros("c"), c),
    )


def signed_zeros(draw: Draw) -> Triple:
    """Zeros of both signs in C and the products: all alike, mixed, cancelled to nothing, beside crumbs."""
    kind = draw.kind(4)
    row_sign = np.where(draw.rng.random(draw.shape("a")[:-1]) < 0.5, -1.0, 1.0)[..., None]
    alike = draw.encode("a", 0.0 * row_sign)
    pair = draw.floats("a", 0)
    pair[..., 1] = pair[..., 0] ^ pair.dtype.type(1 << (draw.format("a").bits - 1))
    pair = draw.where("a", np.arange(pair.shape[-1]) < 2, pair, draw.zeros("a"))
    crumb = draw.encode("a", draw.signed("a", draw.format("a").smallest_subnormal))
    crumbs = draw.where("a", draw.one_per_row(), crumb, draw.zeros("a"))
    a = draw.where(
        "a",
        kind == 0,
        alike,
        draw.where("a", kind == 1, draw.zeros("a"), draw.where("a", kind == 2, pair, crumbs)),
    )
    column_sign = np.where(draw.rng.random(draw.shape("b")[:-2] + draw.shape("b")[-1:]) < 0.5, -1.0, 1.0)
    size = np.where(kind == 3, float(draw.format("b").smallest_subnormal), 1.0)
    b = draw.encode("b", size * column_sign[..., None, :])
    return a, b, draw.zeros("c")


def sparse_specials(draw: Draw) -> Triple:
    """Ordinary numbers, one special in some rows, columns and elements of C; zeros for Inf to meet."""
    a, b, c = ordinary(draw)

    def special(name: str) -> Words:
        fmt = draw.format(name)
        if not fmt.has_nan:
            return draw.encode(name, draw.signed(name, fmt.max))
        nan = int(fmt.encode(np.nan)) | (1 << (fmt.bits - 1))
        infinite = int(fmt.encode(np.inf))  # in e4m3, which has none, a NaN
        first, last = infinite, infinite | ((1 << fmt.mantissa_bits) - 1 << fmt.ignored_low_bits)
        choices = [
            infinite,
            infinite,
            infinite,
            nan,
            last,
            first + (1 << fmt.ignored_low_bits) if fmt.has_inf else nan,
        ]
        words = draw.rng.choice(np.array(choices, fmt.word_dtype), size=draw.shape(name))
        return words ^ (draw.integers(0, 1, name).astype(fmt.word_dtype) << fmt.word_dtype.type(fmt.bits - 1))

    rows = draw.rng.random((*draw.shape("a")[:-1], 1)) < 1 / 6
    a = draw.where("a", draw.one_per_row() & rows, special("a"), a)
    a = draw.where("a", draw.chance(1 / 16, "a"), draw.zeros("a"), a)
    columns = draw.rng.random((*draw.shape("b")[:-2], 1, draw.shape("b")[-1])) < 1 / 6
    place = np.argsort(draw.rng.random(draw.shape("b")), axis=-2) == 0
    b = draw.where("b", place & columns, special("b"), b)
    b = draw.where("b", draw.chance(1 / 16, "b"), draw.zeros("b"), b)
    return a, b, draw.where("c", draw.chance(1 / 16, "c"), special("c"), c)


def extremes(draw: Draw) -> Triple:
    """The largest numbers everywhere: all of one sign, of a sign a row and a column, or of any signs."""
    kind = draw.kind(3)

    def largest(name: str, constant_axis: int) -> Words:
        fmt = draw.format(name)
        shape = list(draw.shape(name))
        shape[constant_axis] = 1
        by_line = np.where(draw.rng.random(shape) < 0.5, -1.0, 1.0)
        signs = np.where(kind == 0, 1.0, np.where(kind == 1, by_line, draw.signed(name, 1.0)))
        return draw.encode(name, fmt.max * signs)

    c = largest("c", -1)
    return largest("a", -1), largest("b", -2), draw.where("c", draw.chance(1 / 8, "c"), draw.zeros("c"), c)


def overflow(draw: Draw) -> Triple:
    """C the largest number of its format, and a few products around half a unit in its last place."""
    fmt = draw.format("c")
    unit = fmt.emax - fmt.mantissa_bits
    exponent = unit + draw.tile(range(-6, 4)) + draw.integers(-1, 1, "a")
    beta = min(unit // 2, draw.format("b").emax)
    a = draw.where("a", draw.one_per_row(2), draw.floats("a", exponent - beta, coarse=2), draw.zeros("a"))
    return a, draw.floats("b", beta, coarse=1), draw.encode("c", draw.signed("c", fmt.max))


def crumbs(draw: Draw) -> Triple:
    """A product on a tie of f16, or a whole number of f32's smallest; a crumb far below it; zeros else.

    Whether the crumb counts shows how many bits alignment keeps; on half of the tiles, where products are so
    small that a zero may have the largest exponent, which exponent a zero has.
    """
    half, wide = draw.format("d").name == "f16", draw.format("a").exponent_bits >= 8
    low = draw.kind(2) == 1
    # The large product takes its B from one group of K of its own.
    packed, dense = _group(draw.instruction)
    groups = draw.shape("a")[-1] // packed
    own = draw.tile(range(groups))
    order = np.argsort(
        draw.rng.random(draw.shape("a")) + (np.arange(groups * packed) // packed != own), axis=-1
    )
    rank = np.argsort(order, axis=-1)  # 0…packed-1 inside the group, the others behind, at random
    if half:
        beta_large, beta_small = np.where(low, -12, 7), np.where(low, -24, -4)
        tie = (2.0 * draw.integers(0, 3, "a") + 1) * 2.0**-25
        large, crumb = (
            np.where(low, tie, 2.0**15),
            -np.where(low, draw.integers(44, 48, "a"), draw.integers(-3, 13, "a")),
        )
    else:
        beta_large, beta_small = np.where(low, -70, 7), np.where(low, -80, -4)
        unit = draw.integers(1, 255, "a") * np.ldexp(2.0**-149, draw.integers(0, 7, "a").astype(np.int32))
        large, crumb = (
            np.where(low, unit, 2.0**15),
            -np.where(low, draw.integers(154, 161, "a"), draw.integers(-3, 13, "a")),
        )
    a = draw.where(
        "a", rank == 0, draw.encode("a", draw.signed("a", large * 2.0**-beta_large)), draw.zeros("a")
    )
    a = draw.where(
        "a", (rank == packed) & half & ~low, draw.encode("a", draw.signed("a", 2.0 ** (4 - beta_small))), a
    )
    a = draw.where(
        "a",
        (rank > packed) & (rank <= packed + draw.tile([1, 1, 2])),
        draw.floats("a", crumb - beta_small, 0),
        a,
    )
    of_large = np.arange(draw.shape("b")[-2])[:, None] // dense == own
    b = draw.encode("b", draw.signed("b", np.where(of_large, 2.0**beta_large, 2.0**beta_small)))
    tiny = draw.encode("c", draw.signed("c", draw.format("c").smallest_subnormal * draw.integers(0, 3, "c")))
    return a, b, draw.where("c", draw.chance(3 / 4, "c") | wide, draw.zeros("c"), tiny)


def _group(instruction: Instruction) -> tuple[int, int]:
    """How many packed elements of A, and how many rows of B, belong together."""
    return (instruction.metadata.group // 2, instruction.metadata.group) if instruction.sparse else (1, 1)


def c_alone(draw: Draw) -> Triple:
    """Every product a zero, C any bits."""
    return draw.zeros("a"), finite_bits(draw)[1], draw.bits("c")


def ignored_bits(draw: Draw) -> Triple:
    """tf32: the 13 low bits set at random, and infinities that those bits would make NaNs."""
    a, b, c = ordinary(draw)

    def dirty(name: str, words: Words, chosen: NDArray[np.bool_]) -> Words:
        low = draw.integers(1, (1 << draw.format(name).ignored_low_bits) - 1, name).astype(np.uint32)
        return draw.where(
            name, chosen, np.uint32(0x7F800000) | low | words & np.uint32(0x80000000), words | low
        )

    rows = draw.rng.random((*draw.shape("a")[:-1], 1)) < 1 / 4
    return dirty("a", a, draw.one_per_row() & rows), dirty("b", b, draw.chance(1 / 64, "b")), c


# integers and bits ---------------------------------------------------------------------------------------


def small_integers(draw: Draw) -> Triple:
    """Numbers of two bits, C of twelve."""
    low, high = (-2 if draw.format("a").signed else 0), min(3, int(draw.format("a").max))
    low_b, high_b = (-2 if draw.format("b").signed else 0), min(3, int(draw.format("b").max))
    return (
        draw.encode("a", draw.integers(low, high, "a")),
        draw.encode("b", draw.integers(low_b, high_b, "b")),
        draw.encode("c", draw.integers(-2048, 2047, "c")),
    )


def largest_sums(draw: Draw) -> Triple:
    """The largest products of either sign, and C so near the end of s32 that sums pass it, or just not."""

    def ends(name: str, constant_axis: int) -> Words:
        fmt = draw.format(name)
        shape = list(draw.shape(name))
        shape[constant_axis] = 1
        values = np.where(draw.rng.random(shape) < 0.5, int(fmt.min), int(fmt.max))
        return draw.encode(name, values)

    reach = draw.instruction.k * int(draw.format("a").max + 1) * int(draw.format("b").max + 1)
    inside = draw.rng.integers(0, min(2 * reach, 2**31 - 1), draw.shape("c"), endpoint=True)
    c = np.where(draw.chance(1 / 2, "c"), 2**31 - 1 - inside, inside - 2**31)
    return ends("a", -1), ends("b", -2), draw.encode("c", np.where(draw.chance(1 / 8, "c"), 2**31 - 1, c))


FLOAT_FAMILIES: tuple[Family, ...] = (
    any_bits, finite_bits, ordinary, near_equal_exponents, cancelling, spread, ties, subnormals,
    smallest_products, signed_zeros, sparse_specials, extremes, overflow, crumbs, c_alone,
)  # fmt: skip
INTEGER_FAMILIES: tuple[Family, ...] = (any_bits, small_integers, largest_sums)


def families(instruction: Instruction) -> tuple[Family, ...]:
    """The families that mean something for an instruction."""
    fmt = instruction.a.format
    if fmt.kind != "float":
        return INTEGER_FAMILIES
    return (*FLOAT_FAMILIES, ignored_bits) if fmt.ignored_low_bits else FLOAT_FAMILIES


# metadata, scales, and everything together ---------------------------------------------------------------


def indices(instruction: Instruction, count: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Any legal sparsity: the places that the packed elements of A take in their groups."""
    metadata = instruction.metadata
    rows, width = metadata.indices_shape
    if metadata.per_code == 1:
        return rng.integers(0, 2, (count, rows, width), np.uint8)
    falling = not metadata.ordered  # the two places of a group may come in any order
    pairs = np.array([(i, j) for i in range(4) for j in range(4) if i < j or (falling and i > j)], np.uint8)
    return pairs[rng.integers(0, len(pairs), (count, rows, width // 2))].reshape(count, rows, width)


def _scales(name: str, draw: Draw, wild: bool) -> NDArray[Any]:
    fmt = draw.format(name)
    middle = fmt.bias << fmt.mantissa_bits
    near = draw.integers(-8, 8, name) * (1 << fmt.mantissa_bits) // 2 + middle
    words = draw.bits(name) if wild else near
    return fmt.from_bits(
        np.asarray(words & ((1 << (fmt.bits - (fmt.mantissa_bits > 0))) - 1)).astype(fmt.word_dtype)
    )


def rng_of(instruction: Instruction, seed: int, purpose: str) -> np.random.Generator:
    """A generator that depends on the instruction's text, the purpose and the seed alone."""
    return np.random.default_rng([seed, zlib.crc32(f"{purpose} {instruction.text}".encode())])


def operands(instruction: Instruction, count: int, seed: int) -> Operands:
    """`count` items of every family, in one batch."""
    rng = rng_of(instruction, seed, "operands")
    parts = list(_drawn(instruction, count, rng))
    named = {name: np.concatenate([part[0][name] for part in parts]) for name in parts[0][0]}
    names = tuple(name for _, family in parts for name in [family] * count)
    return Operands(named.pop("a"), named.pop("b"), named.pop("c"), named, names)


def _drawn(
    instruction: Instruction, count: int, rng: np.random.Generator
) -> Iterator[tuple[dict[str, NDArray[Any]], str]]:
    for family in families(instruction):
        draw = Draw(rng, instruction, count)
        words = dict(zip("abc", family(draw), strict=True))
        arrays = {name: draw.format(name).from_bits(each) for name, each in words.items()}
        if instruction.sparse:
            arrays["metadata"] = indices(instruction, count, rng)
        if instruction.scale_vec:
            arrays |= {name: _scales(name, draw, family is any_bits) for name in ("scale_a", "scale_b")}
        yield arrays, family.__name__.replace("_", " ")
