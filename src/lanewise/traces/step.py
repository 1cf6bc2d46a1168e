"""A step of a trace: one instruction of one warp, and what the warp and its block held after it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from lanewise.draw.tensor_memory import TensorMemory
from lanewise.errors import LanewiseError
from lanewise.isa import Operand
from lanewise.machine.abi import LANES, WARPGROUP
from lanewise.machine.checker.report import Finding
from lanewise.machine.program.instruction_record import Size
from lanewise.machine.program.operands import Register
from lanewise.machine.program.ops import Op
from lanewise.machine.tracer.points import WINDOWS, LoggedAccess
from lanewise.machine.tracer.records import ASYNC_WRITE_POINT, EntryState
from lanewise.numpy_types import AnyArray
from lanewise.tracebacks import short_methods
from lanewise.traces.fragments import MatrixOperand, matrix_operands, no_fragment, operands_with
from lanewise.traces.history import lanes_of, space_of
from lanewise.traces.names import Variable, typed
from lanewise.traces.recording import Recording, Three
from lanewise.traces.tensor_memory import tensor_reading
from lanewise.traces.waits import Waiting, waits_of


@dataclass(frozen=True, eq=False)
class Access:
    """What a step did to memory: for each lane (or row of a matrix) the address and the values there."""

    kind: str
    space: str
    #: Whether the bytes arrive later, when they are waited for.
    asynchronous: bool
    #: The lanes; for ldmatrix, stmatrix, wmma.load and wmma.store the rows or lines of the matrix.
    rows: npt.NDArray[np.int64]
    #: Addresses in the state space, and as generic ones.
    addresses: npt.NDArray[np.int64]
    generic: npt.NDArray[np.uint64]
    #: The elements that were read, or that are there after a write; one row for each of `rows`.
    values: AnyArray
    #: Of an atomic operation: the elements before it.
    before: AnyArray | None
    recording: Recording

    @property
    def elements(self) -> list[str]:
        """What lies at each address, such as "A[3, 8]"; the address where that is not known."""
        return [self.recording.described(int(address)) for address in self.generic]

    def __repr__(self) -> str:
        return f"<{self.kind} of {len(self.rows)} × {self.values.dtype} in {self.space} memory>"


@short_methods
class Registers(Mapping[str, AnyArray]):
    """What the lanes of a warp hold after a step, by the names of registers and variables.

    A value has one element for each of the 32 lanes; a variable of several registers, such as a fragment, has
    a column for each.
    """

    def __init__(self, recording: Recording, block: int, warp: int, entry: int) -> None:
        self._recording, self._block, self._warp, self._entry = recording, block, warp, entry

    def __getitem__(self, name: str) -> AnyArray:
        return self.values_of(self._recording.names.find(name))

    def values_of(self, variable: Variable) -> AnyArray:
        """Return what the lanes hold in the registers of a variable."""
        columns = [
            variable.shown(self.bits(registers), number) for number, registers in enumerate(variable.elements)
        ]
        return np.stack(columns, axis=1) if variable.is_vector else columns[0]

    def bits(self, registers: Any) -> AnyArray:
        """Return the bits that the lanes hold in the register that was written last of some."""
        values, _ = self._recording.registers.last(self._block, self._warp, registers, self._entry)
        return values

    def __contains__(self, name: object) -> bool:
        try:
            self._recording.names.find(str(name))
        except LanewiseError:
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        names = self._recording.names
        return iter(dict.fromkeys((*names.variables, *names.by_name)))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"<the registers of warp {self._warp}: {len(self)} names>"


@short_methods
class Step:
    """One instruction that a warp executed. Everything that is asked of it holds directly after it."""

    def __init__(self, recording: Recording, number: int) -> None:
        self._recording, self.number = recording, number
        self.entry = int(recording.steps[number])
        self._header = recording.log.entries[self.entry]
        self._point = recording.log.point(self.entry)
        assert self._point.op is not None
        self.op: Op = self._point.op

    # who and where -----------------------------------------------------------------------------------------

    @property
    def block(self) -> Three:
        """The coordinates of the block in the grid."""
        return self._recording.block_at(int(self._header["block"]))

    @property
    def warp(self) -> int:
        """The warp in its block."""
        return int(self._header["warp"])

    @property
    def lanes(self) -> npt.NDArray[np.bool_]:
        """The lanes that came to the instruction, as 32 truth values."""
        return lanes_of(int(self._header["lanes"]))

    @property
    def active(self) -> npt.NDArray[np.bool_]:
        """The lanes that executed it, because its guard was true for them, as 32 truth values."""
        return lanes_of(int(self._header["active"]))

    @property
    def is_complete(self) -> bool:
        """Whether it ran to its end; the instruction of a fault does not."""
        return int(self._header["state"]) == EntryState.COMPLETE

    @property
    def line(self) -> int:
        """The line of the PTX."""
        return self.op.line

    @property
    def text(self) -> str:
        """The instruction as the PTX has it."""
        return str(self.op.source)

    @property
    def source(self) -> str | None:
        """The file and line of the CUDA C++ or Python that it comes from; None if the PTX does not say it."""
        return self._recording.source(self.op)

    @property
    def source_text(self) -> str:
        """The text of that line, without indentation."""
        return self._recording.source_text(self.op).strip()

    # what it did -------------------------------------------------------------------------------------------

    @property
    def written(self) -> dict[str, AnyArray]:
        """The registers that it wrote, by their names in the PTX, with what the lanes hold after it."""
        if not self.is_complete:
            return {}
        return {
            register.register.name: typed(self.registers.bits([register.register]), register.register.type)
            for register in self._point.registers
        }

    @cached_property
    def memory(self) -> list[Access]:
        """What it read and wrote in memory, one Access for each address operand."""
        return [self._access(access) for access in self._point.accesses]

    def _access(self, logged: LoggedAccess) -> Access:
        log, located = self._recording.log, logged.located
        generic = log.addresses(self.entry, logged)
        rows = np.flatnonzero(generic)
        generic = generic[rows]
        space = space_of(int(generic[0])) if len(generic) else located.space
        window = WINDOWS.get(space, 0) if len(generic) else 0

        def elements(before: bool) -> AnyArray:
            raw = np.ascontiguousarray(log.bytes_of(self.entry, logged, before)[rows])
            return _elements(raw, self.op, located.access.size)

        return Access(
            located.access.kind.value,
            space,
            located.access.asynchronous,
            rows,
            generic.astype(np.int64) - window,
            generic,
            elements(before=False) if self.is_complete else np.zeros((len(rows), 0), np.uint8),
            elements(before=True) if logged.before >= 0 else None,
            self._recording,
        )

    @property
    def findings(self) -> list[Finding]:
        """What the checker found at this step."""
        log, findings = self._recording.log, []
        for finding, entries in self._recording.run.findings:
            # An entry of a warp's instruction has begun when the checker looks at it; those of each lane
            # alone are logged after they ran.
            near = [near_entry for near_entry in (entries - 1, entries) if 0 <= near_entry < len(log)]
            fits = [
                near_entry
                for near_entry in near
                if (op := log.point(near_entry).op) and op.line == finding.line
            ]
            if (fits or near[:1]) and (fits or near)[0] == self.entry:
                findings.append(finding)
        return findings

    # what was there afterwards -----------------------------------------------------------------------------

    @property
    def registers(self) -> Registers:
        """What the lanes of the warp hold after the step, by the names of registers and variables."""
        return Registers(self._recording, int(self._header["block"]), self.warp, self.entry)

    def _before(self) -> Registers:
        return Registers(self._recording, int(self._header["block"]), self.warp, self.entry - 1)

    def fragment(self, name: str) -> AnyArray:
        """Return the matrix that the lanes hold together.

        `name` is an operand of the step's own matrix instruction (a, b, c, d), a variable, or a register that
        a matrix instruction of the kernel takes or gives. a, b and c of a product are what it was given.
        """
        run, own = self._recording.run, matrix_operands(self.op, self._recording.run.arch)
        for own_operand in own:
            if own_operand.name == name:
                return self._matrix(own_operand, self.registers if own_operand.is_result else self._before())
        try:
            variable = self._recording.names.find(name)
        except LanewiseError as error:
            raise no_fragment(name, self.text, own) from error
        operand = next(operands_with(self._recording.program, run.arch, list(variable.elements)), None)
        if operand is not None and len(variable.elements) > 1:
            return self._held(operand.operand, variable.elements)
        if operand is not None:
            return self._held(operand.operand, [(register,) for register in operand.registers])
        if variable.operand is not None and len(variable.elements) == variable.operand.registers:
            return self._held(variable.operand, variable.elements)
        raise no_fragment(name, self.text, own)

    def _held(self, operand: Operand, elements: Sequence[tuple[Register, ...]]) -> AnyArray:
        """Return the matrix that the warp holds after the step, or four warps after as many writes."""
        block = int(self._header["block"])
        return self._recording.held_matrix(block, self.warp, self.entry, operand, elements)

    def _matrix(self, operand: MatrixOperand, registers: Registers) -> AnyArray:
        if operand.operand.threads > LANES:
            return self._warpgroup_matrix(operand)
        columns = [registers.bits([register]) for register in operand.registers]
        return operand.operand.unpack(np.stack(columns, axis=1))

    def _warpgroup_matrix(self, operand: MatrixOperand) -> AnyArray:
        """Return the matrix that four warps hold, each after it has executed this instruction."""
        entries, block = self._recording.log.entries, int(self._header["block"])
        first = self.warp // WARPGROUP * WARPGROUP
        same = (entries["point"] == self._point.number) & (entries["block"] == block)
        count = int((same & (entries["warp"] == self.warp))[: self.entry + 1].sum())
        parts = []
        for warp in range(first, first + WARPGROUP):
            mine = np.flatnonzero(same & (entries["warp"] == warp))
            if len(mine) < count:
                raise LanewiseError(
                    f"{operand.name} is held by four warps, and warp {warp} was not traced up to here"
                )
            at = int(mine[count - 1]) - (not operand.is_result)
            held = Registers(self._recording, block, warp, at)
            parts.append(np.stack([held.bits([register]) for register in operand.registers], axis=1))
        return operand.operand.unpack(np.concatenate(parts))

    def shared(
        self, name: str, dtype: object = None, shape: object = None, layout: object = None
    ) -> AnyArray:
        """Return an array in the block's shared memory, with its layout and swizzle undone.

        A kernel of the language knows what it declared. For other PTX, `dtype` and `shape` say what the
        variable holds; a `layout` of lanewise leads from coordinates to elements.
        """
        array = self._recording.shared_arrays.find(name, dtype, shape, layout)
        size = max(self._recording.run.shared_bytes, array.offset + array.element_bytes)
        memory = self._recording.memory.shared(int(self._header["block"]), size, self._last_entry)
        if array.offset + (int(array.indices.max(initial=0)) + 1) * array.element_bytes > size:
            raise LanewiseError(f"{name} would reach beyond the block's {size} bytes of shared memory")
        return array.values(memory)

    @property
    def tensor_memory(self) -> TensorMemory:
        """The tensor memory of the block: words, allocated columns, and what the step reads and writes.

        A product that the step issues has its words there from the step at which it takes effect.
        """
        return self.tensor_memory_of(self.block)

    def tensor_memory_of(self, block: Three) -> TensorMemory:
        """Return the tensor memory of a traced block, such as the other one of a pair, after the step."""
        reading = tensor_reading(self._recording)
        if not reading.is_used:
            raise LanewiseError("the kernel has no tcgen05 instructions: there is no tensor memory")
        traced = {self._recording.block_at(block): block for block in self._recording.run.blocks}
        if block not in traced:
            raise LanewiseError(f"block {block} was not traced; traced are {', '.join(map(str, traced))}")
        return reading.memory(traced[block], self._last_entry, self.entry)

    @property
    def _last_entry(self) -> int:
        """The last entry that belongs to the step: what asynchronous copies wrote while it ran follows it."""
        entries, last = self._recording.log.entries, self.entry
        while last + 1 < len(entries):
            following = entries[last + 1]
            if int(following["point"]) != ASYNC_WRITE_POINT or not int(following["barrier"]):
                break
            last += 1
        return last

    @property
    def waiting(self) -> list[Waiting]:
        """The traced warps of the block that wait after the step: for what, since when, what is missing."""
        waits = waits_of(self._recording)
        entry = self._last_entry
        return [waits.described(wait, entry) for wait in waits.at(entry, int(self._header["block"]))]

    def __repr__(self) -> str:
        where = f" ({self.source})" if self.source else ""
        return f"<step {self.number}: warp {self.warp}, line {self.line}: {self.text}{where}>"


#: Types of elements in memory, as NumPy has them; f16x2 and the like are shown as words.
_DTYPES: dict[str, Any] = {
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
    **{
        f"{kind}{bits}": f"{'int' if kind == 's' else 'uint'}{bits}"
        for kind in "bus"
        for bits in (8, 16, 32, 64)
    },
}


def _elements(raw: npt.NDArray[np.uint8], op: Op, size: Size) -> AnyArray:
    """Return bytes as elements of the instruction's type; a row of a matrix as 16-bit words."""
    name = "b16" if size is Size.MATRIX_ROW else op.types[-1] if op.types else "b8"
    dtype = np.dtype(_DTYPES.get(name, np.uint32))
    if raw.shape[1] % dtype.itemsize or not raw.shape[1]:
        return raw
    return raw.view(dtype)
