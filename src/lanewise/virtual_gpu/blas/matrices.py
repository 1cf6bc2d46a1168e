"""Matrices and vectors in memory as arrays, and what cuBLAS computes with them."""

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt

from lanewise.launch import LAUNCHES
from lanewise.linalg.matmul import matmul
from lanewise.linalg.planning.gpus import GPUS
from lanewise.machine.runtime.initialised_bytes import INITIALISED
from lanewise.numpy_types import AnyArray, AnyDtype
from lanewise.virtual_gpu.driver.driver import Driver
from lanewise.virtual_gpu.driver.results import DriverError, Result
from lanewise.virtual_gpu.order.stream_races import AccessKind

Array = npt.NDArray[Any]

#: The types of elements by their number (cudaDataType).
TYPES: dict[int, np.dtype[Any]] = {
    0: np.dtype(np.float32),
    1: np.dtype(np.float64),
    2: np.dtype(np.float16),
    3: np.dtype(np.int8),
    10: np.dtype(np.int32),
    14: np.dtype(ml_dtypes.bfloat16),
    28: np.dtype(ml_dtypes.float8_e4m3fn),
    29: np.dtype(ml_dtypes.float8_e5m2),
}
#: The types of sums by their number (cublasComputeType_t).
SUMS: dict[int, str] = {
    64: "f16", 65: "f16", 68: "f32", 69: "f32", 70: "f64", 71: "f64", 72: "i32", 73: "i32", 74: "tf32",
    75: "tf32", 77: "tf32",
}  # fmt: skip
#: The type of alpha and beta for sums of a type.
_SCALARS = {"f16": np.float16, "f32": np.float32, "tf32": np.float32, "f64": np.float64, "i32": np.int32}


def element_type(number: int) -> np.dtype[Any]:
    """Return the type of elements that a number stands for."""
    if number not in TYPES:
        names = ", ".join(str(dtype) for dtype in TYPES.values())
        raise DriverError(Result.NOT_SUPPORTED, f"cudaDataType {number} is not supported; supported: {names}")
    return TYPES[number]


def sum_type(number: int) -> str:
    """Return the type of sums that a number stands for."""
    if number not in SUMS:
        raise DriverError(Result.NOT_SUPPORTED, f"cublasComputeType_t {number} is not supported")
    return SUMS[number]


def scalar(driver: Driver, address: int, type: str) -> float:
    """Return alpha or beta, which lies in memory of the host or of the device."""
    if not address:
        raise DriverError(Result.INVALID_VALUE, "alpha or beta is a null pointer")
    kind = np.dtype(_SCALARS[type])
    place = driver.memory.host_address(address)
    return float(np.frombuffer(ctypes.string_at(place, kind.itemsize), kind)[0])


def factor(driver: Driver, address: int, type: str) -> Callable[[], float]:
    """Return what gives alpha or beta: read now from memory of the host, on the device when work is done."""
    value = scalar(driver, address, type)
    if driver.memory.find(address) is None:
        return lambda: value
    return partial(scalar, driver, address, type)


class Place(NamedTuple):
    """A matrix in column-major order in memory: its address, type, shape and the distance of columns.

    Of a matrix in row-major order the transpose is meant.
    """

    address: int
    type: np.dtype[Any]
    rows: int
    columns: int
    leading: int

    @property
    def bytes(self) -> int:
        """The bytes from the first element to the last."""
        return ((self.columns - 1) * self.leading + self.rows) * self.type.itemsize

    def transpose(self, driver: Driver, name: str) -> Array:
        """Return the transpose as an array of the elements in memory."""
        if self.leading < max(1, self.rows):
            raise DriverError(
                Result.INVALID_VALUE,
                f"the leading dimension of {name} is {self.leading}, less than its {self.rows} rows",
            )
        return strided(driver, name, self.address, self.type, (self.columns, self.rows), (self.leading, 1))


