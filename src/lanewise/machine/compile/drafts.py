"""Drafts: a kernel's first launches run code that LLVM did not optimise; one that runs for long is optimised.

The environment variable LANEWISE_COMPILE_QUICKLY asks for drafts alone ("1"), or for none (set and empty).
"""

import os
from abc import ABC, abstractmethod

from lanewise.jit import machine_code

#: A draft is compiled again, optimised, once its launches have taken so many times as long as its
#: compilation: later costs speed, sooner costs time for kernels that are launched a few times.
WORTH_OPTIMISING = 8


def _starts_with_draft() -> bool:
    """Return whether the first launches of a kernel run a draft."""
    return os.environ.get(machine_code.COMPILE_QUICKLY) != ""


def _optimises_later() -> bool:
    """Return whether a draft that has run for long is optimised."""
    return not os.environ.get(machine_code.COMPILE_QUICKLY)


class DraftedCode(ABC):
    """The machine code of a kernel: a draft at first, optimised code once its launches have taken long."""

    def __init__(self) -> None:
        self._native: machine_code.Program | None = None
        #: The seconds that launches of a draft have taken.
        self._launched_seconds = 0.0

    @abstractmethod
    def _find_optimised(self) -> machine_code.Program | None:
        """Return optimised code that is kept already."""

    @abstractmethod
    def _link(self, is_draft: bool) -> machine_code.Program:
        """Return a draft, or optimised code: from memory, from disk, or compiled now."""

    @abstractmethod
    def _draft_seconds(self) -> float:
        """Return how long the draft took to compile; 0 for optimised code."""

    @abstractmethod
    def _code_changed(self) -> None:
        """Forget what was known of the draft."""

    @property
    def native(self) -> machine_code.Program:
        """The machine code, loaded from disk or compiled now: a draft, if there is no optimised code yet."""
        if self._native is None:
            is_draft = _starts_with_draft()
            optimised = self._find_optimised() if is_draft and _optimises_later() else None
            self._native = optimised if optimised is not None else self._link(is_draft)
        return self._native

    def native_for_launch(self) -> machine_code.Program:
        """Return the machine code of the next launch; a draft that has run for long is optimised first."""
        draft_seconds = self._draft_seconds()
        if draft_seconds and self._launched_seconds > WORTH_OPTIMISING * draft_seconds:
            self._launched_seconds = 0.0
            if _optimises_later():
                self._native = self._link(is_draft=False)
                self._code_changed()
        return self.native

    def launched(self, seconds: float) -> None:
        """Note how long a launch took."""
        self._launched_seconds += seconds
