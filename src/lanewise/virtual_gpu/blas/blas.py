"""cuBLAS: handles, copies and vectors, how entry points are called from C, and which there are.

Methods declare entry points as the driver's do (`driver/entry_points.py`); texts those of several types."""

import os
import sys
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import cache, partial
from typing import Annotated, Any

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.virtual_gpu.blas.matrices import Vector, VectorCalls, scalar
from lanewise.virtual_gpu.blas.products import VERSION, LightCalls
from lanewise.virtual_gpu.driver.driver import LOG_VARIABLE, Driver
from lanewise.virtual_gpu.driver.entry_points import (
    I32,
    U64,
    EntryPoint,
    Handle,
    Pointer,
    declared_by,
    declared_in,
)
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
        return declared.call(partial(self._answer, declared), raw)

    def _answer(self, declared: EntryPoint, *inputs: int) -> Any:
        """Answer a call: products and vectors by the letter of their type, others by a method."""
        name = declared.name
        call = {parameter.name: value for parameter, value in zip(declared.inputs, inputs, strict=True)}
        plain = name.removeprefix("cublas").removesuffix("_v2")
        if plain.startswith("Gemm") or plain == "SgemmEx":
            return self.product(name, call, None)
        if plain[0] in LETTERS and plain[1:].startswith("gemm"):
            return self.product(name, call, LETTERS[plain[0]])
        if plain[0] in LETTERS and hasattr(VectorCalls, plain[1:]):
            return self._vectors(plain, call)
        return getattr(self, name)(*inputs)

    # settings of a handle -----------------------------------------------------------------------------------

    def cublasGetVersion_v2(self, blas: Handle) -> Annotated[I32, "version", 1]:
        """Return the version that the library has."""
        return VERSION

    def cublasLtGetVersion(self) -> int:
        """Return the version that the library has."""
        return VERSION

    def cublasSetStream_v2(self, blas: Handle, stream: Handle) -> None:
        """Let calls be work of a stream."""
        self.settings(blas).stream = stream

    def cublasGetStream_v2(self, blas: Handle) -> Annotated[Handle, "stream", 1]:
        """Return the stream of calls."""
        return self.settings(blas).stream

    def cublasSetWorkspace_v2(self, blas: Handle, memory: Pointer, bytes: U64) -> None:
        """Do nothing: no workspace is needed."""
        self.settings(blas)

    def cublasSetMathMode(self, blas: Handle, mode: I32) -> None:
        """Set whether products of floats may use TF32."""
        self.settings(blas).math_mode = mode & 0xF

    def cublasGetMathMode(self, blas: Handle) -> Annotated[I32, "mode", 1]:
        """Return the mode that was set."""
        return self.settings(blas).math_mode

    def cublasSetPointerMode_v2(self, blas: Handle, mode: I32) -> None:
        """Set where scalars lie; their addresses say it themselves."""
        self.settings(blas).pointer_mode = mode

    def cublasGetPointerMode_v2(self, blas: Handle) -> Annotated[I32, "mode", 1]:
        """Return the mode that was set."""
        return self.settings(blas).pointer_mode

    def cublasSetAtomicsMode(self, blas: Handle, mode: I32) -> None:
        """Set whether atomics may be used; none are."""
        self.settings(blas).atomics_mode = mode

    def cublasGetAtomicsMode(self, blas: Handle) -> Annotated[I32, "mode", 1]:
        """Return the mode that was set."""
        return self.settings(blas).atomics_mode

    def cublasGetStatusName(self, status: I32) -> int:
        """Return the address of the name of a status."""
        known = status in set(Status)
        return self.driver.text_address(f"CUBLAS_STATUS_{Status(status).name}" if known else "unknown status")

    def cublasGetStatusString(self, status: I32) -> int:
        """Return the address of a text for a status."""
        known = status in set(Status)
        return self.driver.text_address(
            Status(status).name.lower().replace("_", " ") if known else "unknown status"
        )

    cublasLtGetStatusName, cublasLtGetStatusString = cublasGetStatusName, cublasGetStatusString

    # copies -------------------------------------------------------------------------------------------------

    def cublasSetMatrix(
        self,
        rows: I32,
        columns: I32,
        bytes: I32,
        source: U64,
        source_leading: I32,
        target: U64,
        target_leading: I32,
    ) -> None:
        """Copy a matrix between host and device, column by column."""
        for column in range(columns):
            at = source + column * source_leading * bytes
            self.driver.cuMemcpy(target + column * target_leading * bytes, at, rows * bytes)

    def cublasSetVector(
        self, count: I32, bytes: I32, source: U64, source_step: I32, target: U64, target_step: I32
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
                given[name] = kind.type(scalar(self.driver, value, word))
            elif name in ("x", "y"):
                given[name] = Vector(value, call[f"step_{name}"])
            elif not name.startswith("step_"):
                given[name] = value
        function: Callable[..., None] = getattr(VectorCalls(self.driver, kind, own.stream), plain[1:])
        self.enqueue(own.stream, lambda: function(**given))


#: The types of numbers that the letter in a name stands for: float, double, half.
LETTERS = {"S": "f32", "D": "f64", "H": "f16"}
_SIZES = "handle blas, i32 transpose_a, i32 transpose_b, i32 m, i32 n, i32 k, pointer alpha"

_DECLARATIONS = f"""
cublasSgemmEx({_SIZES}, u64 a, i32 type_a, i32 lda, u64 b, i32 type_b, i32 ldb, pointer beta, u64 c, \
i32 type_c, i32 ldc)
cublasGemmEx({_SIZES}, u64 a, i32 type_a, i32 lda, u64 b, i32 type_b, i32 ldb, pointer beta, u64 c, \
i32 type_c, i32 ldc, i32 compute, i32 algorithm)
cublasGemmBatchedEx({_SIZES}, pointer a, i32 type_a, i32 lda, pointer b, i32 type_b, i32 ldb, pointer beta, \
pointer c, i32 type_c, i32 ldc, i32 count, i32 compute, i32 algorithm)
cublasGemmStridedBatchedEx({_SIZES}, u64 a, i32 type_a, i32 lda, u64 stride_a, u64 b, i32 type_b, i32 ldb, \
u64 stride_b, pointer beta, u64 c, i32 type_c, i32 ldc, u64 stride_c, i32 count, i32 compute, i32 algorithm)
"""

_OF_EACH_TYPE = f"""
cublas@gemm({_SIZES}, u64 a, i32 lda, u64 b, i32 ldb, pointer beta, u64 c, i32 ldc)
cublas@gemmBatched({_SIZES}, pointer a, i32 lda, pointer b, i32 ldb, pointer beta, pointer c, i32 ldc, \
i32 count)
cublas@gemmStridedBatched({_SIZES}, u64 a, i32 lda, u64 stride_a, u64 b, i32 ldb, u64 stride_b, \
pointer beta, u64 c, i32 ldc, u64 stride_c, i32 count)
"""

_OF_VECTORS = """
cublas@gemv_v2(handle blas, i32 transpose, i32 m, i32 n, pointer alpha, u64 a, i32 lda, u64 x, i32 step_x, \
pointer beta, u64 y, i32 step_y)
cublas@axpy_v2(handle blas, i32 n, pointer alpha, u64 x, i32 step_x, u64 y, i32 step_y)
cublas@copy_v2(handle blas, i32 n, u64 x, i32 step_x, u64 y, i32 step_y)
cublas@swap_v2(handle blas, i32 n, u64 x, i32 step_x, u64 y, i32 step_y)
cublas@scal_v2(handle blas, i32 n, pointer alpha, u64 x, i32 step_x)
cublas@dot_v2(handle blas, i32 n, u64 x, i32 step_x, u64 y, i32 step_y, pointer result)
cublas@nrm2_v2(handle blas, i32 n, u64 x, i32 step_x, pointer result)
cublas@asum_v2(handle blas, i32 n, u64 x, i32 step_x, pointer result)
"""

#: Entry points that exist and answer that they are not supported.
_OTHERS = """
cublasSgeam cublasDgeam cublasSger_v2 cublasDger_v2 cublasStrsm_v2 cublasDtrsm_v2 cublasStrmm_v2
cublasSsyrk_v2 cublasDsyrk_v2 cublasIsamax_v2 cublasIdamax_v2 cublasIsamin_v2 cublasSgetrfBatched
cublasDgetrfBatched cublasSgetriBatched cublasDgetriBatched cublasSgetrsBatched cublasSmatinvBatched
cublasCgemm_v2 cublasZgemm_v2 cublasCgemmBatched cublasCgemmStridedBatched cublasSgemmGroupedBatched
cublasGemmGroupedBatchedEx cublasSdgmm cublasDdgmm cublasSsymm_v2 cublasSsymv_v2 cublasStrsv_v2
cublasSrot_v2 cublasAxpyEx cublasDotEx cublasScalEx cublasNrm2Ex cublasXtCreate cublasXtDestroy
cublasXtDeviceSelect cublasXtSetBlockDim cublasXtSgemm cublasLoggerConfigure cublasSetSmCountTarget
cublasGetProperty cublasLtMatrixTransform cublasLtMatrixTransformDescCreate
cublasLtMatrixTransformDescDestroy cublasLtMatmulAlgoInit cublasLtMatmulAlgoGetIds cublasLtMatmulAlgoCheck
cublasLtMatmulAlgoConfigSetAttribute cublasLtMatmulAlgoConfigGetAttribute cublasLtMatmulAlgoCapGetAttribute
cublasLtMatmulDescGetAttribute cublasLtMatrixLayoutGetAttribute cublasLtMatmulPreferenceGetAttribute
cublasLtMatmulDescInit_internal cublasLtMatrixLayoutInit_internal cublasLtMatmulPreferenceInit_internal
cublasLtLoggerSetLevel
"""


@cache
def entry_points() -> dict[str, EntryPoint]:
    """Return the declared entry points by name.

    >>> [parameter.name for parameter in entry_points()["cublasSscal_v2"].parameters]
    ['blas', 'n', 'alpha', 'x', 'step_x']
    """
    products = {
        letter: _OF_EACH_TYPE.replace("@", letter).replace("gemm(", "gemm_v2(" if letter != "H" else "gemm(")
        for letter in LETTERS
    }
    vectors = [_OF_VECTORS.replace("@", letter) for letter in "SD"]
    in_texts = declared_in("\n".join([_DECLARATIONS, *products.values(), *vectors]))
    return {**in_texts, **declared_by(Blas, {"cublas": "cublas"})}


@cache
def exported_names() -> tuple[str, ...]:
    """Return the names of all entry points, also of those that are not supported."""
    return (*entry_points(), *_OTHERS.split())
