"""The order of sums that a plan has: which instruction adds, over which parts of K, and how parts are joined.

docs/matmul.md says it in words ("Bits"). Kernels keep to it, and `cpu/sums.py` computes by it.
"""

from __future__ import annotations

from functools import cache

from lanewise.errors import LanewiseError
from lanewise.formats import FORMATS, Format
from lanewise.isa import Instruction, instruction, instructions
from lanewise.linalg.block_scaling import BLOCK_FORMATS
from lanewise.linalg.plan import Plan
from lanewise.linalg.problem import Problem
from lanewise.linalg.types import PRODUCTS

#: K of an instruction by the operands' format.
_WGMMA_K = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32}
#: K of a sparse instruction: twice that of a dense one.
_SPARSE_K = {name: 2 * k for name, k in _WGMMA_K.items() if name != "tf32"}
#: Kinds of tcgen05.mma by the operands' format.
_TCGEN05_KINDS = {"f16": "f16", "bf16": "f16", "tf32": "tf32", "e4m3": "f8f6f4", "e5m2": "f8f6f4", "s8": "i8"}
#: The format that f32 is multiplied as, by the precision of the product.
_PRECISIONS = {"f32": "bf16", "tf32": "tf32"}
#: Of f32 split into bf16, the products that are summed, small ones first: which part of A, which of B. Those
#: below 2^-24 of the largest are left out.
SPLIT_PRODUCTS = ((2, 0), (1, 1), (0, 2), (1, 0), (0, 1), (0, 0))
#: The bf16 numbers whose sum is an f32.
SPLIT_PARTS = 1 + max(part for pair in SPLIT_PRODUCTS for part in pair)


def multiplied_as(problem: Problem) -> tuple[str, str]:
    """Return the formats in which A and B are multiplied: f32 goes as tf32, or split into three bf16."""
    names = problem.a.dtype.name, problem.b.dtype.name
    return _multiplied(names[0], problem.precision) if problem.precision else names


def _multiplied(name: str, precision: str) -> tuple[str, str]:
    """Return the formats in which two matrices of one format are multiplied."""
    return (_PRECISIONS.get(precision, name),) * 2


def multiplied_formats(problem: Problem) -> tuple[Format, Format]:
    """Return the formats in which A and B are multiplied, as `multiplied_as` names them."""
    a, b = multiplied_as(problem)
    return FORMATS[a], FORMATS[b]


def element_bytes(problem: Problem) -> int:
    """Return the bytes of an element of A or B as it is multiplied.

    >>> from lanewise.linalg.rules import problem_of_sizes
    >>> [element_bytes(problem_of_sizes(8, 8, 8, "f32", precision=name)) for name in ("f32", "tf32")]
    [2, 4]
    """
    return multiplied_formats(problem)[0].word_bits // 8


def stored_bits(problem: Problem) -> int:
    """Return the bits of an element of A or B in shared memory: two of e2m1 lie in a byte."""
    if problem.block_format:
        return BLOCK_FORMATS[problem.block_format].bits
    return 8 * element_bytes(problem)


def planes_of(problem: Problem) -> int:
    """Return how many numbers each element of A and B is multiplied as: f32 is split into bf16."""
    return SPLIT_PARTS if problem.precision == "f32" else 1


def plane_products(planes: int, transposed: bool = False) -> tuple[tuple[int, int], ...]:
    """Return which planes of a kernel's A and B are multiplied, in the order of the product's sums.

    A kernel that computes the transpose has the product's B as its A.
    """
    pairs = SPLIT_PRODUCTS if planes > 1 else ((0, 0),)
    return tuple((b, a) for a, b in pairs) if transposed else pairs


def instruction_of(problem: Problem, plan: Plan) -> Instruction:
    """Return the instruction that adds products up; its width and the tile do not change the sums.

    >>> from lanewise.formats import bf16, f32
    >>> from lanewise.linalg.problem import Operand
    >>> matrix = Operand(bf16, True, 64)
    >>> problem = Problem(64, 64, 64, matrix, matrix, matrix, f32)
    >>> instruction_of(problem, Plan("warpgroup", "sm_90a", (128, 256, 64), 4)).text
    'wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16'
    """
    if problem.sparse:
        if plan.arch != "sm_90a" or problem.b.dtype.name not in _SPARSE_K:
            raise LanewiseError(
                f"{plan.arch} has no wgmma.sp of {problem.b.dtype.name}; products with a sparse b take "
                f"{', '.join(_SPARSE_K)} on sm_90a"
            )
        return instruction(sparse_name(256, problem.sums.name, problem.b.dtype.name, problem.a.dtype.name))
    if problem.block_format and plan.family != "blackwell":
        raise LanewiseError(
            f"{plan.arch} has no products of {problem.block_format}: arch='sm_100a' has them; on {plan.arch} "
            "scales of e4m3 and e5m2 are float32, for the whole tensor, for rows and columns, or for blocks "
            "of 128"
        )
    if plan.family == "blackwell":
        return tcgen05_of(
            *multiplied_as(problem), problem.sums.name, plan.arch, block_format=problem.block_format,
            blocks=plan.cluster[0],
        )  # fmt: skip
    return _instruction(plan.family == "warpgroup", plan.arch, *multiplied_as(problem), problem.sums)


