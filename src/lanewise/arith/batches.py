"""Batches of products as the kernels take them: the offset of each item, padding, and shares of work."""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from lanewise.numpy_types import AnyArray

Array = AnyArray

#: Multiplications that are worth a thread.
WORTHWHILE = 1 << 16


@dataclass(frozen=True)
class Product:
    """A batch of products: A (…, M, K), B (…, K, N), sums (batch, M, N) that start as C and end as D.

    A is raw words, or f32 for a sparse A, spread out with ABSENT in its gaps. `scale_a` is (…, M, steps),
    `scale_b` (…, steps, N).
    """

    a: Array
    b: Array
    sums: Array
    batch: tuple[int, ...]
    scale_a: Array | None = None
    scale_b: Array | None = None

    @property
    def items(self) -> int:
        """The number of products in the batch."""
        return math.prod(self.batch)


def offsets(array: Array, batch: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """Return the offset of each item's matrix, in bytes from the array's first element."""
    own = array.shape[:-2]
    size = array.shape[-2] * array.shape[-1] * array.itemsize
    starts = np.arange(math.prod(own), dtype=np.int64).reshape(own) * size
    return np.ascontiguousarray(np.broadcast_to(starts, batch)).reshape(-1)


def contiguous(array: Array) -> Array:
    """Return an array contiguous and aligned, as compiled code takes it; copied only if it is not."""
    return np.require(array, requirements=["C_CONTIGUOUS", "ALIGNED"])


def pad_columns(array: Array, columns: int) -> Array:
    """Return an array padded with zeros on the right, up to a number of columns."""
    missing = columns - array.shape[-1]
    if missing == 0:
        return contiguous(array)
    padded = np.zeros((*array.shape[:-1], columns), array.dtype)
    padded[..., : array.shape[-1]] = array
    return padded


def shares(total: int, count: int) -> list[tuple[int, int]]:
    """Return ranges that cut a total into about equal shares."""
    count = max(1, min(count, total))
    edges = [total * number // count for number in range(count + 1)]
    return list(pairwise(edges))


def vectors_for(columns: int, widest: int) -> tuple[int, int]:
    """Return the lanes of a vector and the columns of a strip, at most four vectors wide.

    Little of a strip is wasted.

    >>> vectors_for(1024, 4), vectors_for(8, 4), vectors_for(8, 16)
    ((4, 16), (4, 8), (8, 8))
    """
    lanes = widest
    while lanes > 2 and columns <= lanes // 2:
        lanes //= 2
    strips = [lanes * vectors for vectors in (4, 2, 1)]
    waste = {strip: -columns % strip for strip in strips}
    little = [strip for strip in strips if waste[strip] * 8 <= columns or waste[strip] == min(waste.values())]
    return lanes, little[0]
