"""The answers of the room Bits: one sum as several GPUs compute it, each step of it, and where they part."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any

import numpy as np

from lanewise.arith.models import FusedSum, Model, model_of
from lanewise.arith.on_arrays import gemm
from lanewise.arith.reference import exponent_of, finite, nearest
from lanewise.errors import LanewiseError
from lanewise.explore.answers import question
from lanewise.explore.sum_steps import (
    ExplainedSum,
    SumStep,
    aligned_bits,
    exact_text,
    explain_product,
    shown,
    top_exponent,
)
from lanewise.formats import FORMATS, Format, format_of
from lanewise.isa import Instruction, instructions

#: The most products of a sum, and the most digits of a number that is typed.
MOST_PRODUCTS, MOST_DIGITS = 128, 400
#: Sums that are tried when two GPUs are asked for that part.
TRIES = 2048
#: Binary digits that a step is drawn with at most, and those below the result's last bit.
WIDEST = 120
_KINDS = ("", "f8f6f4")


@dataclass(frozen=True)
class Unit:
    """What computes a sum: a GPU, its arch, and the family of instructions."""

    name: str
    arch: str
    family: str

    @property
    def key(self) -> str:
        """The name in a link."""
        return self.arch if self.family == "mma" else f"{self.arch}-{self.family}"


#: One GPU of each generation; Hopper has two units, whose FP8 sums are not the same.
UNITS = (
    Unit("V100", "sm_70", "mma"),
    Unit("T4", "sm_75", "mma"),
    Unit("A100", "sm_80", "mma"),
    Unit("L40S", "sm_89", "mma"),
    Unit("H100", "sm_90", "mma"),
    Unit("H100 wgmma", "sm_90a", "wgmma"),
    Unit("B200", "sm_100", "mma"),
    Unit("RTX 5090", "sm_120a", "mma"),
)


@lru_cache(maxsize=512)
def chosen(unit: Unit, a: str, b: str, d: str) -> tuple[Instruction, Model] | None:
    """Return the widest instruction of a unit for some formats, and its model; None if it has none."""
    candidates = [
        (instruction, model)
        for instruction in instructions(unit.arch, unit.family, a=a, b=b, d=d, sparse=False)
        if instruction.kind in _KINDS
        and not instruction.satfinite
        and not instruction.rounding
        and instruction.operands.get("c", instruction.d).format.name == d
        and (model := model_of(instruction, unit.arch)) is not None
    ]
    rows = [candidate for candidate in candidates if candidate[0].layouts == ("row", "col")] or candidates
    # Of wgmma's many widths the narrowest: they do not differ in how they add.
    return max(rows, key=lambda row: (row[0].k, -row[0].n), default=None)


@cache
def combinations() -> list[dict[str, Any]]:
    """Return the formats of A, B and D that some unit multiplies, with the units that do."""
    units: dict[tuple[str, str, str], list[str]] = {}
    for unit in UNITS:
        for instruction in instructions(unit.arch, unit.family, sparse=False):
            key = instruction.a.format.name, instruction.b.format.name, instruction.d.format.name
            if instruction.kind in _KINDS and unit.key not in units.get(key, ()) and chosen(unit, *key):
                units.setdefault(key, []).append(unit.key)
    order = list(FORMATS)
    return [
        {"a": a, "b": b, "d": d, "units": units[a, b, d]}
        for a, b, d in sorted(units, key=lambda key: [order.index(name) for name in key])
    ]


# Questions --------------------------------------------------------------------------------------------------


@question("bits", "choices")
def choices() -> dict[str, object]:
    """Return the GPUs, the formats, and which GPU multiplies what."""
    return {
        "units": [{**asdict(unit), "key": unit.key} for unit in UNITS],
        "combinations": combinations(),
        "most": MOST_PRODUCTS,
    }


@question("bits", "sum")
def explained(a: list[str], b: list[str], c: str, formats: list[str], units: list[str]) -> dict[str, Any]:
    """Return each step of a sum on some GPUs, the exact sum, and where the GPUs part."""
    asked = Asked(a, b, c, formats)
    columns, missing = [], []
    for unit in _units(units):
        pair = chosen(unit, *asked.names)
        if pair is None:
            missing.append({"key": unit.key, "name": unit.name, "why": asked.missing(unit)})
            continue
        columns.append(_Column(unit, *pair, asked))
    return {
        "inputs": asked.inputs,
        "reference": asked.reference,
        "columns": [column.data(asked) for column in columns],
        "missing": missing,
        "parts": _parts(columns, asked.d),
    }


@question("bits", "random")
def random_numbers(formats: list[str], kind: str, count: int, seed: int) -> dict[str, object]:
    """Return random numbers for A, B and C as text: of one size, of many sizes, cancelling, or any bits."""
    a, b, d = _formats(formats)
    _require_count(count)
    rng = np.random.default_rng(abs(seed) % (1 << 63))
    values = [_random(format_, kind, size, rng) for format_, size in ((a, count), (b, count), (d, 1))]
    return {name: [shown(number) for number in row] for name, row in zip("abc", values, strict=True)}


@question("bits", "part")
def parting_numbers(formats: list[str], units: list[str], count: int, seed: int) -> dict[str, Any]:
    """Return random numbers for which the GPUs give different bits; none if the search finds none."""
    a, b, d = _formats(formats)
    _require_count(count)
    choices = [
        (unit, form) for unit in _units(units) if (form := chosen(unit, a.name, b.name, d.name)) is not None
    ]
    if len(choices) < 2:
        raise LanewiseError(f"two GPUs that multiply {a} by {b} to {d} are needed to show a difference")
    for number, kind in enumerate(("wide", "same size", "cancelling")):
        rng = np.random.default_rng([abs(seed) % (1 << 63), number])
        rows = a.array(np.array([_random(a, kind, count, rng) for _ in range(TRIES)]))
        column = b.array(np.array([_random(b, kind, count, rng)]).T)
        results = [gemm(instruction, rows, column, arch=unit.arch) for unit, (instruction, _) in choices]
        bits = np.stack([d.to_bits(result)[:, 0] for result in results])
        where = np.flatnonzero((bits != bits[0]).any(axis=0))
        if len(where):
            left = a.decode(a.to_bits(rows[where[0]]))
            right = b.decode(b.to_bits(column[:, 0]))
            texts = [[shown(number) for number in values.tolist()] for values in (left, right)]
            return {"a": texts[0], "b": texts[1], "c": ["0"], "found": True}
    return {"found": False}


# Numbers that were typed ------------------------------------------------------------------------------------

_HEX_BITS = re.compile(r"0x[0-9a-f]+", re.IGNORECASE)
_POWER = re.compile(r"([+-]?)(?:(\d+(?:\.\d*)?)\s*[*×]\s*)?2\s*(?:\^|\*\*)\s*([+-]?\d{1,5})")


def parse_number(text: str, fmt: Format) -> int:
    """Return the bits of a number as it is typed: decimal, bits in hexadecimal, or a power of two.

    >>> from lanewise.formats import f16
    >>> [hex(parse_number(text, f16)) for text in ("1", "0x3c01", "-2^-24", "0x1.8p1", "1/3", "-inf")]
    ['0x3c00', '0x3c01', '0x8001', '0x4200', '0x3555', '0xfc00']
    """
    typed = text.strip().replace("−", "-")
    if not typed or len(typed) > MOST_DIGITS:
        raise LanewiseError(f"{typed[:20]!r}: a number of {fmt} is wanted, as 1.5, 0x3c00 or 2^-24")
    if _HEX_BITS.fullmatch(typed):
        bits = int(typed, 16)
        if bits >> fmt.bits:
            raise LanewiseError(f"{typed}: {fmt} has {fmt.bits} bits, and these are {bits.bit_length()}")
        return bits
    return int(fmt.to_bits(fmt.array(np.array([_value(typed, fmt)])))[0])


def _value(typed: str, fmt: Format) -> float | int:
    wanted = "an integer" if fmt.kind != "float" else "a number"
    power = _POWER.fullmatch(typed)
    try:
        if fmt.kind != "float":
            return _in_range(int(typed, 10), fmt)
        if power is not None:
            sign, factor, exponent = power.groups()
            return float(sign + "1") * float(factor or 1) * 2.0 ** int(exponent)
        if "/" in typed:
            return float(Fraction(typed))
        return float.fromhex(typed) if "0x" in typed.lower() else float(typed)
    except LanewiseError:
        raise
    except (ValueError, OverflowError, ZeroDivisionError):
        raise LanewiseError(
            f"{typed}: {wanted} of {fmt} is wanted, as 3, 0x3c (its bits)"
            + (", 1e-3, 2^-24 or 1/3" if fmt.kind == "float" else "")
        ) from None


def _in_range(value: int, fmt: Format) -> int:
    if not int(fmt.min) <= value <= int(fmt.max):
        raise LanewiseError(f"{value}: {fmt} holds {fmt.min} to {fmt.max}")
    return value


class Asked:
    """A sum that was asked for: the numbers in their formats."""

    def __init__(self, a: list[str], b: list[str], c: str, formats: list[str]) -> None:
        self.a, self.b, self.d = _formats(formats)
        if len(a) != len(b):
            raise LanewiseError(f"A has {len(a)} numbers and B {len(b)}: each product has one of each")
        _require_count(len(a))
        self.a_bits = [parse_number(text, self.a) for text in a]
        self.b_bits = [parse_number(text, self.b) for text in b]
        self.c_bits = parse_number(c or "0", self.d)
        values = [_numbers(self.a, self.a_bits), _numbers(self.b, self.b_bits)]
        self.pairs: list[tuple[Any, Any]] = list(zip(*values, strict=True))
        (self.c,) = _numbers(self.d, [self.c_bits])

    @property
    def names(self) -> tuple[str, str, str]:
        """The names of the formats."""
        return self.a.name, self.b.name, self.d.name

    def missing(self, unit: Unit) -> str:
        """Return why a unit is not among the columns."""
        what = f"{unit.family} of {self.a} and {self.b} with {self.d}"
        return f"{unit.name} has no {what} whose arithmetic is known"

    @property
    def inputs(self) -> dict[str, Any]:
        """The numbers as they were rounded to their formats."""

        def rows(fmt: Format, bits: Sequence[int]) -> list[dict[str, str]]:
            values = _numbers(fmt, bits)
            return [
                {"value": shown(value), "bits": _hex(word, fmt), "binary": _fields(word, fmt)}
                for value, word in zip(values, bits, strict=True)
            ]

        return {
            "a": rows(self.a, self.a_bits),
            "b": rows(self.b, self.b_bits),
            "c": rows(self.d, [self.c_bits]),
        }

    @property
    def exact(self) -> Fraction | None:
        """The exact sum; None if a number is infinite or NaN, or if bits are counted."""
        numbers = [self.c, *(number for pair in self.pairs for number in pair)]
        if self.a.kind == "bits" or not all(finite(number) for number in numbers):
            return None
        return Fraction(self.c) + sum((Fraction(x) * Fraction(y) for x, y in self.pairs), Fraction(0))

    @property
    def reference(self) -> dict[str, Any]:
        """The exact sum as a fraction, and the number of D's format that is nearest to it."""
        exact = self.exact
        if exact is None:
            return {"exact": "", "value": "", "nearest": "", "bits": ""}
        if self.d.kind != "float":
            return {"exact": exact_text(exact), "value": shown(exact), "nearest": shown(exact), "bits": ""}
        near = nearest(exact, self.d)
        bits = int(self.d.encode(near))
        return {
            "exact": exact_text(exact),
            "value": shown(exact),
            "nearest": shown(near),
            "bits": _hex(bits, self.d),
        }


