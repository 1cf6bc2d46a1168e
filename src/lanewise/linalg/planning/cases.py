"""Plans and their problem as the model sees them: sizes and choices as numbers, many plans side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from math import gcd
from typing import Any

import numpy as np

from lanewise.linalg.operand_copies import needs_copy
from lanewise.linalg.orientation import oriented
from lanewise.linalg.plan import Plan
from lanewise.linalg.planning.model import LINE, Case
from lanewise.linalg.problem import Operand, Problem
from lanewise.linalg.sum_order import element_bytes, plane_products, planes_of


def problem_columns(problem: Problem, plan: Plan) -> dict[str, float]:
    """Return what the model asks of a problem, as the kernel of a plan computes it."""
    seen = oriented(problem, plan)
    planes, size = planes_of(problem), element_bytes(problem)
    out = seen.out.dtype.word_bits // 8
    across = seen.n if seen.out.k_major else seen.m
    copied = [
        (operand, rows)
        for operand, rows in ((seen.a, seen.m), (seen.b, seen.n))
        if needs_copy(operand, problem.precision)
    ]
    along = [
        not operand.k_major and not _is_transposed_first(operand, problem) for operand in (seen.a, seen.b)
    ]
    epilogue = problem.epilogue
    return {
        "m": seen.m, "n": seen.n, "k": seen.k, "batch": seen.batch, "element_bytes": size, "out_bytes": out,
        "planes": planes, "plane_products": len(plane_products(planes)),
        "a_along_m": along[0], "b_along_n": along[1],
        "lines_a": _begins_at(seen.a, problem), "lines_b": _begins_at(seen.b, problem),
        "aligned_a": min(seen.a.alignment, 16), "aligned_b": min(seen.b.alignment, 16),
        "single_a": not seen.a.k_major and size != 2, "single_b": not seen.b.k_major and size != 2,
        "line_bytes": across * out, "along_n": seen.out.k_major,
        "thread_stores": not (seen.out.tma and across * out % 16 == 0),
        "long_epilogue": epilogue.activation is not None or epilogue.function is not None,
        "promotes": problem.promote is not None or planes > 1,
        "experts": problem.experts,
        "copies": len(copied),
        "copied_bytes": sum(_copied_bytes(operand, rows, problem, planes) for operand, rows in copied),
        "copied_a_bytes": _copied_bytes(seen.a, seen.m, problem, planes) if planes > 1 else 0,
    }  # fmt: skip


def _begins_at(operand: Operand, problem: Problem) -> int:
    """Return the bytes, up to a line, at whose multiples the rows of an operand begin; copies have lines."""
    if needs_copy(operand, problem.precision):
        return LINE
    return gcd(operand.leading * operand.dtype.word_bits // 8, LINE)


def _is_transposed_first(operand: Operand, problem: Problem) -> bool:
    """Return whether a copy makes an operand contiguous along K."""
    from lanewise.linalg.operand_copies import needs_transpose

    return needs_transpose(operand, problem.precision)


def _copied_bytes(operand: Operand, rows: int, problem: Problem, planes: int) -> float:
    """Return the bytes that a copy of an operand reads and writes: its rows are padded to whole lines."""
    batch = problem.batch if operand.batch_stride else 1
    size, along_k = element_bytes(problem), operand.k_major or _is_transposed_first(operand, problem)
    lines, length = (rows, problem.k) if along_k else (problem.k, rows)
    written = lines * (-(-length * size // LINE) * LINE) * planes
    return float(batch) * (rows * problem.k * operand.dtype.word_bits // 8 + written)


def plan_columns(plan: Plan) -> dict[str, float]:
    """Return what the model asks of a plan."""
    return {
        "warp": plan.family == "warp", "rows": plan.tile[0], "columns": plan.tile[1], "step": plan.tile[2],
        "across": plan.cluster[0], "along": plan.cluster[1],
        "split": plan.split, "groups": plan.groups, "gather": plan.gather, "stages": plan.stages,
        "pingpong": plan.schedule == "pingpong", "by_turns": plan.schedule == "by turns",
        "direct": plan.direct, "splits_a": plan.splits_a, "raster": plan.group,
    }  # fmt: skip


def case_of(problem: Problem, plans: Sequence[Plan]) -> Case:
    """Return the case of some plans of one problem."""
    orientations = {plan.swap: plan for plan in plans}
    by_swap = {swap: problem_columns(problem, plan) for swap, plan in orientations.items()}
    return joined([{**by_swap[plan.swap], **plan_columns(plan)} for plan in plans])


def joined(rows: Sequence[dict[str, Any]]) -> Case:
    """Return the case of many problems and plans."""
    return Case(**{field.name: np.array([float(row[field.name]) for row in rows]) for field in fields(Case)})
