"""NVRTC under a virtual GPU: where a program takes a cubin of it, the driver is told the PTX.

NVRTC is the real one and needs no GPU. It makes PTX as well as a cubin where a program asks for machine code.
"""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Any

from lanewise.ptx.tools.runtime_compiler import installed_libraries

if TYPE_CHECKING:
    from lanewise.virtual_gpu.driver.driver import Driver

#: The function that a cubin is taken by.
GET_CUBIN = "nvrtcGetCUBIN"


def load_compiler() -> ctypes.CDLL | None:
    """Load NVRTC where it is installed, so that later libraries find its functions; None without it."""
    for path in installed_libraries():
        for builtins in path.parent.glob("libnvrtc-builtins.so*"):  # NVRTC asks for it by name
            ctypes.CDLL(str(builtins))
        return ctypes.CDLL(str(path), mode=os.RTLD_GLOBAL | os.RTLD_NOW)
    return None


class CompilerLibrary:
    """NVRTC as ctypes has it; where a program takes a cubin of it, the driver is told the PTX."""

    def __init__(self, driver: Driver, library: Any) -> None:
        self._driver, self._library = driver, library

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    def nvrtcGetCUBIN(self, program: Any, place: Any) -> int:
        """Write the cubin of a program."""
        result = int(self._library.nvrtcGetCUBIN(program, place))
        size, length = ctypes.c_size_t(), ctypes.c_size_t()
        self._library.nvrtcGetCUBINSize(program, ctypes.byref(size))
        has_ptx = not self._library.nvrtcGetPTXSize(program, ctypes.byref(length)) and length.value > 1
        if not result and has_ptx:
            ptx = ctypes.create_string_buffer(length.value)
            self._library.nvrtcGetPTX(program, ptx)
            self._driver.know_ptx(ctypes.string_at(place, size.value), ptx.value.decode())
        return result
