"""Free ranges of memory by size: taken, given back, and joined with their neighbours, without a search."""

from __future__ import annotations

from collections import defaultdict

#: Sizes are multiples of this.
UNIT = 16
#: Ranges of up to so many units are kept by their exact size, longer ones by powers of two.
_EXACT_UNITS = 64


class FreeRanges:
    """The free ranges of some memory.

    >>> free = FreeRanges()
    >>> free.give(0, 64), free.take(16), free.take(64)
    (64, 0, None)
    >>> free.give(0, 16), free.take(64)
    (64, 0)
    """

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}
        self._starts: dict[int, int] = {}
        #: The starts of ranges by their class of size; dictionaries, because they keep their order.
        self._classes: defaultdict[int, dict[int, None]] = defaultdict(dict)

    def copy(self) -> FreeRanges:
        """Return ranges like these, which change by themselves."""
        made = FreeRanges()
        for start, end in self._ends.items():
            made.give(start, end - start)
        return made

    def give(self, start: int, size: int) -> int:
        """Add a range; return the size of the range that it is a part of now."""
        end = start + size
        before, behind = self._starts.get(start), self._ends.get(end)
        if before is not None:
            self._remove(before)
            start = before
        if behind is not None:
            self._remove(end)
            end = behind
        self._ends[start], self._starts[end] = end, start
        self._classes[_class_of(end - start)][start] = None
        return end - start

    def take(self, size: int) -> int | None:
        """Return the start of a range of a size that was free; None if there is none so long."""
        start = self._find(size)
        if start is None:
            return None
        end = self._ends[start]
        self._remove(start)
        if end > start + size:
            self.give(start + size, end - start - size)
        return start

    def _find(self, size: int) -> int | None:
        """Return the start of a range of at least a size, of the first class that has one."""
        least = _class_of(size)
        for number in sorted(
            class_of for class_of, starts in self._classes.items() if starts and class_of >= least
        ):
            for start in self._classes[number]:
                if self._ends[start] - start >= size:
                    return start
        return None

    def _remove(self, start: int) -> None:
        """Take a whole range out."""
        end = self._ends.pop(start)
        del self._starts[end]
        del self._classes[_class_of(end - start)][start]


def _class_of(size: int) -> int:
    """Return the class of a size; a range of a higher class is longer than one of a lower."""
    units = size // UNIT
    return units if units <= _EXACT_UNITS else _EXACT_UNITS + units.bit_length()
