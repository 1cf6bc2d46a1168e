"""Launches of a piece of code, each on the CPU machine and on the GPU: what both leave in their arrays."""

import datetime
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lanewise.gpu.device import context
from lanewise.launch import Configured


@dataclass
class Both:
    """A watcher of launches: `kernels` names them, `differing` counts bytes that are not the same."""

    #: Compare values of this dtype instead of bytes, and keep the largest difference.
    dtype: Any = None
    kernels: list[str] = field(default_factory=list)
    compared: int = 0
    differing: int = 0
    largest_difference: float = 0.0

    def __call__(self, configured: Configured, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        import torch

        arch = context(0).device.arch
        arrays = [isinstance(value, np.ndarray) and value.ndim > 0 for value in arguments]
        there = [
            torch.from_numpy(np.ascontiguousarray(value).reshape(-1).view(np.uint8).copy()).cuda()
            if is_array
            else value
            for value, is_array in zip(arguments, arrays, strict=True)
        ]
        configured(*there)
        torch.cuda.synchronize()
        here = list(arguments)
        if any(operation.instruction() for operation in configured.entry.function.operations):
            here = [value.copy() if is_array else value for value, is_array in zip(here, arrays, strict=True)]
            configured(*here, arch=arch)
        configured(*arguments, **options)  # as was asked: it may want the bits of another GPU
        self.kernels.append(configured.entry.name)
        for mine, theirs, is_array in zip(here, there, arrays, strict=True):
            if is_array:
                self._compare(np.ascontiguousarray(mine), theirs.cpu().numpy())

    def _compare(self, mine: Any, theirs: Any) -> None:
        raw = mine.reshape(-1).view(np.uint8)
        self.compared += raw.size
        self.differing += int((raw != theirs).sum())
        if self.dtype is not None and mine.dtype == self.dtype:
            values = theirs.view(self.dtype).astype(np.float64) - mine.reshape(-1).astype(np.float64)
            self.largest_difference = max(self.largest_difference, float(np.abs(values).max()))


def write_record(path: str, entries: dict[str, Both]) -> None:
    """What was compared, as JSON, with the device that it was compared with."""
    device = context(0).device
    record = {
        "device": device.name,
        "arch": device.arch,
        "driver": device.driver,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "launches": sum(len(each.kernels) for each in entries.values()),
        "bytes_compared": sum(each.compared for each in entries.values()),
        "bytes_differing_where_exact": sum(each.differing for each in entries.values() if each.dtype is None),
        "entries": {
            name: {key: value for key, value in asdict(each).items() if key not in ("dtype", "kernels")}
            | {"launches": len(each.kernels)}
            | ({} if each.dtype is None else {"approximate": True})
            for name, each in entries.items()
        },
    }
    Path(path).write_text(json.dumps(record, indent=1) + "\n")


def record_path() -> str:
    """Where the record goes; empty for nowhere."""
    return os.environ.get("LANEWISE_SAME_BITS", "")
