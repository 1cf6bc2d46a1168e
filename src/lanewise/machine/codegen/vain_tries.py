"""Compiled code that tells a deadlock from a loop that tests phases of mbarriers for a limited time.

All lanes that are left wait for phases, and nothing but their own tests can happen any more. If their
registers are the same after a test as they were before, it is a deadlock. A loop that counts its tests goes
on for a while. For one that looks at a clock, time passes while nothing happens, the faster the longer it
waits: if it has not given up after days, it never will.
"""

from __future__ import annotations

from lanewise.jit import ir
from lanewise.jit.simd import i64
from lanewise.machine.abi import BlockRecord, LaunchRecord, MemberRow, WarpFrame
from lanewise.machine.codegen.cluster_scheduler import each_frame, member_row
from lanewise.machine.codegen.function_code import U32, U64, FunctionCode, Record

#: Tests in vain before the registers are looked at; those after which they are compared; and tests in vain
#: that are a deadlock in any case.
PATIENCE, COMPARED, MOST_TRIES = 1 << 12, 64, 1 << 20
#: The time that a test in vain takes at least, in nanoseconds: an H200 returns from mbarrier.try_wait after
#: about 4 microseconds. Later ones take a part of the time that has passed, by a shift, up to a bound.
TRY_TIME, TIME_SHIFT, MOST_TIME = 4096, 6, 1 << 50
#: The multiplier and offset of the FNV-1a hash of 64 bits.
_PRIME, _OFFSET = 0x100000001B3, 0xCBF29CE484222325


def write_in_vain(module: ir.Module) -> ir.Function:
    """Write `in_vain(block)`: all lanes have tested phases in vain; 1 if they can never go on.

    `block` is the first one of its cluster, or alone.
    """
    code = FunctionCode(module, "in_vain", ("block",), ir.IntType(32))
    block = code.record("block")
    with code.loop(block.at(BlockRecord.launch).get(LaunchRecord.cluster_blocks)) as rank:
        member = member_row(code, block, rank).at(MemberRow.block)
        idle = member.get(BlockRecord.idle_time)
        passed = (idle >> TIME_SHIFT).max(TRY_TIME)
        member.set(BlockRecord.idle_time, (idle < MOST_TIME).select(idle + passed, idle))
    tries = block.get(BlockRecord.phase_tries) + 1
    block.set(BlockRecord.phase_tries, tries)
    with code.when(tries > MOST_TRIES):
        code.give(1)
    timed = block.at(BlockRecord.launch).get(LaunchRecord.reads_clock).differs(0)
    with code.when((tries < PATIENCE) | (tries > PATIENCE + COMPARED)):
        code.give(0)
    with code.when(timed):
        code.give(1)
    digest = code.variable(code.constant(U64, _OFFSET))
    words = (block.at(BlockRecord.launch).get(LaunchRecord.frame_bytes) - WarpFrame.pcs).to(U64) >> 3
    with each_frame(code, block) as warp:
        frame = Record(code, warp.address + WarpFrame.pcs)
        with code.loop(words.to(i64)) as index:
            digest.set((digest.get() ^ frame.get(index * 8, U64)) * _PRIME)
    with code.when(tries.equals(PATIENCE)):
        block.set(BlockRecord.vain_digest, digest.get().to(i64))
        code.give(0)
    same = digest.get().to(i64).equals(block.get(BlockRecord.vain_digest))
    code.give(same.to(U32))
    return code.function
