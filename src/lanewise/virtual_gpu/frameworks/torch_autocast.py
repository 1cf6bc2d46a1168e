"""`torch.autocast("cuda")` under a virtual GPU: the types that torch itself chooses for a GPU.

torch chooses the types of operands by the device of the tensors, and those of a virtual GPU are in host
memory. Autocast for the CPU, of the same type, does what both devices have in common. What CUDA has alone
(exp, softmax, layer_norm, mv, …) is taken from torch's own kernels for CUDA's autocast, which every build of
torch has: they are called with tensors that say they are on a GPU and hold no data, and the types with which
they call the operator are those to use.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from lanewise.virtual_gpu.frameworks.patches import Patches

_library: Any = torch.library.Library
_Tensor: Any = torch.Tensor
_HALF = (torch.float16, torch.bfloat16)
_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)


@cache
def operators_of_cuda_alone() -> list[str]:
    """Return the operators whose types autocast chooses on a GPU and not on a CPU ("softmax.int").

    Asked once: after that some have the kernels of `_Rules`.
    """
    on_gpu, on_cpu = (
        set(torch._C._dispatch_get_registrations_for_dispatch_key(key))
        for key in ("AutocastCUDA", "AutocastCPU")
    )
    return sorted(name.removeprefix("aten::") for name in on_gpu - on_cpu if name.startswith("aten::"))


class _Reached(Exception):
    """An operator behind autocast, and its arguments."""

    def __init__(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__()
        self.operator, self.operands, self.options = operator, args, kwargs


class _OnGPU(_Tensor):  # type: ignore[misc]  # what it overrides has other types in torch
    """A tensor without data on a GPU. Operators but casts end in `_Reached`."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, like: torch.Tensor, dtype: torch.dtype | None = None) -> _OnGPU:
        made: _OnGPU = _Tensor._make_wrapper_subclass(
            cls, like.shape, dtype=dtype or like.dtype, device=torch.device("cuda", 0)
        )
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._to_copy.default:
            return cls(args[0], kwargs["dtype"])
        raise _Reached(func, args, kwargs or {})


def type_on_gpu(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.dtype | None:
    """Return the type to which autocast on a GPU casts the operands of an operator, or None."""

    def on_gpu(value: Any) -> Any:
        return _OnGPU(value) if isinstance(value, torch.Tensor) else value

    given = tree_leaves((args, kwargs))
    try:
        operator(*tree_map(on_gpu, args), **tree_map(on_gpu, kwargs))
    except _Reached as reached:
        names = [argument.name for argument in reached.operator._schema.arguments]
        named = {**dict(zip(names, reached.operands, strict=False)), **reached.options}
        if named.get("half_to_float"):
            return torch.float32
        leaves = tree_leaves(named)
        before = {value.dtype for value in given if isinstance(value, torch.Tensor)}
        after = {leaf.dtype for leaf in leaves if isinstance(leaf, torch.Tensor)}
        dtypes = {leaf for leaf in leaves if isinstance(leaf, torch.dtype)}
        dtypes -= {value for value in given if isinstance(value, torch.dtype)}
        if dtypes:  # as torch.sum(x, dtype=torch.float32), whose operand keeps its type
            return dtypes.pop()
        return (after - before).pop() if after - before else _widest(before, after)
    return None


def _widest(before: set[torch.dtype], after: set[torch.dtype]) -> torch.dtype | None:
    """Return the one of several types that all operands have after a cast, or None if nothing was cast."""
    floating = [dtype for dtype in after if dtype.is_floating_point]
    return floating[0] if after != before and len(floating) == 1 else None


class _Rules:
    """Kernels by which autocast for the CPU treats what only CUDA's treats, while autocast is on for CUDA."""

    def __init__(self) -> None:
        self.types: dict[object, torch.dtype | None] = {}
        self.library = _library("aten", "IMPL")
        for name in operators_of_cuda_alone():
            base, _, overload = name.partition(".")
            operator = getattr(getattr(torch.ops.aten, base), overload or "default")
            self.library.impl(name, partial(self.call, operator), "AutocastCPU")

    def call(self, operator: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call an operator with the types that it has on a GPU."""
        kind = self.type_of(operator, args, kwargs) if torch.is_autocast_enabled("cuda") else None

        def cast(value: Any) -> Any:
            takes = (
                isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype != torch.float64
            )
            return value.to(kind) if takes else value

        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            if kind is not None:
                args, kwargs = tree_map(cast, (args, kwargs))
            return operator(*args, **kwargs)

    def type_of(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.dtype | None:
        """Return the type of `type_on_gpu`, which depends on the types of all operands and of autocast."""
        leaves = tree_leaves((args, kwargs))
        kinds = tuple(
            leaf.dtype if isinstance(leaf, torch.Tensor) else leaf
            for leaf in leaves
            if isinstance(leaf, torch.Tensor | torch.dtype)
        )
        key = (operator, kinds, torch.get_autocast_dtype("cuda"))
        if key not in self.types:
            self.types[key] = type_on_gpu(operator, args, kwargs)
        return self.types[key]


def rounds_to_its_own_type(function: Any) -> bool:
    """Return whether a function of half-precision tensors gives such ones: not if autocast widens it."""
    return not torch.is_autocast_enabled("cuda") or function.__name__ not in operators_of_cuda_alone()


def in_float32(values: Any) -> Any:
    """Return arguments with half-precision tensors in float32."""

    def widened(value: Any) -> Any:
        return value.float() if isinstance(value, torch.Tensor) and value.dtype in _HALF else value

    return tree_map(widened, values)


def install_torch_autocast(patches: Patches) -> None:
    """Let autocast for "cuda" hold for tensors of the virtual GPU, until the patches are taken back."""
    autocast: Any = torch.amp.autocast_mode.autocast
    rules: list[_Rules] = []

    def enter(own: Any, context: Any) -> Any:
        entered = own(context)
        if context.device == "cuda":
            if not rules:
                rules.append(_Rules())
            kind = context.fast_dtype
            inner = autocast("cpu", dtype=kind if kind in _HALF else None, enabled=context._enabled)
            own(inner)
            vars(context).setdefault("_on_cpu", []).append(inner)
        return entered

    def leave(own: Any, context: Any, *error: Any) -> Any:
        if context.device == "cuda":
            own(context._on_cpu.pop(), *error)
        return own(context, *error)

    def forget() -> None:
        for rule in rules:
            rule.library._destroy()

    patches.callback(forget)
    patches.wrap(autocast, "__enter__", enter)
    patches.wrap(autocast, "__exit__", leave)
