"""Warpgroups: fences and groups of wgmma, registers given away and taken, and the election of one lane.

The product itself is an instruction of the catalogue, emitted by `matrix/wgmma.py`.
"""

from lanewise.lang.intrinsics.sync import FULL, mask_operand
from lanewise.lang.trace.builder import Register, ResultPair, current
from lanewise.lang.trace.scalar import Scalar
from lanewise.lang.trace.traced import describe
from lanewise.lang.trace.types import pred

#: Groups of wgmma that may be on their way while lw.wgmma_wait returns.
_MOST_GROUPS = 7
#: Registers that a warpgroup can ask for by setmaxnreg.
_LEAST_REGISTERS, _MOST_REGISTERS, _REGISTER_STEP = 24, 256, 8


def wgmma_fence() -> None:
    """Order accesses to registers and shared memory before the wgmma that follow: `wgmma.fence`.

    It stands before the first wgmma, and again after other instructions have changed an accumulator.
    """
    current().need_specific("wgmma.fence", "sm_90a", "8.0")
    current().emit("wgmma.fence.sync.aligned")


def wgmma_commit() -> None:
    """Close the group of the wgmma issued so far: `wgmma.commit_group`."""
    current().need_specific("wgmma.commit_group", "sm_90a", "8.0")
    current().emit("wgmma.commit_group.sync.aligned")


def wgmma_wait(n: int = 0) -> None:
    """Wait until at most the `n` latest groups of wgmma are on their way: 0 for all, 7 at most."""
    builder = current()
    builder.need_specific("wgmma.wait_group", "sm_90a", "8.0")
    if isinstance(n, bool) or not isinstance(n, int) or not 0 <= n <= _MOST_GROUPS:
        raise builder.error(
            f"lw.wgmma_wait takes a Python integer, 0 to {_MOST_GROUPS} groups, not {describe(n)}"
        )
    builder.emit("wgmma.wait_group.sync.aligned", str(n))


def setmaxnreg_inc(registers: int) -> None:
    """Raise the registers of each thread of this warpgroup; it waits until so many are free.

    The kernel needs a bound: @lw.kernel(max_registers=…), or max_threads= and min_blocks=1.
    """
    _setmaxnreg("inc", registers)


def setmaxnreg_dec(registers: int) -> None:
    """Lower the registers of each thread of this warpgroup, so that others can have them."""
    _setmaxnreg("dec", registers)


def _setmaxnreg(verb: str, registers: object) -> None:
    """Emit setmaxnreg, and note that the kernel needs a bound of registers."""
    builder = current()
    builder.need_specific("setmaxnreg", "sm_90a", "8.0")
    allowed = f"{_LEAST_REGISTERS} to {_MOST_REGISTERS} in steps of {_REGISTER_STEP}"
    if isinstance(registers, bool) or not isinstance(registers, int):
        raise builder.error(
            f"lw.setmaxnreg_{verb} takes a Python integer, {allowed}; not {describe(registers)}"
        )
    if not _LEAST_REGISTERS <= registers <= _MOST_REGISTERS or registers % _REGISTER_STEP:
        nearest = min(
            _MOST_REGISTERS, max(_LEAST_REGISTERS, round(registers / _REGISTER_STEP) * _REGISTER_STEP)
        )
        raise builder.error(
            f"lw.setmaxnreg_{verb} takes {allowed}; {registers} is not among them; {nearest} is the nearest"
        )
    builder.changes_registers = builder.changes_registers or builder.location
    builder.emit(f"setmaxnreg.{verb}.sync.aligned.u32", str(registers))


def elect_one(mask: object = FULL) -> Scalar:
    """Return a truth value that holds on one lane of the warp, always the same: `elect.sync`.

    Inside a kernel: `if lw.elect_one(): lw.tma.load(…)`.
    """
    builder = current()
    builder.need("elect.sync", 90, "8.0")
    lane, chosen = Register("b32"), Register("pred")
    builder.emit("elect.sync", ResultPair(lane, chosen), mask_operand(mask))
    return Scalar(pred, chosen)
