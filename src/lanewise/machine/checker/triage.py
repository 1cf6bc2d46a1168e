"""From suspicions of the compiled watch to findings: what is no fault is dropped, the rest put into words."""

from __future__ import annotations

import ctypes
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lanewise.machine import abi
from lanewise.machine.analysis.pointer_provenance import shared_variables
from lanewise.machine.checker import records
from lanewise.machine.checker.report import Finding, Three
from lanewise.machine.checker.site_table import access_size
from lanewise.machine.codegen.instrumentation import ROWS
from lanewise.machine.codegen.lane_vectors import several
from lanewise.machine.program.resolve import Op, Register
from lanewise.machine.runtime.fault_report import source_line
from lanewise.machine.warp_ops.addresses import space_of
from lanewise.ptx import Immediate

if TYPE_CHECKING:
    from lanewise.machine.runtime.launch import BlockState, Launch

#: Which finding each kind of suspicion is.
KINDS = {
    records.AFTER_WRITE: "race",
    records.AFTER_READ: "race",
    records.SAME_PLACE: "race",
    records.UNINITIALISED: "uninitialised",
    records.UNINITIALISED_LOCAL: "uninitialised",
    records.NO_VALUE: "uninitialised",
    records.UNFINISHED_COPY: "asynchronous copy",
    records.OUTSIDE: "out of bounds",
    records.NOT_A_MEMBER: "divergence",
    records.ABSENT_MEMBER: "divergence",
    records.SPLIT_BARRIER: "divergence",
    records.BARRIER_COUNT_WRONG: "barrier",
    records.TILE_ALIGNMENT: "wmma",
    records.TILE_STRIDE: "wmma",
    records.TILE_UNIFORM: "wmma",
    records.IGNORED_ADDRESS: "out of bounds",
    records.IGNORED_ALIGNMENT: "misaligned",
}
_MASK = (1 << 64) - 1


def source_of(launch: Launch, op: Op) -> str | None:
    """The line of the source that an instruction came from."""
    return None if op.loc is None else source_line(launch.compiled.program.module, op.loc)


def thread_at(launch: Launch, warp: int, lane: int) -> Three:
    """A thread as CUDA counts."""
    number = warp * abi.LANES + lane
    x, y, _ = launch.shape.block
    return number % x, number // x % y, number // (x * y)


def block_at(launch: Launch, linear: int) -> Three:
    """A block as CUDA counts."""
    x, y, _ = launch.shape.grid
    return linear % x, linear // x % y, linear // (x * y)


def writes(op: Op) -> bool:
    """Whether an instruction stores."""
    return op.opcode in ("st", "red", "atom", "stmatrix", "cp") or op.has("store")


def verb(op: Op, second: bool = False) -> str:
    """What an instruction does to memory."""
    if op.opcode in ("atom", "red"):
        return "atomic"
    if op.opcode == "cp":
        return "read" if second else "asynchronous write"
    return "write" if writes(op) else "read"


def size_of(op: Op) -> int:
    """The bytes that a lane of an instruction moves."""
    if op.opcode in ("ldmatrix", "stmatrix"):
        return 16
    if op.opcode == "cp":
        return int(getattr(op.operands[2], "bits", 4))
    return access_size(op)


def what_of(op: Op, space: str, second: bool = False) -> str:
    """An access in words."""
    if op.opcode == "wmma":
        return f"{space} {verb(op)} of a tile"
    return f"{space} {verb(op, second)} of {size_of(op)} bytes"


def allocation_of(launch: Launch, op: Op, address: int, second: bool = False) -> tuple[str, str]:
    """The space of an address and the allocation it lies in."""
    space = "global" if second else ("shared" if op.opcode == "cp" else space_of(op))
    offset = address & _MASK
    if space == "generic":
        if 0 <= offset - abi.SHARED_WINDOW < abi.WINDOW_BYTES:
            space, offset = "shared", offset - abi.SHARED_WINDOW
        elif 0 <= offset - abi.LOCAL_WINDOW < abi.WINDOW_BYTES:
            space = "local"
        else:
            space = "global"
    if space == "shared":
        return space, shared_name(launch, offset)
    if space == "local":
        return space, "local memory"
    for each in launch.allocations:
        if offset in each:
            return space, each.title
    return space, ""


