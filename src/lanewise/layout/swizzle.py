"""Swizzle, which permutes indices by exclusive or, and ComposedLayout, a layout followed by any function.

How layouts compose where the result is a Layout again is in compose.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from lanewise.engines import Drawn
from lanewise.errors import LanewiseError
from lanewise.layout.basis import as_offset
from lanewise.layout.coordinates import has_none, wide
from lanewise.layout.int_tuple import Nested, as_int
from lanewise.layout.layout import LayoutBase, slice_and_offset
from lanewise.tracebacks import short_constructor


def shiftr(a: Nested, s: int) -> Nested:
    """a shifted right by s bits, left where s is negative.

    >>> shiftr(8, 2), shiftr(8, -2)
    (2, 32)
    """
    a, s = wide(a), as_int(s)
    return a >> s if s >= 0 else a << -s


def shiftl(a: object, s: int) -> Nested:
    """a shifted left by s bits, right where s is negative.

    >>> shiftl(8, 2), shiftl(8, -2)
    (32, 2)
    """
    return shiftr(a, -as_int(s))


@short_constructor
@dataclass(frozen=True, slots=True, repr=False)
class Swizzle(Drawn):
    """A swizzle: it XORs bits of an index onto lower bits of it (onto higher ones if `shift` is negative).

    The lowest `base` bits stay as they are, and the `bits` bits above them change. `shift` is the distance to
    the bits with which these are XORed.

    >>> hex(Swizzle(3, 4, 3)(0x90))  # "128B" of tensor maps and wgmma, applied to a byte offset
    '0x80'
    >>> [Swizzle(2, 0, 2)(i) for i in range(8)]
    [0, 1, 2, 3, 5, 4, 7, 6]
    """

    bits: int
    base: int
    shift: int
    yyy_msk: int = field(init=False, compare=False)
    zzz_msk: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("bits", "base", "shift"):
            object.__setattr__(self, name, as_int(getattr(self, name)))
        if self.bits < 0 or self.base < 0:
            raise LanewiseError(f"{self!r}: bits and base are at least 0")
        if abs(self.shift) < self.bits:
            raise LanewiseError(f"{self!r}: source and target bits overlap; |shift| must be at least bits")
        mask = (1 << self.bits) - 1
        object.__setattr__(self, "yyy_msk", mask << (self.base + max(0, self.shift)))
        object.__setattr__(self, "zzz_msk", mask << (self.base - min(0, self.shift)))

    def __call__(self, offset: Nested) -> Nested:
        offset = wide(offset)
        return offset ^ shiftr(offset & self.yyy_msk, self.shift)

    def size(self) -> int:
        """Return the period: how many indices are permuted among themselves."""
        return 1 << (self.bits + self.base + abs(self.shift))

    def cosize(self) -> int:
        """Return the same as `size`, because a swizzle is a permutation."""
        return self.size()

    def __str__(self) -> str:
        return f"SW_{self.bits}_{self.base}_{self.shift}"

    def __repr__(self) -> str:
        return f"Swizzle({self.bits},{self.base},{self.shift})"


@dataclass(frozen=True, slots=True, repr=False)
class ComposedLayout(LayoutBase):
    """The function c → layoutB(offset + layoutA(c)), for a composition that is not a Layout itself.

    The names are those of pycute: layoutA is applied first and has the coordinates, and layoutB, any
    function, is applied to its result.

    >>> from lanewise.layout import Layout
    >>> smem = ComposedLayout(Swizzle(2, 0, 2), 0, Layout((4, 4)))
    >>> smem, smem(1, 1), smem(None, 1)(1)
    (SW_2_0_2 o 0 o (4,4):(1,4), 4, 4)
    """

    layoutB: Any  # noqa: N815 (pycute's name)
    offset: Nested
    layoutA: Any  # noqa: N815 (pycute's name)

    def __post_init__(self) -> None:
        if not callable(self.layoutB) or not isinstance(self.layoutA, LayoutBase):
            raise LanewiseError(
                f"ComposedLayout({self.layoutB!r}, {self.offset!r}, {self.layoutA!r}): give a function "
                "(a layout, a swizzle), an offset, and the layout with the coordinates"
            )
        object.__setattr__(self, "offset", as_offset(self.offset))

    @property
    def shape(self) -> Nested:
        """The shape of the coordinates."""
        return self.layoutA.shape

    def _domain(self) -> Nested:
        return self.layoutA

    def _on(self, domain: object) -> ComposedLayout:
        return ComposedLayout(self.layoutB, self.offset, domain)

    def __len__(self) -> int:
        return len(self.layoutA)

    def __call__(self, *crd: object) -> Nested:
        """Return the index of a coordinate; if it has a None, the composed layout of the slice."""
        c = crd[0] if len(crd) == 1 else crd
        return self._slice(c) if has_none(c) else self.layoutB(self.offset + self.layoutA(c))

    def _slice(self, crd: object) -> ComposedLayout:
        inner = self.layoutA
        if isinstance(inner, ComposedLayout):
            return self._on(inner._slice(crd))
        # what the fixed coordinates add must pass through layoutB, so it joins the offset
        part, begin = slice_and_offset(crd, inner)
        return ComposedLayout(self.layoutB, self.offset + begin, part)

    def shifted(self, crd: object) -> ComposedLayout:
        """Return the same composition with its origin moved: its coordinate 0 is what crd was."""
        inner = self.layoutA
        if isinstance(inner, ComposedLayout):
            return self._on(inner.shifted(crd))
        return ComposedLayout(self.layoutB, self.offset + inner(crd), inner)

    def __getitem__(self, mode: int | slice) -> ComposedLayout:
        return self._on(self.layoutA[mode])

    def __iter__(self) -> Iterator[ComposedLayout]:
        return (self[i] for i in range(len(self)))

    def size(self) -> int:
        """Return the number of coordinates, which are those of `layoutA`."""
        n: int = self.layoutA.size()
        return n

    def cosize(self) -> int:
        """Return one more than the greatest index; it looks at every coordinate."""
        greatest: int = max(map(self, range(self.size())))
        return 1 + greatest

    def __str__(self) -> str:
        return f"{self.layoutB} o {self.offset} o {self.layoutA}"

    __repr__ = __str__


def is_swizzled(layout: LayoutBase) -> bool:
    """Whether a layout ends in a Swizzle that moves something.

    >>> from lanewise.layout import Layout
    >>> is_swizzled(ComposedLayout(Swizzle(3, 4, 3), 0, Layout(8))), is_swizzled(Layout(8))
    (True, False)
    """
    if isinstance(layout, ComposedLayout):
        f = layout.layoutB
        return f.bits > 0 if isinstance(f, Swizzle) else is_swizzled(f)
    return False
