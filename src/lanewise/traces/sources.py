"""A source: a value that an instruction took to make another one."""

from dataclasses import dataclass

from lanewise.formats import Format
from lanewise.traces.places import Place


@dataclass(frozen=True)
class Source:
    """A value that an instruction took: a place, a constant or a special register, under a name."""

    place: Place | None
    text: str = ""
    format: Format | None = None
    #: The entry before which the place had the value; None: the instruction's own.
    entry: int | None = None
