"""What a tensor map may say: the rules by which `cuTensorMapEncodeTiled` refuses one, each in a sentence.

They were found and are held on an H200 (benchmarks/results/h200_tensor_maps.json): the driver's return code
for every combination of types and modes, and for each size at its limits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from dataclasses import field as data_field
from math import prod

from lanewise.isa.archs import arch_number
from lanewise.isa.tensor_map_fields import (
    ELEMENT_TYPES,
    EVERY_SWIZZLE,
    EVERY_TYPE,
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
#: The arch from which on there are packed types and more swizzles.
LATER_ARCH = 100
#: The elements of padded types along the innermost axis of a box, and what addresses are multiples of then.
PADDED_BOX, PADDED_ALIGNMENT = 128, 32


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
    #: The arch that the map is for: sm_100 and later have more types and swizzles.
    arch: str = data_field(default="sm_90", compare=False)

    @property
    def noted_bytes(self) -> int:
        """The bytes of a box as the driver counts them: element strides round each axis down."""
        steps = zip(self.box, self.element_strides, strict=True)
        element = EVERY_TYPE[self.type]
        return prod(box // step for box, step in steps) * element.bytes // element.elements

    @property
    def is_later(self) -> bool:
        """Whether the map is for sm_100 or later."""
        return arch_number(self.arch) >= LATER_ARCH


def violation(tiling: Tiling) -> str | None:
    """Return the rule that a map breaks, with the nearest that is legal; None if the driver encodes it."""
    return next((broken for rule in _RULES if (broken := rule(tiling)) is not None), None)


def address_violation(interleave: str, address: int, is_padded: bool = False) -> str | None:
    """Return the rule that the address of a tensor breaks; None if it is legal."""
    unit, limit = INTERLEAVES[interleave].alignment, FIELD["address"].limit
    if is_padded and address % PADDED_ALIGNMENT:
        return f"the address of a tensor with padded elements is a multiple of {PADDED_ALIGNMENT} bytes"
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


# the rules, in the order in which they are named ---------------------------------------------------------


def _names(tiling: Tiling) -> str | None:
    """Return what is wrong with the type or with a mode."""
    if tiling.type in PACKED_TYPES and not tiling.is_later:
        return (
            f"{tiling.type} (CU_TENSOR_MAP_DATA_TYPE_{PACKED_TYPES[tiling.type]}) needs sm_100 or later; "
            "on sm_90 packed values are copied as the bytes they lie in, u8"
        )
    if tiling.swizzle in LATER_SWIZZLES and not tiling.is_later:
        return f'swizzle {tiling.swizzle} needs sm_100 or later; sm_90 has "none", "32B", "64B" and "128B"'
    for what, value, known in (
        ("the type of a tensor", tiling.type, EVERY_TYPE if tiling.is_later else ELEMENT_TYPES),
        ("interleave", tiling.interleave, INTERLEAVES),
        ("swizzle", tiling.swizzle, EVERY_SWIZZLE if tiling.is_later else SWIZZLES),
        ("l2_promotion", tiling.l2_promotion, L2_PROMOTIONS),
        ("fill", tiling.fill, FILLS),
    ):
        if value not in known:
            return f"{what} is one of {', '.join(map(repr, known))}, not {value!r}"
    if tiling.fill == "nan" and not EVERY_TYPE[tiling.type].is_float:
        return f'fill "nan" is for floats; elements of {tiling.type} are filled with "zeros"'
    return None


def _padded(tiling: Tiling) -> str | None:
    """Return which of the rules a map of a packed type breaks (PTX ISA, 9.7.9.25.5.1)."""
    element = EVERY_TYPE[tiling.type]
    if tiling.type not in PACKED_TYPES:
        return None
    if not element.is_padded:
        if tiling.dims[0] % element.elements:
            return f"the innermost axis has a multiple of 2 elements of {tiling.type}, not {tiling.dims[0]}"
        return None
    if tiling.interleave != "none":
        return f"elements of {tiling.type} are not interleaved; interleave is none"
    if tiling.swizzle not in ("none", "128B", "128B_ATOM_32B", "128B_ATOM_64B"):
        return (
            f"with elements of {tiling.type} the swizzle is none, 128B, 128B_ATOM_32B or 128B_ATOM_64B, "
            f"not {tiling.swizzle}"
        )
    if tiling.box[0] != PADDED_BOX:
        return f"the innermost axis of a box has {PADDED_BOX} elements of {tiling.type}, not {tiling.box[0]}"
    if tiling.dims[0] % PADDED_BOX:
        near = nearest(tiling.dims[0], PADDED_BOX, PADDED_BOX, 1 << 31)
        return (
            f"the innermost axis has a multiple of {PADDED_BOX} elements of {tiling.type}, not "
            f"{tiling.dims[0]}: {near} is nearest"
        )
    bad = next((stride for stride in tiling.strides if stride % PADDED_ALIGNMENT), None)
    if bad is not None:
        return f"strides of {tiling.type} are multiples of {PADDED_ALIGNMENT} bytes, and {bad} is not"
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
                sentence = what.format(axis=_axis(tiling, axis), value=value)
                return f"{sentence}; {low} to {high} are legal: {nearest(value, 1, low, high)} is nearest"
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
    element = EVERY_TYPE[tiling.type]
    inner, size = tiling.box[0], element.bytes_of(tiling.box[0])
    most = EVERY_SWIZZLE[tiling.swizzle].row_bytes if tiling.interleave == "none" else 0
    unit = BOX_UNIT * element.elements // element.bytes
    widest = most * element.elements // element.bytes
    near = nearest(inner, unit, unit, widest or (FIELD["box0"].limit - 1) // unit * unit)
    if inner % element.elements or size % BOX_UNIT:
        return (
            f"the innermost axis of a box is a multiple of {BOX_UNIT} bytes, and {inner} elements of "
            f"{tiling.type} are {size}: {near} elements are nearest"
        )
    if most and size > most:
        wider = next((swizzle.name for swizzle in SWIZZLES.values() if swizzle.row_bytes >= size), "none")
        return (
            f"with swizzle {tiling.swizzle} the innermost axis of a box has at most {most} bytes, and "
            f"{inner} elements of {tiling.type} are {size}: {near} elements are nearest, or swizzle "
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
    _names, _rank, _ranges, _strides, _padded, _innermost_box, _box_bytes,
)  # fmt: skip
