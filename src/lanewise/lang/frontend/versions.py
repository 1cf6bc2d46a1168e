"""Versions of a kernel: what it was traced to, and what it had read of Python then.

A kernel is traced anew when something that it has read has changed since. Versions that were traced before
are kept, so that a value that changes to and fro is not traced each time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lanewise.lang.frontend.block_needs import BlockNeeds
from lanewise.lang.frontend.python_reads import PythonReads
from lanewise.lang.frontend.read_guard import GONE, guard

if TYPE_CHECKING:
    from lanewise.ptx import Module

#: Versions that are kept for one arch and the values of the Constexpr parameters.
_MOST_VERSIONS = 8


@dataclass
class Traced:
    """A traced kernel: its module, what blocks it needs, and where its reads begin."""

    module: Module
    needs: BlockNeeds
    #: The kernel's function, the values of its Constexpr parameters, the device functions that it called.
    roots: tuple[Any, ...]


class Version:
    """A traced kernel with what it has read. `unchanged()` says quickly whether it still holds."""

    def __init__(self, traced: Traced) -> None:
        self.module, self.needs, self._roots = traced.module, traced.needs, traced.roots
        reads = PythonReads(self._roots)  # after the trace: what it changes itself is no reason to trace anew
        self._state = reads.state
        #: Compares identities: it may be false although all values are equal, and may raise one of GONE.
        self.unchanged: Callable[[], bool] = guard(reads.checks)

    def holds(self) -> bool:
        """Return whether everything that was read is there and equal."""
        try:
            if self.unchanged():
                return True
        except GONE:
            pass
        reads = PythonReads(self._roots)
        if reads.state != self._state:
            return False
        self.unchanged = guard(reads.checks)
        return True


class Versions:
    """The versions of a kernel for one arch and one choice of Constexpr values, the last used first."""

    def __init__(self, trace: Callable[[], Traced]) -> None:
        self._trace = trace
        self._versions: list[Version] = []

    def current(self) -> Version:
        """Return the version for what Python's values are now; the kernel is traced if there is none."""
        for number, version in enumerate(self._versions):
            if version.holds():
                if number:
                    self._versions = [version, *(each for each in self._versions if each is not version)]
                return version
        traced = self._trace()
        for version in self._versions:
            if version.module.text == traced.module.text:
                traced.module = version.module  # the same code: compiled already
        version = Version(traced)
        self._versions = [version, *self._versions[: _MOST_VERSIONS - 1]]
        return version
