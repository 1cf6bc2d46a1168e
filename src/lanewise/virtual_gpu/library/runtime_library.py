"""The library with the CUDA runtime's name, which a program in CUDA C++ is linked to."""

from __future__ import annotations

from lanewise.virtual_gpu.library.machine_code import X86_64
from lanewise.virtual_gpu.library.stand_in import Arguments, StandIn
from lanewise.virtual_gpu.runtime.entry_points import entry_points, exported_names, plain_name, words
from lanewise.virtual_gpu.runtime.runtime import Runtime

SONAME = "libcudart.so.13"


class RuntimeLibrary(StandIn):
    """The runtime's library of this process, connected to a runtime until it is closed."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(SONAME, exported_names(), self._runtime_call, is_global=True)
        self.runtime = runtime

    def _runtime_call(self, exported: str, arguments: Arguments) -> int:
        name = plain_name(exported)
        declared = entry_points().get(name)
        raw: list[int] = []
        if declared is not None:
            by_reference = arguments.processor is not X86_64
            raw = words(declared.parameters, arguments.registers, arguments.stack, by_reference)
        return self.runtime.call(name, raw)
