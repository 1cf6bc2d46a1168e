"""What a tensor map may say: the rules by which `cuTensorMapEncodeTiled` refuses one, each in a sentence.

They were found and are held on an H200 (benchmarks/results/h200_tensor_maps.json): the driver's return code
for every combination of types and modes, and for each size at its limits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from lanewise.isa.tensor_map_fields import (
    ELEMENT_TYPES,
    FIELD,
    FILLS,
    INTERLEAVES,
    L2_PROMOTIONS,
    LATER_SWIZZLES,
    MOST_AXES,
    PACKED_TYPES,
    SWIZZLES,
)

#: What the innermost axis of a box is a multiple of, in bytes.
BOX_UNIT = 16
#: The bytes that a box has at most: the shared memory of an SM.
MOST_BOX_BYTES = 228 << 10
#: Interleaved layouts have a channel axis and at least two more.
LEAST_INTERLEAVED_AXES = 3


@dataclass(frozen=True)
class Tiling:
    """What the rules are about: a tensor and its boxes, axis 0 the innermost.

    `strides` are those of axes 1 and up, in bytes.
    """

    type: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    interleave: str = "none"
    swizzle: str = "none"
    l2_promotion: str = "none"
    fill: str = "zeros"

    @property
    def noted_bytes(self) -> int:
        """The bytes of a box as the driver counts them: element strides round each axis down."""
        steps = zip(self.box, self.element_strides, strict=True)
        return prod(box // step for box, step in steps) * ELEMENT_TYPES[self.type].bytes


def violation(tiling: Tiling) -> str | None:
    """Return the rule that a map breaks, with the nearest that is legal; None if the driver encodes it."""
    return next((broken for rule in _RULES if (broken := rule(tiling)) is not None), None)


def address_violation(interleave: str, address: int) -> str | None:
    """Return the rule that the address of a tensor breaks; None if it is legal."""
    unit, limit = INTERLEAVES[interleave].alignment, FIELD["address"].limit
    if 0 <= address < limit and address % unit == 0:
        return None
    if not 0 <= address < limit:
        return f"the address of a tensor is below {limit:#x}; {address:#x} is not"
    return (
        f"the address of a tensor is a multiple of {unit} bytes{_because_interleaved(interleave)}; "
        f"{address:#x} is {address % unit} past one: {nearest(address, unit, 0, limit - unit):#x} is nearest"
    )


def nearest(value: int, unit: int, low: int, high: int) -> int:
    """Return the multiple of a unit from low to high that is nearest to a value; of two, the smaller.

    >>> nearest(100, 16, 16, 256), nearest(0, 16, 16, 256), nearest(1000, 16, 16, 256)
    (96, 16, 256)
    """
    return min(max(-(-(2 * value - unit) // (2 * unit)) * unit, low), high)


def _because_interleaved(interleave: str) -> str:
    """Return the words that say why 32 and not 16 is the unit."""
    return f" with interleave {interleave}" if interleave == "32B" else ""


def _axis(tiling: Tiling, axis: int) -> str:
    """Return how messages call an axis: by its number in the order of arrays."""
    number = f"axis {len(tiling.dims) - 1 - axis}"
    return f"{number}, the innermost," if axis == 0 and len(tiling.dims) > 1 else number


# the rules, in the order in which they are told ---------------------------------------------------------


def _names(tiling: Tiling) -> str | None:
    """Return what is wrong with the type or with a mode."""
    if tiling.type in PACKED_TYPES:
        return (
            f"{tiling.type} (CU_TENSOR_MAP_DATA_TYPE_{PACKED_TYPES[tiling.type]}) needs sm_100 or later; "
            "on sm_90 packed values are copied as the bytes they lie in, u8"
        )
    if tiling.swizzle in LATER_SWIZZLES:
        return f'swizzle {tiling.swizzle} needs sm_100 or later; sm_90 has "none", "32B", "64B" and "128B"'
    for what, value, known in (
        ("the type of a tensor", tiling.type, ELEMENT_TYPES),
        ("interleave", tiling.interleave, INTERLEAVES),
        ("swizzle", tiling.swizzle, SWIZZLES),
        ("l2_promotion", tiling.l2_promotion, L2_PROMOTIONS),
        ("fill", tiling.fill, FILLS),
    ):
        if value not in known:
            return f"{what} is one of {', '.join(map(repr, known))}, not {value!r}"
    if tiling.fill == "nan" and not ELEMENT_TYPES[tiling.type].is_float:
        return f'fill "nan" is for floats; elements of {tiling.type} are filled with "zeros"'
    return None


def _rank(tiling: Tiling) -> str | None:
    """Return what is wrong with the number of axes."""
    rank = len(tiling.dims)
    if not 1 <= rank <= MOST_AXES:
        return f"a tensor has 1 to {MOST_AXES} axes, not {rank}"
    if tiling.interleave != "none" and rank < LEAST_INTERLEAVED_AXES:
        return (
            f"interleave {tiling.interleave} takes a tensor of {LEAST_INTERLEAVED_AXES} to {MOST_AXES} axes, "
            f"not {rank}"
        )
    for what, sizes, count in (
        ("strides", tiling.strides, rank - 1),
        ("box sizes", tiling.box, rank),
        ("element strides", tiling.element_strides, rank),
    ):
        if len(sizes) != count:
            return f"a tensor of {rank} axes has {count} {what}, not {len(sizes)}"
    return None


def _ranges(tiling: Tiling) -> str | None:
    """Return what is wrong with a size that has to lie in a range."""
    for what, sizes, field in (
        ("{axis} of the tensor has {value} elements", tiling.dims, FIELD["dim0"]),
        ("{axis} of the box has {value} elements", tiling.box, FIELD["box0"]),
        ("{axis} has an element stride of {value}", tiling.element_strides, FIELD["element_stride0"]),
    ):
        low, high = 1, field.limit - 1
        for axis, value in enumerate(sizes):
            if not low <= value <= high:
                told = what.format(axis=_axis(tiling, axis), value=value)
                return f"{told}; {low} to {high} are legal: {nearest(value, 1, low, high)} is nearest"
    return None


def _strides(tiling: Tiling) -> str | None:
    """Return what is wrong with a stride."""
    unit, limit = INTERLEAVES[tiling.interleave].alignment, FIELD["stride1"].limit
    for axis, stride in enumerate(tiling.strides, 1):
        if 0 <= stride < limit and stride % unit == 0:
            continue
        near = nearest(stride, unit, 0, limit - unit)
        rule = f"strides are multiples of {unit} bytes{_because_interleaved(tiling.interleave)}, below 2**40"
        return f"{_axis(tiling, axis)} has a stride of {stride} bytes; {rule}: {near} is nearest"
    return None


def _innermost_box(tiling: Tiling) -> str | None:
    """Return what is wrong with the innermost axis of the box."""
    size = ELEMENT_TYPES[tiling.type].bytes
    inner = tiling.box[0]
    most = SWIZZLES[tiling.swizzle].row_bytes if tiling.interleave == "none" else 0
    unit = BOX_UNIT // size
    near = nearest(inner, unit, unit, most // size or (FIELD["box0"].limit - 1) // unit * unit)
    if inner * size % BOX_UNIT:
        return (
            f"the innermost axis of a box is a multiple of {BOX_UNIT} bytes, and {inner} elements of "
            f"{tiling.type} are {inner * size}: {near} elements are nearest"
        )
    if most and inner * size > most:
        wider = next((each.name for each in SWIZZLES.values() if each.row_bytes >= inner * size), "none")
        return (
            f"with swizzle {tiling.swizzle} the innermost axis of a box has at most {most} bytes, and "
            f"{inner} elements of {tiling.type} are {inner * size}: {near} elements are nearest, or swizzle "
            f"{wider}"
        )
    return None


def _box_bytes(tiling: Tiling) -> str | None:
    """Return what is wrong with the size of the box as a whole."""
    count = tiling.noted_bytes
    if count <= MOST_BOX_BYTES:
        return None
    outermost = tiling.box[-1] * MOST_BOX_BYTES // count
    advice = ""
    if outermost and len(tiling.box) > 1:
        advice = f": {outermost} along {_axis(tiling, len(tiling.box) - 1)} would fit"
    return f"a box has at most {MOST_BOX_BYTES} bytes (228 KB), and this one has {count}{advice}"


_RULES: Sequence[Callable[[Tiling], str | None]] = (
    _names, _rank, _ranges, _strides, _innermost_box, _box_bytes,
)  # fmt: skip
