"""NVRTC's interface: through cuda.bindings, or the library itself where that lacks or an older one is wanted.

Neither needs a driver. What is compiled, and with which options, is `runtime_compiler.py`'s business.
"""

import ctypes
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol, cast

from lanewise.ptx.tools.toolkit import package_folders, toolkit_folders


class Nvrtc(Protocol):
    """The part of NVRTC that is used, as `cuda.bindings.nvrtc` has it: each returns (status, result …)."""

    def nvrtcVersion(self) -> tuple[Any, int, int]: ...
    def nvrtcGetSupportedArchs(self) -> tuple[Any, Sequence[int]]: ...
    def nvrtcGetErrorString(self, status: Any) -> Any: ...
    def nvrtcCreateProgram(
        self, source: bytes, name: bytes, count: int, headers: list[bytes], names: list[bytes]
    ) -> tuple[object, object]: ...
    def nvrtcAddNameExpression(self, program: object, expression: bytes) -> tuple[Any]: ...
    def nvrtcCompileProgram(self, program: object, count: int, options: list[bytes]) -> tuple[Any]: ...
    def nvrtcGetProgramLogSize(self, program: object) -> tuple[Any, int]: ...
    def nvrtcGetProgramLog(self, program: object, log: bytes) -> tuple[Any]: ...
    def nvrtcGetPTXSize(self, program: object) -> tuple[Any, int]: ...
    def nvrtcGetPTX(self, program: object, ptx: bytes) -> tuple[Any]: ...
    def nvrtcGetLoweredName(self, program: object, expression: bytes) -> tuple[Any, bytes]: ...
    def nvrtcDestroyProgram(self, program: object) -> tuple[Any]: ...


@cache
def load(major: int) -> Nvrtc | None:
    """NVRTC of a major CUDA release; None if it is not installed."""
    if major >= 13:
        try:
            from cuda.bindings import nvrtc

            if nvrtc.nvrtcVersion()[1] >= major:
                return cast(Nvrtc, nvrtc)
        except (ImportError, OSError, RuntimeError):
            pass  # not installed, or without the library itself: look for the library alone
    for path in _libraries(major):
        try:
            return _Library(path)
        except OSError:
            continue
    return None


def installed_libraries() -> list[Path]:
    """Every library of NVRTC that is found in a package or a toolkit, of any release."""
    return [path for major in (13, 12) for path in _libraries(major)]


def _libraries(major: int) -> list[Path]:
    pattern = {"win32": f"nvrtc64_{major}*_0.dll"}.get(sys.platform, f"libnvrtc.so.{major}*")
    folders = [*package_folders(), *toolkit_folders()]
    return [
        path
        for folder in folders
        for place in ("lib", "lib64", "bin")
        for path in sorted(folder.glob(f"{place}/{pattern}"))
    ]


class _Library:
    """The library called directly, in the shape of cuda.bindings."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def nvrtcVersion(self) -> tuple[int, int, int]:
        major, minor = ctypes.c_int(), ctypes.c_int()
        status = self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        return status, major.value, minor.value

    def nvrtcGetSupportedArchs(self) -> tuple[int, Sequence[int]]:
        count = ctypes.c_int()
        status = self._library.nvrtcGetNumSupportedArchs(ctypes.byref(count))
        archs = (ctypes.c_int * max(count.value, 1))()
        return status or self._library.nvrtcGetSupportedArchs(archs), list(archs)[: count.value]

    def nvrtcGetErrorString(self, status: int) -> tuple[int, bytes]:
        return 0, self._library.nvrtcGetErrorString(status)

    def nvrtcCreateProgram(
        self, source: bytes, name: bytes, count: int, headers: list[bytes], names: list[bytes]
    ) -> tuple[int, Any]:
        program = ctypes.c_void_p()
        texts, titles = (ctypes.c_char_p * count)(*headers), (ctypes.c_char_p * count)(*names)
        return self._library.nvrtcCreateProgram(
            ctypes.byref(program), source, name, count, texts, titles
        ), program

    def nvrtcAddNameExpression(self, program: object, expression: bytes) -> tuple[int]:
        return (self._library.nvrtcAddNameExpression(program, expression),)

    def nvrtcCompileProgram(self, program: object, count: int, options: list[bytes]) -> tuple[int]:
        return (self._library.nvrtcCompileProgram(program, count, (ctypes.c_char_p * count)(*options)),)

    def _size(self, function: Any, program: object) -> tuple[int, int]:
        size = ctypes.c_size_t()
        return function(program, ctypes.byref(size)), size.value

    def nvrtcGetProgramLogSize(self, program: object) -> tuple[int, int]:
        return self._size(self._library.nvrtcGetProgramLogSize, program)

    def nvrtcGetProgramLog(self, program: object, log: bytes) -> tuple[int]:
        return (self._library.nvrtcGetProgramLog(program, log),)

    def nvrtcGetPTXSize(self, program: object) -> tuple[int, int]:
        return self._size(self._library.nvrtcGetPTXSize, program)

    def nvrtcGetPTX(self, program: object, ptx: bytes) -> tuple[int]:
        return (self._library.nvrtcGetPTX(program, ptx),)

    def nvrtcGetLoweredName(self, program: object, expression: bytes) -> tuple[int, bytes]:
        name = ctypes.c_char_p()
        status = self._library.nvrtcGetLoweredName(program, expression, ctypes.byref(name))
        return status, name.value or b""

    def nvrtcDestroyProgram(self, program: Any) -> tuple[int]:
        return (self._library.nvrtcDestroyProgram(ctypes.byref(program)),)
