"""The table of a checked kernel's instructions: how each is to be watched, read by the compiled watch.

Each instruction has two rows; the second is that of the source of a cp.async.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lanewise.jit.host_memory import address
from lanewise.machine.analysis.cas_loops import guesses
from lanewise.machine.analysis.pointer_provenance import sources, variable
from lanewise.machine.checker import records
from lanewise.machine.codegen.instrumentation import MASKED, MEMORY, ROWS, UNWATCHED
from lanewise.machine.codegen.lane_vectors import several, type_of, types
from lanewise.machine.program.resolve import Op, Place, Program, Register, Resolved, Symbol
from lanewise.machine.warp_ops.addresses import effective_space

SPACES = {
    "global": records.GLOBAL,
    "shared": records.SHARED,
    "local": records.LOCAL,
    "generic": records.GENERIC,
}
#: Modifiers of accesses that do not race with each other.
STRONG = frozenset(("volatile", "relaxed", "acquire", "release", "acq_rel", "mmio", "cv", "wt"))
#: How often Python hears of one kind of suspicion at an instruction that turned out to be nothing.
PATIENCE = 2000

Row = dict[int, int]


def table(watched: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """A launch's own rows of all instructions, and the memory that they lead to."""
    rows = watched.copy()
    memory = np.zeros((len(rows), records.MEMORY_BYTES), np.uint8)
    rows[:, records.MEMORY // 8] = address(memory) + np.arange(len(rows)) * records.MEMORY_BYTES
    return rows, memory


def watched(program: Program, arch: str) -> npt.NDArray[np.int64]:
    """The rows of all instructions before anything ran."""
    rows = np.zeros((len(program.sites) * ROWS + 1, records.SITE_BYTES // 8), np.int64)
    rows[:, records.LIMITS // 8 :] = PATIENCE
    addresses = sources(program)
    guessed = guesses(program)
    for op in program.sites:
        for number, row in enumerate(_rows(op, program, arch)):
            if number == 0:
                row = row | _bounds(op, addresses)
            if op in guessed:
                row = row | {records.FLAGS: row[records.FLAGS] | records.STRONG_ACCESS}
            for offset, value in row.items():
                rows[op.site * ROWS + number, offset // 8] = value
    return rows


def _bounds(op: Op, addresses: dict[Register, Symbol]) -> Row:
    """The shared variable that an instruction's address was made from, if that is known."""
    place = next((each for each in op.operands if isinstance(each, Place)), None)
    if place is None:
        return {}
    base = place.base
    found = addresses.get(base) if isinstance(base, Register) else None
    if isinstance(base, Symbol) and base.space == "shared":
        found = variable(base)
    return (
        {} if found is None else {records.LOWEST: found.address, records.HIGHEST: found.address + found.size}
    )


def _rows(op: Op, program: Program, arch: str) -> list[Row]:
    if op.opcode in ("bar", "barrier"):
        return [_barrier(op, program)]
    if op.opcode in MASKED:
        return [_operand(op.operands[-1], records.BASE, records.DISPLACEMENT)] if op.has("sync") else []
    if op.opcode in ("membar", "fence"):
        proxy = any(each.startswith("proxy") for each in op.modifiers)
        return [{records.FLAGS: 0 if proxy else records.FENCE}]
    if op.opcode == "cp":
        return _copies(op, program)
    if op.opcode in ("ldmatrix", "stmatrix"):
        return [_matrix(op, program, arch)]
    if op.opcode == "wmma":
        return [_tile(op, program)] if op.has("load") or op.has("store") else []
    if op.opcode == "mbarrier":
        return [] if op.has("pending_count") else [_object(op, program)]
    if op.opcode in MEMORY and not any(op.has(each) for each in UNWATCHED):
        return [_plain(op, program)]
    return []


def _operand(operand: Resolved, place: int, constant: int) -> Row:
    if isinstance(operand, Register):
        return {place: operand.offset}
    return {place: -1, constant: int(getattr(operand, "bits", 0)) & 0xFFFFFFFF}


def _barrier(op: Op, program: Program) -> Row:
    if op.has("warp"):
        return {records.FLAGS: records.EVERY_LANE} | _operand(
            op.operands[-1], records.BASE, records.DISPLACEMENT
        )
    operands = list(op.operands)
    if op.has("red"):
        operands = operands[1:-1]
    row: Row = {}
    if operands:
        row |= _operand(operands[0], records.BASE, records.DISPLACEMENT)
    if len(operands) > 1:
        row |= _operand(operands[1], records.STEP_BASE, records.STEP)
    return row


def place_of(op: Op) -> Place:
    """The address operand of an instruction that has one."""
    return next(each for each in op.operands if isinstance(each, Place))


def _address(place: Place, program: Program) -> Row:
    base = place.base
    if isinstance(base, Register):
        return {records.BASE: base.offset, records.BASE_BITS: base.bits, records.DISPLACEMENT: place.offset}
    if isinstance(base, Symbol):
        start = base.address + (program.dynamic_offset if base.space == "dynamic" else 0)
        return {records.BASE: -1, records.DISPLACEMENT: start + place.offset}
    return {records.BASE: -1, records.DISPLACEMENT: base.bits + place.offset}


def access_size(op: Op) -> int:
    """The bytes that each lane of ld, st, atom or red touches."""
    names = types(op)
    if not names:
        return 4
    element = 1 if names[-1] == "pred" else type_of(names[-1]).bits // 8
    data = {"st": 1, "red": 1, "atom": 2}.get(op.opcode, 0)
    return element * len(several(op.operands[data]))


def _plain(op: Op, program: Program) -> Row:
    place = place_of(op)
    flags = {"st": records.WRITES, "ld": records.READS, "ldu": records.READS}.get(
        op.opcode, records.WRITES | records.READS
    )
    if op.opcode in ("atom", "red") or STRONG.intersection(op.modifiers):
        flags |= records.STRONG_ACCESS
    if op.has("volatile"):
        flags |= records.VOLATILE_ACCESS
    if op.has("release") or op.has("acq_rel"):
        flags |= records.RELEASES
    return _address(place, program) | {
        records.SPACE: SPACES.get(effective_space(op, place), records.GLOBAL),
        records.ACCESS_SIZE: access_size(op),
        records.FLAGS: flags,
    }


def _object(op: Op, program: Program) -> Row:
    """An mbarrier: who arrives publishes what it did, who asks takes what those who arrived had published."""
    place = place_of(op)
    asks = op.has("test_wait") or op.has("try_wait")
    flags = records.STRONG_ACCESS | (records.READS if asks else records.WRITES | records.RELEASES)
    return _address(place, program) | {
        records.SPACE: SPACES.get(effective_space(op, place), records.SHARED),
        records.ACCESS_SIZE: 8,
        records.FLAGS: flags,
    }


def _copies(op: Op, program: Program) -> list[Row]:
    if op.has("commit_group"):
        return [{records.FLAGS: records.COMMIT}]
    if op.has("wait_group"):
        return [{records.FLAGS: records.WAIT, records.DISPLACEMENT: int(getattr(op.operands[0], "bits", 0))}]
    everything = {records.FLAGS: records.WAIT, records.DISPLACEMENT: -1}
    if op.has("mbarrier"):
        return [{records.FLAGS: records.TRACK}, _object(op, program)]
    if op.has("wait_all"):
        return [everything]
    target, source, size, *_ = op.operands
    if not isinstance(target, Place) or not isinstance(source, Place):
        return []
    bytes_each = {records.ACCESS_SIZE: int(getattr(size, "bits", 4))}
    write = {records.SPACE: records.SHARED, records.FLAGS: records.WRITES | records.COPIES}
    read = {records.SPACE: records.GLOBAL, records.FLAGS: records.READS}
    return [_address(target, program) | bytes_each | write, _address(source, program) | bytes_each | read]


def _matrix(op: Op, program: Program, arch: str) -> Row:
    instruction = op.source.instruction()
    if instruction is None:
        return {}
    rows = instruction.row_addresses.rows
    flags = records.MATRIX | (records.READS if op.opcode == "ldmatrix" else records.WRITES)
    if op.opcode == "stmatrix" and not op.has("trans"):
        flags |= records.BY_WORD
    if arch == "sm_75" and rows < 32:
        flags |= records.EVERY_LANE
    space = (instruction.space or "generic").split("::")[0]
    return _address(place_of(op), program) | {
        records.SPACE: SPACES[space],
        records.ACCESS_SIZE: 16,
        records.FLAGS: flags,
        records.LANES_READ: (1 << rows) - 1,
    }


def _tile(op: Op, program: Program) -> Row:
    instruction = op.source.instruction()
    if instruction is None:
        return {}
    storing = op.has("store")
    operand = instruction.operands[instruction.matrix]
    bits = 32 if operand.format.name == "tf32" else operand.format.bits
    rows, columns = operand.shape
    lines, length = (rows, columns) if instruction.layouts[0] == "row" else (columns, rows)
    step: Row = {records.STEP: length}
    if instruction.stride:
        step = _operand(op.operands[-1], records.STEP_BASE, records.STEP)
    space = (instruction.space or "generic").split("::")[0]
    return (
        _address(place_of(op), program)
        | step
        | {
            records.SPACE: SPACES[space],
            records.ACCESS_SIZE: length * bits // 8,
            records.FLAGS: records.TILE | (records.WRITES if storing else records.READS),
            records.LANES_READ: (1 << lines) - 1,
            records.LINES: bits,
        }
    )
