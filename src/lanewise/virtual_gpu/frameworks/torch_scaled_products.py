"""torch._scaled_mm of block-scaled matrices, which torch for CPUs does not have: mxfp8, mxfp4 and nvfp4.

The scale factors lie in the 128×4 order of cuBLAS. The product is computed in float64 and rounded once.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lanewise.linalg.block_scaling.formats import SwizzledScales

#: Elements along K that share a scale factor, by the type of the factors.
_BLOCKS = {torch.float8_e8m0fnu: 32, torch.float8_e4m3fn: 16}
_E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)


def scaled_mm(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Return what `torch._scaled_mm` does on a GPU; products without blocks are left to torch.

    >>> ones = torch.full((128, 64), 0x22, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    >>> scale = torch.ones(128 * 8).to(torch.float8_e4m3fn)
    >>> float(scaled_mm(ones, ones.T, scale, scale, out_dtype=torch.float32)[5, 7])
    128.0
    """
    block = _BLOCKS.get(scale_a.dtype)
    if block is None:
        return torch._scaled_mm(a, b, scale_a, scale_b, *args, **kwargs)
    bias, _, out_dtype = (*args, *[None] * 3)[:3]
    bias, out_dtype = kwargs.get("bias", bias), kwargs.get("out_dtype", out_dtype)
    left, right = (_numbers(matrix, scale, block) for matrix, scale in ((a, scale_a), (b.T, scale_b)))
    product = left @ right.T
    if bias is not None:
        product += bias.double()
    return product.to(out_dtype or a.dtype)


def _numbers(matrix: Tensor, scale: Tensor, block: int) -> Tensor:
    """Return the rows of a matrix in float64, each block times its factor."""
    if matrix.dtype == torch.float4_e2m1fn_x2:
        packed = matrix.contiguous().view(torch.uint8)
        codes = torch.stack((packed & 15, packed >> 4), -1).flatten(-2).long()
        numbers = _E2M1[codes & 7] * torch.where(codes > 7, -1.0, 1.0)
    else:
        numbers = matrix.double()
    rows, k = numbers.shape
    words = scale.flatten().view(torch.uint8).numpy()
    factors = torch.from_numpy(SwizzledScales(words, rows, -(-k // block)).plain()).view(scale.dtype)
    return numbers * factors.double().repeat_interleave(block, 1)[:, :k]
