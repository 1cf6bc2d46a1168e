"""The matrix products of cuBLAS: plain, batched by pointers, batched by strides, in all types."""

import ctypes
from functools import cached_property

import numpy as np

from lanewise.virtual_gpu.blas.matrices import (
    Place,
    Product,
    element_type,
    multiply,
    note_product,
    scalar,
    sum_type,
)
from lanewise.virtual_gpu.driver.driver import Driver
from lanewise.virtual_gpu.driver.graphs import NodeKind, Work
from lanewise.virtual_gpu.driver.results import DriverError, Result

#: CUBLAS_TENSOR_OP_MATH and CUBLAS_TF32_TENSOR_OP_MATH: float products may use TF32.
_TF32_MODES = (1, 3)
#: The number of an element type by the name that products of one type have.
_NUMBERS = {"f32": 0, "f64": 1, "f16": 2}


class Settings:
    """What a program has set for a handle of cuBLAS."""

    def __init__(self) -> None:
        self.stream = self.math_mode = self.pointer_mode = self.atomics_mode = 0


class ProductCalls:
    """The products of cuBLAS; a method has the name of its entry point without a version."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver

    @cached_property
    def handles(self) -> dict[int, Settings]:
        """The settings of each handle."""
        return {}

    def cublasCreate_v2(self) -> int:
        """Return a new handle of cuBLAS."""
        made = Settings()
        number = self.driver.handle(made)
        self.handles[number] = made
        return number

    def cublasDestroy_v2(self, blas: int) -> None:
        """Forget a handle of cuBLAS."""
        self.settings(blas)
        del self.handles[blas]

    def settings(self, blas: int) -> Settings:
        """Return the settings of a handle."""
        if blas not in self.handles:
            raise DriverError(Result.NOT_INITIALIZED, f"{blas:#x} is no handle of cuBLAS: call cublasCreate")
        return self.handles[blas]

    def enqueue(self, stream: int, work: Work) -> None:
        """Do work in a stream, or keep it for the graph that the stream is captured into."""
        self.driver.enqueue(stream, NodeKind.KERNEL, work)

    def gemm(self, title: str, call: dict[str, int], sums: str, batch: list[tuple[int, int, int]]) -> None:
        """Compute products of one shape, given the addresses of a, b and c of each."""
        own, m, n, k = self.settings(call["blas"]), call["m"], call["n"], call["k"]
        if min(m, n, k) < 0:
            raise DriverError(Result.INVALID_VALUE, f"a product of {m} x {n} x {k} has a negative size")
        for name in ("transpose_a", "transpose_b"):
            if call[name] not in (0, 1, 2):
                raise DriverError(Result.INVALID_VALUE, f"{name} is {call[name]}, not CUBLAS_OP_N, _T or _C")
        alpha, beta = scalar(call["alpha"], sums), scalar(call["beta"], sums)
        if sums == "f32" and own.math_mode in _TF32_MODES and call["type_a"] == 0:
            sums = "tf32"
        type_a, type_b, type_c = (element_type(call[name]) for name in ("type_a", "type_b", "type_c"))
        a_is_turned, b_is_turned = bool(call["transpose_a"]), bool(call["transpose_b"])

        def work() -> None:
            for a, b, c in batch:
                places = (
                    Place(a, type_a, *((k, m) if a_is_turned else (m, k)), call["lda"]),
                    Place(b, type_b, *((n, k) if b_is_turned else (k, n)), call["ldb"]),
                    Place(c, type_c, m, n, call["ldc"]),
                )
                product = Product(sums, *places, places[2], a_is_turned, b_is_turned, alpha, beta)
                multiply(self.driver, product)
                read = [*places[:2], *([places[2]] if beta else [])]
                note_product(self.driver, title, own.stream, read, places[2])

        self.enqueue(own.stream, work)

    def product(self, title: str, call: dict[str, int], type: str | None) -> None:
        """Compute what an entry point asks for: one product, or a batch by pointers or by strides.

        `type` is that of all operands where the name of the entry point says it.
        """
        if type is not None:
            call |= dict.fromkeys(("type_a", "type_b", "type_c"), _NUMBERS[type])
        sums = sum_type(call["compute"]) if "compute" in call else type or "f32"
        count = call.get("count", 1)
        if "stride_a" in call:
            sizes = [element_type(call[f"type_{operand}"]).itemsize for operand in "abc"]
            steps = [
                np.int64(np.uint64(call[f"stride_{operand}"])).item() * size
                for operand, size in zip("abc", sizes, strict=True)
            ]
            batch = [
                (call["a"] + steps[0] * number, call["b"] + steps[1] * number, call["c"] + steps[2] * number)
                for number in range(count)
            ]
        elif "count" in call:
            lists = [(ctypes.c_uint64 * count).from_address(call[operand]) for operand in "abc"]
            batch = list(zip(*lists, strict=True))
        else:
            batch = [(call["a"], call["b"], call["c"])]
        self.gemm(title, call, sums, batch)
