"""A shared library that stands in for another one: Python answers the functions that it exports.

A library that has the SONAME of another one and is loaded first answers every later dlopen of that name.
"""

import ctypes
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from lanewise.errors import LanewiseError
from lanewise.virtual_gpu.library.shared_library import SLOT, Processor, shared_library, this_processor
from lanewise.virtual_gpu.order.host_lines import NativeCall, enter_call, leave_call

_DISPATCH = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint64)
#: What has been loaded stays loaded: the libraries of this process by name, with their files.
_LOADED: dict[str, tuple[ctypes.CDLL, Path, tempfile.TemporaryDirectory[str]]] = {}
#: The libraries' machine code calls these, so they must live as long as the process.
_CALLED_FROM_C: list[object] = []


class Arguments:
    """The arguments of a call from C: calling it with a number returns so many words of 64 bits."""

    def __init__(self, processor: Processor, registers: int, stack: int) -> None:
        self.processor, self._registers, self.stack = processor, registers, stack

    @property
    def registers(self) -> list[int]:
        """The words in the registers that hold arguments."""
        return list((ctypes.c_uint64 * self.processor.registers).from_address(self._registers))

    @property
    def call(self) -> NativeCall:
        """Who called: the address that the call returns to, and the caller's frame."""
        frame = ctypes.c_uint64.from_address(self._registers + self.processor.frame_offset).value
        address = ctypes.c_uint64.from_address(self._registers + self.processor.return_offset).value
        return NativeCall(address, frame)

    def __call__(self, count: int) -> list[int]:
        """Return the words of the first arguments, of which none is a struct or a float."""
        own = min(count, self.processor.registers)
        words = list((ctypes.c_uint64 * own).from_address(self._registers))
        if count > own:
            words += (ctypes.c_uint64 * (count - own)).from_address(self.stack)
        return words


#: Returns what a function returns, given its name and its arguments.
Answer = Callable[[str, Arguments], int]


class StandIn:
    """A library in a file, connected to a function of Python until it is closed.

    Of a library that `is_global`, later libraries find the functions without asking for its name.
    """

    def __init__(self, soname: str, names: Sequence[str], answer: Answer, is_global: bool = False) -> None:
        if soname not in _LOADED:
            _LOADED[soname] = _load(soname, names, os.RTLD_GLOBAL if is_global else os.RTLD_LOCAL)
        self._library, self.path, _ = _LOADED[soname]
        self._names, self._answer, self._processor = tuple(names), answer, this_processor()
        self._slot = ctypes.c_uint64.in_dll(self._library, SLOT)
        dispatch = _DISPATCH(self._call)
        _CALLED_FROM_C.append(dispatch)
        self._slot.value = ctypes.cast(dispatch, ctypes.c_void_p).value or 0

    def close(self) -> None:
        """Let every function answer that the driver is there no more, as at the end of a process."""
        self._slot.value = 0

    def address(self, name: str) -> int:
        """Return the address of a function."""
        return ctypes.cast(getattr(self._library, name), ctypes.c_void_p).value or 0

    def _call(self, number: int, registers: int, stack: int) -> int:
        arguments = Arguments(self._processor, registers, stack)
        outer = enter_call(arguments.call)
        try:
            return self._answer(self._names[number], arguments)
        finally:
            leave_call(outer)


def _load(
    soname: str, names: Sequence[str], mode: int
) -> tuple[ctypes.CDLL, Path, tempfile.TemporaryDirectory[str]]:
    """Write a library to a file and load it."""
    if not sys.platform.startswith("linux"):
        raise LanewiseError(f"programs in C find a virtual GPU on Linux alone, not on {sys.platform}")
    folder = tempfile.TemporaryDirectory(prefix="lanewise-")
    path = Path(folder.name) / soname
    path.write_bytes(shared_library(soname, names, this_processor()))
    return ctypes.CDLL(str(path), mode=mode | os.RTLD_NOW), path, folder
