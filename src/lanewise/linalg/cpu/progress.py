"""A bar on a terminal for what takes the CPU more than some seconds."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, ClassVar, Self


class Progress:
    """To be called with the steps done and the steps in all; shows a bar on a terminal after `patience`.

    >>> with Progress("lw.matmul") as progress:
    ...     progress(1, 4)
    """

    #: Seconds that a call may take without a word.
    patience: ClassVar[float] = 3.0

    def __init__(self, title: str) -> None:
        self.title, self.wanted = title, sys.stderr.isatty()
        self.begin = time.perf_counter()
        self._bar: Any = None

    def __call__(self, done: int, total: int) -> None:
        seconds = time.perf_counter() - self.begin
        if not self.wanted or seconds < self.patience:
            return
        if self._bar is None:
            self._bar = self._made(total)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=done, **self._fields(seconds, done, total))

    def _made(self, total: int) -> Any:
        """Return the bar, with its one task."""
        from rich.console import Console
        from rich.progress import Progress as Bar

        bar = Bar(console=Console(stderr=True), transient=True)
        bar.add_task(f"{self.title} on the CPU", total=total)
        return bar

    def _fields(self, seconds: float, done: int, total: int) -> dict[str, str]:
        """Return what the bar shows beside the steps."""
        return {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, place: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
