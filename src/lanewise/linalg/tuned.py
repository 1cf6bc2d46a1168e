"""Plans that `lw.tune` found on this machine's GPUs, kept in the user's cache folder."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from lanewise.disk_cache import cache_directory
from lanewise.linalg.measured import fields_of, kind_of, plan_from
from lanewise.linalg.plan import Plan
from lanewise.linalg.problem import Problem

_FILE = "tuned_products.json"


def _key(problem: Problem, device: str) -> str:
    batch = f"{problem.batch}×" if problem.batch > 1 else ""
    return f"{device}: {batch}{problem.m}×{problem.n}×{problem.k} {kind_of(problem)}"


@cache
def _known() -> dict[str, Any]:
    """Return what was tuned, by device and problem; nothing if the file is not there or not readable."""
    folder = cache_directory()
    if folder is None:
        return {}
    try:
        found = json.loads((folder / _FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def tuned_plan(problem: Problem, arch: str, device: str) -> Plan | None:
    """Return the plan that was fastest here for a problem; None if it was not tuned, or must be invariant."""
    if problem.batch_invariant:
        return None
    row = _known().get(_key(problem, device))
    if not isinstance(row, dict) or row.get("arch") != arch:
        return None
    return plan_from(row["plan"], arch, f"tuned on this {device}: {row['microseconds']:.1f} µs")


def remember(problem: Problem, plan: Plan, device: str, microseconds: float) -> None:
    """Keep a plan for later calls, of this process and of others; a read-only folder is no error."""
    known = dict(_known())
    known[_key(problem, device)] = {
        "arch": plan.arch, "plan": fields_of(plan), "microseconds": microseconds,
    }  # fmt: skip
    _known().update(known)
    folder = cache_directory()
    if folder is None:
        return
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        unfinished = folder / f"{_FILE}.lanewise-unfinished"
        unfinished.write_text(json.dumps(known, indent=1), encoding="utf-8")
        unfinished.replace(folder / _FILE)
    except OSError:
        return
