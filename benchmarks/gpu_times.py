"""The time of work on a GPU between two events, the L2 cache swept before; and what a record says of it."""
# mypy: disable-error-code="no-untyped-call,misc"

import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import torch

import lanewise as lw

#: More than the L2 cache of any GPU holds.
SWEPT_BYTES = 256 << 20
#: Cycles that the GPU sleeps before a call: some 80 µs.
SLEPT_CYCLES = 150_000


@cache
def _swept() -> torch.Tensor:
    """Return the memory that sweeps the cache."""
    return torch.empty(SWEPT_BYTES, dtype=torch.uint8, device="cuda")


def timed(run: Callable[[], Any], sleep: int = SLEPT_CYCLES, reads: bool = False) -> float:
    """Return the microseconds that the work of a call takes on the GPU.

    The cache is swept by writes, which leave it full of lines that have to be written back; with `reads`, by
    reads after them. Then the GPU sleeps for `sleep` cycles, for the host to be ahead of it: a call that
    takes the host longer than the sweep and the sleep is timed until the host is done.
    """
    cuda: Any = torch.cuda
    start, end = (cuda.Event(enable_timing=True) for _ in range(2))
    _swept().zero_()
    if reads:
        _swept().view(torch.int32).sum()
    cuda._sleep(sleep)
    start.record()
    run()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e3


def circumstances() -> dict[str, Any]:
    """Return what times depend on, for a record: the GPU, the driver, versions, the date."""
    device = lw.gpu.devices()[0]
    return {
        "device": device.name, "driver": device.driver, "cuda": torch.version.cuda,
        "torch": torch.__version__, "date": datetime.now(UTC).date().isoformat(),
    }  # fmt: skip


def save(file: Path | None, how: str, **found: Any) -> None:
    """Write a record of what was found, with how and under which circumstances, if a file is named."""
    if file is not None:
        content = {**circumstances(), "how": how, **found}
        file.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")
