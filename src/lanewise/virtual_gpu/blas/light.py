"""cuBLASLt: descriptions of products and matrices, whose attributes are set by number, and the product."""

import ctypes
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from lanewise.virtual_gpu.blas.matrices import (
    Place,
    Product,
    element_type,
    multiply,
    note_product,
    scalar,
    strided,
    sum_type,
)
from lanewise.virtual_gpu.blas.products import ProductCalls
from lanewise.virtual_gpu.driver.results import DriverError, Result

#: The bytes of cublasLtMatmulHeuristicResult_t, and where it has its workspace, its status and its waves.
_RESULT_BYTES, _WORKSPACE_AT, _STATE_AT, _WAVES_AT = 104, 64, 72, 76
#: Bits of an epilogue (cublasLtEpilogue_t) and the only ones that are supported.
_RELU, _BIAS, _GELU = 2, 4, 32
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

    def cublasLtCreate(self) -> int:
        """Return a new handle of cuBLASLt."""
        return self.cublasCreate_v2()

    def cublasLtDestroy(self, blas: int) -> None:
        """Forget a handle of cuBLASLt."""
        self.cublasDestroy_v2(blas)

    def cublasLtMatmulDescCreate(self, compute: int, scale_type: int) -> int:
        """Return a description of a product."""
        values = {ProductAttribute.COMPUTE: compute, ProductAttribute.SCALE_TYPE: scale_type}
        return self.driver.handle(Description(values))

    def cublasLtMatmulDescDestroy(self, product: int) -> None:
        """Forget the description that a handle names."""
        self.driver.forget(product, Description)

    def cublasLtMatmulDescSetAttribute(self, product: int, attribute: int, value: int, bytes: int) -> None:
        """Set an attribute of a product."""
        if attribute not in set(ProductAttribute):
            raise DriverError(Result.NOT_SUPPORTED, f"attribute {attribute} of a product is not supported")
        known = self.driver.known(product, Description)
        known.values[ProductAttribute(attribute)] = _number(value, bytes)

    def cublasLtMatrixLayoutCreate(self, type: int, rows: int, columns: int, leading: int) -> int:
        """Return a description of a matrix."""
        named = (LayoutAttribute.TYPE, LayoutAttribute.ROWS, LayoutAttribute.COLUMNS, LayoutAttribute.LEADING)
        return self.driver.handle(Layout(dict(zip(named, (type, rows, columns, leading), strict=True))))

    def cublasLtMatrixLayoutDestroy(self, layout: int) -> None:
        """Forget the description that a handle names."""
        self.driver.forget(layout, Layout)

    def cublasLtMatrixLayoutSetAttribute(self, layout: int, attribute: int, value: int, bytes: int) -> None:
        """Set an attribute of a matrix."""
        if attribute not in set(LayoutAttribute):
            raise DriverError(Result.NOT_SUPPORTED, f"attribute {attribute} of a matrix is not supported")
        number = _number(value, bytes)
        if attribute == LayoutAttribute.ORDER and number not in (0, _ROW_ORDER):
            raise DriverError(Result.NOT_SUPPORTED, "matrices are in column-major or row-major order")
        self.driver.known(layout, Layout).values[LayoutAttribute(attribute)] = number

    def cublasLtMatmulPreferenceCreate(self) -> int:
        """Return a new preference without attributes."""
        return self.driver.handle(Preference())

    def cublasLtMatmulPreferenceDestroy(self, preference: int) -> None:
        """Forget the preference that a handle names."""
        self.driver.forget(preference, Preference)

    def cublasLtMatmulPreferenceSetAttribute(
        self, preference: int, attribute: int, value: int, bytes: int
    ) -> None:
        """Set an attribute of a preference."""
        self.driver.known(preference, Preference).values[attribute] = _number(value, min(bytes, 8))

    def cublasLtMatmulAlgoGetHeuristic(
        self,
        blas: int,
        product: int,
        a: int,
        b: int,
        c: int,
        d: int,
        preference: int,
        asked: int,
        results: int,
    ) -> int:
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
        blas: int,
        product: int,
        alpha: int,
        a: int,
        layout_a: int,
        b: int,
        layout_b: int,
        beta: int,
        c: int,
        layout_c: int,
        d: int,
        layout_d: int,
        algorithm: int,
        workspace: int,
        workspace_bytes: int,
        stream: int,
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
        factors = scalar(alpha, scales), scalar(beta, scales)

        def work() -> None:
            for number in range(counts[0]):
                places = [
                    layout.place(at, number) for layout, at in zip(layouts, (a, b, c or d, d), strict=True)
                ]
                made = self._product(described, layouts, places, sums, factors)
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
