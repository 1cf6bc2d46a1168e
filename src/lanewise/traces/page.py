"""A trace as one HTML page: source, time line of the warps, registers by lane, memory; nothing is fetched.

The page has the log itself, compressed, with the tables to read it; `page.html` is what shows it.
"""

import base64
import html
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.formats import format_of
from lanewise.isa import Operand
from lanewise.machine.abi import LANES
from lanewise.machine.program.instruction_record import BlockEnd, Waits
from lanewise.machine.tracer.points import ADDRESS_BYTES, Point
from lanewise.machine.tracer.tensor_log import TensorAccess
from lanewise.numpy_types import AnyArray, AnyDtype
from lanewise.traces.fragments import MatrixOperand, matrix_operands, operands_with
from lanewise.traces.recording import Recording
from lanewise.traces.tensor_memory import tensor_reading
from lanewise.traces.waits import NEVER, waits_of

#: Bytes of the log that a page has at most, and that a picture in a notebook has.
MOST_BYTES, MOST_FRAME_BYTES = 48 << 20, 2 << 20
#: Elements of an array in shared memory whose coordinates a page knows.
MOST_SHARED_ELEMENTS = 1 << 16
_TEMPLATE = Path(__file__).with_name("page.html")


def page(recording: Recording, most: int = MOST_BYTES) -> str:
    """Return the page of a trace; of a very long one, it has the first steps."""
    template = _TEMPLATE.read_text(encoding="utf-8")
    # "</" would end the script that the data stand in.
    data = json.dumps(page_data(recording, most), separators=(",", ":")).replace("</", "<\\/")
    title = html.escape(f"{recording.program.entry.name}: a trace")
    return template.replace("{{title}}", title).replace("{{data}}", data)


def frame(recording: Recording) -> str:
    """Return the page as a frame for a notebook."""
    inner = html.escape(page(recording, MOST_FRAME_BYTES), quote=True)
    return f'<iframe srcdoc="{inner}" style="width:100%;height:640px;border:0" title="trace"></iframe>'


def page_data(recording: Recording, most: int = MOST_BYTES) -> dict[str, Any]:
    """Return everything that the page shows."""
    run, log = recording.run, recording.log
    layouts = _Layouts()
    points = [_point(recording, point, layouts) for point in log.points]
    sizes = np.array([point.size for point in log.points])
    steps = log.entries[recording.steps]
    payload_sizes = sizes[steps["point"]]
    count = int(np.searchsorted(np.cumsum(payload_sizes + 24), most, "right"))
    steps, payload_sizes = steps[:count], payload_sizes[:count]
    names = recording.names
    by_register: dict[str, str] = {}
    for name, variable in names.variables.items():
        for number, registers in enumerate(variable.elements):
            for register in registers:
                shown = f"{name}[{number}]" if variable.is_vector else name
                if variable.is_vector or register.name not in by_register:
                    by_register[register.name] = shown
    return {
        "kernel": run.program.entry.name,
        "arch": run.arch,
        "grid": run.shape.grid,
        "block": run.shape.block,
        "lanes": LANES,
        "all": len(recording.steps),
        "kept": count,
        "full": log.is_full,
        "fault": run.fault,
        "findings": _findings(recording),
        "points": points,
        "layouts": layouts.packed,
        "names": by_register,
        "ptx": (recording.module.text or str(recording.module)).splitlines(),
        "files": _files(recording),
        "blocks": {str(block): recording.block_at(block) for block in run.blocks},
        "waits": _waits(recording),
        "shared": _shared(recording),
        "tensor": _tensor(recording, count, most) if tensor_reading(recording).is_used else None,
        "arrays": [
            {
                "name": array.name,
                "first": array.address,
                "bytes": array.array.nbytes,
                "item": array.array.itemsize,
                "type": _type(array.array.dtype),
                "shape": array.array.shape,
                "c": bool(array.array.flags.c_contiguous),
            }
            for array in recording.arguments
        ],
        "steps": {
            name: packed(np.ascontiguousarray(steps[name].astype(kind)))
            for name, kind in (
                ("point", np.int32),
                ("warp", np.int32),
                ("block", np.int32),
                ("lanes", np.uint32),
                ("active", np.uint32),
                ("state", np.int32),
            )
        },
        "offsets": packed((np.cumsum(payload_sizes) - payload_sizes).astype(np.int32)),
        "payload": packed_parts(log.memory, steps["payload"], payload_sizes),
    }


