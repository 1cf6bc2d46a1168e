"""A plan with the problem that it is for: what `lw.plan` returns and `plan=` takes, and how it reads."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from math import isnan
from typing import Any

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.hints import Suggests
from lanewise.linalg.kernels.family import family_of
from lanewise.linalg.operand_copies import with_copies
from lanewise.linalg.orientation import oriented
from lanewise.linalg.plan import Estimate, Plan, require_fields, usual_fields
from lanewise.linalg.planning.blackwell import UNMEASURED
from lanewise.linalg.planning.planner import (
    estimate,
    require_kernel,
    require_possible,
    with_fewer_stages,
)
from lanewise.linalg.problem import Problem
from lanewise.linalg.sum_order import instruction_of

#: Microseconds of a part of the time that is worth a word.
_LEAST_PART = 0.05


@dataclass(frozen=True, repr=False)
class PlannedProduct(Suggests):
    """A plan and its problem. Printed, it says which kernel runs, in which tiles, how fast and why."""

    plan: Plan
    problem: Problem

    @cached_property
    def estimate(self) -> Estimate:
        """What the model says: seconds, waves, what bounds the product; an error if there is no kernel."""
        require_kernel(self.problem, self.plan)
        return estimate(self.problem, self.plan)

    @property
    def waves(self) -> float:
        """Tiles for each multiprocessor."""
        return self.estimate.waves

    @property
    def bound(self) -> str:
        """What the time depends on most: tensor cores, bandwidth, the latency of a launch, copies …"""
        return self.estimate.bound

    @property
    def flops(self) -> int:
        """Multiplications and additions of the product."""
        return 2 * self.problem.m * self.problem.n * self.problem.k * self.problem.batch

    @cached_property
    def registers(self) -> int | None:
        """Registers of a thread, as ptxas counts them; None where there is no ptxas."""
        try:
            kernel = family_of(self.plan.family).kernel(self.problem, self.plan)
            count: int = kernel.resources(self.plan.arch).registers
        except (ImportError, LanewiseError, OSError):
            return None
        return count

    def with_(self, **fields: object) -> PlannedProduct:
        """Return the plan with some fields changed: `planned.with_(split=4)`.

        Unless `stages` is given, there are fewer where shared memory has no room for as many. A plan of which
        there is no kernel is refused where it is used.
        """
        unknown = [name for name in fields if name not in Plan.__dataclass_fields__]
        if unknown:
            raise LanewiseError(f"a plan has no {unknown[0]}; it has {', '.join(Plan.__dataclass_fields__)}")
        changed: dict[str, Any] = {"why": "changed by hand"}
        if fields.get("groups") == 1:
            changed["gather"] = False  # there is nothing to gather
        if "family" in fields:
            changed |= usual_fields(str(fields["family"]))
        changed |= {name: _plain(value) for name, value in fields.items()}
        plan = replace(self.plan, **changed)
        if self.plan.a_in_registers and not fields.keys().isdisjoint(("swap", "family")):
            copied = with_copies(self.problem, replace(plan, a_in_registers=False))
            plan = replace(copied, **changed)  # the other operand is the kernel's A then
        require_fields(plan)
        require_possible(self.problem, plan)
        if "stages" not in fields:
            plan = with_fewer_stages(self.problem, plan)
        return PlannedProduct(plan, self.problem)

    def _instruction(self) -> str:
        """Return the name of the kernel's instruction: wgmma has as many columns as a piece of the tile."""
        if self.plan.family == "blackwell":
            from lanewise.linalg.kernels.blackwell.traits import traits_of as blackwell_traits_of

            mma = blackwell_traits_of(oriented(self.problem, self.plan), self.plan).mma
            return f"{mma.text}, {'m{}n{}k{}'.format(*mma.shape)}"
        if self.plan.family == "warpgroup":
            from lanewise.linalg.kernels.hopper.traits import traits_of

            with suppress(LanewiseError):  # a tile changed by hand for which there is no kernel
                return traits_of(oriented(self.problem, self.plan), self.plan).instruction.text
        return instruction_of(oriented(self.problem, self.plan), self.plan).text

    def rows(self) -> list[tuple[str, str]]:
        """Return the plan as lines of a table: what, and its value."""
        plan, problem = self.plan, self.problem
        batch = f"{problem.batch} × " if problem.batch > 1 else ""
        of_problem = ("problem", f"{batch}{problem.m} × {problem.n} × {problem.k}, {_types(problem)}")
        try:
            require_kernel(problem, plan)
        except LanewiseError as error:
            return [of_problem, ("kernel", f"none: {error}"), ("plan", str(plan))]
        rows, columns, step = plan.tile
        copied = [name for name, copy in (("a", plan.copy_a), ("b", plan.copy_b)) if copy]
        order = "one chain along K"
        if plan.split * plan.groups > 1:
            order = f"{plan.split * plan.groups} parts of K, added in order"
            if plan.groups > 1 and plan.split > 1:
                order += f" ({plan.split} at a time)"
        if problem.promote:
            order += f", promoted to f32 every {problem.promote}"
        return [
            of_problem,
            ("kernel", f"{plan.family} ({plan.arch})"),
            ("instruction", self._instruction()),
            ("tile", f"{rows} × {columns}, K by {step}" + ", tiles overlap" * plan.whole_sectors),
            ("stages", str(plan.stages)),
            ("cluster", f"{plan.cluster[0]} × {plan.cluster[1]}"),
            ("split", str(plan.split) + _grouped(plan)),
            ("schedule", plan.schedule + (", transposed" if plan.swap else "")),
            ("copied first", " and ".join(copied) or "nothing"),
            *([("made first", _made_first(problem))] if problem.block_format else []),
            ("registers", "not known without ptxas" if self.registers is None else str(self.registers)),
            ("waves", f"{self.waves:.2f}"),
            ("sums", order),
            ("expected", self._expected()),
            ("bound", self.bound),
            ("why", plan.why or "given by the caller"),
        ]

    def _expected(self) -> str:
        """Return the expected time, how sure it is, and what it consists of."""
        estimate = self.estimate
        text = f"{estimate.seconds * 1e6:.1f} µs"
        text += f", {UNMEASURED}" if isnan(estimate.error) else f" ± {100 * estimate.error:.0f} %"
        parts = [f"{name} {value:.1f}" for name, value in estimate.parts.items() if value >= _LEAST_PART]
        return f"{text} (they overlap: {', '.join(parts)})" if parts else text

    def __repr__(self) -> str:
        return "\n".join(f"{name:<13} {value}" for name, value in self.rows())