class _Column:
    """What one unit makes of a sum."""

    def __init__(self, unit: Unit, instruction: Instruction, model: Model, asked: Asked) -> None:
        self.unit, self.instruction, self.model = unit, instruction, model
        self.sum: ExplainedSum = explain_product(
            model, asked.pairs, asked.c, lambda bits: _numbers(model.d, [bits])[0]
        )

    def data(self, asked: Asked) -> dict[str, Any]:
        """Return the column as the page shows it."""
        (value,) = _numbers(asked.d, [self.sum.bits])
        return {
            "key": self.unit.key,
            "name": self.unit.name,
            "arch": self.unit.arch,
            "instruction": self.instruction.text,
            "model": str(self.model),
            "fidelity": self.model.fidelity,
            "source": self.model.source,
            "parameters": _parameters(self.model),
            "value": shown(value),
            "bits": _hex(self.sum.bits, asked.d),
            "binary": _fields(self.sum.bits, asked.d),
            "error": _error(value, asked),
            "steps": [_step(step) for step in self.sum.steps],
        }


def _parameters(model: Model) -> list[dict[str, str]]:
    """Return the numbers and words of a model, each with what it means."""
    scheme = model.scheme
    if not isinstance(scheme, FusedSum):
        return [
            {"name": "scheme", "value": str(model), "meaning": (type(scheme).__doc__ or "").split("\n")[0]}
        ]
    rows: list[tuple[str, str | int, str]] = [
        ("products in a block", model.block, "fused into one sum; the next block adds to its result"),
        ("fraction bits", scheme.fraction, "kept of each term below the largest exponent"),
        ("rounding", scheme.rounding, "of a block's sum"),
        ("exponent of zero", scheme.e_zero, "with which a zero counts among the exponents"),
        ("C enters", scheme.c_enters, "with the first block, or added after the last"),
        ("order of K", scheme.k_order, "in which products go into blocks"),
    ]
    if scheme.group > 1:
        rows.append(("group", scheme.group, "products summed exactly before they are aligned"))
    if scheme.widened:
        rows.append(("widened", "to f16", "A and B before they are multiplied"))
    return [{"name": name, "value": str(value), "meaning": meaning} for name, value, meaning in rows]


