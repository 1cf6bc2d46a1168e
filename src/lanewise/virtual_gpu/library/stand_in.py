"""A shared library that stands in for one of a framework: Python answers the functions that it exports."""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from lanewise.errors import LanewiseError
from lanewise.virtual_gpu.library.elf import SLOT, shared_library
from lanewise.virtual_gpu.library.machine_code import this_processor

#: Returns what a function returns; takes its name, and what gives the words of its first arguments.
Answer = Callable[[str, Callable[[int], list[int]]], int]

_DISPATCH = ctypes.CFUNCTYPE(
    ctypes.c_uint64, ctypes.c_uint32, ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_uint64)
)
#: What has been loaded stays loaded: the libraries of this process by name, with their files.
_LOADED: dict[str, tuple[ctypes.CDLL, Path, tempfile.TemporaryDirectory[str]]] = {}
#: The libraries' machine code calls these, so they must live as long as the process.
_CALLED_FROM_C: list[object] = []


class StandIn:
    """A library in a file, connected to a function of Python until it is closed."""

    def __init__(self, soname: str, names: Sequence[str], answer: Answer) -> None:
        if not sys.platform.startswith("linux"):
            raise LanewiseError(f"programs in C find a virtual GPU on Linux alone, not on {sys.platform}")
        if soname not in _LOADED:
            folder = tempfile.TemporaryDirectory(prefix="lanewise-")
            path = Path(folder.name) / soname
            path.write_bytes(shared_library(soname, names, this_processor()))
            _LOADED[soname] = ctypes.CDLL(str(path), mode=os.RTLD_NOW), path, folder
        library, self.path, _ = _LOADED[soname]
        self._names, self._answer = tuple(names), answer
        self._registers = this_processor().registers
        self._slot = ctypes.c_uint64.in_dll(library, SLOT)
        dispatch = _DISPATCH(self._call)
        _CALLED_FROM_C.append(dispatch)
        self._slot.value = ctypes.cast(dispatch, ctypes.c_void_p).value or 0

    def close(self) -> None:
        """Let every function answer that the driver is there no more, as at the end of a process."""
        self._slot.value = 0

    def _call(
        self,
        number: int,
        registers: ctypes._Pointer[ctypes.c_uint64],
        stack: ctypes._Pointer[ctypes.c_uint64],
    ) -> int:
        def words(count: int) -> list[int]:
            return registers[: min(count, self._registers)] + stack[: max(0, count - self._registers)]

        return self._answer(self._names[number], words)
