"""How well the planner's model chooses, by the times of a sweep; and a fit of its costs to them.

    python benchmarks/fit_planner.py [--fit [COST …]] [--folds] [sweep.json …]

Costs are fitted by least squares on logarithms of times (Levenberg and Marquardt). Plans count most that are
near the best of their product, as measured or by the model: a slow one that looks fast would be chosen. A
weak term keeps costs near those in use where the times say nothing of them. Products are divided into four
folds by what they are, so that no product is in two of them; the first is left out of the fit. `--folds` fits
four times and leaves another one out each time. Regret is the time of the plan that the model finds best over
the time of the best, as measured. Times of a few microseconds differ by a tenth from run to run, so `--noise`
says what regret the best plan of one run has in another, of products that were measured twice.
"""

from __future__ import annotations

import argparse
import gzip
import json
import zlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from planner_sweep import plan_of_text, text_of
from random_shapes import BYTES, Shape

from lanewise.linalg.plan import Plan
from lanewise.linalg.planning.gpus import GPUS, Gpu
from lanewise.linalg.planning.model import H200, Case, Costs, expected, joined, plan_columns, problem_columns
from lanewise.linalg.problem import Problem
from lanewise.linalg.rules import problem_of_sizes

#: Of a plan's weight: by what share slower than the best counts half. How much what a whole product's times
#: are off by counts, beside the differences between its plans; how much it counts if a cost changes e-fold.
_NEAR, _WHOLE, _PRIOR = 0.08, 0.5, 0.1
#: By what share slower than the best a plan may be to be as good as it; what share of weights each step of
#: the fit keeps, so that it comes to rest.
_AS_GOOD, _KEPT = 0.03, 0.7
#: By what share slower than the best plans may be whose times count for how sure the planner is.
_TOLD = 0.2
#: Microseconds by which the time of a plan differs from run to run, and what share of a time is as bad.
_JITTER, _AS_BAD = 0.3, 0.03
#: Into how many folds products are divided.
_FOLDS = 4
#: Plans that two runs of a product have in common at least, to be compared.
_LEAST_IN_BOTH = 3
#: Microseconds from which on a report tells of a product: shorter ones are as good as their noise.
_LONG = 6.0
_STEPS = 40
RESULTS = Path(__file__).parent / "results"
#: Sweeps: three fourths of the products of 1, 2 and 4 are those that the costs in use were fitted to, but for
#: `open_rows`, those of threads that store and those of mma.sync, for which all but 11 were used: to that
#: one nothing was fitted, and to 12 only what long epilogues and wide odd results take by mma.sync. The costs
#: of an A in registers were fitted to 13; those of rows that warps store and of loads far ahead to 15 (and
#: 13), those of the kernels of mma.sync to 15 to 17, those of rows that bulk copies store to 18, and what
#: splitting f32 takes to 19. Other runs of some of their products. A record of 8-bit products, which is in a
#: fit.
_FITTED = (*range(1, 8), *range(9, 14), *range(15, 20))
RECORDS = [RESULTS / f"h200_plans_{number}.json.gz" for number in _FITTED]
#: The first sweep of the kernels of mma.sync, and of stores of results at any address, as they are now.
_RENEWED = 15
#: The first sweep of f32 at any address as threads load it now.
_RENEWED_F32 = 19
#: Of plans whose kernels are gone.
_GONE = "schedule=streaming"
REPEATED = [RESULTS / f"h200_plans_{number}.json.gz" for number in (8, 14)]
EIGHT_BIT = RESULTS / "h200_matmul_8bit.json"


@dataclass(frozen=True)
class Model:
    """A model with its costs."""

    microseconds: Callable[[Case, Any, Gpu], Any]
    costs: Any

    def __call__(self, case: Case) -> np.ndarray:
        return np.asarray(self.microseconds(case, self.costs, GPUS["sm_90a"]))


#: The model by which plans are chosen.
IN_USE = Model(lambda case, costs, gpu: expected(case, costs, gpu).total, H200)


