"""The matrix products of cuBLAS and cuBLASLt: plain, batched by pointers or strides, in all types.

cuBLASLt has descriptions of products and matrices, whose attributes are set by number."""

import ctypes
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Annotated

import numpy as np

from lanewise.virtual_gpu.blas.matrices import (
    Place,
    Product,
    element_type,
    factor,
    multiply,
    note_product,
    strided,
    sum_type,
)
from lanewise.virtual_gpu.driver.driver import Driver
from lanewise.virtual_gpu.driver.entry_points import I32, U64, Handle, Pointer
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
        #: The settings of each handle.
        self.handles: dict[int, Settings] = {}

    def cublasCreate_v2(self) -> Annotated[Handle, "blas"]:
        """Return a new handle of cuBLAS."""
        made = Settings()
        number = self.driver.handle(made)
        self.handles[number] = made
        return number

    def cublasDestroy_v2(self, blas: Handle) -> None:
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
        factors = [factor(self.driver, call[name], sums) for name in ("alpha", "beta")]
        if sums == "f32" and own.math_mode in _TF32_MODES and call["type_a"] == 0:
            sums = "tf32"
        type_a, type_b, type_c = (element_type(call[name]) for name in ("type_a", "type_b", "type_c"))
        a_is_turned, b_is_turned = bool(call["transpose_a"]), bool(call["transpose_b"])

        def work() -> None:
            alpha, beta = (each() for each in factors)
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
            places = [self.driver.memory.host_address(call[operand]) for operand in "abc"]
            lists = [(ctypes.c_uint64 * count).from_address(place) for place in places]
            batch = list(zip(*lists, strict=True))
        else:
            batch = [(call["a"], call["b"], call["c"])]
        self.gemm(title, call, sums, batch)


#: The bytes of cublasLtMatmulHeuristicResult_t, and where it has its workspace, its status and its waves.
_RESULT_BYTES, _WORKSPACE_AT, _STATE_AT, _WAVES_AT = 104, 64, 72, 76
#: Bits of an epilogue (cublasLtEpilogue_t) and the only ones that are supported.
_RELU, _BIAS, _GELU = 2, 4, 32
#: Where alpha and beta may lie: on the host or on the device (cublasLtPointerMode_t).
_SCALAR_MODES = (0, 1)
_EPILOGUES = (1, _RELU, _BIAS, _GELU, _RELU | _BIAS, _GELU | _BIAS)
_ROW_ORDER = 1
#: The version that cublasLtGetVersion and cublasGetVersion answer.
VERSION = 130000


class LayoutAttribute(IntEnum):
    """The attributes of a matrix that are supported (cublasLtMatrixLayoutAttribute_t)."""

    TYPE = 0
    ORDER = 1
    ROWS = 2
    COLUMNS = 3
    LEADING = 4
    BATCH_COUNT = 5
    BATCH_STRIDE = 6


class ProductAttribute(IntEnum):
    """The attributes of a product that are supported (cublasLtMatmulDescAttributes_t)."""

    COMPUTE = 0
    SCALE_TYPE = 1
    POINTER_MODE = 2
    TRANSPOSE_A = 3
    TRANSPOSE_B = 4
    EPILOGUE = 7
    BIAS = 8
    SM_COUNT = 15
    FAST_ACCUM = 25
    BIAS_TYPE = 26


@dataclass(eq=False)
class Layout:
    """A matrix as cuBLASLt describes it."""

    values: dict[LayoutAttribute, int]

    def place(self, address: int, number: int) -> Place:
        """Return where a matrix of the batch is; of one in row-major order, where its transpose is."""
        kind = element_type(self.values[LayoutAttribute.TYPE])
        step = self.values.get(LayoutAttribute.BATCH_STRIDE, 0) * kind.itemsize * number
        shape = self.values[LayoutAttribute.ROWS], self.values[LayoutAttribute.COLUMNS]
        rows, columns = shape[::-1] if self.is_by_rows else shape
        return Place(address + step, kind, rows, columns, self.values[LayoutAttribute.LEADING])

    @property
    def is_by_rows(self) -> bool:
        """Whether rows are contiguous."""
        return self.values.get(LayoutAttribute.ORDER, 0) == _ROW_ORDER


