"""The library with the CUDA runtime's name, which a program in CUDA C++ is linked to."""

from __future__ import annotations

import ctypes

from lanewise.virtual_gpu.library.loading import connect, load_library
from lanewise.virtual_gpu.library.machine_code import X86_64, this_processor
from lanewise.virtual_gpu.runtime.entry_points import entry_points, exported_names, plain_name, words
from lanewise.virtual_gpu.runtime.runtime import Runtime

SONAME = "libcudart.so.13"
_DISPATCH = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint64)


class RuntimeLibrary:
    """The runtime's library of this process, connected to a runtime until it is closed."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._library = load_library(SONAME, exported_names())
        self._processor = this_processor()
        self._slot = connect(self._library, _DISPATCH(self._call))

    def close(self) -> None:
        """Let every entry point answer that the runtime is not initialized."""
        self._slot.value = 0

    def address(self, name: str) -> int:
        """Return the address of an entry point."""
        return ctypes.cast(getattr(self._library, name), ctypes.c_void_p).value or 0

    def _call(self, number: int, registers: int, stack: int) -> int:
        name = plain_name(exported_names()[number])
        declared = entry_points().get(name)
        raw: list[int] = []
        if declared is not None:
            own = list((ctypes.c_uint64 * self._processor.registers).from_address(registers))
            raw = words(declared.parameters, own, stack, self._processor is not X86_64)
        return self.runtime.call(name, raw)
