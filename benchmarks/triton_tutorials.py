"""Triton's tutorials on a virtual GPU, with their own checks: how many ran, how many passed.

    git clone --branch v3.6.0 https://github.com/triton-lang/triton
    python benchmarks/triton_tutorials.py triton/python/tutorials [--only 09] [--save FILE]

Each runs unchanged in a process of its own. Two are too large for a CPU as they are: of 06, pytest runs the
cases with 128 positions, 2 heads and 64 columns; of 09, validate() is called with small sizes, since the
script goes on to repeat products of 8192 x 8192 20,000 times.
"""

import argparse
import importlib.util
import json
import os
import re
import sys
from pathlib import Path

from limited_process import run_limited

SOURCE = Path(__file__).parents[1] / "src"
#: Sizes of tutorial 09 in place of its own.
SIZES = ((32, 32, 32), (512, 384, 512))
#: Tutorials that end by themselves for want of another GPU, and what they say.
NEEDS = {"10-block-scaled-matmul.py": "requires GPU support"}


def validate(file: Path) -> None:
    """Call tutorial 09's own comparison with small sizes."""
    import torch

    specification = importlib.util.spec_from_file_location("tutorial", file)
    assert specification is not None and specification.loader is not None
    tutorial = importlib.util.module_from_spec(specification)
    sys.modules["tutorial"] = tutorial
    specification.loader.exec_module(tutorial)
    torch.manual_seed(0)
    for size in SIZES:
        tutorial.validate(*size, torch.float16)


def command(file: Path, gpu: str) -> list[str]:
    """Return the words that run a tutorial."""
    run = [sys.executable, "-X", "faulthandler", "-m"]
    if file.name.startswith("06"):
        case = "True-64-128-2-1"  # causal, columns, positions, heads, batch
        return [*run, "pytest", "-q", "-p", "lanewise.pytest", "--gpu", gpu, str(file), "-k", case]
    if file.name.startswith("09"):
        return [*run, "lanewise", "run", "--gpu", gpu, __file__, "--", "--validate", str(file)]
    return [*run, "lanewise", "run", "--gpu", gpu, str(file)]


def _line_with(words: str, output: str) -> str:
    return next(line for line in output.splitlines() if words in line)


def counted(file: Path, status: int | None, output: str) -> dict[str, object]:
    """Return how many comparisons of a tutorial ran and passed, and why not."""
    row: dict[str, object] = {"tutorial": file.name, "status": status}
    if file.name in NEEDS and NEEDS[file.name] in output:
        return {**row, "ran": 0, "passed": 0, "why_not": _line_with(NEEDS[file.name], output)}
    ran, passed = 1, int(status == 0)
    if file.name.startswith("06"):
        passed, failed = (
            int(found[1]) if (found := re.search(rf"(\d+) {word}", output)) else 0
            for word in ("passed", "failed")
        )
        ran = passed + failed
    elif file.name.startswith("09"):
        ran, passed = output.count("✅") + output.count("❌"), output.count("✅")
    why = "" if passed == ran and status == 0 else "\n".join(output.splitlines()[-5:])
    return {**row, "ran": ran, "passed": passed, "why_not": why}


def main() -> None:
    """Run the tutorials, print a line for each, and save the counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", help="python/tutorials of a checkout of Triton")
    parser.add_argument("--only", nargs="+", help="numbers of tutorials")
    parser.add_argument("--gpu", default="H100")
    parser.add_argument("--seconds", type=float, default=900, help="limit of a tutorial")
    parser.add_argument("--save", type=Path, help="a JSON file")
    parser.add_argument("--validate", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.validate:
        validate(asked.validate)
        return
    if asked.folder is None:
        parser.error("name the folder of the tutorials")
    path = os.pathsep.join(filter(None, (str(SOURCE), os.environ.get("PYTHONPATH"))))
    rows = []
    for file in sorted(asked.folder.resolve().glob("[0-9]*.py")):
        if asked.only and file.name[:2] not in asked.only:
            continue
        words = command(file, asked.gpu)
        status, output = run_limited(words, asked.folder, asked.seconds, {**os.environ, "PYTHONPATH": path})
        rows.append(counted(file, status, output))
        print(json.dumps(rows[-1], ensure_ascii=False), flush=True)
    if asked.save:
        asked.save.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
