"""A Triton kernel with a race: `lanewise check --gpu H100 examples/virtual_gpu/norm.py` finds it."""

import torch
import triton
import triton.language as tl


@triton.jit
def sum_of_squares(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(out, tl.load(out) + tl.sum(v * v))


x, out = torch.rand(4000, device="cuda"), torch.zeros(1, device="cuda")
sum_of_squares[(4,)](x, out, x.numel(), BLOCK=1024)
torch.testing.assert_close(out[0], (x * x).sum())