def packed(array: AnyArray) -> str:
    """Return an array compressed, as text."""
    return base64.b64encode(zlib.compress(array.tobytes(), 6)).decode()


def packed_parts(memory: AnyArray, starts: AnyArray, sizes: AnyArray) -> str:
    """Return parts of memory, one after the other, compressed, as text."""
    spans = zip(starts.tolist(), sizes.tolist(), strict=True)
    parts = [memory[start : start + size] for start, size in spans]
    return packed(np.concatenate(parts) if parts else np.zeros(0, np.uint8))


class _Layouts:
    """The layouts of fragments that a page knows; instructions with the same one share it."""

    def __init__(self) -> None:
        self.packed: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, operand: Operand) -> int:
        """Return the number of a layout: for each element, row by row, the first slot that holds it."""
        text = packed(np.asarray(operand.scatter[: operand.rows * operand.cols], np.int32))
        if text not in self._numbers:
            self._numbers[text] = len(self.packed)
            self.packed.append(text)
        return self._numbers[text]


def _point(recording: Recording, point: Point, layouts: _Layouts) -> dict[str, object]:
    """Return an instruction with the layout of its payload."""
    op = point.op
    if op is None:
        return {}
    file, line = recording.module.origin(op.loc) if op.loc is not None else ("", 0)
    return {
        "text": str(op.source),
        "line": op.line,
        "file": file,
        "source": line,
        "kind": _kind(point),
        "registers": [
            {
                "name": register.register.name,
                "type": register.register.type,
                "bits": register.register.bits,
                "at": register.offset,
            }
            for register in point.registers
        ],
        "accesses": [
            {
                "kind": access.located.access.verb,
                "at": access.addresses,
                "end": access.addresses + ADDRESS_BYTES,
                "bytes": access.bytes,
                "size": access.size,
                "type": op.types[-1] if op.types else "b8",
            }
            for access in point.accesses
        ],
        "matrices": [
            {
                "name": matrix_operand.name,
                "rows": matrix_operand.operand.rows,
                "cols": matrix_operand.operand.cols,
                "type": _held_type(recording, matrix_operand),
                "slot": matrix_operand.operand.slot_bits,
                "slots": matrix_operand.operand.slots,
                "result": matrix_operand.is_result,
                "registers": [register.name for register in matrix_operand.registers],
                "warps": matrix_operand.operand.threads // LANES,
                # The number of its layout: slots over the threads' registers.
                "layout": layouts.number(matrix_operand.operand),
            }
            for matrix_operand in matrix_operands(op, recording.run.arch)
            if matrix_operand.operand.slot_bits >= 8
        ],
    }


def _held_type(recording: Recording, matrix: MatrixOperand) -> str:
    """Return the type of a matrix's elements; of what ldmatrix loads, as a product takes it."""
    own = matrix.operand.format
    for operand in operands_with(recording.program, recording.run.arch, [(matrix.registers[0],)]):
        format = operand.operand.format
        return format.name if own.name.startswith("b") and format.bits == own.bits else own.name
    return own.name


def _type(dtype: AnyDtype) -> str:
    """Return the type of an array's elements as PTX names it; raw bits where it has no name for it."""
    try:
        return format_of(dtype).name
    except LanewiseError:
        return f"b{8 * min(dtype.itemsize, 8)}"


def _shared(recording: Recording) -> list[dict[str, object]]:
    """Return the arrays in shared memory, with the coordinates of what lies at each offset."""
    return [
        {
            "name": array.name,
            "first": array.offset,
            "item": array.element_bytes,
            "type": _type(array.dtype),
            "shape": array.shape,
            "at": packed(np.argsort(array.indices, axis=None).astype(np.int32))
            if array.indices.size == array.indices.max(initial=0) + 1
            else "",
        }
        for array in recording.shared_arrays.all()
        if array.indices.size <= MOST_SHARED_ELEMENTS
    ]


