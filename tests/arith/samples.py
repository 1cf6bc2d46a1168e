"""Operands that make arithmetic show itself: any bits, near-cancelling numbers, extremes, specials, zeros."""

from typing import Any

import numpy as np

from lanewise.arith import Model
from lanewise.arith.reference import multiply
from lanewise.formats import Format
from lanewise.isa import Instruction

KINDS = ("bits", "ordinary", "cancelling", "tiny", "special", "maximal", "far apart", "zeros")


def numbers(fmt: Format, shape: tuple[int, ...], rng: np.random.Generator, kind: str) -> np.ndarray:
    """An array in a format's dtype."""
    words = rng.integers(0, 1 << min(fmt.bits, 63), shape, dtype=np.uint64)
    if fmt.bits == 64:
        words = words * np.uint64(2) + rng.integers(0, 2, shape, dtype=np.uint64)
    if fmt.kind != "float":
        if kind == "maximal":
            words = np.full(shape, 1 << max(fmt.bits - 1, 0) if fmt.bits > 1 else 1, np.uint64)
        return fmt.from_bits(words.astype(fmt.word_dtype))
    ordinary = rng.normal(size=shape)
    match kind:
        case "bits":
            return fmt.from_bits(words.astype(fmt.word_dtype))
        case "cancelling":
            steps = rng.integers(-2, 3, shape) * 2.0**-fmt.mantissa_bits
            values = rng.choice([-1.0, 1.0], shape) * (1 + steps)
        case "tiny":
            values = ordinary * 2.0 ** rng.integers(
                fmt.emin - min(fmt.mantissa_bits, 24), fmt.emin + 4, shape
            )
        case "special":
            some = [0.0, -0.0, 1.0, -1.5]
            some += [np.nan] * fmt.has_nan + [np.inf, -np.inf] * fmt.has_inf
            values = np.where(rng.random(shape) < 0.75, ordinary, rng.choice(some, shape))
        case "maximal":
            values = np.full(shape, (2 - 2.0**-fmt.mantissa_bits) * 2.0 ** min(fmt.emax, 40))
            if not fmt.has_inf:
                values = np.full(shape, float(fmt.max))
        case "far apart":
            low, high = max(fmt.emin - fmt.mantissa_bits, -145), min(fmt.emax, 125)
            values = ordinary * 2.0 ** rng.integers(low, high, shape)
        case "zeros":
            values = ordinary * (rng.random(shape) < 0.1) * rng.choice([1.0, 2.0**-10, 2.0**-20], shape)
        case _:
            values = ordinary
    if not fmt.signed:
        values = np.abs(values) + (fmt.mantissa_bits == 0)
    return fmt.array(values, saturate=not np.isinf(values).any())


def operands(
    instruction: Instruction,
    model: Model,
    rng: np.random.Generator,
    kind: str,
    rows: int = 0,
    columns: int = 0,
    steps: int = 1,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
    """A, B, C and what else the instruction takes, for so many rows, columns and instructions along K."""
    rows, columns = rows or instruction.m, columns or instruction.n
    a = numbers(model.a, (rows, model.k * steps), rng, kind)
    b = numbers(
        model.b, (instruction.k * steps, columns), rng, str(rng.choice(KINDS)) if rng.random() < 0.2 else kind
    )
    c = numbers(model.c, (rows, columns), rng, kind)
    if rng.random() < 0.3:
        c = np.zeros_like(c)
    more: dict[str, Any] = {}
    if model.sparse:
        width = instruction.metadata.indices_shape[1] * steps
        if instruction.metadata.per_code == 1:
            places = rng.integers(0, 2, (rows, width))
        else:
            pairs = np.array([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])
            places = pairs[rng.integers(0, 6, (rows, width // 2))].reshape(rows, width)
        more["metadata"] = places.astype(np.uint8)
    if model.scale is not None:
        scales = model.scale_vec * steps
        more["scale_a"] = numbers(model.scale, (rows, scales), rng, str(rng.choice(["bits", "ordinary"])))
        more["scale_b"] = numbers(model.scale, (scales, columns), rng, "ordinary")
    return a, b, c, more


def expected(
    instruction: Instruction,
    model: Model,
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    more: dict[str, Any],
    rows: Any,
    columns: Any,
    steps: int = 1,
) -> np.ndarray:
    """What the reference gives for some rows and columns, instruction by instruction along K."""
    d = c[rows][:, columns]
    for step in range(steps):
        k, packed = step * instruction.k, step * model.k
        extra: dict[str, Any] = {}
        if model.sparse:
            height, width = instruction.metadata.indices_shape
            places = more["metadata"][rows, step * width : (step + 1) * width]
            tile = np.zeros((height, width), np.uint8) + places[:1]
            tile[: len(places)] = places
            extra["columns"] = instruction.metadata.columns(tile)[: len(places)]
        if model.scale is not None:
            scales = slice(step * model.scale_vec, (step + 1) * model.scale_vec)
            extra["scale_a"] = more["scale_a"][rows, scales]
            extra["scale_b"] = more["scale_b"][scales, columns]
        d = multiply(
            model,
            a[rows, packed : packed + model.k],
            b[k : k + instruction.k, columns],
            d.astype(model.c.dtype),
            **extra,
        )
    return d


def differing(fmt: Format, left: np.ndarray, right: np.ndarray) -> int:
    """Elements whose bits differ."""
    return int((fmt.to_bits(left) != fmt.to_bits(right)).sum())
