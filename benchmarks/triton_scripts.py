"""Scripts on a virtual GPU that run in processes of their own, and a product in Triton that they share."""

import json
import os
import subprocess
import sys
from pathlib import Path

#: A product in Triton, indented for a script in which triton.language is tl.
PRODUCT = """
    @triton.jit
    def product(
        a, b, c, K: tl.constexpr, N: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
    ):
        rows = tl.program_id(0) * BM + tl.arange(0, BM)
        columns = tl.program_id(1) * BN + tl.arange(0, BN)
        total = tl.zeros((BM, BN), tl.float32)
        for k in range(0, K, BK):
            depth = k + tl.arange(0, BK)
            x = tl.load(a + rows[:, None] * K + depth[None, :])
            y = tl.load(b + depth[:, None] * N + columns[None, :])
            total += tl.dot(x, y)
        tl.store(c + rows[:, None] * N + columns[None, :], total.to(tl.float16))
"""


def measured(script: str, **variables: str) -> dict[str, float]:
    """Return the figures that a script prints, run in a process of its own."""
    source = str(Path(__file__).parents[1] / "src")
    path = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, **variables}
    script_file = Path(os.environ.get("TMPDIR", "/tmp")) / f"virtual_gpu_{os.getpid()}.py"
    script_file.write_text(script)
    try:
        command = [sys.executable, str(script_file)]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    finally:
        script_file.unlink()
    if ended.returncode:
        raise SystemExit(ended.stderr)
    figures: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return figures