@cache
def tcgen05_of(
    a: str, b: str, sums: str, arch: str = "sm_100a", columns: int = 256, block_format: str = "",
    blocks: int = 1,
) -> Instruction:  # fmt: skip
    """Return the tcgen05.mma of some columns, and 128 rows for each of one or two blocks, by its formats.

    >>> tcgen05_of("e4m3", "e5m2", "f32", columns=64).shape
    (128, 64, 32)
    """
    kind = BLOCK_FORMATS[block_format].kind if block_format else _TCGEN05_KINDS.get(a)
    if kind is None or arch != "sm_100a":
        raise LanewiseError(
            f"{arch} has no tcgen05.mma that multiplies {a}; plans of family 'warp' use mma.sync"
        )
    text = f"tcgen05.mma.cta_group::{blocks}.kind::{kind}"
    return instruction(text, m=128 * blocks, n=columns, a=a, b=b, d=sums)


def sparse_name(columns: int, sums: str, sparse: str, dense: str) -> str:
    """Return the name of the wgmma.sp of some columns: its first operand is the sparse one.

    >>> sparse_name(128, "f32", "f16", "f16")
    'wgmma.mma_async.sp.sync.aligned.m64n128k32.f32.f16.f16'
    """
    return f"wgmma.mma_async.sp.sync.aligned.m64n{columns}k{_SPARSE_K[sparse]}.{sums}.{sparse}.{dense}"


def wgmma_name(columns: int, sums: str, a: str, b: str) -> str:
    """Return the name of the wgmma of some columns.

    >>> wgmma_name(128, "f32", "e4m3", "e5m2")
    'wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e5m2'
    """
    return f"wgmma.mma_async.sync.aligned.m64n{columns}k{_WGMMA_K[a]}.{sums}.{a}.{b}"


@cache
def _instruction(wgmma: bool, arch: str, a: str, b: str, sums: Format) -> Instruction:
    if wgmma:
        if a not in _WGMMA_K or arch != "sm_90a":
            raise LanewiseError(
                f"{arch} has no wgmma that multiplies {a}; plans of family 'warp' use mma.sync"
            )
        return instruction(wgmma_name(256, sums.name, a, b))
    fitting = _mma_sync(arch, a, b, sums.name)
    if not fitting:
        taken = [
            FORMATS[name].dtype_name
            for name, product in PRODUCTS.items()
            if _mma_sync(arch, *_multiplied(name, product.precisions[0]), product.sums[0])
        ]
        raise LanewiseError(
            f"{arch} has no mma.sync that multiplies {a} by {b} and sums in {sums.name}; products there take "
            f"{', '.join(taken)}"
        )
    return max(fitting, key=lambda candidate: candidate.m * candidate.n * candidate.k)


def _mma_sync(arch: str, a: str, b: str, sums: str) -> list[Instruction]:
    """Return the mma.sync of an arch that multiply these formats and sum in this one."""
    return [
        instruction
        for instruction in instructions(arch, "mma", a=a, b=b, c=sums, d=sums, kind="")
        if instruction.layouts == ("row", "col")
        and not (instruction.satfinite or instruction.rounding or instruction.bitop)
    ]


@cache
def wgmma_widths(a: str, b: str, sums: str) -> tuple[int, ...]:
    """Return N of each wgmma that multiplies these formats and sums in this one, ascending.

    >>> wgmma_widths("s8", "s8", "s32")[:6]
    (8, 16, 24, 32, 48, 64)
    """
    from lanewise.isa.table import rows

    shapes = {shape for row in rows("wgmma") if (sums, a, b) in row.types for shape in row.shapes}
    return tuple(n for n in range(8, 257, 8) if f"m64n{n}k{_WGMMA_K[a]}" in shapes)


def split_parts(problem: Problem, plan: Plan) -> list[tuple[int, int]]:
    """Return the parts of K that are summed by themselves, as (start, end), in the order of their addition.

    >>> from lanewise.formats import bf16, f32
    >>> from lanewise.linalg.problem import Operand
    >>> matrix = Operand(bf16, True, 1000)
    >>> problem = Problem(64, 64, 1000, matrix, matrix, matrix, f32)
    >>> split_parts(problem, Plan("warpgroup", "sm_90a", (128, 128, 64), 4, split=3))
    [(0, 384), (384, 768), (768, 1000)]
    """
    k, step = problem.k, plan.tile[2]
    steps = -(-k // step)
    per_part = -(-steps // (plan.split * plan.groups)) * step
    return [(start, min(start + per_part, k)) for start in range(0, k, per_part)] if k else [(0, 0)]
