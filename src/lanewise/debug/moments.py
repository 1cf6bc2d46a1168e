"""A moment between two steps: what registers, shared memory and the arrays of the launch hold there."""

from functools import cached_property

import numpy as np
import numpy.typing as npt

from lanewise.debug.launches import Recorded
from lanewise.draw.tensor_memory import TensorMemory
from lanewise.errors import LanewiseError
from lanewise.isa import Operand
from lanewise.machine.abi import LANES
from lanewise.machine.tracer.log import NOT_KEPT
from lanewise.numpy_types import AnyArray
from lanewise.traces.arrays import bytes_of
from lanewise.traces.fragments import operands_with, packed_operand
from lanewise.traces.history import NOTHING
from lanewise.traces.names import Variable
from lanewise.traces.recording import TENSOR_NAME
from lanewise.traces.step import Registers, Step
from lanewise.traces.tensor_memory import tensor_reading

#: What the kernel language and CUDA C++ call the special registers of a thread's coordinates.
COORDINATES = {
    **dict.fromkeys(("tid", "threadIdx", "thread_idx"), "thread"),
    **dict.fromkeys(("ctaid", "blockIdx", "block_idx"), "block"),
    **dict.fromkeys(("ntid", "blockDim", "block_dim"), "block_dim"),
    **dict.fromkeys(("nctaid", "gridDim", "grid_dim"), "grid_dim"),
}
Lanes = AnyArray
#: What the words of tensor memory are called, as they are.
TENSOR_WORDS = "tmem_bits"


