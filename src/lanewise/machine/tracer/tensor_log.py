"""What operations of tcgen05 have written, in the log of a traced launch.

Compiled code calls Python when an operation of a pipe has taken effect: a product, a copy, a shift, a store,
or a commit, which arrives at an mbarrier. There are few of them, and each writes many words.
"""

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from lanewise.jit.host_memory import Bytes, as_bytes
from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord, MemberRow
from lanewise.machine.async_records import AsyncOperation
from lanewise.machine.program.ops import Op, Program
from lanewise.machine.tensor_core import tcgen05_product as product
from lanewise.machine.tensor_core.tcgen05_statement import unpacked
from lanewise.machine.tensor_memory import copies, loads_and_stores
from lanewise.machine.tensor_memory.loads_and_stores import Access
from lanewise.machine.tensor_memory_records import LANE_BYTES, TENSOR_BYTES, TENSOR_LANES
from lanewise.machine.tracer.records import (
    ASYNC_WRITE_POINT,
    ENTRY,
    PAYLOAD_ALIGNMENT,
    AsyncRun,
    AsyncWrite,
    EntryState,
    TracerRecord,
)
from lanewise.machine.tracer.tensor_areas import (
    ProductNumbers,
    TensorAccess,
    copy_accesses,
    moved_area,
    product_accesses,
    shift_accesses,
)

Words = npt.NDArray[np.int64]