def _tensor(recording: Recording, count: int, most: int) -> dict[str, object]:
    """Return what the first steps do to tensor memory: words that arrive, allocations, areas touched."""
    reading, log = tensor_reading(recording), recording.log
    numbers = reading.runs
    numbers = numbers[: int(np.searchsorted(np.cumsum(log.runs.size[numbers]), most, "right"))]
    lanes, columns = reading.run_places(numbers)
    entries = log.runs.entry[numbers]

    def step_at(entry: int) -> int:
        """Return the step that an entry belongs to: what asynchronous operations write follows a step."""
        return max(int(np.searchsorted(recording.steps, entry, "right")) - 1, 0)

    return {
        "writes": {
            name: packed(np.ascontiguousarray(values).astype(np.int32))
            for name, values in (
                ("step", np.maximum(np.searchsorted(recording.steps, entries, "right") - 1, 0)),
                ("by", reading.steps_of(entries.astype(np.int64))),
                ("block", log.runs.block[numbers]),
                ("lane", lanes),
                ("column", columns),
                ("count", log.runs.size[numbers] // 4),
            )
        },
        "words": packed_parts(log.memory, log.runs.offset[numbers], log.runs.size[numbers]),
        "allocations": [[step_at(entry), *rest] for entry, *rest in reading.allocations],
        "touched": {
            str(step): touched
            for step, entry in enumerate(recording.steps[:count].tolist())
            if (touched := [_touched(recording, entry, access) for access in reading.accesses(entry)])
        },
    }


def _touched(recording: Recording, entry: int, access: TensorAccess) -> list[object]:
    """Return what a step does to an operand in tensor memory: kind, name, block, rectangles.

    A rectangle is its first lane, lanes, first column, columns.
    """
    own = int(recording.log.entries["block"][entry])
    areas = []
    for area in access.areas:
        lanes = np.array(sorted(area.lanes))
        for part in np.split(lanes, np.flatnonzero(np.diff(lanes) != 1) + 1):
            areas.append([int(part[0]), len(part), area.column, area.columns])
    block = tensor_reading(recording).partner(own) if access.in_other else own
    return [access.kind, access.operand, block, areas]


def _kind(point: Point) -> str:
    """Return the kind of an instruction, by which the time line colours it."""
    op = point.op
    assert op is not None
    if op.record.multiplies:
        return "mma"
    if op.record.waits in (Waits.BARRIER, Waits.PHASE):
        return "barrier"
    if point.accesses:
        spaces = {access.located.space for access in point.accesses}
        return "shared" if spaces == {"shared"} else "global"
    return "branch" if op.record.ends is not BlockEnd.FALLTHROUGH else "plain"


def _files(recording: Recording) -> dict[str, list[str]]:
    """Return the source files that instructions came from, as far as they can be read."""
    names = {
        recording.module.origin(point.op.loc)[0]
        for point in recording.log.points
        if point.op is not None and point.op.loc is not None
    }
    return {name: lines for name in sorted(names) if (lines := recording.file_lines(name))}


def _findings(recording: Recording) -> list[dict[str, object]]:
    """Return the findings with the steps at which they came up."""
    findings = []
    for finding, entries in recording.run.findings:
        step = int(np.searchsorted(recording.steps, max(entries - 1, 0)))
        findings.append({"text": str(finding), "step": min(step, max(len(recording.steps) - 1, 0))})
    return findings


def _waits(recording: Recording) -> list[list[object]]:
    """Return the waits: step since which, first step after it, warp, what for, what was missing, block."""
    rows = []
    waits, count = waits_of(recording), len(recording.steps)
    for wait in waits.all:
        said = waits.described(wait, wait.since)
        stop = count if wait.until == NEVER else int(np.searchsorted(recording.steps, wait.until))
        rows.append([said.since, stop, said.warp, said.what, said.missing, wait.block])
    return rows
