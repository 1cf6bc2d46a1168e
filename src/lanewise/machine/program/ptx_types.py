"""The types that PTX instructions name among their modifiers, and the bits of each."""

import re

#: Bits of a value in a register; fp4 and fp6 numbers take a byte each once they are apart.
TYPE_BITS = {
    "pred": 1,
    **{f"{kind}{bits}": bits for kind in "bus" for bits in (8, 16, 32, 64)},
    "b128": 128,
    **{"f16": 16, "bf16": 16, "f32": 32, "tf32": 32, "f64": 64},
    **dict.fromkeys(("f16x2", "bf16x2", "u16x2", "s16x2"), 32),
    "f32x2": 64,
    **dict.fromkeys(("e4m3x2", "e5m2x2", "e2m3x2", "e3m2x2", "ue8m0x2"), 16),
    "e2m1x2": 8,
    **dict.fromkeys(("e4m3x4", "e5m2x4", "e2m3x4", "e3m2x4"), 32),
    "e2m1x4": 16,
    **{"s4": 4, "u4": 4, "s2": 2, "u2": 2},
}
#: Types of which a register holds one value; fp4, fp6 and fours of fp8 are only converted.
VALUE_TYPES = frozenset(
    name for name in TYPE_BITS if not re.fullmatch(r"e[23]m[123]x[24]|ue8m0x2|e[45]m[23]x4|[su][24]", name)
)
#: Floats of 16 bits and less, alone or packed, which are computed through wider ones.
SMALL_FLOATS = frozenset(
    ("f16", "bf16", "f16x2", "bf16x2", "tf32", "e4m3x2", "e5m2x2", "e2m1x2", "e2m3x2", "e3m2x2", "ue8m0x2",
     "e4m3x4", "e5m2x4")
)  # fmt: skip
#: Modifiers that say how a result is rounded.
ROUNDINGS = ("rn", "rz", "rm", "rp")


def in_memory_bytes(name: str) -> int:
    """Return the bytes that one element of a type takes in memory.

    >>> in_memory_bytes("f16x2"), in_memory_bytes("pred")
    (4, 1)
    """
    return max(TYPE_BITS[name] // 8, 1)
