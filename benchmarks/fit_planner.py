"""Fit the planner's costs to times of a sweep, and say how well plans are chosen by them.

    python benchmarks/fit_planner.py benchmarks/results/h200_plans.json [--fit] [--holdout other.json]

The costs of `planning/model.py` are fitted by least squares on logarithms of times (Levenberg and Marquardt);
those of plans that are near the best of their product count most. Every fourth product is left out of the fit.
Regret is the time of the plan that the model finds best over the time of the best, both as measured.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from planner_sweep import plan_of_text
from random_shapes import Shape

from lanewise.linalg.planning.cases import joined, plan_columns, problem_columns
from lanewise.linalg.planning.costs import H200
from lanewise.linalg.planning.gpus import GPUS
from lanewise.linalg.planning.model import Case, Costs, expected
from lanewise.linalg.planning.sizes import problem_of_sizes
from lanewise.linalg.problem import Problem

#: Of a plan's weight: by what share slower than the best counts half. How much what a whole product's times
#: are off by counts, beside the differences between its plans.
_NEAR, _WHOLE = 0.12, 0.5
#: Every so many products are left out.
_LEFT_OUT = 4
_STEPS = 40


def shape_of(row: dict[str, Any]) -> Shape:
    """Return the product of a row."""
    names = [each.name for each in fields(Shape)]
    return Shape(**{name: row[name] for name in names})


def problem_of(shape: Shape) -> Problem:
    """Return the problem of a product."""
    from lanewise.formats import FORMATS

    problem = problem_of_sizes(
        shape.m, shape.n, shape.k, "f32" if shape.dtype == "tf32" else shape.dtype,
        out="bf16" if shape.dtype == "e4m3" else None, layout=shape.layout, batch=shape.batch,
        precision="tf32" if shape.dtype == "tf32" else None,
    )  # fmt: skip
    if shape.fused:
        fused = replace(
            problem.epilogue, bias="row", bias_dtype=FORMATS[shape.dtype], activation="gelu_tanh"
        )
        problem = replace(problem, epilogue=fused)
    return problem


class Data:
    """The plans of a record that the model is for, side by side: their case, times, and products."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        cases, times, products, self.texts, self.own = [], [], [], [], []
        self.rows = rows
        for number, row in enumerate(rows):
            problem = problem_of(shape_of(row))
            known: dict[bool, dict[str, float]] = {}
            for place, (text, microseconds, _) in enumerate(row["plans"]):
                plan = plan_of_text(text)
                if plan.family != "warpgroup":
                    continue
                if plan.swap not in known:
                    known[plan.swap] = problem_columns(problem, plan)
                cases.append({**known[plan.swap], **plan_columns(plan)})
                times.append(microseconds)
                products.append(number)
                self.texts.append(text)
                self.own.append(place == 0)
        self.case: Case = joined(cases)
        self.times, self.products = np.array(times), np.array(products)
        self.count = len(rows)
        least = np.full(self.count, np.inf)
        np.minimum.at(least, self.products, self.times)
        self.slower = self.times / least[self.products] - 1
        self.weights = 1 / (1 + (self.slower / _NEAR) ** 2)

    def some(self, keep: Any) -> Data:
        """Return the plans of some products."""
        return Data([row for number, row in enumerate(self.rows) if keep(number)])


def residuals(data: Data, costs: Costs) -> np.ndarray:
    """Return by what the logarithms of expected times are off, weighted."""
    off = np.log(expected(data.case, costs, GPUS["sm_90a"]).total) - np.log(data.times)
    whole = np.bincount(data.products, data.weights, data.count)
    mean = np.bincount(data.products, data.weights * off, data.count) / np.maximum(whole, 1e-9)
    inside = np.sqrt(data.weights) * (off - mean[data.products])
    return np.concatenate([inside, _WHOLE * mean * np.sqrt(np.maximum(whole, 1e-9))])


