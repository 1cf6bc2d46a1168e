"""The instruction descriptor of tcgen05.mma: 32 bits that say formats, order and shape of its matrices.

The 64-bit descriptor of a matrix in shared memory is that of wgmma (`isa/matrix_descriptor.py`), with
version 1 in bits 46 and 47.
"""

from __future__ import annotations

from typing import NamedTuple


class Field(NamedTuple):
    """Some bits of the descriptor, and what they say."""

    name: str
    first: int
    bits: int
    says: str


_BOTH = (
    Field("sparsity selector", 0, 2, "which part of the metadata is used"),
    Field("sparse", 2, 1, "1: A is 2:4 sparse"),
)
_MATRICES = (
    Field("format of A", 7, 3, "f16 0, bf16 1, tf32 2; e4m3 0, e5m2 1, e2m3 3, e3m2 4, e2m1 5; u8 0, s8 1"),
    Field("format of B", 10, 3, "as for A"),
    Field("negate A", 13, 1, "1: −A (floats)"),
    Field("negate B", 14, 1, "1: −B (floats)"),
    Field("order of A", 15, 1, "0: K-major, 1: M-major"),
    Field("order of B", 16, 1, "0: K-major, 1: N-major"),
    Field("N", 17, 6, "columns of D, divided by 8"),
)
#: The fields for kinds f16, tf32, f8f6f4 and i8.
DENSE = (
    *_BOTH,
    Field("saturate", 3, 1, "1: sums stop at the ends of s32 (i8 alone)"),
    Field("format of D", 4, 2, "f16 0, f32 1, s32 2"),
    *_MATRICES,
    Field("M", 24, 5, "rows of D, divided by 16"),
    Field("largest shift", 30, 2, "of B's columns in .ws: none 0, 8 1, 16 2, 32 3"),
)
#: The fields for kinds mxf8f6f4, mxf4 and mxf4nvf4.
BLOCK_SCALED = (
    *_BOTH,
    Field("scale of B", 4, 2, "which byte of a column of scale factors is used"),
    *_MATRICES,
    Field("format of scales", 23, 1, "0: ue4m3, 1: ue8m0"),
    Field("M", 24, 5, "rows of D, divided by 16"),
    Field("scale of A", 29, 2, "which byte of a column of scale factors is used"),
    Field("K", 31, 1, "0: K is 32 (mxf8f6f4) or 64 (mxf4); 1: 96 (mxf4, sm_103a)"),
)


class Shapes(NamedTuple):
    """The shapes of D and K that a kind of tcgen05.mma has."""

    m: str
    n: str
    k: str


_K = {"f16": 16, "tf32": 8, "f8f6f4": 32, "i8": 32, "mxf8f6f4": 32, "mxf4": 64, "mxf4nvf4": 64}


def shapes(text: str) -> Shapes:
    """The shapes of a tcgen05.mma, in words: M and N are chosen by the instruction descriptor.

    >>> shapes("tcgen05.mma.cta_group::2.kind::f16").m
    '128 or 256'
    """
    words = text.split(".")
    kind = next(word.removeprefix("kind::") for word in words if word.startswith("kind::"))
    pair = "cta_group::2" in words
    k = f"{_K[kind] * (2 if 'sp' in words else 1)}"
    if "ws" in words:
        return Shapes("32, 64 or 128", "64, 128 or 256", k)
    if "block_scale" in words:
        m, n = ("128 or 256", "16 to 256 by 16") if pair else ("128", "8 to 256 by 8")
        return Shapes(m, n, f"{k}, or 96 on sm_103a" if kind != "mxf8f6f4" and "sp" not in words else k)
    if pair:
        return Shapes("128 or 256", "16 to 256 by 16; by 32 if A is in tensor memory", k)
    if kind == "i8":
        return Shapes("64 or 128", "8, and 16 to 256 by 16 (M = 64); 16 to 256 by 16 (M = 128)", k)
    return Shapes("64 or 128", "8 to 256 by 8 (M = 64); 16 to 256 by 16 (M = 128)", k)
