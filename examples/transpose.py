"""A transpose of 16-bit elements in registers: every warp turns an 8×8 block with one movmatrix.

Rows of 16 bytes come in, four lanes a row, and rows of 16 bytes go out: no shared memory, no bank conflicts.

    python examples/transpose.py
"""

import numpy as np

import lanewise as lw


@lw.kernel
def transpose(A: lw.Ptr[lw.u16, 4], B: lw.Ptr[lw.u16, 4], M: lw.i32, N: lw.i32) -> None:
    """B = Aᵀ for an M × N matrix of any 16-bit elements; M and N are multiples of 8."""
    lane = lw.lane_id()
    row, col = lw.block_idx.y * 8, lw.block_idx.x * 8
    r, c = lane // 4, lane % 4 * 2  # lane l of an 8×8 matrix holds row l / 4, columns 2 (l % 4) and the next
    pair = (A + ((row + r) * N + col + c)).to(lw.u32)[0]
    turned = lw.movmatrix(pair)
    (B + ((col + r) * M + row + c)).to(lw.u32)[0] = turned


def main() -> None:
    """A 64 × 40 matrix of halves, against NumPy."""
    a = np.random.default_rng(0).normal(size=(64, 40)).astype(np.float16)
    b = np.zeros((40, 64), np.float16)
    arguments = a.view(np.uint16), b.view(np.uint16), *a.shape
    report = lw.check(transpose[(40 // 8, 64 // 8), 32], *arguments, arch="sm_80")
    assert np.array_equal(b, a.T), "NOT right"
    assert report.ok, report
    print(
        f"equal to a.T; {report.counters['smsp__inst_executed.sum']:,} instructions of warps, nothing found"
    )


if __name__ == "__main__":
    main()
