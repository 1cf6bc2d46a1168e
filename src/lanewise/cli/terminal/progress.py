"""A bar on stderr for launches that take their time: blocks done, blocks in all, the time left."""

from __future__ import annotations

import sys
from typing import Any, ClassVar

from lanewise.linalg.cpu.progress import Progress


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


class ProgressBar(Progress):
    """To be called with the blocks done and the blocks in all; shows itself once `patience` is over.

    `wanted` is what the user said: True, False, or None for a bar on a terminal alone.

    >>> with ProgressBar("saxpy", wanted=False) as bar:
    ...     bar(1, 4)
    """

    patience: ClassVar[float] = 2.0

    def __init__(self, kernel: str, wanted: bool | None = None) -> None:
        super().__init__(kernel)
        self.wanted = sys.stderr.isatty() if wanted is None else wanted
        self.forced = wanted

    def _made(self, total: int) -> Any:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as Bar

        bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("blocks{task.fields[left]}"),
            console=Console(stderr=True, highlight=False, markup=False, force_terminal=self.forced),
            transient=True,
        )
        bar.add_task(self.title, total=total, left="")
        return bar

    def _fields(self, seconds: float, done: int, total: int) -> dict[str, str]:
        return {"left": time_left(seconds, done, total)}
