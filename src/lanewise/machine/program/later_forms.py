"""Forms of instructions that only some GPUs from Blackwell on have, though earlier GPUs have others of them.

What an opcode as a whole needs stands in its record (`since`). Held against ptxas 13.0 for every target.
"""

import re
from functools import lru_cache
from typing import NamedTuple


class Targets(NamedTuple):
    """Targets of PTX: those with numbers from `least` on, below `limit`, with one of some suffixes."""

    least: int
    limit: int
    #: Suffixes that are allowed; "" allows every target, with or without one.
    suffixes: str
    #: The targets in words, for messages.
    words: str

    def has(self, target: str) -> bool:
        """Return whether a target such as "sm_100a" is one of them."""
        match = re.fullmatch(r"sm_(\d+)([af]?)", target)
        if match is None or not self.least <= int(match[1]) < self.limit:
            return False
        return not self.suffixes or (bool(match[2]) and match[2] in self.suffixes)


BLACKWELL = Targets(100, 1000, "", "sm_100")
FAMILIES = Targets(100, 1000, "af", "a target with the suffix a or f, from sm_100a on")
DATACENTER = Targets(100, 120, "af", "sm_100a, sm_103a or sm_110a, or the same with f")
FAMILY_100 = Targets(100, 110, "af", "sm_100a or sm_103a, or the same with f")
ARCH_100 = Targets(100, 110, "a", "sm_100a or sm_103a")


class LaterForm(NamedTuple):
    """Forms by their opcodes, by modifiers that all must be there, and by the least number of operands."""

    opcodes: str
    modifiers: str
    targets: Targets
    operands: int = 0

    def has(self, modifiers: frozenset[str], operands: int) -> bool:
        """Return whether an instruction with one of the opcodes is of these forms."""
        return modifiers.issuperset(self.modifiers.split()) and operands >= self.operands


#: Of several that fit an instruction each counts.
LATER_FORMS = (
    LaterForm("add sub mul fma", "f32x2", BLACKWELL),
    *(LaterForm("add sub fma", f"f32 {half}", BLACKWELL) for half in ("f16", "bf16")),
    LaterForm("min max", "f32", BLACKWELL, operands=4),
    *(LaterForm("ld st", f"v8 {word}", BLACKWELL) for word in ("b32", "u32", "s32", "f32")),
    *(LaterForm("ld st", f"v4 {word}", BLACKWELL) for word in ("b64", "u64", "s64", "f64")),
    *(LaterForm("cvt", f"{rounding} satfinite tf32", BLACKWELL) for rounding in ("rn", "rz")),
    *(LaterForm("cvt", kind, FAMILIES) for kind in ("e2m1x2", "e2m3x2", "e3m2x2", "ue8m0x2")),
    LaterForm("cvt", "rs", ARCH_100),
    LaterForm("redux", "f32", FAMILY_100),
    LaterForm("cp", "cp_mask", BLACKWELL),
    LaterForm("cp", "tile::gather4", BLACKWELL),
    LaterForm("cp", "im2col::w", BLACKWELL),
    *(
        LaterForm("cp", f"{place} {mode}", DATACENTER)
        for place in ("shared::cluster", "prefetch")
        for mode in ("tile::gather4", "im2col::w")
    ),
    *(
        LaterForm("cp", word, DATACENTER)
        for word in ("tile::scatter4", "im2col::w::128", "cta_group::1", "cta_group::2")
    ),
    *(LaterForm("red", f"async {word}", BLACKWELL) for word in ("release", "mmio")),
    LaterForm("tensormap", "swizzle_atomicity", FAMILIES),
    LaterForm("clusterlaunchcontrol", "multicast::cluster::all", FAMILIES),
)


_BY_OPCODE: dict[str, list[LaterForm]] = {}
for _form in LATER_FORMS:
    for _name in _form.opcodes.split():
        _BY_OPCODE.setdefault(_name, []).append(_form)


@lru_cache(maxsize=1 << 14)
def needed_targets(opcode: str, modifiers: tuple[str, ...], operands: int, target: str) -> str:
    """Return the targets that an instruction needs, in words, if a target is not one of them; else nothing.

    >>> needed_targets("redux", ("sync", "min", "f32"), 3, "sm_90a")
    'sm_100a or sm_103a, or the same with f'
    >>> needed_targets("redux", ("sync", "min", "f32"), 3, "sm_103a")
    ''
    """
    present = frozenset(modifiers)
    forms = (form for form in _BY_OPCODE.get(opcode, ()) if form.has(present, operands))
    return next((form.targets.words for form in forms if not form.targets.has(target)), "")
