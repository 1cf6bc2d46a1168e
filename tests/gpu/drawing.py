"""Random operands of one instruction: a generator that knows the operands' shapes and formats.

Which numbers are worth drawing is `inputs.py`.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lanewise.formats import Format
from lanewise.isa import Instruction

Words = NDArray[Any]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Operands:
    """Arrays for one call of an instruction, batched along the first axis, and the family of each item."""

    a: NDArray[Any]
    b: NDArray[Any]
    c: NDArray[Any]
    further: dict[str, NDArray[Any]] = field(default_factory=dict)
    family: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.a)


@dataclass(frozen=True)
class Draw:
    """A random generator with the shapes and formats of one instruction's operands."""

    rng: np.random.Generator
    instruction: Instruction
    count: int

    def shape(self, name: str) -> tuple[int, ...]:
        return self.count, *self.instruction.operands[name].matrix_shape

    def format(self, name: str) -> Format:
        return self.instruction.operands[name].format

    def tile(self, choices: Any) -> Integers:
        """One of the choices for each tile, ready to broadcast over its elements."""
        ndim = len(self.shape("a"))
        return self.rng.choice(np.asarray(choices), size=(self.count, *[1] * (ndim - 1))).astype(np.int64)

    def kind(self, number: int) -> Integers:
        """0…number−1 for the tiles in turn, beginning anywhere."""
        ndim = len(self.shape("a"))
        turns = (np.arange(self.count) + self.rng.integers(number)) % number
        return turns.reshape(self.count, *[1] * (ndim - 1))

    def integers(self, low: int, high: int, name: str) -> Integers:
        """Integers low…high, one an element of an operand."""
        return self.rng.integers(low, high, self.shape(name), endpoint=True)

    def chance(self, probability: float, name: str) -> NDArray[np.bool_]:
        return np.asarray(self.rng.random(self.shape(name)) < probability)

    def bits(self, name: str) -> Words:
        """Any bits."""
        fmt = self.format(name)
        return self.rng.integers(0, (1 << fmt.bits) - 1, self.shape(name), fmt.word_dtype.type, endpoint=True)

    def signed(self, name: str, magnitude: Any) -> NDArray[np.float64]:
        """The magnitudes with random signs, of an operand's shape."""
        signs = self.rng.choice(np.array([-1.0, 1.0]), size=self.shape(name))
        return np.asarray(np.broadcast_to(magnitude, self.shape(name)) * signs)

    def floats(self, name: str, exponent: Any, coarse: int | None = None) -> Words:
        """Random numbers of these exponents: full significands, or only `coarse` bits of them."""
        kept = 52 if coarse is None else coarse
        significand = 1 + self.integers(0, (1 << kept) - 1, name) / (1 << kept)
        with np.errstate(over="ignore"):
            value = np.ldexp(significand, np.broadcast_to(exponent, self.shape(name)).astype(np.int32))
        return self.encode(name, self.signed(name, value))

    def encode(self, name: str, values: Any) -> Words:
        fmt = self.format(name)
        return fmt.encode(np.clip(np.broadcast_to(values, self.shape(name)), fmt.min, fmt.max), saturate=True)

    def zeros(self, name: str) -> Words:
        """Zeros of both signs."""
        return self.encode(name, self.signed(name, 0.0))

    def where(self, name: str, condition: Any, chosen: Words, other: Words) -> Words:
        return np.where(condition, chosen, other).astype(self.format(name).word_dtype)

    @property
    def middle(self) -> int:
        """An exponent around which products of A and B lie well inside their range."""
        a, b = self.format("a"), self.format("b")
        return (a.emin + a.emax) // 2 + (b.emin + b.emax) // 2

    @property
    def widest(self) -> int:
        """How far apart exponents of products can be, kept below what is worth spreading."""
        a = self.format("a")
        return min(a.emax - a.emin + a.mantissa_bits, 60 if self.format("c").bits == 64 else 34)

    def one_per_row(self, number: int = 1) -> NDArray[np.bool_]:
        """For every row of A, `number` random places along K."""
        order = np.argsort(self.rng.random(self.shape("a")), axis=-1)
        return np.asarray(order < number)