@dataclass(eq=False)
class Description:
    """A product as cuBLASLt describes it."""

    values: dict[ProductAttribute, int]


@dataclass(eq=False)
class Preference:
    """What a program asks of algorithms, of which there is one."""

    values: dict[int, int] = field(default_factory=dict)


class LightCalls(ProductCalls):
    """The entry points of cuBLASLt."""

    def cublasLtCreate(self) -> Annotated[Handle, "blas"]:
        """Return a new handle of cuBLASLt."""
        return self.cublasCreate_v2()

    def cublasLtDestroy(self, blas: Handle) -> None:
        """Forget a handle of cuBLASLt."""
        self.cublasDestroy_v2(blas)

    def cublasLtMatmulDescCreate(self, compute: I32, scale_type: I32) -> Annotated[Handle, "product"]:
        """Return a description of a product."""
        values = {ProductAttribute.COMPUTE: compute, ProductAttribute.SCALE_TYPE: scale_type}
        return self.driver.handle(Description(values))

    def cublasLtMatmulDescDestroy(self, product: Handle) -> None:
        """Forget the description that a handle names."""
        self.driver.forget(product, Description)

    def cublasLtMatmulDescSetAttribute(
        self, product: Handle, attribute: I32, value: Pointer, bytes: U64
    ) -> None:
        """Set an attribute of a product."""
        if attribute not in set(ProductAttribute):
            raise DriverError(Result.NOT_SUPPORTED, f"attribute {attribute} of a product is not supported")
        known = self.driver.known(product, Description)
        known.values[ProductAttribute(attribute)] = _number(value, bytes)

    def cublasLtMatrixLayoutCreate(
        self, type: I32, rows: U64, columns: U64, leading: U64
    ) -> Annotated[Handle, "layout"]:
        """Return a description of a matrix."""
        named = (LayoutAttribute.TYPE, LayoutAttribute.ROWS, LayoutAttribute.COLUMNS, LayoutAttribute.LEADING)
        return self.driver.handle(Layout(dict(zip(named, (type, rows, columns, leading), strict=True))))

    def cublasLtMatrixLayoutDestroy(self, layout: Handle) -> None:
        """Forget the description that a handle names."""
        self.driver.forget(layout, Layout)

    def cublasLtMatrixLayoutSetAttribute(
        self, layout: Handle, attribute: I32, value: Pointer, bytes: U64
    ) -> None:
        """Set an attribute of a matrix."""
        if attribute not in set(LayoutAttribute):
            raise DriverError(Result.NOT_SUPPORTED, f"attribute {attribute} of a matrix is not supported")
        number = _number(value, bytes)
        if attribute == LayoutAttribute.ORDER and number not in (0, _ROW_ORDER):
            raise DriverError(Result.NOT_SUPPORTED, "matrices are in column-major or row-major order")
        self.driver.known(layout, Layout).values[LayoutAttribute(attribute)] = number

    def cublasLtMatmulPreferenceCreate(self) -> Annotated[Handle, "preference"]:
        """Return a new preference without attributes."""
        return self.driver.handle(Preference())

    def cublasLtMatmulPreferenceDestroy(self, preference: Handle) -> None:
        """Forget the preference that a handle names."""
        self.driver.forget(preference, Preference)

    def cublasLtMatmulPreferenceSetAttribute(
        self, preference: Handle, attribute: I32, value: Pointer, bytes: U64
    ) -> None:
        """Set an attribute of a preference."""
        self.driver.known(preference, Preference).values[attribute] = _number(value, min(bytes, 8))

    def cublasLtMatmulAlgoGetHeuristic(
        self,
        blas: Handle,
        product: Handle,
        a: Handle,
        b: Handle,
        c: Handle,
        d: Handle,
        preference: Handle,
        asked: I32,
        results: Pointer,
    ) -> Annotated[I32, "count", 9]:
        """Write the only algorithm, which needs no workspace; return how many there are."""
        self.settings(blas)
        self.driver.known(product, Description)
        for layout in (a, b, c, d):
            self.driver.known(layout, Layout)
        if asked < 1:
            raise DriverError(Result.INVALID_VALUE, f"{asked} algorithms were asked for")
        ctypes.memset(results, 0, _RESULT_BYTES)
        ctypes.c_float.from_address(results + _WAVES_AT).value = 1.0
        return 1

    def cublasLtMatmul(
        self,
        blas: Handle,
        product: Handle,
        alpha: Pointer,
        a: U64,
        layout_a: Handle,
        b: U64,
        layout_b: Handle,
        beta: Pointer,
        c: U64,
        layout_c: Handle,
        d: U64,
        layout_d: Handle,
        algorithm: Pointer,
        workspace: U64,
        workspace_bytes: U64,
        stream: Handle,
    ) -> None:
        """Compute a product, or a batch of them."""
        self.settings(blas)
        described = self.driver.known(product, Description).values
        layouts = [self.driver.known(handle, Layout) for handle in (layout_a, layout_b, layout_c, layout_d)]
        counts = [layout.values.get(LayoutAttribute.BATCH_COUNT, 1) for layout in layouts]
        if len({layout.is_by_rows for layout in layouts[2:]}) > 1 or len(set(counts)) > 1:
            raise DriverError(
                Result.NOT_SUPPORTED, "C and D have different orders, or batches differ in size"
            )
        sums = sum_type(described[ProductAttribute.COMPUTE])
        scales = {0: "f32", 1: "f64", 2: "f16", 10: "i32"}[described[ProductAttribute.SCALE_TYPE]]
        if described.get(ProductAttribute.POINTER_MODE, 0) not in _SCALAR_MODES:
            raise DriverError(
                Result.NOT_SUPPORTED, "a vector of alpha (ALPHA_DEVICE_VECTOR) is not supported"
            )
        factors = [factor(self.driver, address, scales) for address in (alpha, beta)]

        def work() -> None:
            alpha_now, beta_now = (each() for each in factors)
            for number in range(counts[0]):
                places = [
                    layout.place(at, number) for layout, at in zip(layouts, (a, b, c or d, d), strict=True)
                ]
                made = self._product(described, layouts, places, sums, (alpha_now, beta_now))
                made = made._replace(scale=scales)
                multiply(self.driver, made)
                note_product(self.driver, "cublasLtMatmul", stream, [made.a, made.b], made.d)

        self.enqueue(stream, work)

    def _product(
        self,
        described: dict[ProductAttribute, int],
        layouts: list[Layout],
        places: list[Place],
        sums: str,
        factors: tuple[float, float],
    ) -> Product:
        """Return a product in column-major order: of a result by rows, the transposed product."""
        epilogue = described.get(ProductAttribute.EPILOGUE, 1)
        if epilogue not in _EPILOGUES:
            raise DriverError(Result.NOT_SUPPORTED, f"cublasLtEpilogue_t {epilogue} is not supported")
        a, b, c, d = places
        # A matrix by rows is here as its transpose.
        transposed = [
            bool(described.get(named, 0)) != layout.is_by_rows
            for named, layout in zip(
                (ProductAttribute.TRANSPOSE_A, ProductAttribute.TRANSPOSE_B), layouts, strict=False
            )
        ]
        by_rows = layouts[3].is_by_rows
        bias = None
        if epilogue & _BIAS:
            kind = described.get(ProductAttribute.BIAS_TYPE)
            rows = d.columns if by_rows else d.rows
            bias = strided(
                self.driver,
                "the bias",
                described[ProductAttribute.BIAS],
                d.type if kind is None else element_type(kind),
                (rows,),
                (1,),
            )
            bias = bias[:, np.newaxis] if by_rows else bias
        activation = "relu" if epilogue & _RELU else "gelu_tanh" if epilogue & _GELU else None
        transposed_a, transposed_b = transposed
        if by_rows:
            a, b, transposed_a, transposed_b = b, a, not transposed_b, not transposed_a
        return Product(sums, a, b, c, d, transposed_a, transposed_b, *factors, bias, activation)


def _number(address: int, bytes: int) -> int:
    """Return the value of an attribute."""
    return int.from_bytes(ctypes.string_at(address, bytes), "little")
