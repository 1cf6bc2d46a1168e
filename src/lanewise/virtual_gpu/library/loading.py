"""The library with the driver's name, loaded into this process before a program asks for it.

A library that has the SONAME libcuda.so.1 and is loaded first answers every later dlopen of that name.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from lanewise.errors import LanewiseError
from lanewise.virtual_gpu.driver.driver import Driver
from lanewise.virtual_gpu.driver.entry_points import entry_points
from lanewise.virtual_gpu.driver.results import Result
from lanewise.virtual_gpu.library.elf import SLOT, shared_library
from lanewise.virtual_gpu.library.exported_names import exported_name, exported_names
from lanewise.virtual_gpu.library.machine_code import this_processor

SONAME = "libcuda.so.1"
#: What cuGetProcAddress_v2 writes to its last argument: that it succeeded, that it did not find the symbol.
_FOUND, _MISSING = 0, 1
_DISPATCH = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_uint32, ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_uint64)
)
#: One library of each name for a process: what has been loaded under a SONAME stays.
_LOADED: dict[str, ctypes.CDLL] = {}
#: The libraries' machine code calls these, so they must live as long as the process.
_CALLED_FROM_C: list[object] = []


def load_library(soname: str, names: Sequence[str]) -> ctypes.CDLL:
    """Return the library that exports some names, which is written to a file and loaded the first time."""
    if soname in _LOADED:
        return _LOADED[soname]
    if not sys.platform.startswith("linux"):
        raise LanewiseError(f"programs in C find a virtual GPU on Linux alone, not on {sys.platform}")
    image = shared_library(soname, names, this_processor())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / soname
        path.write_bytes(image)
        library = ctypes.CDLL(str(path), mode=os.RTLD_GLOBAL | os.RTLD_NOW)
    _LOADED[soname] = library
    return library


def connect(library: ctypes.CDLL, dispatch: object) -> ctypes.c_uint64:
    """Let a library call a function of Python for every entry point; return the word that has its address."""
    _CALLED_FROM_C.append(dispatch)
    slot = ctypes.c_uint64.in_dll(library, SLOT)
    slot.value = ctypes.cast(dispatch, ctypes.c_void_p).value or 0  # type: ignore[arg-type]
    return slot


class DriverLibrary:
    """The library of this process, connected to a driver until it is closed."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._library = load_library(SONAME, exported_names())
        self._registers = this_processor().registers
        self._slot = connect(self._library, _DISPATCH(self._call))
        driver.entry_point = self.entry_point

    def close(self) -> None:
        """Let every entry point answer that the driver is there no more, as at the end of a process."""
        self._slot.value = 0

    def _call(
        self,
        number: int,
        registers: ctypes._Pointer[ctypes.c_uint64],
        stack: ctypes._Pointer[ctypes.c_uint64],
    ) -> int:
        name = exported_names()[number]
        declared = entry_points().get(name)
        count = len(declared.parameters) if declared is not None else 0
        raw = registers[: min(count, self._registers)] + stack[: max(0, count - self._registers)]
        if name.startswith("cuGetProcAddress"):
            return self._address(raw)
        return int(self.driver.call(name, raw))

    def _address(self, raw: list[int]) -> int:
        """Write the address of an entry point that a program asks for by name."""
        symbol, target, version, _, *status = raw
        asked = ctypes.string_at(symbol).decode(errors="replace")
        place = self.entry_point(asked, ctypes.c_int32(version).value)
        ctypes.c_uint64.from_address(target).value = place
        if status and status[0]:
            ctypes.c_int32.from_address(status[0]).value = _FOUND if place else _MISSING
        return int(Result.SUCCESS if place else Result.NOT_FOUND)

    def entry_point(self, symbol: str, version: int) -> int:
        """Return the address of an entry point by its name and version; 0 if there is none."""
        name = exported_name(symbol, version)
        return 0 if name is None else ctypes.cast(getattr(self._library, name), ctypes.c_void_p).value or 0
