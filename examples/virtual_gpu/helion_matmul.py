"""A matmul of tiles in Helion: `lanewise run --gpu H100 examples/virtual_gpu/helion_matmul.py`."""

import helion
import helion.language as hl
import torch


@helion.kernel(config=helion.Config(block_sizes=[32, 32, 32], num_warps=4))
def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    m, k = a.size()
    _, n = b.size()
    c = torch.empty([m, n], dtype=torch.float32, device=a.device)
    for tile_m, tile_n in hl.tile([m, n]):
        total = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            total = torch.addmm(total, a[tile_m, tile_k], b[tile_k, tile_n])
        c[tile_m, tile_n] = total
    return c


a, b = (torch.randn(64, 64, device="cuda", dtype=torch.float16) for _ in range(2))
torch.testing.assert_close(matmul(a, b), a.float() @ b.float(), rtol=1e-3, atol=1e-3)
print("Helion: the product is right")
