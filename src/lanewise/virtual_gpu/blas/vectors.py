"""Vectors in cuBLAS, computed with NumPy; the order of sums is not defined."""

import ctypes
from typing import NamedTuple

import numpy as np

from lanewise.numpy_types import AnyArray, AnyDtype
from lanewise.virtual_gpu.blas.matrices import Place, note_product, strided
from lanewise.virtual_gpu.driver.driver import Driver


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
        ctypes.memmove(address, self._type.type(value).tobytes(), self._type.itemsize)
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
