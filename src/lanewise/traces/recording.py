"""A recording: the log of a launch with everything that is needed to read it.

Steps and traces stand on it.
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.isa import Operand
from lanewise.machine import abi
from lanewise.machine.abi import LANES, WARPGROUP
from lanewise.machine.checker.report import Finding
from lanewise.machine.program.instruction_record import Role, Waits
from lanewise.machine.program.operands import Register
from lanewise.machine.program.ops import Op, Program
from lanewise.machine.program.source_lines import source_line
from lanewise.machine.tensor_memory_records import LANE_BYTES
from lanewise.machine.tracer.log import Log, Numbers
from lanewise.machine.tracer.records import BARRIER_POINT
from lanewise.numpy_types import AnyArray
from lanewise.ptx import Immediate, Module, Shape
from lanewise.traces.arrays import ArgumentArray, SharedArrays, source_name
from lanewise.traces.history import MemoryHistory, RegisterHistory, space_of
from lanewise.traces.names import RegisterNames

Three = tuple[int, int, int]
#: What tensor memory is called: an element has a lane and a column.
TENSOR_NAME = "tmem"


class Run(NamedTuple):
    """A launch that was traced: the kernel, its shape, what was logged of it and what the checker found."""

    program: Program
    arch: str
    shape: Shape
    shared_bytes: int
    arguments: list[ArgumentArray]
    log: Log
    #: Blocks that were logged, by their number in the grid, and warps of each.
    blocks: tuple[int, ...]
    warps: tuple[int, ...]
    #: Findings, each with the number of entries that the log had when it came up.
    findings: list[tuple[Finding, int]]
    #: The message of the fault that ended the launch; empty if it ran to its end.
    fault: str
    limit: int


class Recording:
    """The log of a launch, its steps, and who wrote what."""

    def __init__(self, run: Run) -> None:
        self.run, self.log, self.program = run, run.log, run.program
        self.module: Module = run.program.module
        self.arguments = run.arguments
        entries = self.log.entries
        is_instruction = np.array([point.op is not None for point in self.log.points])
        chosen = np.isin(entries["warp"], run.warps) & is_instruction[entries["point"]]
        chosen &= np.isin(entries["block"], run.blocks)
        #: The entries that are steps: instructions of the chosen warps.
        self.steps: Numbers = np.flatnonzero(chosen)
        self.registers, self.memory = RegisterHistory(self.log), MemoryHistory(self.log)
        #: What others have found out about it, kept by name.
        self.derived: dict[str, object] = {}
        #: Where each instruction came from, and the lines of each file, as far as they were asked for.
        self._sources: dict[int, str | None] = {}
        self._files: dict[str, list[str]] = {}

    def __reduce__(self) -> Any:
        """Copy and pickle the run alone: what was derived from it is derived again."""
        return Recording, (self.run,)

    @cached_property
    def names(self) -> RegisterNames:
        """The registers and variables of the kernel by name."""
        return RegisterNames(self.program, self.module.names)

    @cached_property
    def shared_arrays(self) -> SharedArrays:
        """The arrays of the kernel in shared memory."""
        return SharedArrays(self.program, self.module.names)

    def step_of(self, entry: int) -> int | None:
        """Return the number of the step that an entry is; None if it is not one."""
        number = int(np.searchsorted(self.steps, entry))
        return number if number < len(self.steps) and self.steps[number] == entry else None

    def op(self, entry: int) -> Op | None:
        """Return the instruction of an entry; None for a completed barrier."""
        return self.log.point(entry).op

    def block_at(self, linear: int) -> Three:
        """Return the coordinates of a block by its number in the grid."""
        x, y, _ = self.run.shape.grid
        return linear % x, linear // x % y, linear // (x * y)

    def warpgroup_entry(self, entry: int) -> int:
        """Return the entry of a wgmma at which its operands were read: that of the warp that multiplied.

        It comes first in the log, since the others take up the result. If only some of the four warps are
        traced, it is the first of those.
        """
        entries = self.log.entries
        header = entries[entry]
        same = (entries["point"] == header["point"]) & (entries["block"] == header["block"])
        warp = int(header["warp"])
        first = warp // WARPGROUP * WARPGROUP
        count = int(np.count_nonzero((same & (entries["warp"] == warp))[:entry]))
        arrivals = [entry]
        for other in range(first, first + WARPGROUP):
            mine = np.flatnonzero(same & (entries["warp"] == other))
            if len(mine) > count:
                arrivals.append(int(mine[count]))
        return min(arrivals)

    def held_alike(
        self, block: int, warp: int, entry: int, other: int, registers: Sequence[Register]
    ) -> AnyArray:
        """Return what another warp holds in a register after as many writes as a warp did up to an entry.

        Warps of a warpgroup hold a matrix together, and are at different places when one is looked at.
        """
        mine, _ = self.registers.writes(block, warp, registers)
        count = int(np.searchsorted(mine, entry, "right"))
        theirs, _ = self.registers.writes(block, other, registers)
        if len(theirs) < count:
            raise LanewiseError(
                f"{registers[0].name} is held by four warps, and warp {other} was not traced up to here"
            )
        at = entry if other == warp else int(theirs[count - 1]) if count else -1
        return self.registers.last(block, other, registers, at)[0]

    def held_matrix(
        self, block: int, warp: int, entry: int, operand: Operand, elements: Sequence[Sequence[Register]]
    ) -> AnyArray:
        """Return the matrix that a warp holds after an entry, or its four warps after as many writes."""
        first = warp // WARPGROUP * WARPGROUP
        warps = range(first, first + WARPGROUP) if operand.threads > LANES else [warp]
        parts = [
            np.stack([self.held_alike(block, warp, entry, other, element) for element in elements], axis=1)
            for other in warps
        ]
        return operand.unpack(np.concatenate(parts))

    # places in the source ----------------------------------------------------------------------------------

    def source(self, op: Op) -> str | None:
        """Return file and line of the source that an instruction came from; None if the PTX does not tell."""
        if op.site not in self._sources:
            self._sources[op.site] = source_line(self.module, op.loc) if op.loc is not None else None
        return self._sources[op.site]

    def source_text(self, op: Op) -> str:
        """Return the text of the source line; empty if the file cannot be read."""
        if op.loc is None:
            return ""
        name, line = self.module.origin(op.loc)
        return self.file_line(name, line)

    def file_line(self, name: str, line: int) -> str:
        """Return a line of a source file, or of the CUDA C++ that the module was compiled from."""
        lines = self.file_lines(name)
        return lines[line - 1] if 0 < line <= len(lines) else ""

    def file_lines(self, name: str) -> list[str]:
        """Return the lines of a source file; none if it cannot be read."""
        if name not in self._files:
            cuda = self.module.cuda
            try:
                if cuda is not None and Path(name).name == Path(cuda.name).name:
                    text = cuda.text
                else:
                    text = Path(name).read_text(encoding="utf-8", errors="replace")
            except OSError:
                text = ""
            self._files[name] = text.splitlines()
        return self._files[name]

    # what lies at an address --------------------------------------------------------------------------------

    def described(self, address: int) -> str:
        """Return what lies at a generic address, such as "A[3, 8]"; else its state space and address."""
        space = space_of(address)
        if space in ("global", "const"):
            return self._described_global(address)
        if space == "shared":
            return self._described_shared((address - abi.SHARED_WINDOW) & abi.OFFSET_MASK)
        if space == "tensor":
            lane, byte = divmod(address - abi.TENSOR_WINDOW, LANE_BYTES)
            return f"{TENSOR_NAME}[{lane}, {byte // 4}]"
        window = abi.LOCAL_WINDOW if space == "local" else abi.PARAM_WINDOW
        return f"{space} {address - window:#x}"

    def _described_global(self, address: int) -> str:
        for argument in self.arguments:
            index = argument.index_at(address)
            if index is not None:
                return f"{argument.name}{list(index)}"
        for name, symbol in self.program.globals.items():
            if symbol.space != "shared" and 0 <= address - symbol.address < max(symbol.size, 1):
                return f"{name}+{address - symbol.address}"
        return f"global {address:#x}"

    def _described_shared(self, offset: int) -> str:
        arrays = self.shared_arrays
        for array in arrays.all():
            index = array.index_at(offset)
            if index is not None:
                return f"{array.name}{list(index)}"
        for name, symbol in arrays.variables.items():
            if 0 <= offset - symbol.address < symbol.size:
                within = offset - symbol.address
                return f"{source_name(name)}+{within}" if within else source_name(name)
        return f"shared {offset:#x}"

    # barriers ----------------------------------------------------------------------------------------------

    def barrier_of(self, entry: int, arrivals: bool = False) -> int | None:
        """Return the number of the barrier that the lanes of an entry wait at; None if they do not wait.

        With `arrivals`, also of lanes that arrive and go on.
        """
        op = self.op(entry)
        if op is None or op.record.waits is not Waits.BARRIER or op.opcode[0] == "(":
            return None
        if op.has("arrive") and not arrivals:
            return None
        operands = list(op.operands)
        if op.record.role(0) is Role.DEFINED:
            operands = operands[1:-1]
        if not operands:
            return 0
        number = operands[0]
        if isinstance(number, Immediate):
            return int(number.bits)
        if isinstance(number, Register):
            header = self.log.entries[entry]
            values, _ = self.registers.last(int(header["block"]), int(header["warp"]), [number], entry)
            active = int(header["active"])
            lane = (active & -active).bit_length() - 1
            return int(values[max(lane, 0)])
        return None

    @cached_property
    def completions(self) -> Numbers:
        """The entries of completed barriers."""
        return np.flatnonzero(self.log.entries["point"] == BARRIER_POINT)
