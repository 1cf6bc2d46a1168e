"""A process with a time limit, whose children end with it: for benchmarks that run programs of others."""

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path


def run_limited(
    words: list[str], folder: Path, seconds: float, environment: Mapping[str, str] | None = None
) -> tuple[int | None, str]:
    """Run a command; return its exit status, None if its time was over, and what it printed."""
    process = subprocess.Popen(
        words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        start_new_session=True, env=environment,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=seconds)
        status: int | None = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, status = process.communicate()[0], None
    return status, output.decode(errors="replace")
