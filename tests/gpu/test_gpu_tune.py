"""`lw.tune` on a GPU: what it keeps works in later processes, and a cache with a bad plan heals."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.gpu

#: A product of odd sizes: TMA cannot load its rows. The script tunes it, or only multiplies.
_SCRIPT = """
import sys
import torch
import lanewise as lw
torch.manual_seed(0)
a, b = torch.randn(65, 129, device="cuda").bfloat16(), torch.randn(129, 67, device="cuda").bfloat16()
if sys.argv[1] == "tune":
    lw.tune(a, b, progress=False)
exact = a.double() @ b.double()
for _ in range(12):
    assert bool(((lw.matmul(a, b).double() - exact).abs() <= 0.01 * exact.abs() + 0.05).all())
"""


def run(folder: Path, what: str) -> None:
    """Run the script in a process of its own with a cache folder."""
    environment = {**os.environ, "LANEWISE_CACHE_DIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, what], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_tuned_products_of_odd_sizes(torch: Any, tmp_path: Path) -> None:
    run(tmp_path, "tune")
    run(tmp_path, "multiply")


def test_a_bad_cache_heals(torch: Any, tmp_path: Path) -> None:
    """A plan without a kernel, and one that is damaged, are dropped; the product is computed."""
    from lanewise.linalg.options import Options
    from lanewise.linalg.planning import tuned
    from lanewise.linalg.rules import request_of

    a, b = torch.zeros(65, 129, device="cuda").bfloat16(), torch.zeros(129, 67, device="cuda").bfloat16()
    problem = request_of(a, b, Options()).problem
    assert problem is not None
    key = tuned._key(problem, torch.cuda.get_device_name())
    file = tmp_path / "tuned_products.json"
    for plan in ({"family": "warpgroup", "tile": [7, 7, 7], "stages": 2}, {"nonsense": 1}):
        row = {"arch": "sm_90a", "plan": plan, "microseconds": 1.0}
        file.write_text(json.dumps({"version": 2, "plans": {key: row}}), encoding="utf-8")
        run(tmp_path, "multiply")
        assert json.loads(file.read_text(encoding="utf-8"))["plans"] == {}
