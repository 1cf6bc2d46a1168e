"""Functions that Python executes for a running kernel: vprintf, __assertfail, malloc and free."""

import ctypes
import re
import struct
from collections.abc import Callable

import numpy as np

from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord, WarpFrame
from lanewise.machine.errors import KernelFault
from lanewise.machine.program.operands import Callee, OperandList, Register, StackVariable, Symbol
from lanewise.machine.program.ops import Op
from lanewise.machine.runtime.fault_report import location_of, thread_of
from lanewise.machine.runtime.heap import Caller, heap_of
from lanewise.machine.runtime.state import BlockState, LaunchState
from lanewise.ptx import Immediate

_CONVERSION = re.compile(rb"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+))?(hh|h|ll|l|j|z|t|L)?([diouxXeEfFgGaAcsp%])")


def host_call(
    launch: LaunchState,
    state: BlockState,
    say: Callable[[str], None],
    allocated: Callable[[list[tuple[int, int]]], None],
) -> None:
    """Execute the function that a kernel calls, for each lane that calls it.

    `say` is called with printed text, `allocated` with addresses and sizes of memory from malloc.
    """
    op = launch.compiled.program.sites[state[BlockRecord.fault_site]]
    callee = op.operands[1]
    assert isinstance(callee, Callee)
    warp = state[BlockRecord.fault_warp]
    if callee.name in ("malloc", "free"):
        _heap_call(launch, state, op, callee.name, warp, allocated)
        return
    for lane in _calling_lanes(state, warp):
        state[BlockRecord.fault_lane] = lane
        words = [_argument(launch, state, op, number, warp, lane) for number in range(_count(op))]
        if callee.name == "__assertfail":
            message, file, function = (
                text(launch, state, word, warp, lane).decode(errors="replace")
                for word in (words[0], words[1], words[3])
            )
            who = thread_of(launch, state, warp, lane)
            raise KernelFault(
                f"assertion failed: {message}\n    {file}:{words[2] & 0xFFFFFFFF}, {function}\n    {who}",
                "assertion",
                op.line,
            )
        line = formatted(launch, state, words[0], words[1], warp, lane)
        say(line.decode(errors="replace"))
        _result(launch, state, op, 1, warp, lane)


def _heap_call(
    launch: LaunchState,
    state: BlockState,
    op: Op,
    name: str,
    warp: int,
    allocated: Callable[[list[tuple[int, int]]], None],
) -> None:
    """Execute malloc or free for all lanes that call it."""
    heap, ctaid = heap_of(launch.compiled.module), state.ctaid
    given: list[tuple[int, int]] = []
    for lane in _calling_lanes(state, warp):
        word = _argument(launch, state, op, 0, warp, lane)
        caller = Caller(op.site, launch.thread_at(warp, lane), ctaid)
        if name == "malloc":
            address = heap.allocate(word, caller, launch.tracks_heap)
            _result(launch, state, op, address, warp, lane)
            if address:
                given.append((address, word))
        elif wrong := heap.free(word, caller):
            state[BlockRecord.fault_lane] = lane
            raise KernelFault(
                f"free of {word:#x}, {wrong}\n    {location_of(launch, op)}\n    {caller.title}",
                "heap",
                op.line,
            )
    if given:
        allocated(given)


def _calling_lanes(state: BlockState, warp: int) -> list[int]:
    """Return the lanes of a warp that make a call."""
    mask = int(state.frame_of(warp)[WarpFrame.mask : WarpFrame.mask + 4].view(np.uint32)[0])
    return [lane for lane in range(abi.LANES) if mask >> lane & 1]


def _count(op: Op) -> int:
    """Return how many arguments a call has."""
    arguments = op.operands[2]
    assert isinstance(arguments, OperandList)
    return len(arguments.elements)


def _local(launch: LaunchState, state: BlockState, warp: int, lane: int, offset: int, size: int) -> bytes:
    """Return bytes of a lane's local memory; zeros if they lie outside."""
    local_bytes = launch.compiled.program.local_bytes
    start = (warp * abi.LANES + lane) * local_bytes
    if not 0 <= offset <= offset + size <= local_bytes:
        return bytes(size)
    return bytes(state.local[start + offset : start + offset + size].tobytes())


