"""Lowerings of barrier.cluster.arrive and setmaxnreg.

Threads that wait for the barrier of a cluster are parked (`compile/block_ends.py`), and the scheduler of
clusters lets them go on.
"""

from lanewise.jit.simd import u32
from lanewise.machine.abi import WarpFrame
from lanewise.machine.codegen.function_code import BlockCode
from lanewise.machine.program.ops import Op
from lanewise.ptx import Immediate

#: The registers that setmaxnreg may ask for: from, to, in steps of (PTX ISA).
LEAST_REGISTERS, MOST_REGISTERS, REGISTER_STEP = 24, 256, 8


def arrive(code: BlockCode, op: Op) -> None:
    """Lower barrier.cluster.arrive: lanes are marked until all threads of the cluster have arrived.

    A second arrival before the barrier is complete changes nothing, as on an H200.
    """
    arrived = code.frame.get(WarpFrame.cluster_arrived, u32)
    code.frame.set(WarpFrame.cluster_arrived, arrived | code.bits(code.active(op)))


def set_registers(code: BlockCode, op: Op) -> None:
    """Lower setmaxnreg: there is nothing to do, because warps take no registers from each other here."""
    count = op.operands[0]
    legal = range(LEAST_REGISTERS, MOST_REGISTERS + 1, REGISTER_STEP)
    if not isinstance(count, Immediate) or count.bits not in legal:
        raise op.unsupported(
            f"its number of registers is a constant, {LEAST_REGISTERS} to {MOST_REGISTERS} in steps of "
            f"{REGISTER_STEP}"
        )
