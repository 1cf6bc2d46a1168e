"""Plans that `lw.tune` found on this machine's GPUs, kept in the user's cache folder.

A plan is kept for one kind of call on one kind of device: sizes, types, how the operands lie, and what is
fused. What cannot be used (a file of another version, an entry that is damaged, a plan of which there is no
kernel for the call) counts as not there, and is dropped.
"""

from __future__ import annotations

import json
from contextlib import suppress
from functools import cache
from typing import Any

from lanewise.disk_cache import cache_directory, write_whole
from lanewise.errors import LanewiseError
from lanewise.linalg.operand_copies import needs_copy, with_copies
from lanewise.linalg.plan import Plan
from lanewise.linalg.planning.measured import fields_of, kind_of, plan_from
from lanewise.linalg.planning.planner import require_kernel
from lanewise.linalg.problem import Epilogue, Operand, Problem

_FILE = "tuned_products.json"
#: What the file's entries mean. Those without it were measured without the copies that calls make.
_VERSION = 2


def _key(problem: Problem, device: str) -> str:
    """Return the kind of call that a plan is kept for, in words."""
    batch = f"{problem.batch}×" if problem.batch > 1 else ""
    parts = [f"{batch}{problem.m}×{problem.n}×{problem.k} {kind_of(problem)}"]
    if problem.precision:
        parts.append(f"as {problem.precision}")
    if not problem.out.k_major:
        parts.append("columns of out")
    for name, operand in (("a", problem.a), ("b", problem.b)):
        if needs_copy(operand, problem.precision):
            parts.append(f"{name} copied")
        if problem.batch > 1 and not operand.batch_stride:
            parts.append(f"one {name}")
    if not problem.out.tma:
        parts.append("out unaligned")
    parts += _fused(problem.epilogue)
    return f"{device}: {', '.join(parts)}"


def _fused(epilogue: Epilogue) -> list[str]:
    """Return what is fused with a product, in words: which kernel runs depends on it."""
    words = []
    for name, value in epilogue.__dict__.items():
        if name.endswith("_strides") or value is None or value is False:
            continue
        if isinstance(value, Operand):
            value = f"{value.dtype.name} {'rows' if value.k_major else 'columns'}"
        elif name == "function":
            value = "own"
        words.append(name if value is True else f"{name} {getattr(value, 'name', value)}")
    return words


def _read() -> dict[str, Any]:
    """Return the entries of the file; none if it is not there, not readable, or of another version."""
    folder = cache_directory()
    if folder is None:
        return {}
    try:
        kept = json.loads((folder / _FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(kept, dict) or kept.get("version") != _VERSION:
        return {}
    plans = kept.get("plans")
    return plans if isinstance(plans, dict) else {}


@cache
def _known() -> dict[str, Any]:
    """Return what was tuned, by device and kind of call, as this process knows it."""
    return _read()


def tuned_plan(problem: Problem, arch: str, device: str) -> Plan | None:
    """Return the plan that was fastest here for a problem; None if there is none that can be used.

    Plans of products that must be batch-invariant are never tuned: how K is cut may not depend on M.
    """
    known = _known()
    if problem.batch_invariant or not known:
        return None
    row = known.get(_key(problem, device))
    if row is None:
        return None
    try:
        if row["arch"] != arch:
            return None
        plan = plan_from(row["plan"], arch, f"tuned on this {device}: {float(row['microseconds']):.1f} µs")
        plan = with_copies(problem, plan)
        require_kernel(problem, plan)
    except (LanewiseError, KeyError, TypeError, ValueError, AttributeError):
        forget(problem, device)
        return None
    return plan


def remember(problem: Problem, plan: Plan, device: str, microseconds: float) -> None:
    """Keep a plan for later calls, of this process and of others; a read-only folder is no error."""
    _update(
        _key(problem, device),
        {"arch": plan.arch, "plan": fields_of(plan), "microseconds": microseconds},
    )


def forget(problem: Problem, device: str) -> None:
    """Drop the plan of a kind of call, if one is kept: it lost, failed, or cannot be used."""
    key = _key(problem, device)
    if key in _known():
        _update(key, None)


def _update(key: str, row: dict[str, Any] | None) -> None:
    """Change one entry in memory and in the file, in which other processes may have changed others."""
    current = _read()
    for entries in (_known(), current):
        entries.pop(key, None)
        if row is not None:
            entries[key] = row
    folder = cache_directory()
    if folder is None:
        return
    with suppress(OSError):
        content = json.dumps({"version": _VERSION, "plans": current}, indent=1)
        write_whole(folder / _FILE, content.encode())