class TensorLog:
    """Writes entries of the log for operations of tcgen05; `address` is what compiled code calls."""

    def __init__(self, program: Program, record: Words, memory: Bytes, blocks_logged: Bytes) -> None:
        self.program, self.record, self.memory, self.blocks_logged = program, record, memory, blocks_logged
        #: What went wrong in Python while compiled code ran.
        self.failures: list[BaseException] = []
        self._callback = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64)(self._guarded)

    @property
    def address(self) -> int:
        """The address of the function that compiled code calls with an operation."""
        return int(ctypes.cast(self._callback, ctypes.c_void_p).value or 0)

    def _guarded(self, operation: int) -> int:
        try:
            self._log(as_bytes(operation, AsyncOperation.BYTES).view(np.int64))
        except BaseException as error:  # nothing may escape into compiled code
            self.failures.append(error)
        return 0

    def _log(self, operation: Words) -> None:
        """Log an operation: an entry for each block whose tensor memory it wrote, or for its mbarrier."""
        op = self.program.sites[int(operation[AsyncOperation.site // 8])]
        own = _block(int(operation[AsyncOperation.block // 8]))
        accesses = written(op, operation, own)
        for in_other in (False, True):
            mine = [access for access in accesses if access.in_other == in_other]
            if mine:
                self._entry(operation, _other(own) if in_other else own, mine)
        if not accesses:
            self._entry(operation, own, [])

    def _entry(self, operation: Words, block: Words, accesses: list[TensorAccess]) -> None:
        """Write an entry with the words of tensor memory that were written, a run for each lane."""
        linear = int(block[BlockRecord.linear // 8])
        if not self.blocks_logged[linear] or self.record[TracerRecord.full // 8]:
            return
        tensor = as_bytes(int(block[BlockRecord.tensor_memory // 8]), TENSOR_BYTES)
        lines = tensor.reshape(TENSOR_LANES, LANE_BYTES)
        runs, content = [], []
        for area in (area for access in accesses for area in access.areas):
            first, last = 4 * area.column, 4 * (area.column + area.columns)
            content.append(lines[list(area.lanes), first:last].reshape(-1))
            targets = abi.TENSOR_WINDOW + np.asarray(area.lanes, np.int64) * LANE_BYTES + first
            runs.append(np.stack([targets, 0 * targets, 0 * targets + last - first], axis=1))
        header, words = self._header(operation, sum(map(len, runs))), [run.view(np.uint8) for run in runs]
        parts = [header.view(np.uint8), *(word.reshape(-1) for word in words), *content]
        self._append(np.concatenate(parts), linear)

    def _header(self, operation: Words, runs: int) -> Words:
        """Return the AsyncWrite of an operation with so many runs."""
        header = np.zeros(AsyncWrite.BYTES // 8, np.int64)
        issuer = int(operation[AsyncOperation.issue_entry // 8])
        base, barrier = int(self.record[TracerRecord.base // 8]), int(operation[AsyncOperation.barrier // 8])
        fields: dict[int, int] = {
            AsyncWrite.issuer: issuer - base if issuer else -1,
            AsyncWrite.reader: -1,
            AsyncWrite.lane: int(operation[AsyncOperation.lane // 8]),
            AsyncWrite.runs: runs,
            AsyncWrite.bytes: AsyncWrite.BYTES + runs * AsyncRun.BYTES,
        }
        if barrier:
            shared = int(operation[AsyncOperation.barrier_address // 8]) & abi.OFFSET_MASK
            owner = _block(int(operation[AsyncOperation.barrier_block // 8]))
            fields |= {
                AsyncWrite.barrier: shared + abi.SHARED_WINDOW,
                AsyncWrite.barrier_block: int(owner[BlockRecord.linear // 8]),
                AsyncWrite.barrier_word: int(as_bytes(barrier, 8).view(np.int64)[0]),
            }
        for offset, value in fields.items():
            header[offset // 8] = value
        return header

    def _append(self, payload: Bytes, block: int) -> None:
        """Write an entry of the block with its payload, as compiled code does for other operations."""
        record, base = self.record, int(self.record[TracerRecord.base // 8])
        entry = int(record[TracerRecord.next_entry // 8]) - base
        size = -(-len(payload) // PAYLOAD_ALIGNMENT) * PAYLOAD_ALIGNMENT
        start = int(record[TracerRecord.last_payload // 8]) - base - size
        if start < entry + ENTRY.itemsize:
            record[TracerRecord.full // 8] = 1
            return
        self.memory[start : start + len(payload)] = payload
        during = int(record[TracerRecord.current // 8] != 0)
        header: Any = self.memory[entry : entry + ENTRY.itemsize].view(ENTRY)
        header[0] = (start, block, ASYNC_WRITE_POINT, -1, 0, 0, EntryState.COMPLETE, during)
        record[TracerRecord.next_entry // 8] = base + entry + ENTRY.itemsize
        record[TracerRecord.last_payload // 8] = base + start


def written(op: Op, operation: Words, block: Words) -> list[TensorAccess]:
    """Return the words of tensor memory that an operation has written."""

    def operand(number: int) -> int:
        return int(operation[AsyncOperation.tensor_operands // 8 + number])

    if op.record.multiplies:
        masks = [operand(product.MASK + n) & 0xFFFF_FFFF_FFFF_FFFF for n in range(4)]
        numbers = ProductNumbers(
            unpacked(operand(product.FORM)), operand(product.DESCRIPTOR), operand(product.D), 0,
            disabled=(masks[0] | masks[1] << 64, masks[2] | masks[3] << 64),
        )  # fmt: skip
        accesses = product_accesses(numbers)
    elif op.has("st"):
        access = Access.of(op)
        first = operand(loads_and_stores.START) - int(block[BlockRecord.tensor_memory // 8])
        lane, rest = divmod(first, LANE_BYTES)
        shape = access.form.shape
        num = len(access.registers) // shape.registers.size()
        moved = moved_area(shape, num, access.form.packed, access.half_split, lane, rest // 4)
        accesses = [moved._replace(kind="write")]
    elif op.has("cp"):
        accesses = copy_accesses(op, operand(copies.ADDRESS))
    elif op.has("shift"):
        accesses = shift_accesses(op, operand(copies.ADDRESS))
    else:
        accesses = []
    return [access for access in accesses if access.writes]


def _block(address: int) -> Words:
    """Return the record of a block."""
    return as_bytes(address, BlockRecord.BYTES).view(np.int64)


def _other(block: Words) -> Words:
    """Return the record of the other block of a pair."""
    row = int(block[BlockRecord.members // 8]) + (int(block[BlockRecord.rank // 8]) ^ 1) * MemberRow.BYTES
    return _block(int(as_bytes(row, MemberRow.BYTES).view(np.int64)[MemberRow.block // 8]))