def _step(step: SumStep) -> dict[str, object]:
    """Return a step with its numbers as aligned binary digits."""
    numbers = [row.value for row in step.rows]
    drawn = all(finite(number) for number in (*numbers, step.total, step.result))
    data: dict[str, Any] = {
        "title": step.title,
        "rounding": step.rounding,
        "largest": step.largest,
        "unit": step.unit,
        "products": step.products,
        "total": shown(step.total),
        "result": shown(step.result),
        "rows": [
            {
                "label": row.label,
                "detail": row.detail,
                "value": shown(row.value),
                "exponent": row.exponent,
            }
            for row in step.rows
        ],
    }
    if not drawn:
        return data
    total, result = Fraction(step.total), Fraction(step.result)
    least = step.unit if step.unit is not None else step.largest or -(1 << 20)
    top = top_exponent([*numbers, total, result], least)
    if top == -(1 << 20):  # nothing but zeros
        return data
    last = step.unit if step.unit is not None else _last_bit(numbers, result, top)
    data |= {"top": top, "last": last, "sum": asdict(aligned_bits(total, top, last)),
             "rounded": asdict(aligned_bits(result, top, last))}  # fmt: skip
    for row, number in zip(data["rows"], numbers, strict=True):
        row |= asdict(aligned_bits(Fraction(number), top, last))
    return data


