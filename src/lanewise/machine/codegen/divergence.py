"""Shared functions for lanes of a warp that diverge and that wait for each other.

Each lane has a program counter of its own: the number of the basic block that it runs next.
"""

from lanewise.jit.simd import Value
from lanewise.machine import abi
from lanewise.machine.abi import BlockAnswer, WarpFrame
from lanewise.machine.codegen.function_code import U32, BlockCode, call, shared_function

LANES = abi.LANES


@shared_function("split", ("taken", "target", "following"))
def split(code: BlockCode) -> None:
    """`split(frame, taken, target, following)`: some lanes go to the target, others of the path on."""
    taken = code.lanes_of(code["taken"].to(U32))
    target, following = (code[name].to(U32).spread(LANES) for name in ("target", "following"))
    pcs = code.frame.pointer(WarpFrame.pcs, U32)
    pcs.store(taken.select(target, code.mask_lanes().select(following, pcs.load(0, LANES))))
    code.give(BlockAnswer.DIVERGED)


@shared_function("wait", ("active", "following", "register", "members"))
def wait(code: BlockCode) -> None:
    """`wait(frame, active, following, register, members)`: lanes wait for others of their warp.

    The register at an offset, or a number if the offset is 0, has the bits of the lanes that are waited for.
    """
    bits = code["active"].to(U32)
    active = code.lanes_of(bits)
    held = code.frame.get(code["register"], U32, LANES)
    constant = code["members"].to(U32).spread(LANES)
    members = code["register"].equals(0).spread(LANES).select(constant, held)
    missing = active & (members & ~bits.spread(LANES)).differs(0)
    with code.when(~missing.any()):
        code.give(code["following"].to(U32))
    park(code, bits, code["following"], code.constant(U32, abi.WAITS_FOR_SIBLINGS), members)


def park(code: BlockCode, active: Value, following: int | Value, condition: Value, argument: Value) -> None:
    """Write code that lets some lanes (bits) wait for a condition and then go on with a basic block.

    It returns from the function.
    """
    lanes = code.lanes_of(active)
    for offset, value in ((WarpFrame.barrier, condition), (WarpFrame.barrier_argument, argument)):
        kept = code.frame.pointer(offset, U32)
        kept.store(lanes.select(value.spread(LANES), kept.load(0, LANES)))
    parked = following | abi.PARKED
    code.give(call(code, split(code.module), [code["frame"], active, parked, following]))
