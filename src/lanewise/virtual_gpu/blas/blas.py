"""cuBLAS: handles, copies and vectors, and how entry points are called from C."""

import os
import sys
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.virtual_gpu.blas.entry_points import LETTERS, entry_points
from lanewise.virtual_gpu.blas.light import VERSION, LightCalls
from lanewise.virtual_gpu.blas.matrices import scalar
from lanewise.virtual_gpu.blas.vectors import Vector, VectorCalls
from lanewise.virtual_gpu.driver.driver import LOG_VARIABLE, Driver
from lanewise.virtual_gpu.driver.entry_points import C_TYPES
from lanewise.virtual_gpu.driver.results import DriverError, Result


class Status(IntEnum):
    """What a call of cuBLAS answers (cublasStatus_t)."""

    SUCCESS = 0
    NOT_INITIALIZED = 1
    ALLOC_FAILED = 3
    INVALID_VALUE = 7
    ARCH_MISMATCH = 8
    MAPPING_ERROR = 11
    EXECUTION_FAILED = 13
    INTERNAL_ERROR = 14
    NOT_SUPPORTED = 15


_STATUS = {
    Result.INVALID_VALUE: Status.INVALID_VALUE,
    Result.INVALID_HANDLE: Status.INVALID_VALUE,
    Result.NOT_INITIALIZED: Status.NOT_INITIALIZED,
    Result.OUT_OF_MEMORY: Status.ALLOC_FAILED,
    Result.NOT_SUPPORTED: Status.NOT_SUPPORTED,
}
#: What answers the address of a text, or a number, and no status.
_NO_STATUS = (
    "cublasGetStatusName",
    "cublasGetStatusString",
    "cublasLtGetStatusName",
    "cublasLtGetStatusString",
    "cublasLtGetVersion",
)


