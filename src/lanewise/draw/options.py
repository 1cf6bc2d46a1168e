"""The options that pictures share, checked in one place.

What an option means for a kind of object is decided where that kind is described.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypedDict

from lanewise.errors import LanewiseError

COLOURINGS = ("thread", "value", "register")
#: In panels with more cells than this, words for each cell would make the picture heavy.
HOVER_CELLS = 2048


class Choices(TypedDict, total=False):
    """The options as keywords, all of them optional."""

    lane: int | None
    operand: str | None
    element: tuple[Any, ...] | None
    product: int
    colour: str | None
    labels: bool
    hover: bool | None
    inputs: bool
    columns: int | None


@dataclass(frozen=True)
class Options:
    """What a picture shows, and how.

    `lane` marks the elements of one lane (thread) and fades the others. `operand` draws one operand ("A",
    "B", …) alone. `element` marks one cell: ("A", row, col), or (row, col) if there is one matrix. `product`
    chooses one of the four products of Volta's m8n8k4. `colour` is "thread", "value" or "register". `labels`
    writes into the cells. `hover` shows more when you point at a cell (SVG and HTML); by default it is on for
    panels that are not large. `inputs`, with an element of D, marks the row of A and the column of B from
    which it is computed. `columns` cuts panels with more columns than this into pieces.
    """

    lane: int | None = None
    operand: str | None = None
    element: tuple[Any, ...] | None = None
    product: int = 0
    colour: str | None = None
    labels: bool = True
    hover: bool | None = None
    inputs: bool = False
    columns: int | None = None

    def __post_init__(self) -> None:
        for name in ("lane", "product"):
            number = getattr(self, name)
            if number is not None and (not hasattr(number, "__index__") or isinstance(number, bool)):
                raise LanewiseError(f"{name}={number!r} is not an integer")
        if self.columns is not None and (not isinstance(self.columns, int) or self.columns < 1):
            raise LanewiseError(f"columns={self.columns!r} is not a number of columns")
        if self.operand is not None and not isinstance(self.operand, str):
            raise LanewiseError(f'operand={self.operand!r} is not a name, such as "A"')
        if self.colour is not None and self.colour not in COLOURINGS:
            raise LanewiseError(f"colour={self.colour!r}: pictures are coloured by {', '.join(COLOURINGS)}")
        if self.element is not None:
            self._check_element(self.element)

    def _check_element(self, element: Any) -> None:
        place = (
            element[1:]
            if isinstance(element, tuple) and element[:1] and isinstance(element[0], str)
            else element
        )
        if (
            not isinstance(element, tuple)
            or len(place) != 2
            or not all(hasattr(x, "__index__") for x in place)
        ):
            raise LanewiseError(
                f'element={element!r}: give ("A", row, col), or (row, col) where there is one matrix'
            )

    @classmethod
    def of(cls, choices: Choices) -> Options:
        """The options that keywords choose, or an error that names the keywords there are."""
        known = [field.name for field in fields(cls)]
        for name in choices:
            if name not in known:
                raise LanewiseError(f"there is no option {name!r}; options are {', '.join(known)}")
        return cls(**choices)

    def explains(self, cells: int) -> bool:
        """Whether the cells of a panel with so many of them say more when pointed at."""
        return cells <= HOVER_CELLS if self.hover is None else self.hover

    def refuse(self, what: str, *names: str) -> None:
        """Refuse options that mean nothing for what is drawn."""
        defaults = Options()
        for name in names:
            if getattr(self, name) != getattr(defaults, name):
                raise LanewiseError(f"{name}={getattr(self, name)!r} means nothing for {what}")
