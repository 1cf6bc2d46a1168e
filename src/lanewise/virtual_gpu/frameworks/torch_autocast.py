"""`torch.autocast("cuda")` under a virtual GPU: torch's rules for CPU tensors, and float32 where CUDA has it.

torch chooses the types of operands by the device of the tensors, and those of a virtual GPU are in host
memory: autocast for the CPU, of the same type, does what is left to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_map

if TYPE_CHECKING:
    from lanewise.virtual_gpu.frameworks.patches import Patches

#: Functions that autocast computes in float32 on a GPU (torch's page on automatic mixed precision).
_IN_FLOAT32 = {
    "__pow__", "__rdiv__", "__rpow__", "__rtruediv__", "acos", "asin", "binary_cross_entropy_with_logits",
    "cdist", "cosh", "cosine_embedding_loss", "cosine_similarity", "cross_entropy", "cumprod", "cumsum",
    "dist", "erfinv", "exp", "expm1", "group_norm", "hinge_embedding_loss", "kl_div", "l1_loss", "layer_norm",
    "log", "log10", "log1p", "log2", "log_softmax", "margin_ranking_loss", "mse_loss", "multi_margin_loss",
    "multilabel_margin_loss", "nll_loss", "norm", "normalize", "pdist", "poisson_nll_loss", "pow", "prod",
    "reciprocal", "renorm", "rsqrt", "sinh", "smooth_l1_loss", "soft_margin_loss", "softmax", "softmin",
    "softplus", "sum", "tan", "triplet_margin_loss",
}  # fmt: skip
_HALF = (torch.float16, torch.bfloat16)


def computes_in_float32(func: Any) -> bool:
    """Return whether autocast is on for the GPU and computes a function in float32."""
    return torch.is_autocast_enabled("cuda") and getattr(func, "__name__", "") in _IN_FLOAT32


def in_float32(values: Any) -> Any:
    """Return arguments with half-precision tensors in float32."""

    def widened(each: Any) -> Any:
        return each.float() if isinstance(each, torch.Tensor) and each.dtype in _HALF else each

    return tree_map(widened, values)


def install_torch_autocast(patches: Patches) -> None:
    """Let autocast for "cuda" hold for tensors of the virtual GPU, until the patches are taken back."""
    autocast: Any = torch.amp.autocast_mode.autocast

    def enter(own: Any, context: Any) -> Any:
        entered = own(context)
        if context.device == "cuda":
            kind = context.fast_dtype
            inner = autocast("cpu", dtype=kind if kind in _HALF else None, enabled=context._enabled)
            own(inner)
            vars(context).setdefault("_on_cpu", []).append(inner)
        return entered

    def leave(own: Any, context: Any, *error: Any) -> Any:
        if context.device == "cuda":
            own(context._on_cpu.pop(), *error)
        return own(context, *error)

    patches.wrap(autocast, "__enter__", enter)
    patches.wrap(autocast, "__exit__", leave)