def _plain(value: object) -> object:
    """Return a field of a plan with numbers of NumPy as Python's."""
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return value.item() if isinstance(value, np.generic) else value


def _made_first(problem: Problem) -> str:
    """Return what is made of block-scaled operands before they are multiplied, where it is not there yet."""
    from lanewise.linalg.kernels.blackwell.block_scales import new_bytes

    made = new_bytes(problem)
    scales = [name for name in ("scale_a", "scale_b") if name in made]
    parts = ["pairs of elements in bytes"] if "a" in made else []
    parts += [f"{' and '.join(scales)} in 128×4 order"] if scales else []
    return ", ".join(parts) or "nothing"


def _grouped(plan: Plan) -> str:
    """Return what is said of groups of K: how many there are, and who adds their sums."""
    if plan.groups == 1:
        return ""
    if plan.family == "warp":
        return f", in {plan.groups} groups, the blocks of a cluster"
    return f", in {plan.groups} groups" + (" that a second kernel adds" if plan.gather else "")


def _types(problem: Problem) -> str:
    a, b, out = problem.a.dtype.name, problem.b.dtype.name, problem.out.dtype.name
    majors = ("T" if not problem.a.k_major else "N") + ("T" if problem.b.k_major else "N")
    how = f" as {problem.precision}" if problem.precision else ""
    how += f" as {problem.block_format}" if problem.block_format else ""
    return f"{a} · {b} → {out}{how} ({majors}, sums in {problem.sums.name})"
