"""Faults in words: what, where in the PTX and the source, which thread, which address, what is near it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lanewise.machine import abi
from lanewise.machine.program.resolve import Op, Place, Register, Symbol
from lanewise.machine.warp_ops.mbarrier import WRONG
from lanewise.ptx import Loc, Module

if TYPE_CHECKING:
    from lanewise.machine.runtime.launch import BlockState, Launch


def place_of(launch: Launch, op: Op) -> str:
    """An instruction's line, its text, and the line of the source it came from."""
    text = f"line {op.line}: {op.source}"
    if op.loc is not None:
        text += f"\n    from {source_line(launch.compiled.program.module, op.loc)}"
    return text


def source_line(module: Module, loc: Loc) -> str:
    """File and line; of what a header had inlined, the caller's. A text that was no file has a name only."""
    name, line = module.origin(loc)
    return f"{name if Path(name).exists() else Path(name).name}:{line}"


def thread_of(launch: Launch, state: BlockState, warp: int, lane: int) -> str:
    """A thread and its block, as CUDA counts them."""
    number = warp * abi.LANES + lane
    x, y, _ = launch.shape.block
    thread = (number % x, number // x % y, number // (x * y))
    block = tuple(state[abi.CTAID + 8 * axis] for axis in range(3))
    return f"by thread {thread} in block {block}"


def _where(launch: Launch, address: int, space: str) -> str:
    if space == "shared" or 0 <= address - abi.SHARED_WINDOW < abi.WINDOW_BYTES:
        offset = address - abi.SHARED_WINDOW if address >= abi.SHARED_WINDOW else address
        return f"address {offset:#x}; the block has {launch.shared_bytes} bytes of shared memory"
    if space == "local" or 0 <= address - abi.LOCAL_WINDOW < abi.WINDOW_BYTES:
        offset = address - abi.LOCAL_WINDOW if address >= abi.LOCAL_WINDOW else address
        return (
            f"address {offset:#x}; a thread has {launch.compiled.program.local_bytes} bytes of local memory"
        )
    if space == "param":
        return (
            f"address {address:#x}; there are {launch.compiled.program.parameter_bytes} bytes of parameters"
        )
    if not launch.allocations:
        return f"address {address:#x}; nothing was passed"
    near = min(launch.allocations, key=lambda each: each.distance(address))
    if address in near:
        relation = f"byte {address - near.first} of"
    elif address < near.first:
        relation = f"{near.first - address} bytes before"
    else:
        relation = f"{address - near.first - near.size} bytes past the end of"
    return f"address {address:#x} is {relation} {near.title} ({near.size} bytes at {near.first:#x})"


def at_source(launch: Launch, state: BlockState, op: Op) -> bool:
    """Whether the address of a fault is the one that a cp.async reads from, not the one that it writes to."""
    target = op.operands[0] if op.opcode == "cp" and op.operands else None
    if not isinstance(target, Place):
        return False
    fault, base = state[abi.ADDRESS], target.base
    if isinstance(base, Register):
        start = int(state.lanes(state[abi.WARP], base.offset, base.bits)[state[abi.LANE]])
    else:
        start = base.address if isinstance(base, Symbol) else base.bits
    start += target.offset
    size = state[abi.SIZE]
    return start != fault or (start % size == 0 and 0 <= start <= launch.shared_bytes - size)


def describe(launch: Launch, state: BlockState) -> tuple[str, int]:
    """A fault in words, and its line."""
    from lanewise.machine.warp_ops.addresses import space_of

    kind, op = state[abi.KIND], launch.compiled.program.sites[state[abi.SITE]]
    what = "write" if op.opcode in ("st", "stmatrix", "cp") or op.head.startswith("wmma.store") else "read"
    what = "atomic" if op.opcode in ("atom", "red") else what
    space = space_of(op)
    if at_source(launch, state, op):
        what, space = "read", "global"
    size, address = state[abi.SIZE], state[abi.ADDRESS] & (1 << 64) - 1
    who = thread_of(launch, state, state[abi.WARP], state[abi.LANE])
    head = {
        1: f"{space} {what} of {size} bytes out of bounds",
        2: f"misaligned {space} {what} of {size} bytes",
        3: f"{space} {what} of {size} bytes to read-only memory",
        4: "trap",
        7: "brx.idx with an index beyond its list of targets",
        8: "an operand out of range (a barrier is 0 to 15)",
        9: "not all lanes of the warp are there",
        10: f"mbarrier: {WRONG.get(size, '')}",
        11: f"the stack of {abi.STACK_BYTES} bytes a thread is used up (calls too deep, or alloca)",
        12: "a call through a register that holds no function of this kind",
    }.get(kind, abi.FAULTS.get(kind, "fault"))
    lines = [head, f"    {place_of(launch, op)}", f"    {who}"]
    if kind in (1, 2, 3, 10):
        lines.append(f"    {_where(launch, address, space)}")
    return "\n".join(lines), op.line
