"""A plan: which kernel computes a problem, in which tiles, and in which order the sums are taken."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import NamedTuple

from lanewise.errors import LanewiseError

FAMILIES = ("warpgroup", "sparse", "warp", "blackwell")
SCHEDULES = ("cooperative", "pingpong", "by turns", "one tile", "persistent")


@dataclass(frozen=True)
class Plan:
    """How a product is computed. Two runs of one plan on the same data give the same bits, on GPU and CPU."""

    #: "warpgroup" (TMA and wgmma, sm_90a), "sparse" (wgmma.sp, sm_90a), "warp" (mma.sync), "blackwell" (TMA
    #: and tcgen05, sm_100a).
    family: str
    arch: str
    #: The block's tile of the result and its step along K.
    tile: tuple[int, int, int]
    #: Stages of shared memory, of which some are loaded while one is multiplied. A single one of family
    #: "warp" is all of K, or of a part of it; where K is longer, two are taken.
    stages: int
    #: Blocks of a cluster along M and N; (2, 1) of family "blackwell" is a pair that multiplies together.
    cluster: tuple[int, int] = (1, 1)
    #: Into how many parts K is cut; each part is summed on its own, the parts are added in order.
    split: int = 1
    #: "cooperative", "pingpong", "one tile" …: who computes what when; it does not change the bits.
    schedule: str = "cooperative"
    #: Tiles of M that are run through before the next column of tiles (for L2).
    group: int = 8
    #: Whether the product is computed as its transpose, (Bᵀ·Aᵀ)ᵀ.
    swap: bool = False
    #: Whether A or B is copied to an aligned (or transposed) workspace first.
    copy_a: bool = False
    copy_b: bool = False
    #: How many clusters (of `split` parts each) share a tile's K: the sums of each are added in order through
    #: a workspace. K has split · groups parts then; parts of a group are added first, then the groups. Groups
    #: of family "warp" are the 2, 4 or 8 blocks of one cluster: they need no workspace.
    groups: int = 1
    #: How many of a tile's last stages a warpgroup leaves until the one before it has multiplied them, so
    #: that it multiplies while that one stores; 0 leaves the number to the kernel. It changes no bits.
    skew: int = 0
    #: Whether a second kernel adds the groups' sums on all multiprocessors, instead of the cluster that comes
    #: last; it changes no bits.
    gather: bool = False
    #: Whether results go from registers to memory, not through shared memory by TMA; it changes no bits.
    direct: bool = False
    #: What L2 is told of the lines of the kernel's A and B, a letter each: f, they are the first to be given
    #: up; n, they are like others; -, nothing. Empty: f where an operand is read once, or by all at the same
    #: time. It changes no bits.
    l2: str = ""
    #: Whether the kernel's A is loaded as it lies and goes to wgmma from registers, instead of being copied
    #: before: f32 is split into bf16 there, tf32 that lies along M is transposed. It changes no bits.
    a_in_registers: bool = False
    #: Whether tiles overlap by 16 bytes of each row, so that one tile alone writes each sector of 32 bytes of
    #: the results: a thread stores a row of a tile by a bulk copy. It changes no bits.
    whole_sectors: bool = False
    #: Why this one: a sentence for people.
    why: str = field(default="", compare=False)


class Estimate(NamedTuple):
    """What a model says of a plan: seconds, tiles for each multiprocessor, what bounds it."""

    seconds: float
    waves: float
    bound: str
    #: By what share of the time the model is typically off, on products that it was not fitted to; NaN where
    #: nobody has measured it.
    error: float
    #: Microseconds of what the time consists of; parts of a kernel overlap.
    parts: dict[str, float] = {}  # noqa: RUF012, never written


#: Fields that plans of a family do not have: they have their usual values there.
_LACKING = {
    "warp": ("cluster", "skew", "gather", "l2", "direct", "swap", "a_in_registers", "whole_sectors"),
    "blackwell": ("skew", "gather", "l2", "direct", "a_in_registers", "whole_sectors"),
    "sparse": ("a_in_registers", "whole_sectors"),
}


def usual_fields(family: str) -> dict[str, object]:
    """Return the fields that plans of a family do not have, and the value that they have in all of them."""
    return {each.name: each.default for each in fields(Plan) if each.name in _LACKING.get(family, ())}


def require_fields(plan: Plan) -> None:
    """Raise an error if a field of a plan has a value that no plan has. It may still not fit a problem.

    >>> require_fields(Plan("warp", "sm_80", (64, 64, 0), 2))
    Traceback (most recent call last):
    lanewise.errors.LanewiseError: tile=(64, 64, 0): a plan takes three integers, each at least 1
    """
    for name, count in (("tile", 3), ("cluster", 2)):
        value = getattr(plan, name)
        if not (
            isinstance(value, tuple) and len(value) == count and all(_is_positive(part) for part in value)
        ):
            words = {2: "two", 3: "three"}[count]
            raise LanewiseError(f"{name}={value!r}: a plan takes {words} integers, each at least 1")
    for name in ("stages", "split", "groups", "group"):
        value = getattr(plan, name)
        if not _is_positive(value):
            raise LanewiseError(f"{name}={value!r}: a plan takes an integer of at least 1")
    if not (_is_positive(plan.skew) or (plan.skew == 0 and not isinstance(plan.skew, bool))):
        raise LanewiseError(f"skew={plan.skew!r}: a plan takes an integer of at least 0")
    if not isinstance(plan.l2, str):
        raise LanewiseError(f"l2={plan.l2!r}: a plan takes two letters, each f, n or -, or ''")
    for each in fields(plan):
        value = getattr(plan, each.name)
        if isinstance(each.default, bool) and not isinstance(value, bool):
            raise LanewiseError(f"{each.name}={value!r}: a plan takes True or False")
    for name, allowed in (("family", FAMILIES), ("schedule", SCHEDULES)):
        value = getattr(plan, name)
        if value not in allowed:
            raise LanewiseError(f"{name}={value!r}: a plan takes one of {', '.join(map(repr, allowed))}")


def _is_positive(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