def strided(
    driver: Driver,
    name: str,
    address: int,
    type: np.dtype[Any],
    shape: tuple[int, ...],
    strides: tuple[int, ...],
) -> Array:
    """Return elements of device memory as an array; an error if some of them lie outside."""
    if 0 in shape:
        return np.empty(shape, type)
    last = sum((count - 1) * step for count, step in zip(shape, strides, strict=True))
    size = (last + 1) * type.itemsize
    home = driver.memory.find(address)
    if home is None:
        raise DriverError(Result.ILLEGAL_ADDRESS, f"{name} at {address:#x} is no memory of the device")
    if address + size > home.first + home.size:
        beyond = address + size - home.first - home.size
        raise DriverError(
            Result.ILLEGAL_ADDRESS,
            f"{name} at {address:#x} has {size} bytes, {beyond} too many for its memory",
        )
    words = driver.memory.range(address, size).view(f"u{type.itemsize}")  # NumPy strides its own types alone
    steps = [stride * type.itemsize for stride in strides]
    return np.lib.stride_tricks.as_strided(words, shape, steps).view(type)


class Product(NamedTuple):
    """alpha · op(a) · op(b) + beta · c, to which a bias and an activation may be applied, written to d."""

    sums: str
    a: Place
    b: Place
    c: Place
    d: Place
    transpose_a: bool
    transpose_b: bool
    alpha: float
    beta: float
    bias: Array | None = None
    activation: str | None = None
    #: The type of alpha and beta, if it is not that of the sums.
    scale: str = ""


def multiply(driver: Driver, product: Product) -> None:
    """Compute a product and write its result: of the transposes, which are in row-major order."""
    left, right = product.b.transpose(driver, "B"), product.a.transpose(driver, "A")
    left = left.T if product.transpose_b else left
    right = right.T if product.transpose_a else right
    out = product.d.transpose(driver, "D" if product.c != product.d else "C")
    residual = None
    if product.beta != 0:
        residual = product.c.transpose(driver, "C").copy()
    if out.size == 0:
        return
    on_tensor_cores = left.dtype.itemsize < 4 or product.sums == "tf32"
    sums = _sums(driver, product.sums, left, right) if on_tensor_cores else left @ right
    result = _finished(product, sums, residual)
    if out.dtype.kind == "i":  # rounded to nearest even, and at most the largest
        limits = np.iinfo(out.dtype)
        result = np.clip(np.rint(result), limits.min, limits.max)
    out[...] = result.astype(out.dtype)


def _sums(driver: Driver, type: str, left: Array, right: Array) -> Array:
    """Return a product by lw.matmul: the bits of tensor cores, in the type of their sums."""
    arch = driver.device.arch
    options: dict[str, Any] = {"arch": arch if arch in GPUS else None, "out_dtype": np.dtype(_SCALARS[type])}
    if type == "tf32":
        options["precision"] = "tf32"
    if type == "f16":
        options["accumulate"] = np.float16
    with LAUNCHES.unobserved():  # what it launches is not the program's
        result: Array = matmul(left, right, **options)
    return result


def _finished(product: Product, sums: Array, residual: Array | None) -> Array:
    """Return what follows the sums: factors, bias and activation, in float for sums of fewer bits."""
    scaled = product.sums == "f16" or (product.sums, product.scale) == ("i32", "f32")
    kind = np.float32 if scaled else sums.dtype.type
    result: Array = sums.astype(kind) * kind(product.alpha)
    if residual is not None:
        result = result + residual.astype(kind) * kind(product.beta)
    if product.bias is not None:
        result = result + product.bias.astype(kind)
    if product.activation == "relu":
        result = np.maximum(result, 0)
    if product.activation == "gelu_tanh":
        result = result / 2 * (1 + np.tanh(kind(0.7978845608) * (result + kind(0.044715) * result**3)))
    return result


