"""A bar on stderr for launches that take their time, and names of C++ kernels beside it or in a table."""

import sys
import time
from types import TracebackType
from typing import Any, Self

#: The most columns of a kernel's name in a table.
COLUMNS = 100
_OPENING, _CLOSING = "<(", ">)"


def folded(name: str, room: int) -> str:
    """Return a name in so many columns: inner template arguments and parameters become "…".

    As few levels are folded as fit; a name that is still too long is cut at its end.

    >>> folded("void run<Gemm<Shape<64, 64>, float>>(Gemm<Shape<64, 64>, float>::Params)", 40)
    'void run<Gemm<…>>(Gemm<…>::Params)'
    >>> folded("void run<Gemm<Shape<64, 64>, float>>(Gemm<Shape<64, 64>, float>::Params)", 20)
    'void run<…>(…)'
    >>> folded("saxpy", 20)
    'saxpy'
    """
    depth = _depth(name)
    while len(name) > room and depth:
        depth -= 1
        name = _folded_below(name, depth)
    return name if len(name) <= room else name[: max(0, room - 1)] + "…"


def _steps(name: str) -> list[int]:
    """Return how each character changes the depth of brackets; nothing changes it where they are no pairs."""
    steps = [(letter in _OPENING) - (letter in _CLOSING) for letter in name]
    balance = 0
    for step in steps:
        balance += step
        if balance < 0:
            break
    return steps if balance == 0 else [0] * len(name)


def _depth(name: str) -> int:
    """Return how many levels of arguments a name has."""
    depth = deepest = 0
    for step in _steps(name):
        depth += step
        deepest = max(deepest, depth)
    return deepest


def _folded_below(name: str, level: int) -> str:
    """Return a name with "…" in place of what lies deeper than a level."""
    kept: list[str] = []
    depth = 0
    for letter, step in zip(name, _steps(name), strict=True):
        if step < 0:
            depth -= 1
        if depth <= level:
            kept.append(letter)
            if step > 0 and depth == level:
                kept.append("…")
        if step > 0:
            depth += 1
    return "".join(kept)


#: Seconds that a launch may take without a word.
PATIENCE = 2.0
#: Columns of the widest numbers beside the bar: blocks done, blocks in all, the time left.
_NUMBERS = len(" 1000000/1000000 blocks, about 00:00:00 left ")
_NARROW_BAR, _WIDE_BAR, _LONG_TITLE = 10, 40, 40


def time_left(seconds: float, done: int, total: int) -> str:
    """How long the blocks that are left will take if they are like those that are done; empty if none is.

    >>> time_left(30.0, 20, 100), time_left(30.0, 0, 100)
    (', about 2:00 left', '')
    """
    if not done:
        return ""
    left = round(seconds / done * (total - done))
    hours = f"{left // 3600}:" if left >= 3600 else ""
    return f", about {hours}{left // 60 % 60:{'02d' if hours else 'd'}}:{left % 60:02d} left"


class ProgressBar:
    """To be called with the blocks done and the blocks in all; shows itself once `PATIENCE` is over.

    `wanted` is what the user said: True, False, or None for a bar on a terminal alone.

    >>> with ProgressBar("saxpy", wanted=False) as bar:
    ...     bar(1, 4)
    """

    def __init__(self, kernel: str, wanted: bool | None = None) -> None:
        self.kernel = kernel
        self.wanted = sys.stderr.isatty() if wanted is None else wanted
        self.forced = wanted
        self.begin = time.perf_counter()
        self._bar: Any = None
        self._task: Any = None

    def __call__(self, done: int, total: int) -> None:
        seconds = time.perf_counter() - self.begin
        if not self.wanted or seconds < PATIENCE:
            return
        if self._bar is None:
            self._start(total)
        self._bar.update(self._task, completed=done, left=time_left(seconds, done, total))

    def _start(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        console = Console(stderr=True, highlight=False, markup=False, force_terminal=self.forced)
        spare = console.width - _NUMBERS - _LONG_TITLE
        bar_columns = min(_WIDE_BAR, max(_NARROW_BAR, spare))
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=bar_columns),
            MofNCompleteColumn(),
            TextColumn("blocks{task.fields[left]}"),
            console=console,
            transient=True,
        )
        title = folded(self.kernel, console.width - _NUMBERS - bar_columns)
        self._task = self._bar.add_task(title, total=total, left="")
        self._bar.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, place: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
