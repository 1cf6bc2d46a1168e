"""Occupancy: how many blocks and warps of a kernel one multiprocessor of an arch holds at a time, and why.

The rules are those of NVIDIA's occupancy calculator; `multiprocessor.py` has the figures of each arch.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from lanewise.errors import LanewiseError
from lanewise.isa.archs import find_arch
from lanewise.isa.multiprocessor import (
    MOST_REGISTERS,
    MOST_THREADS,
    REGISTER_UNIT,
    REGISTERS,
    SCHEDULERS,
    WARP,
    Multiprocessor,
    multiprocessor,
)


@dataclass(frozen=True)
class Occupancy:
    """The blocks of a kernel that one multiprocessor holds at a time, and what bounds their number.

    `limits` has the number of blocks that each resource alone would allow; `limited_by` the scarcest ones.
    """

    arch: str
    #: Threads of a block, registers of a thread, bytes of shared memory of a block.
    threads: int
    registers: int
    shared_bytes: int
    blocks: int
    #: Warps that are resident, and the most that the multiprocessor holds.
    warps: int
    most_warps: int
    limits: Mapping[str, int]

    @property
    def fraction(self) -> float:
        """The resident warps, as a part of the most that the multiprocessor holds."""
        return self.warps / self.most_warps

    @property
    def limited_by(self) -> tuple[str, ...]:
        """The resources that allow no more blocks."""
        return tuple(name for name, blocks in self.limits.items() if blocks == self.blocks)

    def __str__(self) -> str:
        blocks = f"{self.blocks} block{'s' if self.blocks != 1 else ''} of {self.threads} threads"
        share = f"{self.warps} of {self.most_warps} warps ({100 * self.fraction:.0f} %)"
        return f"{self.arch}: {blocks}, {share}, limited by {' and '.join(self.limited_by)}"


def _up(number: int, unit: int) -> int:
    """Return the next multiple of a unit."""
    return -(-number // unit) * unit


def _block_by_registers(warps: int, registers: int) -> int:
    """Return how many blocks the registers are enough for."""
    of_warp = _up(registers * WARP, REGISTER_UNIT)
    # A launch is refused as if every scheduler had as many warps of a block as the busiest one.
    if registers > MOST_REGISTERS or of_warp * _up(warps, SCHEDULERS) > REGISTERS:
        return 0
    return REGISTERS // SCHEDULERS // of_warp * SCHEDULERS // warps


def _limits(
    has: Multiprocessor, warps: int, registers: int, shared_bytes: int, barriers: int
) -> dict[str, int]:
    """Return the number of blocks that each resource allows; those that are not used are left out."""
    limits = {"warps": has.warps // warps, "blocks": has.blocks}
    if registers:
        limits["registers"] = _block_by_registers(warps, registers)
    whole = _up(shared_bytes + has.reserved_bytes, has.shared_unit)
    if shared_bytes > has.block_shared_bytes:
        limits["shared memory"] = 0
    elif whole:
        limits["shared memory"] = has.shared_bytes // whole
    if barriers and has.barriers is not None:
        limits["barriers"] = has.barriers // barriers
    return limits


def occupancy(
    arch: str, threads: int, registers: int = 0, shared_bytes: int = 0, barriers: int = 0
) -> Occupancy:
    """Return how many blocks of so many threads a multiprocessor of an arch holds, and what bounds them.

    `registers` are those of a thread, `shared_bytes` and `barriers` those of a block.

    >>> print(occupancy("sm_90", threads=256, registers=64))
    sm_90: 4 blocks of 256 threads, 32 of 64 warps (50 %), limited by registers
    """
    name = find_arch(arch)
    has = multiprocessor(name)
    if not 1 <= threads <= MOST_THREADS:
        raise LanewiseError(f"a block has 1 to {MOST_THREADS} threads, not {threads}")
    for what, number in (("registers", registers), ("shared_bytes", shared_bytes), ("barriers", barriers)):
        if number < 0:
            raise LanewiseError(f"{what} is not negative, as {number} is")
    warps = -(-threads // WARP)
    limits = _limits(has, warps, registers, shared_bytes, barriers)
    blocks = min(limits.values())
    return Occupancy(name, threads, registers, shared_bytes, blocks, blocks * warps, has.warps, limits)


def best_block(
    arch: str, registers: int = 0, shared_bytes: int = 0, barriers: int = 0, most_threads: int = MOST_THREADS
) -> Occupancy:
    """Return the occupancy of the largest block, in whole warps, that has the most resident warps.

    >>> best_block("sm_86", registers=168).threads
    384
    """
    sizes = range(max(most_threads // WARP, 1) * WARP, 0, -WARP)
    occupancies = (occupancy(arch, size, registers, shared_bytes, barriers) for size in sizes)
    return max(occupancies, key=lambda occupancy: occupancy.warps)
