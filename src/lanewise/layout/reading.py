"""Reading layouts as people write them: `((4,8),(2,2)):((32,1),(16,8))`, `Sw<3,4,3> o 0 o (8,64)`."""

import re

from lanewise.errors import LanewiseError
from lanewise.layout.layout import Layout
from lanewise.layout.swizzle import ComposedLayout, Swizzle
from lanewise.layout.text import read_shape_and_stride

#: CuTe prints a swizzle as Sw<3,4,3>, pycute as SW_3_4_3.
_SWIZZLE = re.compile(r"(?:Sw<|SW_|Swizzle[<(])?\s*(\d{1,3})[,_]\s*(\d{1,3})[,_]\s*(-?\d{1,3})\s*[>)]?", re.I)

_COMPOSED = re.compile(
    r"(?:cute::)?ComposedLayout\s*<\s*(?:cute::)?(Swizzle<[^>]*>)\s*,\s*(?:_|Int<|smem_ptr_flag(?:_bits<)?|C<)(\d*)>?\s*,"
    r"\s*(.*)>",
    re.DOTALL,
)


def read_layout(text: str) -> Layout | ComposedLayout:
    """The layout that a text spells; without strides it is compact, the first mode fastest.

    >>> read_layout("((4,8),(2,2)):((32,1),(16,8))")
    ((4,8),(2,2)):((32,1),(16,8))
    >>> read_layout("(_4, _8)"), read_layout("Sw<2,0,2> o 0 o (4,4):(4,1)")
    ((4,8):(1,4), SW_2_0_2 o 0 o (4,4):(4,1))
    """
    composed = _COMPOSED.fullmatch(text.strip())
    if composed is not None:  # ComposedLayout<Swizzle<3,4,3>, Int<0>, Layout<…>>, as C++ writes it
        text = f"{composed[1]} o {composed[2] or 0} o {composed[3]}"
    parts = re.split(r"\s+o\s+", text.strip())
    if len(parts) == 3:
        offset = read_integers(parts[1], "an offset")
        if len(offset) != 1:
            raise LanewiseError(
                f"{text!r}: the offset between swizzle and layout is one number, not {parts[1]!r}"
            )
        return ComposedLayout(read_swizzle(parts[0]), offset[0], read_plain_layout(parts[2]))
    if len(parts) == 2:
        return ComposedLayout(read_swizzle(parts[0]), 0, read_plain_layout(parts[1]))
    return read_plain_layout(text)


def read_plain_layout(text: str) -> Layout:
    """A layout without a swizzle.

    >>> read_plain_layout("(16,8):(8,1)")
    (16,8):(8,1)
    """
    return Layout(*read_shape_and_stride(text))


def read_swizzle(text: str) -> Swizzle:
    """The swizzle that `3,4,3`, `Sw<3,4,3>` or `SW_3_4_3` spells.

    >>> read_swizzle("3,4,3")
    Swizzle(3,4,3)
    """
    match = _SWIZZLE.fullmatch(text.strip())
    if match is None:
        raise LanewiseError(
            f"{text!r} is no swizzle; write bits, base and shift, such as 3,4,3 (128B of TMA)"
        )
    return Swizzle(*(int(part) for part in match.groups()))


def read_integers(text: str, what: str) -> tuple[int, ...]:
    """Integers with commas between them, `2,2,1`.

    >>> read_integers("2,2,1", "an atom layout")
    (2, 2, 1)
    """
    parts = text.strip().strip("()").split(",")
    if not all(re.fullmatch(r"\s*_?-?\d{1,18}\s*", part) for part in parts):
        raise LanewiseError(f"{text!r} is not {what}; write integers with commas between them, such as 2,2,1")
    return tuple(int(part.strip().lstrip("_")) for part in parts)
