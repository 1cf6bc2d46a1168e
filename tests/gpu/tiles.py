"""Matrices as bytes in memory: tiles that wgmma reads through a descriptor, rows or columns with a stride.

A wgmma tile without swizzle is made of core matrices of 8 rows of 16 bytes. In CUTLASS's 16-byte units it is
((8, n), k) : ((1, SBO), LBO) where K is contiguous, ((1, n), (8, k)) : ((·, SBO), (1, LBO)) where M or N is.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

CORE = 128  # bytes of a core matrix


def packed_bytes(words: NDArray[Any], bits: int) -> NDArray[np.uint8]:
    """Raw words of `bits` bits, one an element, as bytes along the last axis, the first element lowest."""
    if bits >= 8:
        return np.ascontiguousarray(words).view(np.uint8).reshape(*words.shape[:-1], -1)
    per_byte = 8 // bits
    grouped = words.reshape(*words.shape[:-1], -1, per_byte).astype(np.uint8)
    return np.asarray(np.bitwise_or.reduce(grouped << (np.arange(per_byte, dtype=np.uint8) * bits), axis=-1))


@dataclass(frozen=True)
class Tile:
    """An operand (outer, K) of wgmma in shared memory, `outer` being M or N; K-major, or outer-major."""

    outer: int
    k: int
    bits: int
    outer_major: bool = False

    @property
    def size(self) -> int:
        """Bytes it takes."""
        return self.outer * self.k * self.bits // 8

    @property
    def _cores_along_k(self) -> int:
        return self.k // 8 if self.outer_major else self.k * self.bits // 128

    @property
    def descriptor_bits(self) -> int:
        """The descriptor without its start address: neighbours along K 128 bytes apart (the leading offset),
        neighbours along M or N after all of K (the stride offset), no swizzle."""
        leading, stride = CORE, CORE * self._cores_along_k
        return leading >> 4 << 16 | stride >> 4 << 32

    def image(self, words: NDArray[Any]) -> NDArray[np.uint8]:
        """Bytes uint8[..., size] of raw words [..., outer, k]."""
        lead = words.shape[:-2]
        if self.outer_major:  # 16-bit elements: 8 of them along M or N, then 8 along K
            split = words.reshape(*lead, self.outer // 8, 8, self.k // 8, 8)
            cores = np.moveaxis(split, -3, -1)  # (outer/8, k/8, 8 of k, 8 of outer)
            return packed_bytes(cores, self.bits).reshape(*lead, -1)
        rows = packed_bytes(words, self.bits).reshape(*lead, self.outer // 8, 8, self._cores_along_k, 16)
        return np.ascontiguousarray(np.swapaxes(rows, -3, -2)).reshape(*lead, -1)


def padded(image: NDArray[np.uint8], multiple: int) -> NDArray[np.uint8]:
    """The image with zeros behind it up to a multiple of so many bytes."""
    short = -image.shape[-1] % multiple
    return np.concatenate([image, np.zeros((*image.shape[:-1], short), np.uint8)], axis=-1)


@dataclass(frozen=True)
class Strided:
    """A matrix in memory by rows or by columns, `gap` bytes between one and the next."""

    rows: int
    cols: int
    bits: int
    by_rows: bool
    gap: int = 0

    @property
    def _inner(self) -> int:
        return self.cols if self.by_rows else self.rows

    @property
    def _outer(self) -> int:
        return self.rows if self.by_rows else self.cols

    @property
    def stride(self) -> int:
        """Elements from the start of a row (column) to the start of the next."""
        return self._inner + self.gap * 8 // self.bits

    @property
    def size(self) -> int:
        """Bytes of the image, the last gap included."""
        return self._outer * self.stride * self.bits // 8

    def image(self, words: NDArray[Any], filler: int = 0) -> NDArray[np.uint8]:
        """Bytes uint8[..., size] of raw words [..., rows, cols]; gaps are filled with one byte's pattern."""
        lines = packed_bytes(words if self.by_rows else np.swapaxes(words, -1, -2), self.bits)
        gaps = np.full((*lines.shape[:-1], self.gap), filler, np.uint8)
        return np.concatenate([lines, gaps], axis=-1).reshape(*words.shape[:-2], -1)