class Moment:
    """What a warp, its block and the arrays hold before a step; after the last one at the end."""

    def __init__(self, recorded: Recorded, position: int, warp: int) -> None:
        self.recorded, self.position, self.warp = recorded, position, warp
        self.recording = recorded.recording
        steps = self.recording.steps
        #: The last entry of the log that has happened.
        self.entry = int(steps[position]) - 1 if position < len(steps) else len(self.recording.log) - 1
        self.block = self.recording.run.blocks[0]

    @property
    def registers(self) -> Registers:
        """What the lanes of the warp hold, by the names of registers and variables."""
        return Registers(self.recording, self.block, self.warp, self.entry)

    def is_written(self, variable: Variable) -> bool:
        """Return whether anything has written a register of a variable yet."""
        return any(
            (self.recording.registers.last(self.block, self.warp, element, self.entry)[1] != NOTHING).any()
            for element in variable.elements
        )

    def values(self, variable: Variable) -> Lanes:
        """Return what the lanes hold in a variable; a fragment has a column for each of its elements."""
        operand = packed_operand(self.recording.program, self.recording.run.arch, variable)
        if operand is None:
            return self.registers.values_of(variable)
        words = np.stack([self.registers.bits(element) for element in variable.elements], axis=1)
        starts = np.arange(operand.slots) * operand.slot_bits + operand.shift
        apart = words[:, :, None] >> starts.astype(words.dtype) & words.dtype.type(
            (1 << operand.format.bits) - 1
        )
        flat = apart.reshape(LANES, -1)[:, : operand.values]
        return operand.format.from_bits(flat.astype(operand.format.word_dtype))

    def operand(self, variable: Variable) -> Operand | None:
        """Return the layout of the matrix that a variable is a fragment of; None if it is not one."""
        if not variable.is_vector:
            return None
        arch = self.recording.run.arch
        matching = next(operands_with(self.recording.program, arch, list(variable.elements)), None)
        operand = matching.operand if matching is not None else variable.operand
        return operand if operand is not None and operand.registers == len(variable.elements) else None

    def fragment(self, variable: Variable) -> Lanes | None:
        """Return the matrix that the lanes hold together in a variable; None if it is no fragment."""
        operand = self.operand(variable)
        if operand is None:
            return None
        return self.recording.held_matrix(self.block, self.warp, self.entry, operand, variable.elements)

    # memory ------------------------------------------------------------------------------------------------

    def shared(self, name: str) -> Lanes:
        """Return an array in the block's shared memory, with its layout and swizzle undone."""
        array = self.recording.shared_arrays.find(name)
        end = array.offset + (int(array.indices.max(initial=0)) + 1) * array.element_bytes
        memory = self.recording.memory.shared(
            self.block, max(self.recording.run.shared_bytes, end), self.entry
        )
        return array.values(memory)

    def argument(self, name: str) -> Lanes:
        """Return an array of the launch: as it was before, with what the recorded block has written."""
        array = next(argument for argument in self.recording.arguments if argument.name == name)
        memory = bytes_of(array.initial).copy()
        writes = self.recording.memory.writes
        end = int(np.searchsorted(writes.entry, self.entry, "right"))
        start = writes.address[:end].astype(np.int64) - array.address
        chosen = (start >= 0) & (start + writes.size[:end] <= memory.size) & (writes.offset[:end] != NOT_KEPT)
        for number in np.flatnonzero(chosen):
            size, first = int(writes.size[number]), int(start[number])
            kept = int(writes.offset[number])
            memory[first : first + size] = self.recording.log.memory[kept : kept + size]
        return memory.view(array.array.dtype).reshape(array.array.shape, order=array.order)

    def tensor_memory(self) -> TensorMemory:
        """Return the tensor memory of the block; an error if the kernel has none."""
        if not tensor_reading(self.recording).is_used:
            raise LanewiseError("the kernel has no tcgen05 instructions: there is no tensor memory")
        step = self.step
        return tensor_reading(self.recording).memory(
            self.block, self.entry, step.entry if step is not None else None
        )

    def tensor(self, name: str) -> Lanes:
        """Return tensor memory as f32 (tmem) or as words (tmem_bits), or a matrix of the source in it."""
        if name in self.matrix_names:
            return tensor_reading(self.recording).matrix(name, self.block, self.warp, self.entry)
        memory = self.tensor_memory()
        return memory.words if name == TENSOR_WORDS else memory.read("f32")

    @property
    def matrix_names(self) -> list[str]:
        """The names of the matrices that the source has in tensor memory."""
        return list(tensor_reading(self.recording).matrices)

    @property
    def tensor_names(self) -> list[str]:
        """The names of what is in tensor memory: matrices of the source, all of it as f32 and as words."""
        used = tensor_reading(self.recording).is_used
        return [*self.matrix_names, *((TENSOR_NAME, TENSOR_WORDS) if used else ())]

    @property
    def argument_names(self) -> list[str]:
        """The names of the arrays among the arguments."""
        return [argument.name for argument in self.recording.arguments]

    @property
    def shared_names(self) -> list[str]:
        """The names of the arrays in shared memory whose elements are known."""
        return [array.name for array in self.recording.shared_arrays.all()]

    # threads -----------------------------------------------------------------------------------------------

    @cached_property
    def step(self) -> Step | None:
        """The step that is next in the warp; None if the warp has ended."""
        steps = self.recording.steps[self.position :]
        mine = np.flatnonzero(self.recording.log.entries["warp"][steps] == self.warp)
        return Step(self.recording, self.position + int(mine[0])) if len(mine) else None

    @property
    def active(self) -> npt.NDArray[np.bool_]:
        """The lanes that are at the next instruction of the warp; all that exist if it has ended."""
        if self.step is not None:
            return self.step.lanes
        threads = int(np.prod(self.recording.run.shape.block))
        return np.arange(LANES) + self.warp * LANES < threads

    def special(self, name: str, axis: str) -> Lanes | int:
        """Return a coordinate of the lanes' threads or of the block, or a size of these."""
        what = COORDINATES.get(name)
        if what is None or axis not in ("x", "y", "z"):
            raise LanewiseError(
                f"there is no {name}.{axis}; threadIdx, blockIdx, blockDim, gridDim have x, y, z"
            )
        number, shape = "xyz".index(axis), self.recording.run.shape
        if what == "thread":
            linear = np.arange(LANES) + self.warp * LANES
            x, y, _ = shape.block
            return (linear % x, linear // x % y, linear // (x * y))[number]
        if what == "block":
            return self.recording.block_at(self.block)[number]
        return int((shape.block if what == "block_dim" else shape.grid)[number])