def fit(data: Data, costs: Costs, steps: int) -> Costs:
    """Return the costs with the least squares, all of them positive."""
    names = [each.name for each in fields(Costs)]
    values = np.log([max(getattr(costs, name), 1e-4) for name in names])

    def of(values: np.ndarray) -> np.ndarray:
        return residuals(data, Costs(**dict(zip(names, np.exp(values).tolist(), strict=True))))

    damping, now = 1e-2, of(values)
    for number in range(steps):
        slopes = np.stack([(of(values + 1e-4 * unit) - now) / 1e-4 for unit in np.eye(len(names))], axis=1)
        squares = slopes.T @ slopes
        for _ in range(8):
            scaled = squares + damping * np.diag(np.diag(squares) + 1e-3)
            tried = values - np.clip(np.linalg.solve(scaled, slopes.T @ now), -0.7, 0.7)
            then = of(tried)
            if then @ then < now @ now:
                break
            damping *= 4
        else:
            break
        gained = 1 - (then @ then) / (now @ now)
        values, now, damping = tried, then, damping / 3
        print(f"step {number}: {now @ now:.3f}", flush=True)
        if gained < 2e-4:
            break
    return Costs(**dict(zip(names, np.exp(values).tolist(), strict=True)))


def regrets(data: Data, costs: Costs) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return for each product the regret of the model's choice and of the planner's at the time, and the choice."""
    total = expected(data.case, costs, GPUS["sm_90a"]).total
    found, own, chosen = np.full(data.count, np.nan), np.full(data.count, np.nan), np.zeros(data.count, int)
    for number in range(data.count):
        at = np.flatnonzero(data.products == number)
        if not len(at):
            continue
        best = data.times[at].min()
        chosen[number] = at[np.argmin(total[at])]
        found[number] = data.times[chosen[number]] / best
        first = [place for place in at if data.own[place]]
        own[number] = data.times[first[0]] / best if first else np.nan
    return found, own, chosen


def said(values: np.ndarray) -> str:
    """Return the median, the 95th percentile and the largest."""
    values = values[~np.isnan(values)]
    low, high = np.percentile(values, [50, 95])
    return f"median {low:.3f}, 95th percentile {high:.3f}, largest {values.max():.3f} of {len(values)}"


def report(name: str, data: Data, costs: Costs, worst: int = 0) -> None:
    """Print regrets by classes of products, and the worst of them."""
    found, own, chosen = regrets(data, costs)
    total = expected(data.case, costs, GPUS["sm_90a"]).total
    off = np.log(total / data.times)[data.slower < 0.2]
    print(f"{name}: regret {said(found)}; before {said(own)}; times are off by {np.sqrt((off**2).mean()):.3f}")
    groups: dict[str, list[int]] = defaultdict(list)
    for number, row in enumerate(data.rows):
        groups[shape_of(row).group].append(number)
    for group, numbers in sorted(groups.items()):
        print(f"  {group:8s} {said(found[numbers])}")
    order = [number for number in np.argsort(-np.nan_to_num(found)) if not np.isnan(found[number])]
    for number in order[:worst]:
        at = np.flatnonzero(data.products == number)
        best = at[np.argmin(data.times[at])]
        took = chosen[number]
        print(
            f"  {found[number]:.3f} {shape_of(data.rows[number])}: {data.texts[took]} {data.times[took]:.1f} "
            f"({total[took]:.1f}), not {data.texts[best]} {data.times[best]:.1f} ({total[best]:.1f})"
        )


def main() -> None:
    """Read the records, fit, and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path, nargs="+")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--holdout", type=Path)
    parser.add_argument("--worst", type=int, default=15)
    parser.add_argument("--steps", type=int, default=_STEPS)
    given = parser.parse_args()
    rows = [row for path in given.records for row in json.loads(path.read_text(encoding="utf-8"))["rows"]]
    rows = [row for row in rows if len(row["plans"]) > 1]
    data = Data(rows)
    costs = H200
    if given.fit:
        costs = fit(data.some(lambda number: number % _LEFT_OUT), costs, given.steps)
        for each in fields(Costs):
            print(f"    {each.name}={getattr(costs, each.name):.4g},")
    report("in the fit", data.some(lambda number: number % _LEFT_OUT), costs)
    report("left out", data.some(lambda number: number % _LEFT_OUT == 0), costs, given.worst)
    if given.holdout:
        held = json.loads(given.holdout.read_text(encoding="utf-8"))["rows"]
        report("others", Data([row for row in held if len(row["plans"]) > 1]), costs, given.worst)


if __name__ == "__main__":
    main()
