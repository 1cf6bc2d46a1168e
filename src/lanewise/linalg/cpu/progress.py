"""A bar on a terminal for what takes the CPU more than some seconds."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Self

#: Seconds that a call may take without a word.
PATIENCE = 3.0


class Progress:
    """To be called with the steps done and the steps in all; shows a bar on a terminal after PATIENCE.

    >>> with Progress("lw.matmul") as progress:
    ...     progress(1, 4)
    """

    def __init__(self, title: str) -> None:
        self.title, self.wanted = title, sys.stderr.isatty()
        self.begin = time.perf_counter()
        self._bar: Any = None
        self._task: Any = None

    def __call__(self, done: int, total: int) -> None:
        if not self.wanted or time.perf_counter() - self.begin < PATIENCE:
            return
        if self._bar is None:
            from rich.console import Console
            from rich.progress import Progress as Bar

            self._bar = Bar(console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(f"{self.title} on the CPU", total=total)
            self._bar.start()
        self._bar.update(self._task, completed=done)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, place: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
