"""cuBLASLt through ctypes: a product of torch's tensors by each algorithm that its heuristic names."""
# mypy: disable-error-code="assignment"

import ctypes
import glob
import os
from ctypes import byref, c_double, c_float, c_int, c_int64, c_size_t, c_uint64, c_void_p
from typing import Any

import torch

#: cudaDataType_t and cublasComputeType_t by torch's types.
DATA_TYPES = {
    torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.int8: 3, torch.int32: 10, torch.bfloat16: 14,
    torch.float8_e4m3fn: 28, torch.float8_e5m2: 29,
}  # fmt: skip
COMPUTE_F32, COMPUTE_TF32, COMPUTE_F64, COMPUTE_S32 = 68, 77, 70, 72
#: Attributes of a description of a product, and of a preference.
_TRANSPOSE_A, _TRANSPOSE_B, _FAST_SUMS, _WORKSPACE = 3, 4, 25, 1
#: Attributes of a matrix: how many there are, and elements from one to the next.
_BATCH_COUNT, _BATCH_STRIDE = 5, 6
_WORKSPACE_BYTES = 64 << 20


class Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", c_uint64 * 8),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


def load() -> Any:
    """Return the library: the one that torch brings, or the system's."""
    import importlib.util

    places: list[str] = []
    for name in ("nvidia.cu13", "nvidia.cublas"):
        found = importlib.util.find_spec(name) if importlib.util.find_spec("nvidia") else None
        for folder in (found.submodule_search_locations or []) if found else []:
            places += glob.glob(os.path.join(folder, "lib", "libcublasLt.so*"))  # noqa: PTH118, PTH207  # ctypes wants text
    for path in [*sorted(places), "libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"]:
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    raise OSError("cuBLASLt is not found")


class CublasLt:
    """Products by cuBLASLt on torch's current stream."""

    def __init__(self) -> None:
        self.library = load()
        self.library.cublasLtGetVersion.restype = c_size_t
        self.version = self.library.cublasLtGetVersion()
        self.handle = c_void_p()
        self._call("cublasLtCreate", byref(self.handle))
        self.workspace = torch.empty(_WORKSPACE_BYTES, dtype=torch.uint8, device="cuda")

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self.library, name)(*arguments)
        if status:
            raise RuntimeError(f"{name} returned {status}")

    def _layout(self, matrix: torch.Tensor, rows: int, columns: int, leading: int) -> c_void_p:
        made = c_void_p()
        self._call(
            "cublasLtMatrixLayoutCreate", byref(made), c_int(DATA_TYPES[matrix.dtype]), c_uint64(rows),
            c_uint64(columns), c_int64(leading),
        )  # fmt: skip
        if matrix.ndim > 2:
            count, stride = c_int(matrix.shape[0]), c_int64(matrix.stride(0))
            for attribute, value, size in ((_BATCH_COUNT, count, 4), (_BATCH_STRIDE, stride, 8)):
                self._call(
                    "cublasLtMatrixLayoutSetAttribute", made, c_int(attribute), byref(value), c_size_t(size)
                )
        return made

    def algorithms(
        self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, count: int = 8, tf32: bool = False,
        fast_sums: bool = True,
    ) -> list[Any]:  # fmt: skip
        """Return functions that compute out = a · b, one for each algorithm of the heuristic.

        They are matrices, or batches of as many matrices with one axis in front. cuBLASLt's matrices are
        stored by columns: outᵀ = bᵀ · aᵀ is computed, of the same memory.
        """
        (m, k), n = a.shape[-2:], b.shape[-1]
        compute, scale, number = COMPUTE_TF32 if tf32 else COMPUTE_F32, 0, c_float
        if a.dtype == torch.float64:
            compute, scale, number = COMPUTE_F64, 1, c_double
        if a.dtype == torch.int8:
            compute, scale, number = COMPUTE_S32, 10, c_int
        description = c_void_p()
        self._call("cublasLtMatmulDescCreate", byref(description), c_int(compute), c_int(scale))
        for attribute, transposed in (
            (_TRANSPOSE_A, _is_transposed(b)),
            (_TRANSPOSE_B, _is_transposed(a)),
        ):
            value = c_int(transposed)
            self._call(
                "cublasLtMatmulDescSetAttribute", description, c_int(attribute), byref(value), c_size_t(4)
            )
        if a.dtype.itemsize == 1 and a.dtype != torch.int8:
            fast = ctypes.c_int8(fast_sums)
            self._call(
                "cublasLtMatmulDescSetAttribute", description, c_int(_FAST_SUMS), byref(fast), c_size_t(1)
            )
        of_b = self._stored(b, k, n)
        of_a = self._stored(a, m, k)
        of_out = self._layout(out, n, m, max(n, out.stride(-2)))
        preference = c_void_p()
        self._call("cublasLtMatmulPreferenceCreate", byref(preference))
        size = c_size_t(_WORKSPACE_BYTES)
        self._call(
            "cublasLtMatmulPreferenceSetAttribute", preference, c_int(_WORKSPACE), byref(size), c_size_t(8)
        )
        found, returned = (Heuristic * count)(), c_int()
        self._call(
            "cublasLtMatmulAlgoGetHeuristic", self.handle, description, of_b, of_a, of_out, of_out,
            preference, c_int(count), found, byref(returned),
        )  # fmt: skip
        one, zero = number(1), number(0)
        launch = self.library.cublasLtMatmul

        def by(result: Heuristic) -> Any:
            algorithm = (c_uint64 * 8)(*result.algorithm)

            def run() -> None:
                status = launch(
                    self.handle, description, byref(one), c_void_p(b.data_ptr()), of_b,
                    c_void_p(a.data_ptr()), of_a, byref(zero), c_void_p(out.data_ptr()), of_out,
                    c_void_p(out.data_ptr()), of_out, algorithm, c_void_p(self.workspace.data_ptr()),
                    c_size_t(_WORKSPACE_BYTES), c_void_p(torch.cuda.current_stream().cuda_stream),
                )  # fmt: skip
                if status:
                    raise RuntimeError(f"cublasLtMatmul returned {status}")

            return run

        return [by(result) for result in found[: returned.value] if not result.state]

    def _stored(self, matrix: torch.Tensor, rows: int, columns: int) -> c_void_p:
        """Return the layout of a matrix's memory as columns: of one stored by rows, its transpose."""
        if not _is_transposed(matrix):
            return self._layout(matrix, columns, rows, max(columns, matrix.stride(-2)))
        return self._layout(matrix, rows, columns, max(rows, matrix.stride(-1)))


def _is_transposed(matrix: torch.Tensor) -> bool:
    """Return whether a matrix is stored by columns."""
    return bool(matrix.stride(-2) == 1 and matrix.stride(-1) != 1)
