"""A 2:4 sparse product: of four neighbours in a row of A at most two are not zero, and only they are stored.

`mma.sp` multiplies the packed values, 16×16 of them for K = 32, and metadata of two bits a value says where
each belongs: half the work and half the bytes of A.

    python examples/sparse_gemm.py
"""

from typing import Any

import numpy as np

import lanewise as lw

mma = lw.instruction("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32")


@lw.kernel
def sparse_gemm(
    A: lw.Ptr[lw.f16, 4], E: lw.Ptr[lw.u32], B: lw.Ptr[lw.f16, 4], C: lw.Ptr[lw.f32], N: lw.i32, K: lw.i32
) -> None:  # fmt: skip
    """C = A · B: A packed to M × K/2, E the metadata of each 16-row, 32-column tile as its lanes hold it."""
    lane = lw.lane_id()
    row, col = lw.block_idx.y * 16, lw.block_idx.x * 8
    acc = mma.zeros()
    for k in lw.range(0, K, 32):
        a, b = [], []
        for i in range(0, mma.a.values, 2):  # who holds what comes from the catalogue
            r, c = mma.a.full(0).element(i)
            a.append((A + ((row + r) * (K // 2) + k // 2 + c)).to(lw.u32)[0])
        for i in range(0, mma.b.values, 2):
            r, c = mma.b.full(0).element(i)
            b.append(lw.pack(B[(k + r) * N + col + c], B[(k + r + 1) * N + col + c]))
        metadata = E[(lw.block_idx.y * (K // 32) + k // 32) * 32 + lane]
        acc = mma(a, b, acc, metadata=metadata, selector=0)
    for i in range(len(acc)):
        r, c = acc.element(i)
        C[(row + r) * N + col + c] = acc[i]


def places(a: Any) -> Any:
    """Which two of every four count, in ascending order: a number 0…3 for every packed value."""
    groups = a.reshape(a.shape[0], -1, 4)
    order = np.sort(np.argsort(groups == 0, axis=-1, kind="stable")[..., :2], axis=-1)
    return order.reshape(a.shape[0], -1)


def pack(a: Any) -> tuple[Any, Any]:
    """The two values of every four that count, and the metadata in the registers of each tile's lanes."""
    m, k = a.shape
    order = places(a)
    values = np.take_along_axis(a.reshape(m, k // 4, 4), order.reshape(m, k // 4, 2), -1).reshape(m, k // 2)
    tiles = order.reshape(m // 16, 16, k // 32, 16).transpose(0, 2, 1, 3)
    words = mma.metadata.pack(tiles, thread_id=0)
    return values, np.ascontiguousarray(words[..., 0], np.uint32)


def main() -> None:
    """64 × 24 × 96, against double precision, and bit for bit against the instruction on arrays."""
    rng = np.random.default_rng(0)
    m, n, k = 64, 24, 96
    a = rng.normal(size=(m, k)).astype(np.float16)
    drop = np.argsort(rng.random((m, k // 4, 4)), axis=-1)[..., :2]
    np.put_along_axis(a.reshape(m, k // 4, 4), drop, 0, -1)
    b = rng.normal(size=(k, n)).astype(np.float16)
    c = np.zeros((m, n), np.float32)
    values, metadata = pack(a)
    sparse_gemm[(n // 8, m // 16), 32](values, metadata, b, c, n, k, arch="sm_90")
    error = np.abs(c - a.astype(np.float64) @ b.astype(np.float64)).max()
    print(f"{m} × {n} × {k}, half of A: largest error {error:.1e}")
    assert error < 1e-4, "NOT right"
    assert np.array_equal(c, mma.gemm(values, b, arch="sm_90", metadata=places(a))), "NOT the same bits"


if __name__ == "__main__":
    main()
