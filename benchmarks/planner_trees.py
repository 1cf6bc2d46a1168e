"""How much better any model could choose plans: trees, fitted to what the planner's model leaves over.

    python benchmarks/planner_trees.py [--trees 800]        # needs scikit-learn

The trees know all that the model knows of a product and of a plan, and what the model expects of each part of
the time. They are fitted to the products that the costs were fitted to, and the regrets are those of products
that both have not seen. They have a thousand times as many numbers as the model has costs: what they do not
find is hardly in the times.
"""

from __future__ import annotations

import argparse

import numpy as np
from fit_planner import IN_USE, RECORDS, Data, Model, fold_of, read, regrets, report
from sklearn.ensemble import HistGradientBoostingRegressor

from lanewise.linalg.planning.gpus import GPUS
from lanewise.linalg.planning.model import H200, expected

#: Leaves of a tree, plans of a leaf at least, and how much of what is left over each tree takes away.
_LEAVES, _PLANS_OF_LEAF, _RATE = 63, 30, 0.03


def columns(data: Data) -> np.ndarray:
    """Return what is known of each plan: its case, parts of its expected time, and their shares of it."""
    found = expected(data.case, H200, GPUS["sm_90a"])
    parts = np.stack([np.broadcast_to(part, found.total.shape) for part in found], axis=1)
    logarithms = np.log(np.maximum(parts, 1e-3))
    known = np.stack([np.broadcast_to(each, found.total.shape) for each in data.case], axis=1)
    return np.concatenate([known, logarithms, parts / found.total[:, None]], axis=1).astype(np.float64)


def main() -> None:
    """Fit, and report the regrets of both."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trees", type=int, default=800)
    given = parser.parse_args()
    rows = read(RECORDS)
    fitted, left_out = (Data([row for row in rows if bool(fold_of(row)) is kept]) for kept in (True, False))
    trees = HistGradientBoostingRegressor(
        max_iter=given.trees, learning_rate=_RATE, max_leaf_nodes=_LEAVES, min_samples_leaf=_PLANS_OF_LEAF,
        early_stopping=False, random_state=0,
    )  # fmt: skip
    left_over = np.log(fitted.times / IN_USE(fitted.case))
    trees.fit(columns(fitted), left_over, sample_weight=fitted.weights)
    corrected = IN_USE(left_out.case) * np.exp(trees.predict(columns(left_out)))
    for name, model in (("the model", IN_USE), ("trees", Model(lambda *_: corrected, H200))):
        report(name, left_out.rows, regrets(left_out, model)[0], left_out.least)


if __name__ == "__main__":
    main()