def read(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Return the rows of sweeps with several plans that the model can tell apart: no hints for L2.

    Older sweeps are read without the times of kernels that have changed since.
    """
    rows = []
    for path in paths:
        content = path.read_bytes()
        text = gzip.decompress(content) if path.suffix == ".gz" else content
        for row in json.loads(text)["rows"]:
            plans = [each for each in row["plans"] if "l2=" not in each[0] and _GONE not in each[0]]
            number = path.name.removeprefix("h200_plans_").split(".")[0]
            if number.isdigit():
                plans = [each for each in plans if not _has_changed(row, each[0], int(number))]
            rows += [{**row, "plans": plans}] if len(plans) > 1 else []
    return rows


def _has_changed(row: dict[str, Any], text: str, sweep: int) -> bool:
    """Return whether the kernel of a plan has changed since a sweep: how it stores, or how it loads."""
    shape = shape_of(row)
    in_registers = "a_in_registers" in text or "splits_a" in text  # the field's first name
    if sweep < _RENEWED_F32 and shape.dtype == "f32" and in_registers and not shape.is_aligned:
        return True
    stores = shape.n * BYTES[shape.dtype][1] % 16 != 0
    return sweep < _RENEWED and (stores or "family=warp" in text)


def fold_of(row: dict[str, Any]) -> int:
    """Return the fold of a product: the same in all sweeps."""
    return zlib.crc32(str(shape_of(row)).encode()) % _FOLDS


def left_out_of(paths: Sequence[Path]) -> Data:
    """Return the products of some sweeps that are left out of the fit."""
    return Data([row for row in read(paths) if fold_of(row) == 0])


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
        fused = replace(problem.epilogue, bias="row", bias_dtype=FORMATS[shape.dtype], activation="gelu_tanh")
        problem = replace(problem, epilogue=fused)
    return problem


def eight_bit_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of the record of 8-bit products, with and without block scales, as a sweep has them."""
    rows = []
    for row in json.loads(path.read_text(encoding="utf-8"))["products"]:
        if row["form"] == "rows":
            continue
        plans = [
            Plan(
                "warpgroup", "sm_90a", (*each["tile"], 128), each["stages"], tuple(each["cluster"]),
                each["split"], each["schedule"], swap=each["swap"],
            )
            for each in row["plans"]
        ]  # fmt: skip
        timed = [[text_of(plan), each["us"], 9] for plan, each in zip(plans, row["plans"], strict=True)]
        sizes = {name: row[name] for name in ("m", "n", "k", "dtype", "form")}
        rows.append({**sizes, "layout": "nt", "batch": 1, "fused": False, "plans": timed})
    return rows


class Data:
    """The plans of a record that the model is for, side by side: their case, times, and products."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        cases, times, products, self.texts = [], [], [], []
        self.rows = rows
        for number, row in enumerate(rows):
            problem = problem_of(shape_of(row))
            if row.get("form") == "blocks":
                problem = replace(problem, promote=128)
            known: dict[bool, dict[str, float]] = {}
            for text, microseconds, _ in row["plans"]:
                plan = plan_of_text(text)
                if plan.swap not in known:
                    known[plan.swap] = problem_columns(problem, plan)
                cases.append({**known[plan.swap], **plan_columns(plan)})
                times.append(microseconds)
                products.append(number)
                self.texts.append(text)
        self.case: Case = joined(cases)
        self.times, self.products = np.array(times), np.array(products)
        self.count = len(rows)
        self.least = np.full(self.count, np.inf)
        np.minimum.at(self.least, self.products, self.times)
        self.slower = self.times / self.least[self.products] - 1
        self.sure = 1 / (1 + (_JITTER / _AS_BAD / self.times) ** 2)
        self.weights = self.sure / (1 + (self.slower / _NEAR) ** 2)

    def weigh(self, total: np.ndarray) -> None:
        """Weigh plans by how near the best they are, as measured or by a model's times."""
        least = np.full(self.count, np.inf)
        good = self.slower < _AS_GOOD
        np.minimum.at(least, self.products[good], total[good])
        seeming = np.maximum(total / least[self.products] - 1, 0)
        weights = self.sure / (1 + (np.minimum(self.slower, seeming) / _NEAR) ** 2)
        self.weights = _KEPT * self.weights + (1 - _KEPT) * weights


def residuals(data: Data, model: Model) -> np.ndarray:
    """Return by what the logarithms of expected times are off, weighted."""
    off = np.log(model(data.case)) - np.log(data.times)
    whole = np.bincount(data.products, data.weights, data.count)
    mean = np.bincount(data.products, data.weights * off, data.count) / np.maximum(whole, 1e-9)
    inside = np.sqrt(data.weights) * (off - mean[data.products])
    return np.concatenate([inside, _WHOLE * mean * np.sqrt(np.maximum(whole, 1e-9))])


def fit(data: Data, model: Model, steps: int, only: Sequence[str] = ()) -> Model:
    """Return a model with the costs of the least squares, all of them positive; others than `only` stay."""
    names = list(only) or model.costs._fields
    first = np.log([max(getattr(model.costs, name), 1e-6) for name in names])
    values = first

    def with_costs(values: np.ndarray) -> Model:
        costs = dict(zip(names, np.exp(values).tolist(), strict=True))
        return replace(model, costs=model.costs._replace(**costs))

    def off(values: np.ndarray) -> np.ndarray:
        return np.concatenate([residuals(data, with_costs(values)), _PRIOR * (values - first)])

    damping = 1e-2
    for number in range(steps):
        data.weigh(with_costs(values)(data.case))
        now = off(values)
        slopes = np.stack([(off(values + 1e-4 * unit) - now) / 1e-4 for unit in np.eye(len(names))], axis=1)
        squares = slopes.T @ slopes
        for _ in range(8):
            scaled = squares + damping * np.diag(np.diag(squares) + 1e-3)
            tried = values - np.clip(np.linalg.solve(scaled, slopes.T @ now), -0.7, 0.7)
            then = off(tried)
            if then @ then < now @ now:
                break
            damping *= 4
        else:
            break
        gained = 1 - (then @ then) / (now @ now)
        values, now, damping = tried, then, damping / 3
        print(f"step {number}: {now @ now:.3f}", flush=True)
        if gained < 2e-4 and number > _STEPS // 2:
            break
    return with_costs(values)


def regrets(data: Data, model: Model) -> tuple[np.ndarray, np.ndarray]:
    """Return each product's regret by the model, and the model's choice."""
    total = model(data.case)
    order = np.lexsort((total, data.products))
    _, first = np.unique(data.products[order], return_index=True)
    chosen = order[first]
    return data.times[chosen] / data.least, chosen


def said(values: np.ndarray) -> str:
    """Return the geometric mean, the median, the 95th percentile and the largest."""
    if not len(values):
        return "not known"
    low, high = np.percentile(values, [50, 95])
    mean = np.exp(np.log(values).mean())
    return (
        f"mean {mean:.4f}, median {low:.3f}, 95th percentile {high:.3f}, largest {values.max():.3f} "
        f"of {len(values)}"
    )


def report(name: str, rows: list[dict[str, Any]], found: np.ndarray, least: np.ndarray) -> None:
    """Print regrets by classes of products, of those that are long enough to be told apart."""
    print(f"{name}: regret {said(found)}")
    print(f"  below {_LONG:.0f} µs {said(found[least < _LONG])}")
    groups: dict[str, list[int]] = defaultdict(list)
    for number, row in enumerate(rows):
        groups["bias gelu" if row["fused"] else shape_of(row).group].append(number)
    for group, numbers in sorted(groups.items()):
        print(f"  {group:9s} {said(found[numbers][least[numbers] >= _LONG])}")


def report_worst(data: Data, model: Model, count: int) -> None:
    """Print the products with the largest regrets: what was chosen and what was best, with expected times."""
    found, chosen = regrets(data, model)
    total = model(data.case)
    for number in np.argsort(-found)[:count]:
        at = np.flatnonzero(data.products == number)
        best, took = at[np.argmin(data.times[at])], chosen[number]
        print(
            f"  {found[number]:.3f} {shape_of(data.rows[number])}: {data.texts[took]} {data.times[took]:.1f} "
            f"({total[took]:.1f}), not {data.texts[best]} {data.times[best]:.1f} ({total[best]:.1f})"
        )


def report_noise(rows: list[dict[str, Any]]) -> None:
    """Print the regrets, in one run, of the plans that were fastest in another run of the same product."""
    runs: dict[str, list[dict[str, float]]] = defaultdict(list)
    for row in rows:
        runs[str(shape_of(row))].append({text: time for text, time, _ in row["plans"]})
    found: dict[bool, list[float]] = {False: [], True: []}
    for several in runs.values():
        for one in several:
            for other in several:
                both = [text for text in one if text in other]
                if one is not other and len(both) > _LEAST_IN_BOTH:
                    least = min(other[text] for text in both)
                    chosen = min(both, key=lambda text: one[text])
                    found[least >= _LONG].append(other[chosen] / least)
    print(
        f"from run to run: below {_LONG:.0f} µs {said(np.array(found[False]))}; {said(np.array(found[True]))}"
    )


def report_folds(rows: list[dict[str, Any]], model: Model, steps: int, only: Sequence[str]) -> None:
    """Fit as often as there are folds, and print the regrets of the fold that is left out each time."""
    found = np.ones(len(rows))
    folds = np.array([fold_of(row) for row in rows])
    for fold in range(_FOLDS):
        fitted = fit(fit_data([row for row in rows if fold_of(row) != fold]), model, steps, only)
        numbers = np.flatnonzero(folds == fold)
        found[numbers], _ = regrets(Data([rows[number] for number in numbers]), fitted)
    report("each fold, left out once", rows, found, Data(rows).least)


def fit_data(rows: list[dict[str, Any]]) -> Data:
    """Return what is fitted to: products of sweeps, and those of the 8-bit record."""
    return Data(rows + eight_bit_rows(EIGHT_BIT))


def errors_by_bound(data: Data, costs: Costs = H200) -> dict[str, tuple[int, float]]:
    """Return how many plans near the best each part of the time bounds, and by what share times are off."""
    found = expected(data.case, costs, GPUS["sm_90a"])
    names = [name for name in found._fields if name not in ("total", "waves")]
    longest = np.argmax([np.broadcast_to(getattr(found, name), found.total.shape) for name in names], axis=0)
    off = np.log(found.total / data.times)
    errors = {}
    for number, name in enumerate(names):
        chosen = (longest == number) & (data.slower < _TOLD)
        errors[name] = int(chosen.sum()), float(np.sqrt(np.mean(off[chosen] ** 2))) if chosen.any() else 0.0
    return errors


def main() -> None:
    """Read the records, fit, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sweeps", type=Path, nargs="*", default=RECORDS)
    parser.add_argument("--fit", nargs="*", metavar="COST", help="fit these costs; all, if none is named")
    parser.add_argument("--folds", action="store_true", help="fit once for each fold, which is left out")
    parser.add_argument("--noise", action="store_true", help="how times differ from run to run")
    parser.add_argument("--worst", type=int, default=15)
    parser.add_argument("--steps", type=int, default=_STEPS)
    given = parser.parse_args()
    model, rows = IN_USE, read(given.sweeps)
    only = given.fit or ()
    if given.noise:
        report_noise([*rows, *read(REPEATED)])
    if given.folds:
        report_folds(rows, model, given.steps, only)
    kept = [row for row in rows if fold_of(row)]
    if given.fit is not None:
        model = fit(fit_data(kept), model, given.steps, only)
        for name in only or model.costs._fields:
            print(f"    {name}={getattr(model.costs, name):.4g},")
    left_out = left_out_of(given.sweeps)
    for name, data in (("in the fit", Data(kept)), ("left out", left_out)):
        report(name, data.rows, regrets(data, model)[0], data.least)
    report_worst(left_out, model, given.worst)
    for name, (count, error) in errors_by_bound(left_out, model.costs).items():
        print(f"  {name:12s} bounds {count:4d} plans, whose times are off by {error:.3f}")


if __name__ == "__main__":
    main()