def _last_bit(numbers: Sequence[Any], result: Fraction, top: int) -> int:
    """Return the position of the last bit to draw where terms are not cut: that of the result."""
    value = result or max((abs(Fraction(number)) for number in numbers), default=Fraction(0))
    last = exponent_of(value, -(1 << 20)) - 24 if value else top
    lowest = -(value.denominator.bit_length() - 1)
    return max(min(lowest, last), top - WIDEST) if lowest > last else max(lowest, top - WIDEST)


def _error(value: Any, asked: Asked) -> str:
    """Return how far a result is from the exact sum, in units of D's last place."""
    exact = asked.exact
    if exact is None or asked.d.kind != "float" or not finite(value):
        return ""
    difference = Fraction(value) - exact
    if not difference:
        return "exact"
    unit = Fraction(2) ** (exponent_of(exact, asked.d.emin) - asked.d.mantissa_bits)
    return f"{float(difference / unit):+.3g} ulp"


def _parts(columns: Sequence[_Column], d: Format) -> list[str]:
    """Return where each GPU parts from the first, in words."""
    if len(columns) < 2:
        return []
    first, sentences = columns[0], []
    reached = _reached(first)
    for column in columns[1:]:
        if column.sum.bits == first.sum.bits:
            continue
        mine = _reached(column)
        common = sorted(reached.keys() & mine.keys())
        where = next((count for count in common if not _same(reached[count], mine[count])), None)
        if where is None:
            sentences.append(
                f"{column.unit.name} and {first.unit.name} end with other bits: they add in another "
                f"order ({column.model} against {first.model})"
            )
            continue
        sentences.append(
            f"{column.unit.name} parts from {first.unit.name} within the first {where} products: "
            f"{shown(mine[where])} against {shown(reached[where])}. "
            f"{column.unit.name}: {column.model}; {first.unit.name}: {first.model}"
        )
    if not sentences:
        sentences.append(f"All of them give the same bits of {d}")
    return sentences


