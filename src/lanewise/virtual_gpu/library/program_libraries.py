"""The libraries that a program in CUDA C++ is linked to, under the names of the CUDA runtime and cuBLAS."""

from lanewise.virtual_gpu.blas import Blas
from lanewise.virtual_gpu.blas import blas as of_blas
from lanewise.virtual_gpu.library.stand_in import X86_64, Arguments, StandIn
from lanewise.virtual_gpu.runtime.entry_points import plain_name, words
from lanewise.virtual_gpu.runtime.runtime import Runtime, entry_points, exported_names

RUNTIME_NAME = "libcudart.so.13"
#: What the first one exports is found without asking for the second.
BLAS_NAMES = ("libcublas.so.13", "libcublasLt.so.13")


class RuntimeLibrary(StandIn):
    """The runtime's library of this process, connected to a runtime until it is closed."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(RUNTIME_NAME, exported_names(), self._runtime_call, is_global=True)
        self.runtime = runtime

    def _runtime_call(self, exported: str, arguments: Arguments) -> int:
        name = plain_name(exported)
        declared = entry_points().get(name)
        raw: list[int] = []
        if declared is not None:
            by_reference = arguments.processor is not X86_64
            raw = words(declared.parameters, arguments.registers, arguments.stack, by_reference)
        return self.runtime.call(name, raw)


class BlasLibraries:
    """The libraries of this process, connected to cuBLAS until they are closed."""

    def __init__(self, blas: Blas) -> None:
        self.blas = blas
        self._libraries = [
            StandIn(soname, of_blas.exported_names(), self._call, is_global=True) for soname in BLAS_NAMES
        ]

    def close(self) -> None:
        """Let every function answer that the driver is there no more."""
        for library in self._libraries:
            library.close()

    def _call(self, name: str, arguments: Arguments) -> int:
        declared = of_blas.entry_points().get(name)
        return self.blas.call(name, arguments(len(declared.parameters)) if declared is not None else [])