def shared_name(launch: Launch, offset: int) -> str:
    """The declared variable of shared memory at an offset."""
    program = launch.compiled.program
    for symbol in shared_variables(program):
        if symbol.address <= offset < symbol.address + symbol.size:
            return f"shared variable {plain_name(symbol.name)}"
    if launch.shape.shared_bytes and offset >= program.dynamic_offset:
        return "dynamic shared memory"
    return "shared memory"


def plain_name(name: str) -> str:
    """The name of a function's own variable without that of the function, which C++ puts before it.

    >>> plain_name("_ZZ1kPKfPfiE4tile"), plain_name("buffer")
    ('tile', 'buffer')
    """
    found = re.fullmatch(r"_ZZ.*?E(\d+)(.+)", name)
    if found is None or len(found[2]) < int(found[1]):
        return name
    return found[2][: int(found[1])]


class Suspicions:
    """What was found in one run."""

    def __init__(self, launch: Launch, rows: Any, log: Any, begun: Any, registers: list[Register]) -> None:
        self.launch, self.rows, self.log, self.begun = launch, rows, log, begun
        self.registers = registers
        self.states: dict[int, BlockState] = {}
        self.found: dict[tuple[Any, ...], Finding] = {}
        self.counted: dict[tuple[Any, ...], tuple[int, int]] = {}
        self.failure: BaseException | None = None
        kinds = [ctypes.c_int64] * 7
        self.callback = ctypes.CFUNCTYPE(None, *kinds)(self._guarded)

    @property
    def address(self) -> int:
        """What compiled code calls."""
        return int(ctypes.cast(self.callback, ctypes.c_void_p).value or 0)

    def _guarded(self, *values: int) -> None:
        try:
            self.consider(*values)
        except BaseException as error:  # nothing may escape into compiled code
            self.failure = error
            self.launch.stop()

    def _state(self, warp_frame: int) -> tuple[BlockState, int]:
        from lanewise.jit.host_memory import address

        size = self.launch.compiled.program.frame_bytes
        for state in self.states.values():
            start = address(state.frames)
            if start <= warp_frame < start + size * self.launch.shape.warps:
                return state, (warp_frame - start) // size
        raise LookupError("a warp that no block has")

    def consider(
        self, kind: int, warp_frame: int, row: int, lane: int, address: int, epoch: int, who: int
    ) -> None:
        """A suspicion: nothing, or a finding."""
        launch = self.launch
        state, warp = self._state(warp_frame)
        if kind == records.SPLIT_BARRIER:
            self._split_barrier(state, warp, address & 0xFFFFFFFF)
            return
        op = launch.compiled.program.sites[row // ROWS]
        second = bool(row % ROWS)
        if self._harmless(kind, state, warp, op, lane, address, who):
            self.rows[row, (records.COUNTS + 8 * kind) // 8] -= 1
            return
        # Heard enough: the compiled code goes on counting.
        self.rows[row, (records.LIMITS + 8 * kind) // 8] = 0
        other = None
        space, allocation = allocation_of(launch, op, address, second)
        what = what_of(op, space, second)
        match kind:
            case records.AFTER_WRITE | records.AFTER_READ | records.SAME_PLACE:
                other = self._other(kind, state, op, space, allocation, epoch, who, address)
                message = f"{what} without order after a {'read' if kind == records.AFTER_READ else 'write'}"
                if kind == records.SAME_PLACE:
                    message = (
                        f"{space} write: two lanes of one instruction write different values to one place"
                    )
            case records.UNFINISHED_COPY:
                other = self._other(kind, state, op, space, allocation, epoch, who, address)
                message = f"{what}: an asynchronous copy there has not been waited for"
            case records.UNINITIALISED | records.UNINITIALISED_LOCAL:
                if kind == records.UNINITIALISED_LOCAL:
                    space, allocation = "local", "local memory"
                message = f"{space} read of memory that nothing was written to"
            case records.NO_VALUE:
                message = f"the register {self.registers[address].name} has no value"
            case records.OUTSIDE:
                low, high = (int(self.rows[row, each // 8]) for each in (records.LOWEST, records.HIGHEST))
                home = shared_name(launch, low)
                message = f"{what} outside of {home}, of {high - low} bytes, which its address was made from"
            case records.NOT_A_MEMBER:
                message = f"a lane runs it that its mask {address & 0xFFFFFFFF:#010x} does not name"
            case records.ABSENT_MEMBER:
                message = (
                    f"its mask {address & 0xFFFFFFFF:#010x} names lanes that are elsewhere: {_lanes(epoch)}"
                )
            case records.BARRIER_COUNT_WRONG:
                message = f"a barrier for {address} threads: the count is a multiple of 32"
            case records.TILE_ALIGNMENT:
                message = f"{space} pointer is not a multiple of 32 bytes"
            case records.TILE_STRIDE:
                message = f"the stride of {address} elements is not a multiple of 16 bytes"
            case records.TILE_UNIFORM:
                message = "the pointer and the stride have to be the same in all lanes"
            case _:
                wrong = "no multiple of 16" if kind == records.IGNORED_ALIGNMENT else "out of bounds"
                message = f"{space} row address {wrong}: sm_75 wants good ones of all 32 lanes"
        about_memory = kind not in (
            records.NOT_A_MEMBER, records.ABSENT_MEMBER, records.BARRIER_COUNT_WRONG, records.TILE_STRIDE,
            records.NO_VALUE,
        )  # fmt: skip
        self.add(
            Finding(
                KINDS[kind],
                message,
                op.line,
                str(op.source),
                source_of(launch, op),
                thread_at(launch, warp, lane),
                self._block(state),
                address & _MASK if about_memory else None,
                allocation or None if about_memory else None,
                other=other,
            ),
            (row, kind),
        )

    def add(self, finding: Finding, counted: tuple[int, int] | None = None) -> None:
        """One more, once a place."""
        key = (finding.kind, finding.line, finding.text, finding.allocation)
        if key not in self.found:
            self.found[key] = finding
            if counted is not None:
                self.counted[key] = counted

    def findings(self) -> list[Finding]:
        """All, in the order in which they came up, with their counts."""
        races = [each for each in self.found.values() if each.kind in ("race", "asynchronous copy")]
        raced = {line for race in races for line in (race.line, race.other.line if race.other else 0)}
        found = []
        for key, finding in self.found.items():
            # What is read before it is written, for want of order, is told of once.
            if finding.kind == "uninitialised" and finding.line in raced:
                continue
            row, kind = self.counted.get(key, (-1, -1))
            count = int(self.rows[row, (records.COUNTS + 8 * kind) // 8]) if row >= 0 else 1
            found.append(replace(finding, count=max(count, 1)))
        return found

    def _block(self, state: BlockState) -> Three:
        x, y, z = (state[abi.CTAID + 8 * axis] for axis in range(3))
        return x, y, z

    def _other(
        self,
        kind: int,
        state: BlockState,
        op: Op,
        space: str,
        allocation: str,
        epoch: int,
        who: int,
        address: int,
    ) -> Finding:
        launch = self.launch
        row = (who >> records.SITE_SHIFT) & records.MOST_ROWS
        sites = launch.compiled.program.sites
        if row // ROWS >= len(sites) or row == records.MOST_ROWS:
            return Finding("race", "another access", 0, "")
        other = sites[row // ROWS]
        number = int(self.log[epoch & records.EPOCHS])
        warps = launch.shape.warps
        linear = int(self.begun[number // warps])
        several_lanes = bool(who & records.SEVERAL)
        lane = who & (abi.LANES - 1)
        message = f"{space} {verb(other, bool(row % ROWS))}"
        if several_lanes:
            message += " by several lanes, the first"
        return Finding(
            KINDS[kind],
            message,
            other.line,
            str(other.source),
            source_of(launch, other),
            thread_at(launch, number % warps, lane),
            block_at(launch, linear),
            address & _MASK,
            allocation or None,
        )

    # what is no fault ---------------------------------------------------------------------------------------

    def _stored(self, state: BlockState, warp: int, op: Op, lane: int) -> bytes | None:
        """The bytes that a lane of a plain store is about to write."""
        if op.opcode != "st":
            return None
        parts = several(op.operands[1])
        each = access_size(op) // len(parts)
        found = b""
        for part in parts:
            if isinstance(part, Register):
                value = int(state.lanes(warp, part.offset, part.bits)[lane])
            elif isinstance(part, Immediate):
                value = part.bits
            else:
                return None
            found += (value & ((1 << 8 * each) - 1)).to_bytes(each, "little")
        return found

    def _address(self, state: BlockState, warp: int, op: Op, lane: int) -> int | None:
        from lanewise.machine.checker.site_table import place_of

        place = place_of(op)
        if not isinstance(place.base, Register):
            return None
        start = int(state.lanes(warp, place.base.offset, place.base.bits)[lane]) + place.offset
        return start & ((1 << place.base.bits) - 1)

    def _harmless(
        self, kind: int, state: BlockState, warp: int, op: Op, lane: int, address: int, who: int
    ) -> bool:
        """Whether a store changes nothing: the value is there already, or its neighbour writes the same."""
        if kind not in (records.AFTER_WRITE, records.AFTER_READ, records.SAME_PLACE) or op.opcode != "st":
            return False
        mine = self._stored(state, warp, op, lane)
        start = self._address(state, warp, op, lane)
        if mine is None or start is None:
            return kind == records.SAME_PLACE
        if kind == records.SAME_PLACE:
            other_lane = who & (abi.LANES - 1)
            theirs = self._stored(state, warp, op, other_lane)
            there = self._address(state, warp, op, other_lane)
            if theirs is None or there is None:
                return True
            low, high = max(start, there), min(start + len(mine), there + len(theirs))
            return mine[low - start : high - start] == theirs[low - there : high - there]
        return mine == self._content(state, op, start, len(mine))

    def _content(self, state: BlockState, op: Op, address: int, size: int) -> bytes | None:
        space = space_of(op)
        offset = address
        if space == "generic" and 0 <= offset - abi.SHARED_WINDOW < abi.WINDOW_BYTES:
            space, offset = "shared", offset - abi.SHARED_WINDOW
        if space == "shared":
            return bytes(state.shared[offset : offset + size].tobytes())
        for each in self.launch.allocations:
            if offset in each and offset + size <= each.first + each.size:
                return ctypes.string_at(each.host + offset - each.first, size)
        return None

    def _split_barrier(self, state: BlockState, warp: int, pc: int) -> None:
        """Lanes of a warp at a barrier while others of it are elsewhere: wrong where it is .aligned."""
        launch = self.launch
        number = pc & (abi.PARKED - 1)
        ops = [
            block.op
            for block in launch.compiled.blocks
            if block.end == "barrier" and block.following is not None and block.following.number == number
        ]
        op = ops[0] if ops else None
        if op is None or (op.opcode == "barrier" and not op.has("aligned")):
            return
        pcs = state.lanes(warp, abi.PCS, 32)
        here = int(np.flatnonzero(pcs == pc)[0])
        absent = [int(each) for each in np.flatnonzero((pcs != pc) & (pcs != abi.EXITED))]
        bits = sum(1 << each for each in absent)
        self.add(
            Finding(
                "divergence",
                f"a barrier of whole warps, while some lanes are elsewhere: {_lanes(bits)}",
                op.line,
                str(op.source),
                source_of(launch, op),
                thread_at(launch, warp, here),
                self._block(state),
            )
        )


def _lanes(bits: int) -> str:
    names = [str(lane) for lane in range(abi.LANES) if bits >> lane & 1]
    return "lanes " + ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
