"""The libraries with the names of cuBLAS and cuBLASLt, which a program in CUDA C++ is linked to."""

from __future__ import annotations

from lanewise.virtual_gpu.blas import Blas
from lanewise.virtual_gpu.blas.entry_points import entry_points, exported_names
from lanewise.virtual_gpu.library.stand_in import Arguments, StandIn

#: The libraries' names; what the first one exports is found without asking for the second.
SONAMES = ("libcublas.so.13", "libcublasLt.so.13")


class BlasLibraries:
    """The libraries of this process, connected to cuBLAS until they are closed."""

    def __init__(self, blas: Blas) -> None:
        self.blas = blas
        self._libraries = [
            StandIn(soname, exported_names(), self._call, is_global=True) for soname in SONAMES
        ]

    def close(self) -> None:
        """Let every function answer that the driver is there no more."""
        for library in self._libraries:
            library.close()

    def _call(self, name: str, arguments: Arguments) -> int:
        declared = entry_points().get(name)
        return self.blas.call(name, arguments(len(declared.parameters)) if declared is not None else [])
