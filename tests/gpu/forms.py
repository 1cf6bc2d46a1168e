"""Which instructions the device at hand can show: the catalogue's for its arch, none without a device."""

import functools

from gpu.device import Device, available
from lanewise.isa import Instruction, instructions

MULTIPLYING = ("mma", "mma.sp", "mma.sp::ordered_metadata", "wmma.mma", "wgmma", "wgmma.sp")
#: wgmma is looked at with few, some and most columns.
WIDTHS = (8, 24, 256)


@functools.cache
def arch() -> str:
    """The device's arch, or nothing."""
    return Device().arch if available() else ""


def forms(*families: str, widths: tuple[int, ...] = WIDTHS, withdrawn: bool = False) -> list[Instruction]:
    """The instructions of these families that the device has."""
    if not arch():
        return []
    found = [each for family in families for each in instructions(arch(), family, withdrawn=withdrawn)]
    return [each for each in found if not each.family.startswith("wgmma") or each.n in widths]