def _argument(launch: LaunchState, state: BlockState, op: Op, number: int, warp: int, lane: int) -> int:
    """Return an argument of a lane's call as a number."""
    arguments = op.operands[2]
    assert isinstance(arguments, OperandList)
    operand = arguments.elements[number]
    if isinstance(operand, Symbol | StackVariable):
        start = _start(state, operand, warp, lane)
        return int.from_bytes(_local(launch, state, warp, lane, start, min(operand.size, 8)), "little")
    if isinstance(operand, Register):
        return int(state.lanes(warp, operand.offset, operand.bits)[lane])
    return int(operand.bits) if isinstance(operand, Immediate) else 0


def _start(state: BlockState, symbol: Symbol | StackVariable, warp: int, lane: int) -> int:
    """Return the offset of a variable in a lane's local memory."""
    if isinstance(symbol, StackVariable):
        return int(state.lanes(warp, symbol.register.offset, 64)[lane]) + symbol.address
    return symbol.address


def _result(launch: LaunchState, state: BlockState, op: Op, value: int, warp: int, lane: int) -> None:
    """Write the result of a call for one lane."""
    results = op.operands[0]
    assert isinstance(results, OperandList)
    for target in results.elements:
        if isinstance(target, Symbol | StackVariable):
            local_bytes, size = launch.compiled.program.local_bytes, min(target.size, 8)
            start = (warp * abi.LANES + lane) * local_bytes + _start(state, target, warp, lane)
            word = (value % (1 << 8 * size)).to_bytes(size, "little")
            state.local[start : start + size] = np.frombuffer(word, np.uint8)
        elif isinstance(target, Register):
            state.lanes(warp, target.offset, target.bits)[lane] = value


def read(launch: LaunchState, state: BlockState, address: int, size: int, warp: int, lane: int) -> bytes:
    """Return the bytes at a generic address; fewer if not all of them may be read."""
    if 0 <= address - abi.LOCAL_WINDOW < abi.WINDOW_BYTES:
        return _local(launch, state, warp, lane, address - abi.LOCAL_WINDOW, size)
    if 0 <= address - abi.SHARED_WINDOW < abi.WINDOW_BYTES:
        return state.shared_bytes_at(address - abi.SHARED_WINDOW, size)
    for allocation in launch.allocations:
        if address in allocation:
            offset = address - allocation.first
            return ctypes.string_at(allocation.host + offset, min(size, allocation.size - offset))
    return b""


def text(launch: LaunchState, state: BlockState, address: int, warp: int, lane: int) -> bytes:
    """Return the C string at an address."""
    return read(launch, state, address, 4096, warp, lane).split(b"\0")[0]


def formatted(
    launch: LaunchState, state: BlockState, pattern: int, arguments: int, warp: int, lane: int
) -> bytes:
    """Return what printf would print; each argument is aligned to its size."""
    offset = 0

    def take(size: int) -> bytes:
        nonlocal offset
        offset = -(-offset // size) * size
        data = read(launch, state, arguments + offset, size, warp, lane).ljust(size, b"\0")
        offset += size
        return data

    def convert(match: re.Match[bytes]) -> bytes:
        flags, width, precision, length, kind = match.groups()
        if kind == b"%":
            return b"%"
        sizes = [
            str(int.from_bytes(take(4), "little", signed=True)).encode() if field == b"*" else field
            for field in (width, precision)
        ]
        spec = b"%" + flags + (sizes[0] or b"") + (b"." + sizes[1] if sizes[1] is not None else b"")
        if kind in b"eEfFgGaA":
            real: float = struct.unpack("<d", take(8))[0]
            return real.hex().encode() if kind in b"aA" else (spec + kind) % real
        if kind == b"s":
            return (spec + b"s") % text(launch, state, int.from_bytes(take(8), "little"), warp, lane)
        if kind == b"p":
            return b"0x%x" % int.from_bytes(take(8), "little")
        if kind == b"c":
            return take(4)[:1]
        wide = 8 if length in (b"ll", b"l", b"j", b"z", b"t") else 4
        number = int.from_bytes(take(wide), "little", signed=kind in b"di")
        return (spec + (b"d" if kind in b"diu" else kind)) % number

    return _CONVERSION.sub(convert, text(launch, state, pattern, warp, lane))
