"""Which product is computed, D = A·B or its transpose Dᵀ = Bᵀ·Aᵀ, and the shuffles that its operands need.

The columns of the right factor lie in the lanes of a vector. D of m16n8 has 16 rows but 8 columns, so where
vectors have 16 lanes only the transpose fills them. A sum has the same bits either way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from lanewise.arith.fused_engine import in_k_order, plan_for
from lanewise.arith.fused_tiles import Plan
from lanewise.arith.models import Model
from lanewise.isa import Instruction
from lanewise.machine.codegen.register_shuffles import held_places, holding, index_bits


@dataclass(frozen=True)
class Orders:
    """The index bits that bring each operand's elements into the order that the sums are computed in.

    `left` is [block][row][k], `right` is [block][k][column], `c` is [row][column]; `d` goes back from there
    to the registers of D.
    """

    left: tuple[int, ...]
    right: tuple[int, ...]
    c: tuple[int, ...]
    d: tuple[int, ...]

    def allow(self, vector_bits: int, instruction: Instruction) -> bool:
        """Whether every element of a vector is another one, as shuffles need it."""
        operands = (instruction.a, instruction.b, instruction.c, instruction.d)
        lanes = vector_bits // min(operand.slot_bits for operand in operands)
        every = (self.left, self.right, self.c, self.d)
        return all(min(bits[: lanes.bit_length() - 1]) >= 0 for bits in every)


@dataclass(frozen=True)
class Factors:
    """The two factors of the product that is computed, by the operands' names, and how it is cut up.

    `rows` and `columns` are those of the product; the model in the plan has the left factor as its A.
    """

    left: Literal["a", "b"]
    right: Literal["a", "b"]
    rows: int
    columns: int
    plan: Plan

    @property
    def transposed(self) -> bool:
        """Whether the transpose of D is computed."""
        return self.left == "b"


def factors_of(instruction: Instruction, model: Model) -> Factors:
    """Which factor is the left one, and the plan of that product."""
    m, n = instruction.m, instruction.n
    plan, turned = plan_for(model, n), plan_for(replace(model, a=model.b, b=model.a), m)
    if turned.lanes > plan.lanes:
        return Factors("b", "a", n, m, replace(turned, strip=m))
    return Factors("a", "b", m, n, replace(plan, strip=n))


def orders(instruction: Instruction, factors: Factors) -> Orders | None:
    """The shuffles of a product's operands; None where the layouts do not allow them."""
    m, n, k = instruction.m, instruction.n, instruction.a.cols
    order = in_k_order(factors.plan.model, np.arange(k), axis=0)
    a, b, c = np.arange(m * k).reshape(m, k), np.arange(k * n).reshape(k, n), np.arange(m * n).reshape(m, n)
    left, right = (b.T, a.T) if factors.transposed else (a, b)
    blocks = left[:, order].reshape(factors.rows, -1, factors.plan.length)
    flat = {
        factors.left: blocks.swapaxes(0, 1).ravel(),
        factors.right: right[order].ravel(),
        "c": (c.T if factors.transposed else c).ravel(),
    }
    bits_of = {name: index_bits(held_places(instruction.operands[name])[flat[name]]) for name in flat}
    d = index_bits(np.argsort(flat["c"])[holding(instruction.d)])
    if d is None or any(bits is None for bits in bits_of.values()):
        return None
    return Orders(bits_of[factors.left] or (), bits_of[factors.right] or (), bits_of["c"] or (), d)
