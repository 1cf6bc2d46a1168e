"""What Python does for a kernel that runs: vprintf, __assertfail, malloc and free."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

import numpy as np

from lanewise.machine import abi
from lanewise.machine.errors import KernelFault
from lanewise.machine.program.resolve import Callee, InFrame, Op, Register, Several, Symbol
from lanewise.machine.runtime.device_memory import heap
from lanewise.machine.runtime.fault_report import place_of, thread_of

if TYPE_CHECKING:
    from lanewise.machine.runtime.launch import BlockState, Launch

_CONVERSION = re.compile(rb"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+))?(hh|h|ll|l|j|z|t|L)?([diouxXeEfFgGaAcsp%])")


def host_call(launch: Launch, state: BlockState) -> None:
    """Do what the kernel asks for, for each lane that asks."""
    op = launch.compiled.program.sites[state[abi.SITE]]
    callee = op.operands[1]
    assert isinstance(callee, Callee)
    warp = state[abi.WARP]
    mask = int(state.frame_of(warp)[abi.MASK : abi.MASK + 4].view(np.uint32)[0])
    for lane in range(abi.LANES):
        if not mask >> lane & 1:
            continue
        state[abi.LANE] = lane
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
        if callee.name == "vprintf":
            line = formatted(launch, state, words[0], words[1], warp, lane)
            launch.say(line.decode(errors="replace"))
            _result(launch, state, op, 1, warp, lane)
        elif callee.name == "malloc":
            given = heap(launch.compiled.program.module).take(words[0])
            launch.allocated(given, words[0])
            _result(launch, state, op, given, warp, lane)
        elif not heap(launch.compiled.program.module).give_back(words[0]):
            raise KernelFault(
                f"free of {words[0]:#x}, which malloc did not give or free took before\n    "
                f"{place_of(launch, op)}\n    {thread_of(launch, state, warp, lane)}",
                "heap",
                op.line,
            )


def _count(op: Op) -> int:
    arguments = op.operands[2]
    assert isinstance(arguments, Several)
    return len(arguments.elements)


def _local(launch: Launch, state: BlockState, warp: int, lane: int, offset: int, size: int) -> bytes:
    each = launch.compiled.program.local_bytes
    start = (warp * abi.LANES + lane) * each
    if not 0 <= offset <= offset + size <= each:
        return bytes(size)
    return bytes(state.local[start + offset : start + offset + size].tobytes())


def _argument(launch: Launch, state: BlockState, op: Op, number: int, warp: int, lane: int) -> int:
    arguments = op.operands[2]
    assert isinstance(arguments, Several)
    given = arguments.elements[number]
    if isinstance(given, Symbol | InFrame):
        start = _start(state, given, warp, lane)
        return int.from_bytes(_local(launch, state, warp, lane, start, min(given.size, 8)), "little")
    if isinstance(given, Register):
        return int(state.lanes(warp, given.offset, given.bits)[lane])
    return int(getattr(given, "bits", 0))


def _start(state: BlockState, symbol: Symbol | InFrame, warp: int, lane: int) -> int:
    """Where in a lane's local memory a variable lies."""
    if isinstance(symbol, InFrame):
        return int(state.lanes(warp, symbol.register.offset, 64)[lane]) + symbol.address
    return symbol.address


def _result(launch: Launch, state: BlockState, op: Op, value: int, warp: int, lane: int) -> None:
    results = op.operands[0]
    assert isinstance(results, Several)
    for target in results.elements:
        if isinstance(target, Symbol | InFrame):
            each, size = launch.compiled.program.local_bytes, min(target.size, 8)
            start = (warp * abi.LANES + lane) * each + _start(state, target, warp, lane)
            word = (value % (1 << 8 * size)).to_bytes(size, "little")
            state.local[start : start + size] = np.frombuffer(word, np.uint8)
        elif isinstance(target, Register):
            state.lanes(warp, target.offset, target.bits)[lane] = value


def read(launch: Launch, state: BlockState, address: int, size: int, warp: int, lane: int) -> bytes:
    """Bytes at a generic address, if all of them may be read; else fewer."""
    import ctypes

    if 0 <= address - abi.LOCAL_WINDOW < abi.WINDOW_BYTES:
        return _local(launch, state, warp, lane, address - abi.LOCAL_WINDOW, size)
    if 0 <= address - abi.SHARED_WINDOW < abi.WINDOW_BYTES:
        offset = address - abi.SHARED_WINDOW
        return bytes(state.shared[: launch.shared_bytes][offset : offset + size].tobytes())
    for allocation in launch.allocations:
        if address in allocation:
            offset = address - allocation.first
            return ctypes.string_at(allocation.host + offset, min(size, allocation.size - offset))
    return b""


def text(launch: Launch, state: BlockState, address: int, warp: int, lane: int) -> bytes:
    """A string of C."""
    return read(launch, state, address, 4096, warp, lane).split(b"\0")[0]


def formatted(launch: Launch, state: BlockState, pattern: int, arguments: int, warp: int, lane: int) -> bytes:
    """What printf would print: every argument lies on a multiple of its size."""
    place = 0

    def take(size: int) -> bytes:
        nonlocal place
        place = -(-place // size) * size
        found = read(launch, state, arguments + place, size, warp, lane).ljust(size, b"\0")
        place += size
        return found

    def convert(match: re.Match[bytes]) -> bytes:
        flags, width, precision, length, kind = match.groups()
        if kind == b"%":
            return b"%"
        sizes = [
            str(int.from_bytes(take(4), "little", signed=True)).encode() if part == b"*" else part
            for part in (width, precision)
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