def _same(x: object, y: object) -> bool:
    return bool(x == y or (x != x and y != y))


def _reached(column: _Column) -> dict[int, Any]:
    """Return the sum after so many products, where the steps tell it."""
    results = {step.products: step.result for step in column.sum.steps if step.products is not None}
    last = column.sum.steps[-1]
    results[max((step.products or 0 for step in column.sum.steps), default=0) or len(last.rows)] = last.result
    return results


# Formats and random numbers ---------------------------------------------------------------------------------


def _formats(names: list[str]) -> tuple[Format, Format, Format]:
    if len(names) != 3:
        raise LanewiseError(f"three formats are wanted, of A, B and D; these are {len(names)}")
    a, b, d = (format_of(name) for name in names)
    return a, b, d


def _units(keys: list[str]) -> list[Unit]:
    by_key = {unit.key: unit for unit in UNITS}
    for key in keys:
        if key not in by_key:
            raise LanewiseError(f"{key[:40]!r} is none of the GPUs here: {', '.join(by_key)}")
    return [by_key[key] for key in dict.fromkeys(keys)]


def _require_count(count: int) -> None:
    if not 1 <= count <= MOST_PRODUCTS:
        raise LanewiseError(f"a sum has 1 to {MOST_PRODUCTS} products here, not {count}")


def _numbers(fmt: Format, bits: Sequence[int]) -> list[Any]:
    """Return the exact values of raw bits, as floats or integers."""
    values: list[object] = fmt.decode(np.array(bits, fmt.word_dtype)).tolist()
    return values


def _hex(bits: int, fmt: Format) -> str:
    return f"0x{bits:0{-(-fmt.bits // 4)}x}"


def _fields(bits: int, fmt: Format) -> str:
    """Return the bits with spaces between sign, exponent and mantissa."""
    text = f"{bits:0{fmt.bits}b}"
    if fmt.kind != "float":
        return text
    used = text[-(fmt.signed + fmt.exponent_bits + fmt.mantissa_bits + fmt.ignored_low_bits) :]
    head = int(fmt.signed)
    cuts = [used[:head], used[head : head + fmt.exponent_bits], used[head + fmt.exponent_bits :]]
    return " ".join(cut for cut in cuts if cut)


def _random(fmt: Format, kind: str, count: int, rng: np.random.Generator) -> list[object]:
    """Return random numbers that the format holds exactly."""
    if kind not in ("same size", "wide", "cancelling", "any bits"):
        raise LanewiseError(
            f"random numbers are of the same size, wide, cancelling or any bits, not {kind!r}"
        )
    if fmt.kind != "float":
        return [int(integer) for integer in rng.integers(int(fmt.min), int(fmt.max), count, endpoint=True)]
    if kind == "any bits":
        words = rng.integers(0, 1 << fmt.bits, count, dtype=np.uint64).astype(fmt.word_dtype)
        values = fmt.decode(words)
        return [float(value) if np.isfinite(value) else 0.0 for value in values]
    values = rng.standard_normal(count)
    if kind == "wide":
        spread = min(12, (fmt.emax - fmt.emin) // 4)
        values = np.ldexp(values, rng.integers(-spread, spread, count, endpoint=True))
    elif kind == "cancelling":
        values = np.sign(values) * (1 + np.abs(values) / 8)
    return [float(number) for number in fmt.decode(fmt.encode(values, saturate=True))]
