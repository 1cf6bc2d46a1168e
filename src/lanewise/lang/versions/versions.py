"""Versions of a kernel: what it was traced to, and what it had read of Python then.

A kernel is traced anew when something that it has read has changed since. Versions that were traced before
are kept, so that a value that changes to and fro is not traced each time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from lanewise.lang.versions.guard import GONE, guard
from lanewise.lang.versions.python_reads import PythonReads

if TYPE_CHECKING:
    from lanewise.ptx import Module

#: Versions that are kept for one arch and the values of the Constexpr parameters.
_MOST_VERSIONS = 8


#: What a kernel needs of a launch.
Needs = TypeVar("Needs")


class ReadValues:
    """What functions read of Python, with its values. `unchanged()` says quickly whether it still holds."""

    def __init__(self, roots: tuple[object, ...]) -> None:
        self._roots = roots
        reads = PythonReads(roots)
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


class Version(ReadValues, Generic[Needs]):
    """A traced kernel, what it needs of a launch, and what it has read.

    Its reads begin at `roots`: the kernel's function, the values of its Constexpr parameters and the device
    functions that it called.
    """

    def __init__(self, module: Module, needs: Needs, roots: tuple[object, ...]) -> None:
        self.module, self.needs = module, needs
        super().__init__(roots)  # after the trace: what it changes itself is no reason to trace anew


class Versions(Generic[Needs]):
    """The versions of a kernel for one arch and one choice of Constexpr values, the last used first."""

    def __init__(self) -> None:
        self._versions: list[Version[Needs]] = []

    def current(self, trace: Callable[[], tuple[Module, Needs, tuple[object, ...]]]) -> Version[Needs]:
        """Return the version for what Python's values are now; the kernel is traced if there is none.

        `trace` traces it with the Constexpr values of this launch: objects of equal content share versions,
        and those of an earlier launch may have changed since.
        """
        for number, version in enumerate(self._versions):
            if version.holds():
                if number:
                    self._versions = [version, *(other for other in self._versions if other is not version)]
                return version
        module, needs, roots = trace()
        for version in self._versions:
            if version.module.text == module.text:
                module = version.module  # the same code: compiled already
        version = Version(module, needs, roots)
        self._versions = [version, *self._versions[: _MOST_VERSIONS - 1]]
        return version
