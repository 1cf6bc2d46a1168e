"""A pipelined matmul in TileLang: `lanewise run --gpu H100 examples/virtual_gpu/tilelang_matmul.py`."""

import tilelang
import tilelang.language as tl
import torch

N, TILE = 128, 64


@tilelang.jit(out_idx=[-1])
def matmul():
    @tl.prim_func
    def main(
        a: tl.Tensor((N, N), "float16"), b: tl.Tensor((N, N), "float16"), c: tl.Tensor((N, N), "float32")
    ):
        with tl.Kernel(N // TILE, N // TILE, threads=128) as (x, y):
            left = tl.alloc_shared((TILE, TILE), "float16")
            right = tl.alloc_shared((TILE, TILE), "float16")
            total = tl.alloc_fragment((TILE, TILE), "float32")
            tl.clear(total)
            for k in tl.Pipelined(N // TILE, num_stages=2):
                tl.copy(a[y * TILE, k * TILE], left)
                tl.copy(b[k * TILE, x * TILE], right)
                tl.gemm(left, right, total)
            tl.copy(total, c[y * TILE, x * TILE])

    return main


a, b = (torch.randn(N, N, device="cuda", dtype=torch.float16) for _ in range(2))
torch.testing.assert_close(matmul()(a, b), a.float() @ b.float(), rtol=1e-2, atol=1e-2)
print("TileLang: the product is right")