def note_product(driver: Driver, title: str, stream: int, reads: list[Place], written: Place) -> None:
    """Let checks know what a call reads and writes."""
    accesses = [driver.access(AccessKind.READ, read.address, read.bytes) for read in reads if read.bytes > 0]
    if written.bytes > 0:
        INITIALISED.write(written.address, written.bytes)
        accesses.append(driver.access(AccessKind.WRITE, written.address, written.bytes))
    driver.note(title, stream, [access for access in accesses if access is not None])


class Vector(NamedTuple):
    """Where a vector lies: the address of its first element in memory, and the step to the next.

    A vector with a negative step begins at its end.
    """

    address: int
    step: int


class VectorCalls:
    """The entry points on vectors of one type, as work of a stream, by the plain names of the functions."""

    def __init__(self, driver: Driver, type: AnyDtype, stream: int) -> None:
        self._driver, self._type, self._stream = driver, type, stream

    def _elements(self, vector: Vector, count: int) -> AnyArray:
        """Return the elements of a vector, which are those in device memory."""
        if count <= 0:
            return np.empty(0, self._type)
        steps = (abs(vector.step),)
        array = strided(self._driver, "a vector", vector.address, self._type, (count,), steps)
        return array[::-1] if vector.step < 0 else array

    def _note(self, vector: Vector, count: int) -> None:
        """Tell the checks of streams that a vector was written."""
        place = Place(vector.address, self._type, 1, max(count, 1), max(abs(vector.step), 1))
        note_product(self._driver, "cuBLAS", self._stream, [], place)

    def _answer(self, address: int, value: float) -> None:
        """Write a number to memory of the host or of the device."""
        place = self._driver.memory.host_address(address)
        ctypes.memmove(place, self._type.type(value).tobytes(), self._type.itemsize)
        if self._driver.memory.find(address) is not None:
            self._note(Vector(address, 1), 1)

    def axpy(self, n: int, alpha: float, x: Vector, y: Vector) -> None:
        """Add alpha · x to y."""
        target = self._elements(y, n)
        target += alpha * self._elements(x, n)
        self._note(y, n)

    def copy(self, n: int, x: Vector, y: Vector) -> None:
        """Copy a vector to another one."""
        self._elements(y, n)[...] = self._elements(x, n)
        self._note(y, n)

    def swap(self, n: int, x: Vector, y: Vector) -> None:
        """Exchange two vectors of one length."""
        one, other = self._elements(x, n), self._elements(y, n)
        one[...], other[...] = other.copy(), one.copy()
        self._note(x, n)
        self._note(y, n)

    def scal(self, n: int, alpha: float, x: Vector) -> None:
        """Multiply a vector by alpha."""
        target = self._elements(x, n)
        target *= alpha
        self._note(x, n)

    def dot(self, n: int, x: Vector, y: Vector, result: int) -> None:
        """Write the dot product of two vectors."""
        self._answer(result, np.dot(self._elements(x, n), self._elements(y, n)))

    def nrm2(self, n: int, x: Vector, result: int) -> None:
        """Write the length of a vector."""
        self._answer(result, float(np.linalg.norm(self._elements(x, n))))

    def asum(self, n: int, x: Vector, result: int) -> None:
        """Write the sum of absolute values."""
        self._answer(result, np.abs(self._elements(x, n)).sum())

    def gemv(
        self, transpose: int, m: int, n: int, alpha: float, a: int, lda: int, x: Vector, beta: float,
        y: Vector,
    ) -> None:  # fmt: skip
        """Compute y = alpha · op(a) · x + beta · y."""
        matrix = Place(a, self._type, m, n, lda).transpose(self._driver, "A")
        matrix = matrix if transpose else matrix.T
        rows, columns = matrix.shape
        target = self._elements(y, rows)
        product = alpha * (matrix @ self._elements(x, columns))
        target[...] = product + beta * target if beta else product
        self._note(y, rows)
