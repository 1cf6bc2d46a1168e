"""Tensor memory of a traced block as the room Kernels shows it: what was written, what steps touch."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.machine import abi
from lanewise.machine.tensor_memory_records import LANE_BYTES
from lanewise.machine.tracer.tensor_areas import Area
from lanewise.traces.page import packed
from lanewise.traces.recording import Recording
from lanewise.traces.tensor_memory import tensor_reading

#: Steps whose accesses are sent.
MOST_TOUCHED = 20_000


def tensor_data(recording: Recording, kept: int, most_bytes: int) -> dict[str, Any] | None:
    """Return the tensor memory of the traced block, step by step; None for kernels without tcgen05.

    Each write has the step after which it is there and the step that issued it, its lane, column and words.
    """
    reading = tensor_reading(recording)
    if not reading.is_used:
        return None
    log, block = recording.log, recording.run.blocks[0]
    runs = log.runs
    numbers = np.flatnonzero((runs.target >= abi.TENSOR_WINDOW) & (runs.block == block))
    steps = np.searchsorted(recording.steps, runs.entry[numbers], "right") - 1
    numbers, steps = numbers[steps < kept], steps[steps < kept]
    fits = int(np.searchsorted(np.cumsum(runs.size[numbers]), most_bytes, "right"))
    numbers, steps = numbers[:fits], steps[:fits]
    lanes, first = np.divmod(runs.target[numbers] - abi.TENSOR_WINDOW, LANE_BYTES)
    issuers = np.searchsorted(recording.steps, runs.issuer[numbers])
    content = [
        log.memory[start : start + size]
        for start, size in zip(runs.offset[numbers].tolist(), runs.size[numbers].tolist(), strict=True)
    ]
    columns = {
        "step": steps,
        "issuer": np.where(runs.issuer[numbers] >= 0, issuers, steps),
        "lane": lanes,
        "column": first // 4,
        "words": runs.size[numbers] // 4,
    }
    return {
        **{name: packed(np.ascontiguousarray(each.astype(np.int32))) for name, each in columns.items()},
        "bytes": packed(np.concatenate(content) if content else np.zeros(0, np.uint8)),
        "allocated": _allocated(recording, kept),
        "touched": _touched(recording, kept),
        "matrices": sorted(reading.matrices),
    }


def _allocated(recording: Recording, kept: int) -> list[list[int]]:
    """Return when columns of the block were allocated and freed: step, first column, columns (freed: < 0)."""
    found = []
    for entry, block, first, columns in tensor_reading(recording).allocations:
        step = int(np.searchsorted(recording.steps, entry, "right")) - 1
        if block == recording.run.blocks[0] and step < kept:
            found.append([step, first, columns])
    return found


def _touched(recording: Recording, kept: int) -> list[list[Any]]:
    """Return what steps do to the tensor memory of the block: step, kind, operand, and areas of lanes."""
    reading, found = tensor_reading(recording), []
    points = np.array(
        [point.op is not None and point.op.record.touches_tensor_memory for point in recording.log.points]
    )
    entries = recording.log.entries
    block = recording.run.blocks[0]
    steps = np.flatnonzero(points[entries["point"][recording.steps[:kept]]])[:MOST_TOUCHED]
    for step in steps.tolist():
        entry = int(recording.steps[step])
        own = int(entries["block"][entry])
        for each in reading.accesses(entry):
            if (reading.partner(own) if each.in_other else own) == block:
                areas = [area for part in each.areas for area in _spans(part)]
                found.append([step, each.kind, each.operand, areas])
    return found


def _spans(area: Area) -> list[list[int]]:
    """Return an area as spans of neighbouring lanes: first lane, lanes, first column, columns."""
    spans: list[list[int]] = []
    for lane in area.lanes:
        if spans and lane == spans[-1][0] + spans[-1][1]:
            spans[-1][1] += 1
        else:
            spans.append([lane, 1, area.column, area.columns])
    return spans
