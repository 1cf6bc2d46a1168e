"""What a GPU does with an access to the shared memory of a block of the cluster that has exited.

    python benchmarks/exited_blocks.py --json exited.json [--seconds 100]

Needs nvcc and a GPU with clusters. Each experiment is a process of its own (`exited_blocks.cu`), because a
launch that fails ends the context. One block of a cluster of two exits as soon as both have begun. The other
one accesses its memory at once or after a delay, by each kind of access, and then exits at once or lingers.
In a second series both blocks access each other's memory and exit. In a third one, blocks of another kernel
wait for the multiprocessor that becomes free, and watch their own shared memory.
"""

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from gpu_times import save

SOURCE = Path(__file__).with_suffix(".cu")
OPERATIONS = ("ld", "st", "atom", "red", "mbarrier.arrive", "st.async", "copy", "multicast")
#: Nanoseconds before the access and after it.
LONG = 20_000
HOW = (
    "clusters of 2 blocks of 128 threads; one thread of a block accesses the "
    "memory of the other block `delay` ns after both have begun, and its block exits `linger` ns later; "
    "`survived`: launches until the error; `corrupted`: words of blocks that were no target; `reused`: "
    "launches in which a block of another kernel was on the target's multiprocessor at the time of the access"
)


def experiments() -> list[dict[str, Any]]:
    """Return the experiments, the most telling ones first."""
    keys = ("operation", "blocks", "delay", "linger", "mutual", "occupied", "launches", "kilobytes")
    rows = [(name, 2, 10 * LONG, LONG, 0, 1, 20, 160) for name in ("none", *OPERATIONS)]
    for blocks, kilobytes in ((2, 4), (2, 160), (16, 160), (1056, 160)):
        rows += [(name, blocks, 0, 0, 1, 0, 200, kilobytes) for name in OPERATIONS]
        for delay, linger in ((LONG, LONG), (LONG, 0), (0, 0)):
            rows += [(name, blocks, delay, linger, 0, 0, 50, kilobytes) for name in OPERATIONS]
    return [dict(zip(keys, row, strict=True)) for row in rows]


def outcome(program: Path, experiment: dict[str, Any]) -> dict[str, Any]:
    """Make one experiment, and return it with what came of it."""
    words = [str(program), *(str(value) for value in experiment.values())]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=15, check=False)
    except subprocess.TimeoutExpired:
        return {**experiment, "error": "it does not end"}
    try:
        return {**experiment, **json.loads(done.stdout)}
    except json.JSONDecodeError:
        return {**experiment, "error": f"exit status {done.returncode}"}


def main() -> None:
    """Compile the program, make the experiments, print a line for each, and save them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seconds", type=float, default=600.0)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "exited_blocks"
        subprocess.run(
            ["nvcc", "-gencode=arch=compute_90a,code=sm_90a", "-std=c++17", "-o", str(program), str(SOURCE)],
            check=True,
        )
        start = time.monotonic()
        for experiment in experiments():
            if time.monotonic() - start > options.seconds:
                break
            rows.append(outcome(program, experiment))
            print(*rows[-1].values(), flush=True)
    save(options.json, HOW, experiments=rows)


if __name__ == "__main__":
    main()
