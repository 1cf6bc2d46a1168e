"""The costs of the model on the GPUs that were measured; `benchmarks/fit_planner.py` fits them."""

from __future__ import annotations

from lanewise.linalg.planning.model import Costs

H200 = Costs()
