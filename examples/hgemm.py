"""A first kernel: C = A · B in half precision, one warp for each 16×8 tile of C.

It runs on the GPU if there is one (with torch or CuPy) and on the CPU machine otherwise, is compared with the
instruction bit for bit, checked for hazards, counted, and its shared memory is drawn.

    lanewise run examples/hgemm.py
"""

from importlib import import_module, util
from typing import Any

import numpy as np

import lanewise as lw

mma = lw.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
TILE = lw.Layout((16, 16), (16, 1))  # of A in shared memory: rows of 32 bytes
SWIZZLE = lw.Swizzle(1, 3, 3)  # the halves of rows 4 to 7, 12 to 15 change places


@lw.kernel
def hgemm(
    A: lw.Ptr[lw.f16, 16], B: lw.Ptr[lw.f16, 16], C: lw.Ptr[lw.f32], N: lw.i32, K: lw.i32, S: lw.Constexpr
) -> None:
    lane = lw.lane_id()
    row, col = lw.block_idx.y * 16, lw.block_idx.x * 8  # of this block's tile of C
    As, Bs = lw.shared(lw.f16, TILE, swizzle=S), lw.shared(lw.f16, (16, 8))
    acc = mma.zeros()
    for k in lw.range(0, K, 16):
        r, c = lane // 2, lane % 2 * 8  # 16 bytes a lane: two lanes a row of A, one a row of B
        As.ptr(r, c).store((A + (row + r) * K + k + c).load(8))
        if lane < 16:
            Bs.ptr(lane, 0).store((B + (k + lane) * N + col).load(8))
        lw.syncthreads()
        a = lw.ldmatrix(As.ptr(lane % 16, lane // 16 * 8), num=4)
        b = lw.ldmatrix(Bs.ptr(lane % 16, 0), num=2, trans=True)
        acc = mma(a, b, acc)
        lw.syncthreads()
    for i in range(len(acc)):
        r, c = acc.element(i)  # which element of the tile this lane's i-th value is
        C[(row + r) * N + col + c] = acc[i]


def arrays_of_the_gpu() -> Any:
    """torch or CuPy, whichever is installed and has a CUDA device; None without one."""
    if lw.gpu.available():
        if util.find_spec("torch") and import_module("torch").cuda.is_available():
            return lambda array: import_module("torch").from_numpy(array).cuda()
        if util.find_spec("cupy"):
            return import_module("cupy").asarray
    return None


def counted(report: Any) -> str:
    """What a report says of the tensor cores and of shared memory."""
    counters = report.counters
    conflicts, wavefronts = (
        counters[name]
        for name in ("derived__memory_l1_wavefronts_shared_excessive", "memory_l1_wavefronts_shared")
    )
    return (
        f"{len(report.findings)} findings; {counters['smsp__inst_executed_pipe_tensor.sum']:,} tensor "
        f"instructions; {conflicts:,} of {wavefronts:,} shared wavefronts are bank conflicts"
    )


def main() -> None:
    """Launch it, verify it, check it with and without the swizzle, and draw the difference."""
    m, n, k = 128, 64, 256
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((m, k), (k, n)))
    configured = hgemm[(n // 8, m // 16), 32]

    to_gpu = arrays_of_the_gpu()
    where, arch = "the CPU machine", "sm_90"
    c: Any = np.zeros((m, n), np.float32)
    if to_gpu:
        device = lw.gpu.devices()[0]
        where, arch = device.name, device.arch
        on_gpu = [to_gpu(array) for array in (a, b, c)]
        configured(*on_gpu, n, k, S=SWIZZLE)
        c = np.asarray(on_gpu[2].get() if hasattr(on_gpu[2], "get") else on_gpu[2].cpu())
    else:
        configured(a, b, c, n, k, S=SWIZZLE, arch=arch)
    unlike = int((c.view(np.uint32) != mma.gemm(a, b, arch=arch).view(np.uint32)).sum())
    print(f"C = A · B, {m} × {n} × {k}, on {where}, as {arch} computes it")
    print(f"bits      {'all equal to' if not unlike else f'{unlike} of {c.size} NOT those of'} mma.gemm")

    for name, swizzle in (("plain", None), ("swizzled", SWIZZLE)):
        report = lw.check(configured, a, b, np.zeros_like(c), n, k, S=swizzle, arch=arch)
        for finding in report.findings:
            print(finding)
        print(f"{name:<9} {counted(report)}")
        layout = lw.ComposedLayout(swizzle, 0, TILE) if swizzle else TILE
        path = lw.draw.save(lw.draw.bank_map(layout, 16), f"hgemm_{name}.svg")
        print(f"          the banks of its tile of A are drawn in {path}")


if __name__ == "__main__":
    main()