class Blas(LightCalls):
    """cuBLAS of a program, over the driver of a virtual GPU."""

    def __init__(self, driver: Driver) -> None:
        super().__init__(driver)
        self._reasons: set[str] = set()

    def call(self, name: str, raw: Sequence[int]) -> int:
        """Call an entry point as C does; return what C gets: a status, or a value of 64 bits."""
        try:
            values = self._values(name, raw)
        except DriverError as error:
            return self._failed(name, _STATUS.get(error.result, Status.EXECUTION_FAILED), error.reason)
        except LanewiseError as error:
            return self._failed(name, Status.NOT_SUPPORTED, str(error))
        except Exception as error:  # nothing may pass through C
            return self._failed(name, Status.INTERNAL_ERROR, f"{type(error).__name__}: {error}")
        if os.environ.get(LOG_VARIABLE, "0") not in ("", "0"):
            words = ", ".join(f"{word:#x}" for word in raw)
            print(f"lanewise gpu: {name}({words}) = SUCCESS", file=sys.stderr, flush=True)
        return int(values) if name in _NO_STATUS else int(Status.SUCCESS)

    def _failed(self, name: str, status: Status, reason: str) -> int:
        """Write once why a call did not succeed."""
        if reason not in self._reasons:
            self._reasons.add(reason)
            print(f"lanewise gpu: {name}: {reason}", file=sys.stderr, flush=True)
        return int(status)

    def _values(self, name: str, raw: Sequence[int]) -> Any:
        declared = entry_points().get(name)
        if declared is None:
            raise DriverError(
                Result.NOT_SUPPORTED,
                f"the virtual GPU's cuBLAS has no {name}; it has products (gemm, cublasLtMatmul), "
                "gemv, axpy, copy, dot, scal, swap, nrm2 and asum",
            )
        given = list(zip(declared.parameters, raw, strict=True))
        call = {
            parameter.name: C_TYPES[parameter.type](word).value
            for parameter, word in given
            if not parameter.is_result
        }
        value = self._answer(name, call)
        for parameter, word in given:
            if parameter.is_result:
                C_TYPES[parameter.type].from_address(word).value = value
        return value

    def _answer(self, name: str, call: dict[str, int]) -> Any:
        """Answer a call: products and vectors by the letter of their type, others by a method."""
        plain = name.removeprefix("cublas").removesuffix("_v2")
        if plain.startswith("Gemm") or plain == "SgemmEx":
            return self.product(name, call, None)
        if plain[0] in LETTERS and plain[1:].startswith("gemm"):
            return self.product(name, call, LETTERS[plain[0]])
        if plain[0] in LETTERS and hasattr(VectorCalls, plain[1:]):
            return self._vectors(plain, call)
        return getattr(self, name)(**call)

    # settings of a handle -----------------------------------------------------------------------------------

    def cublasGetVersion_v2(self, blas: int) -> int:
        """Return the version that the library has."""
        return VERSION

    def cublasLtGetVersion(self) -> int:
        """Return the version that the library has."""
        return VERSION

    def cublasSetStream_v2(self, blas: int, stream: int) -> None:
        """Let calls be work of a stream."""
        self.settings(blas).stream = stream

    def cublasGetStream_v2(self, blas: int) -> int:
        """Return the stream of calls."""
        return self.settings(blas).stream

    def cublasSetWorkspace_v2(self, blas: int, memory: int, bytes: int) -> None:
        """Do nothing: no workspace is needed."""
        self.settings(blas)

    def cublasSetMathMode(self, blas: int, mode: int) -> None:
        """Set whether products of floats may use TF32."""
        self.settings(blas).math_mode = mode & 0xF

    def cublasGetMathMode(self, blas: int) -> int:
        """Return the mode that was set."""
        return self.settings(blas).math_mode

    def cublasSetPointerMode_v2(self, blas: int, mode: int) -> None:
        """Set where scalars lie; addresses of the device are addresses of the host."""
        self.settings(blas).pointer_mode = mode

    def cublasGetPointerMode_v2(self, blas: int) -> int:
        """Return the mode that was set."""
        return self.settings(blas).pointer_mode

    def cublasSetAtomicsMode(self, blas: int, mode: int) -> None:
        """Set whether atomics may be used; none are."""
        self.settings(blas).atomics_mode = mode

    def cublasGetAtomicsMode(self, blas: int) -> int:
        """Return the mode that was set."""
        return self.settings(blas).atomics_mode

    def cublasGetStatusName(self, status: int) -> int:
        """Return the address of the name of a status."""
        known = status in set(Status)
        return self.driver.text_address(f"CUBLAS_STATUS_{Status(status).name}" if known else "unknown status")

    def cublasGetStatusString(self, status: int) -> int:
        """Return the address of a text for a status."""
        known = status in set(Status)
        return self.driver.text_address(
            Status(status).name.lower().replace("_", " ") if known else "unknown status"
        )

    cublasLtGetStatusName, cublasLtGetStatusString = cublasGetStatusName, cublasGetStatusString

    # copies -------------------------------------------------------------------------------------------------

    def cublasSetMatrix(
        self,
        rows: int,
        columns: int,
        bytes: int,
        source: int,
        source_leading: int,
        target: int,
        target_leading: int,
    ) -> None:
        """Copy a matrix between host and device, column by column."""
        for column in range(columns):
            at = source + column * source_leading * bytes
            self.driver.cuMemcpy(target + column * target_leading * bytes, at, rows * bytes)

    def cublasSetVector(
        self, count: int, bytes: int, source: int, source_step: int, target: int, target_step: int
    ) -> None:
        """Copy a vector between host and device."""
        if source_step == target_step == 1:
            self.driver.cuMemcpy(target, source, count * bytes)
        else:
            self.cublasSetMatrix(1, count, bytes, source, source_step, target, target_step)

    cublasGetMatrix, cublasGetVector = cublasSetMatrix, cublasSetVector

    # vectors ------------------------------------------------------------------------------------------------

    def _vectors(self, plain: str, call: dict[str, int]) -> None:
        """Compute on vectors in the order of the stream."""
        kind = np.dtype(np.float32 if plain[0] == "S" else np.float64)
        own, word = self.settings(call.pop("blas")), LETTERS[plain[0]]
        given: dict[str, object] = {}
        for name, value in call.items():
            if name in ("alpha", "beta"):
                given[name] = kind.type(scalar(value, word))
            elif name in ("x", "y"):
                given[name] = Vector(value, call[f"step_{name}"])
            elif not name.startswith("step_"):
                given[name] = value
        function: Callable[..., None] = getattr(VectorCalls(self.driver, kind, own.stream), plain[1:])
        self.enqueue(own.stream, lambda: function(**given))
