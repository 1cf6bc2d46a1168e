"""`lw.matmul` as an operator of torch, with gradients, compilation and sharding; `lw.attention` as another.

Tensors on the CPU are computed with the bits of an H200, tensors on a GPU by lanewise's kernels. Gradients
are products of the same operator. `Linear` and `patch` use it in models.
"""
# mypy: disable-error-code="no-untyped-call,assignment,misc,untyped-decorator"

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from numbers import Real
from typing import Any
from warnings import warn

import numpy as np

from lanewise.errors import LanewiseError, shown
from lanewise.formats import FORMATS, f32
from lanewise.hints import not_called
from lanewise.linalg.attention import (
    AttentionSettings,
    _operand,
    _require_fitting,
    _scale,
    attention_of_operator,
    axes_in_memory,
)
from lanewise.linalg.attention import attention as _attention_on_tensors
from lanewise.linalg.matmul import matmul as _on_tensors
from lanewise.linalg.matmul import matmul_of_operator, require_product
from lanewise.linalg.operands import view_without_memory
from lanewise.linalg.options import Options
from lanewise.linalg.types import activation_of, format_named, precision_of, product_of, result_of
from lanewise.tracebacks import short_traceback

try:
    import torch
    from torch import Tensor
except ImportError as error:
    raise ImportError("lanewise.torch needs PyTorch, 2.6 or newer: pip install torch") from error
try:
    from torch._functorch.utils import enable_single_level_autograd_function
    from torch.autograd import forward_ad
    from torch.autograd.function import _SingleLevelFunction
except ImportError as error:
    raise ImportError(
        f"lanewise.torch works with PyTorch 2.6 to 2.13, and {torch.__version__} lacks what it needs: {error}"
    ) from error

#: What serves in place of names of other libraries.
INSTEAD = {
    "linear": "matmul(x, weight.T, bias=bias) computes it, and Linear is the layer",
    **dict.fromkeys(("compile", "backend"), "patch(model) replaces its layers, and torch.compile takes them"),
}
__all__ = ["Linear", "attention", "matmul", "patch", "register_sharding", "unpatch"]

#: The operator's arguments after a and b, in order: keywords of `lw.matmul`, their types, what they are if
#: they are not given. Nobody else in this file knows the order.
_ARGUMENTS: dict[str, tuple[str, Any]] = {
    "bias": ("Tensor?", None), "activation": ("str?", None), "residual": ("Tensor?", None),
    "alpha": ("float", 1.0), "beta": ("float", 1.0), "scale_a": ("Tensor?", None),
    "scale_b": ("Tensor?", None), "out_dtype": ("ScalarType?", None), "precision": ("str?", None),
    "batch_invariant": ("bool", False), "arch": ("str?", None),
}  # fmt: skip
_TENSORS = tuple(name for name, (kind, _) in _ARGUMENTS.items() if kind == "Tensor?")

_LIBRARY = torch.library.Library("lanewise", "DEF")
_SCHEMA = ", ".join(f"{kind} {name}={usual}" for name, (kind, usual) in _ARGUMENTS.items())
_LIBRARY.define(f"matmul(Tensor a, Tensor b, {_SCHEMA}) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
_OPERATOR: Any = torch.ops.lanewise.matmul
_NAME = "lanewise::matmul"
#: Where operators compute; tensors of the others than the first are refused, with what to do instead.
_BACKENDS = [
    kind + device for kind in ("", "Sparse", "SparseCsr", "NestedTensor") for device in ("CPU", "CUDA")
]
#: Types whose products have gradients, and to which autocast converts.
_DIFFERENTIABLE = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_LOWERED = (torch.float16, torch.bfloat16, torch.float32)


#: Types of torch by the names of formats: torch.compile follows a dict, and not the search of a format.
_TYPES: dict[str, torch.dtype] = {
    name: getattr(torch, fmt.dtype_name)
    for fmt in FORMATS.values()
    if hasattr(torch, fmt.dtype_name)
    for name in (fmt.name, fmt.dtype_name)
}


def _require_tensors(function: str, **given: object) -> None:
    for name, tensor in given.items():
        if not isinstance(tensor, Tensor):
            raise LanewiseError(
                f"lanewise.torch.{function} takes torch's tensors, and {name} is {type(tensor).__name__}; "
                f"lw.{function} takes arrays of NumPy and others"
            )


def _number(name: str, value: Any) -> Any:
    """Return a factor; an error for what is no number."""
    if isinstance(value, Tensor):
        raise LanewiseError(
            f"{name} must be a number, not a tensor: pass float({name}), or multiply by the tensor outside, "
            "where it gets its gradient"
        )
    if isinstance(value, bool) or not isinstance(value, Real | torch.SymFloat | torch.SymInt):
        raise LanewiseError(f"{name} must be a number, not {shown(value)}")
    return float(value) if isinstance(value, np.number) else value


def _named(given: Sequence[Any]) -> dict[str, Any]:
    """Return the operator's arguments after a and b by their names; those at the end may be left out."""
    usual = {name: value for name, (_, value) in _ARGUMENTS.items()}
    return usual | dict(zip(_ARGUMENTS, given, strict=False))


def _call(a: Tensor, b: Tensor, **given: object) -> Tensor:
    """Call the operator."""
    product: Tensor = _OPERATOR(a, b, *(given.get(name, usual) for name, (_, usual) in _ARGUMENTS.items()))
    return product


def matmul(
    a: Tensor,
    b: Tensor,
    *,
    bias: Tensor | None = None,
    activation: str | None = None,
    residual: Tensor | None = None,
    alpha: float = 1.0,
    beta: float | None = None,
    scale_a: Tensor | float | None = None,
    scale_b: Tensor | float | None = None,
    out_dtype: object = None,
    precision: str | None = None,
    batch_invariant: bool = False,
    arch: str | None = None,
) -> Tensor:
    """Return the product of two tensors, as `lw.matmul` does, with gradients: `torch.ops.lanewise.matmul`."""
    _look_for_dtensor()
    _require_tensors("matmul", a=a, b=b)
    if activation is not None and not isinstance(activation, str):
        raise LanewiseError(f"activation= is a name such as 'gelu', not {shown(activation)}")
    alpha, beta = _number("alpha", alpha), _number("beta", 1.0 if beta is None else beta)
    for name, scale in (("scale_a", scale_a), ("scale_b", scale_b)):
        if scale is not None and not isinstance(scale, Tensor):
            if a.dtype in _DIFFERENTIABLE:
                raise LanewiseError(f"{name} is for float8 and int8, not for {a.dtype}: alpha= is a factor")
            alpha = alpha * _number(name, scale)
    scale_a = scale_a if isinstance(scale_a, Tensor) else None
    scale_b = scale_b if isinstance(scale_b, Tensor) else None
    if isinstance(out_dtype, str):
        out_dtype = _TYPES.get(out_dtype, out_dtype)
    if out_dtype is not None and not isinstance(out_dtype, torch.dtype):
        out_dtype = getattr(torch, format_named(out_dtype, "out_dtype").dtype_name)
    return _call(
        a, b, bias=bias, activation=activation, residual=residual, alpha=alpha, beta=beta, scale_a=scale_a,
        scale_b=scale_b, out_dtype=out_dtype, precision=precision, batch_invariant=batch_invariant,
        arch=arch,
    )  # fmt: skip


# what it computes -------------------------------------------------------------------------------------------


def _keywords(given: dict[str, Any]) -> dict[str, Any]:
    """Return the operator's arguments as keywords of `lw.matmul`, whose beta is None without a residual."""
    is_usual = given["residual"] is None and given["beta"] == 1
    return {**given, "beta": None} if is_usual else given


def _computed(a: Tensor, b: Tensor, *rest: object) -> Tensor:
    """Compute the operator on plain tensors."""
    given = _keywords(_named(rest))
    tensors = {"a": a, "b": b} | {name: given.pop(name) for name in _TENSORS}
    for name, tensor in tensors.items():
        if tensor is not None and tensor.requires_grad:
            tensors[name] = tensor.detach()
    product: Tensor = matmul_of_operator(**tensors, **given)
    return product


for _backend in _BACKENDS:
    _LIBRARY.impl("matmul", _computed, _backend)


def _views(**tensors: Tensor | None) -> dict[str, Any]:
    """Return tensors without elements as the rules see operands; sizes may be symbols."""
    given = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    (first, one), *others = ((name, tensor.device) for name, tensor in given.items())
    for name, device in others:
        if device != one and "meta" in (device.type, one.type):  # the rules know of no such device
            raise LanewiseError(f"{first} is on {one} and {name} on {device}: move them to one device")
    views: dict[str, Any] = dict.fromkeys(tensors)
    for name, tensor in given.items():
        dtype = str(tensor.dtype).removeprefix("torch.")
        ordinal = (tensor.device.index or 0) if tensor.device.type == "cuda" else None
        views[name] = view_without_memory(dtype, tensor.shape, tensor.stride(), ordinal, name)
    return views


def _examples(views: dict[str, Any]) -> dict[str, Any] | None:
    """Return views with the sizes of the tensors that are traced; None while data decides a size.

    Asking a symbol for its number guards nothing: the compiled operator holds the rules against other sizes.
    """
    examples = dict(views)
    for name, view in views.items():
        if view is None:
            continue
        sizes = [
            size.node.hint if isinstance(size, torch.SymInt) else size for size in view.shape + view.strides
        ]
        if None in sizes:
            return None
        axes = len(view.shape)
        examples[name] = view._replace(shape=tuple(sizes[:axes]), strides=tuple(sizes[axes:]))
    return examples


@torch.library.register_fake(_NAME, lib=_LIBRARY)
def _fake(a: Tensor, b: Tensor, *rest: object) -> Tensor:
    """Return a tensor of the result's shape and type; a call that the operator would refuse is refused."""
    given = _keywords(_named(rest))
    views = _views(a=a, b=b, **{name: given[name] for name in _TENSORS})
    examples = _examples(views)
    if examples is not None:
        left, right, keywords = examples.pop("a"), examples.pop("b"), {**given, **examples}
        require_product(left, right, Options(**keywords), on_cpu=a.device.type == "cpu")
    left, right = views["a"], views["b"]
    k_of_b = right.shape[-2:][0]
    torch._check(left.shape[-1] == k_of_b, lambda: f"a {left.shape} and b {right.shape} do not fit")
    scaled = given["scale_a"] is not None or given["scale_b"] is not None
    product = product_of(left.format, right.format)
    result = result_of(product, left.format, None, given["out_dtype"], scaled)
    batch = torch.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    rows, columns = left.shape[:-1][-1:], right.shape[1:][-1:]
    return a.new_empty([*batch, *rows, *columns], dtype=getattr(torch, result.dtype_name))


# gradients --------------------------------------------------------------------------------------------------


def _differentiable(name: str, setup: Any, backward: Any, jvp: Any) -> None:
    """Let gradients and tangents of an operator be computed by functions of an autograd.Function.

    `torch.library.register_autograd` takes no `jvp`: tangents of forward mode would be zeros without a word.
    The first input of the function, and so the first of all gradients and tangents, is not the operator's.
    """
    operator = getattr(torch.ops.lanewise, name).default

    def below(keyset: Any, *inputs: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return operator.redispatch(keyset & torch._C._after_autograd_keyset, *inputs)

    def forward(called: tuple[Any, bool], *inputs: Any) -> Any:
        keyset, of_gradients = called  # which the other levels of torch.func need as it was
        with torch.set_grad_enabled(of_gradients), forward_ad._set_fwd_grad_enabled(True):
            return below(keyset, *inputs)

    def tangent(ctx: Any, *tangents: Any) -> Any:
        with forward_ad._set_fwd_grad_enabled(True):
            return jvp(ctx, *tangents)

    methods = {"forward": forward, "setup_context": setup, "backward": backward, "jvp": tangent}
    key = getattr(torch.autograd.Function, "_compiled_autograd_key", None)
    if key is not None:
        methods["_compiled_autograd_key"] = key
    function: Any = type(
        f"lanewise_{name}",
        (_SingleLevelFunction,),  # the dispatcher itself goes through the levels
        {method: staticmethod(value) for method, value in methods.items()},
    )

    def recorded(keyset: Any, *inputs: Any) -> Any:
        of_gradients = torch.is_grad_enabled()
        if not (of_gradients and torch._C._any_requires_grad(*inputs)) and not _may_have_tangents():
            return below(keyset, *inputs)
        with enable_single_level_autograd_function():
            return function.apply((keyset, of_gradients), *inputs)

    _LIBRARY.impl(name, recorded, "Autograd", with_keyset=True)


def _may_have_tangents() -> bool:
    """Return whether tensors may have tangents: in a dual level, under torch.func, in a trace of these."""
    in_level, in_trace = forward_ad._current_level >= 0, torch._C._len_torch_dispatch_stack() > 0
    return in_level or in_trace or bool(torch._C._are_functorch_transforms_active())


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    """Keep what gradients and tangents need."""
    _, a, b, *rest = inputs
    given = _named(rest)
    bias, residual = given["bias"], given["residual"]
    ctx.activation, ctx.beta = activation_of(given["activation"]), given["beta"]
    saved = a, b, bias if ctx.activation is not None else None
    ctx.save_for_backward(*saved)
    ctx.save_for_forward(*saved)
    ctx.set_materialize_grads(False)
    ctx.shapes = [None if tensor is None else tensor.shape for tensor in (bias, residual, output)]
    ctx.types = [None if tensor is None else tensor.dtype for tensor in (bias, residual, output)]
    #: How products of gradients and tangents are computed: as this one.
    ctx.options = {name: given[name] for name in ("alpha", "precision", "batch_invariant", "arch")}
    ctx.scaled = given["scale_a"] is not None or given["scale_b"] is not None


def _require_derivatives(ctx: Any, a: Tensor) -> torch.dtype:
    """Return the type in which derivatives are summed; an error for a product that has none."""
    if ctx.scaled or a.dtype not in _DIFFERENTIABLE:
        raise LanewiseError(
            f"products of {a.dtype} and products with scales have no gradients and no forward-mode tangents"
        )
    return torch.float64 if a.dtype == torch.float64 else torch.float32


def _gradients(ctx: Any, gradient: Tensor | None) -> tuple[Any, ...]:
    """Return the gradients of all inputs: two products of this operator, and a third for an activation."""
    if gradient is None:
        return (None,) * len(ctx.needs_input_grad)
    a, b, bias = ctx.saved_tensors
    wide = _require_derivatives(ctx, a)
    needed = dict(zip(("called", "a", "b", *_ARGUMENTS), ctx.needs_input_grad, strict=False))
    gradients: dict[str, Tensor | None] = {}
    if needed.get("residual"):
        gradients["residual"] = (gradient * ctx.beta).to(ctx.types[1])
    inner = gradient
    if ctx.activation is not None:
        before = _call(a, b, bias=bias, out_dtype=wide, **ctx.options)
        inner = _DERIVATIVES[ctx.activation](gradient.to(wide), before)
    if needed.get("bias"):
        matrix = _matrix(inner, a.ndim == 1, b.ndim == 1)
        gradients["bias"] = matrix.sum_to_size(ctx.shapes[0]).to(ctx.types[0])
    gradients["a"], gradients["b"] = _of_factors(ctx, a, b, inner.to(a.dtype), needed)
    return tuple(gradients.get(name) for name in needed)


def _tangent(ctx: Any, _: None, of_a: Tensor | None, of_b: Tensor | None, *rest: Any) -> Tensor:
    """Return the tangent of the result: two products, and a third for an activation."""
    saved: list[Any] = [
        tensor if tensor is None else forward_ad.unpack_dual(tensor, level=0).primal
        for tensor in ctx.saved_tensors
    ]
    a, b, bias = saved
    wide = _require_derivatives(ctx, a)
    given = _named(rest)

    def product(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
        return _call(left, right, bias=bias, out_dtype=wide, **ctx.options)

    tangent = a.new_zeros(ctx.shapes[2], dtype=wide)
    if of_a is not None:
        tangent = tangent + product(of_a, b)
    if of_b is not None:
        tangent = tangent + product(a, of_b)
    if rest and rest[0] is not None:
        tangent = _matrix(tangent, a.ndim == 1, b.ndim == 1).add(rest[0]).reshape(ctx.shapes[2])
    if ctx.activation is not None:
        tangent = _DERIVATIVES[ctx.activation](tangent, product(a, b, bias))
    if given["residual"] is not None:
        tangent = tangent + ctx.beta * given["residual"]
    return tangent.to(ctx.types[2])


def _matrix(result: Tensor, row: bool, column: bool) -> Tensor:
    """Return a result as a matrix: that of a vector a has one row, that of a vector b one column."""
    matrix = result.unsqueeze(-1) if column else result
    return matrix.unsqueeze(-2) if row else matrix


def _derivative_of_silu(gradient: Tensor, x: Tensor, sigmoid: Tensor) -> Tensor:
    """Return the gradient of silu's argument; torch's own operator has no derivative."""
    return gradient * (sigmoid * (1 + x * (1 - sigmoid)))


_DERIVATIVES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "relu": lambda gradient, x: torch.ops.aten.threshold_backward(gradient, x, 0),
    "gelu_erf": lambda gradient, x: torch.ops.aten.gelu_backward(gradient, x, approximate="none"),
    "gelu_tanh": lambda gradient, x: torch.ops.aten.gelu_backward(gradient, x, approximate="tanh"),
    "silu": lambda gradient, x: _derivative_of_silu(gradient, x, torch.sigmoid(x)),
    "sigmoid": lambda gradient, x: torch.ops.aten.sigmoid_backward(gradient, torch.sigmoid(x)),
}


def _of_factors(
    ctx: Any, a: Tensor, b: Tensor, inner: Tensor, needed: dict[str, bool]
) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients of A and B: inner · Bᵀ and Aᵀ · inner, summed over repeated matrices."""

    def product(left: Tensor, right: Tensor) -> Tensor:
        return _call(left, right, **ctx.options)

    left = a.unsqueeze(0) if a.ndim == 1 else a
    right = b.unsqueeze(1) if b.ndim == 1 else b
    matrix = _matrix(inner, a.ndim == 1, b.ndim == 1)
    of_a = of_b = None
    if needed["a"]:
        of_a = product(matrix, right.mT).sum_to_size(left.shape).reshape(a.shape)
    if needed["b"]:
        if right.ndim == 2 and left.ndim > 2:  # one product over all rows of the batch
            rows = left.shape[:-1].numel()
            of_b = product(left.reshape(rows, left.shape[-1]).mT, matrix.reshape(rows, matrix.shape[-1]))
        else:
            of_b = product(left.mT, matrix).sum_to_size(right.shape)
        of_b = of_b.reshape(b.shape)
    return of_a, of_b


_differentiable("matmul", _setup, _gradients, _tangent)


# autocast and vmap ------------------------------------------------------------------------------------------


def _cast_for(device: str, key: str) -> Callable[..., Tensor]:
    """Return the operator under autocast: factors in the type that autocast has for a device."""
    excluded = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

    def cast(a: Tensor, b: Tensor, bias: Tensor | None = None, *rest: object) -> Tensor:
        wanted = torch.get_autocast_dtype(device)

        def lowered(tensor: Tensor | None) -> Tensor | None:
            return tensor.to(wanted) if tensor is not None and tensor.dtype in _LOWERED else tensor

        given = _named((lowered(bias), *rest))
        if a.dtype == torch.float32 and wanted != torch.float32:
            given["precision"] = None  # which is of f32
        with torch._C._ExcludeDispatchKeyGuard(excluded):
            return _call(lowered(a), lowered(b), **given)

    return cast


_LIBRARY.impl("matmul", _cast_for("cuda", "AutocastCUDA"), "AutocastCUDA")
_LIBRARY.impl("matmul", _cast_for("cpu", "AutocastCPU"), "AutocastCPU")


def _result_of_one(operator: Any, in_dims: Sequence[int | None], inputs: Sequence[Any]) -> Any:
    """Return what one of the mapped calls returns, without elements; an error if it would be refused."""

    def of_one(given: Any, axis: int | None) -> Any:
        if not isinstance(given, Tensor):
            return given
        shape = [size for at, size in enumerate(given.shape) if at != axis]
        return given.new_empty(shape, device="meta")

    return operator(*(of_one(given, axis) for given, axis in zip(inputs, in_dims, strict=True)))


def _one_by_one(size: int, in_dims: Sequence[int | None], inputs: Sequence[Any]) -> Tensor:
    """Compute a batch of calls one by one: kernels have one bias and one scale for all matrices."""
    return torch.stack([
        _OPERATOR(*(
            given if axis is None else given.select(axis, index).contiguous()
            for given, axis in zip(inputs, in_dims, strict=True)
        ))
        for index in range(size)
    ])  # fmt: skip


@torch.library.register_vmap(_NAME, lib=_LIBRARY)
def _mapped(info: Any, in_dims: Sequence[int | None], a: Tensor, b: Tensor, *rest: Any) -> tuple[Tensor, int]:
    """Compute a batch of calls at once: the mapped axis becomes the first of the batch."""
    one = _result_of_one(_OPERATOR, in_dims, (a, b, *rest))
    given = _named(rest)
    residual, axes = given["residual"], dict(zip(("a", "b", *_ARGUMENTS), in_dims, strict=False))
    if any(axis is not None for name, axis in axes.items() if name not in ("a", "b", "residual")):
        if not info.batch_size:
            return a.new_empty((0, *one.shape), dtype=one.dtype), 0
        return _one_by_one(info.batch_size, in_dims, (a, b, *rest)), 0
    mapped_a, mapped_b = in_dims[0] is not None, in_dims[1] is not None
    ranks = a.ndim - mapped_a, b.ndim - mapped_b
    row, column = ranks[0] == 1, ranks[1] == 1
    depth = max(ranks[0] + row, ranks[1] + column)

    def placed(tensor: Tensor, axis: int | None, vector_at: int | None, rank: int) -> Tensor:
        """Move the mapped axis to the front; a vector becomes a matrix, all have the same rank."""
        tensor = tensor.unsqueeze(0) if axis is None else tensor.movedim(axis, 0)
        if rank == 1:
            assert vector_at is not None
            tensor = tensor.unsqueeze(vector_at)
            rank = 2
        return tensor.reshape(tensor.shape[0], *(1,) * (depth - rank), *tensor.shape[1:])

    left, right = placed(a, in_dims[0], 1, ranks[0]), placed(b, in_dims[1], 2, ranks[1])
    if residual is not None:
        axis = axes.get("residual")
        residual = residual.unsqueeze(0) if axis is None else residual.movedim(axis, 0)
        residual = residual.unsqueeze(-1) if column else residual
        residual = residual.unsqueeze(-2) if row else residual
        if in_dims[0] is None and in_dims[1] is None:
            left = left.expand(info.batch_size, *left.shape[1:])
        batch = torch.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        residual = residual.expand(*batch, left.shape[-2], right.shape[-1])
    product = _call(left, right, **{**given, "residual": residual})
    product = product.squeeze(-1) if column else product
    product = product.squeeze(-1 if column else -2) if row else product
    return product, 0


# attention --------------------------------------------------------------------------------------------------

_ATTENTION = "Tensor q, Tensor k, Tensor v, bool causal=False, float? scale=None, bool batch_invariant=False"
_LIBRARY.define(f"attention({_ATTENTION}) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
_LIBRARY.define(f"attention_lse({_ATTENTION}) -> (Tensor, Tensor)", tags=(torch.Tag.pt2_compliant_tag,))


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    return_lse: bool = False,
    batch_invariant: bool = False,
) -> Any:
    """Return what `lw.attention` does, by an operator that torch.compile knows; it has no gradient."""
    _require_tensors("attention", q=q, k=k, v=v)
    operators: Any = torch.ops.lanewise
    operator = operators.attention_lse if return_lse else operators.attention
    return operator(q, k, v, causal, scale, batch_invariant)


def _attention_on(return_lse: bool) -> Callable[..., Any]:
    """Return attention on plain tensors, with or without the logarithms of its sums."""

    def computed(
        q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None,
        batch_invariant: bool = False,
    ) -> Any:  # fmt: skip
        settings = AttentionSettings(causal, scale, return_lse, batch_invariant)
        return attention_of_operator(q.detach(), k.detach(), v.detach(), settings)

    return computed


def _fake_attention(
    q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None,
    batch_invariant: bool = False,
) -> Tensor:  # fmt: skip
    """Return a tensor of the result's shape and strides; a call that attention would refuse is refused."""
    examples = _examples(_views(q=q, k=k, v=v))
    if examples is not None:
        operands = [_operand(view, name) for name, view in examples.items()]
        _require_fitting(*operands)
        _scale(scale, operands[0].shape[-1])
    order = axes_in_memory(q.stride())
    made = q.new_empty([q.shape[axis] for axis in order])
    return made.permute([order.index(axis) for axis in range(q.ndim)])


def _fake_attention_lse(q: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    """Return tensors of the shapes of the result and of the logarithms."""
    return _fake_attention(q, *rest), q.new_empty(q.shape[:-1], dtype=torch.float32)


def _no_derivative(ctx: object, *given: Any) -> Any:
    """Refuse a backward pass, and a tangent of forward mode."""
    raise LanewiseError(
        "attention of lanewise has no gradient and no forward-mode tangent: call it under torch.no_grad(), "
        "or use torch.nn.functional.scaled_dot_product_attention for training, and for torch.func.jvp under "
        "torch.nn.attention.sdpa_kernel(SDPBackend.MATH)"
    )


def _attention_mapped_by(operator: Any) -> Callable[..., Any]:
    """Return what computes a batch of calls at once: the mapped axis is one of the batch, or of heads."""

    def mapped(info: Any, in_dims: Sequence[int | None], *inputs: Any) -> tuple[Any, Any]:
        tensors = [
            given.expand(info.batch_size, *given.shape) if axis is None else given.movedim(axis, 0)
            for given, axis in zip(inputs[:3], in_dims[:3], strict=True)
        ]
        _result_of_one(operator, in_dims, inputs)
        whole = tensors[0].shape[:2] if tensors[0].ndim > 4 else tensors[0].shape[:1]
        joined = [given.flatten(0, 1) if given.ndim > 4 else given for given in tensors]
        results = operator(*joined, *inputs[3:])
        if isinstance(results, Tensor):
            return results.unflatten(0, whole), 0
        return tuple(result.unflatten(0, whole) for result in results), (0, 0)

    return mapped


for _name, _of_shapes in (("attention", _fake_attention), ("attention_lse", _fake_attention_lse)):
    for _backend in _BACKENDS:
        _LIBRARY.impl(_name, _attention_on(_name == "attention_lse"), _backend)
    torch.library.register_fake(f"lanewise::{_name}", _of_shapes, lib=_LIBRARY)
    _differentiable(_name, lambda ctx, inputs, output: None, _no_derivative, _no_derivative)
    _mapping = _attention_mapped_by(getattr(torch.ops.lanewise, _name))
    torch.library.register_vmap(f"lanewise::{_name}", _mapping, lib=_LIBRARY)


# graphs of torch.compile ------------------------------------------------------------------------------------


#: Keywords by the name of a function. Dynamo, which traces the functions below, would take what it reads of a
#: function for values that may change.
_KEYWORDS = {function.__name__: tuple(function.__kwdefaults__ or ()) for function in (matmul, attention)}


def _in_graph(function: Callable[..., Any], *arrays: Any, **keywords: Any) -> Any:
    """Call an operator in place of `lw.matmul` or `lw.attention`: torch.compile traces this."""
    name = function.__name__
    taken = _KEYWORDS[name]
    given = {keyword: value for keyword, value in keywords.items() if value is not None}
    for array in arrays:
        if not isinstance(array, Tensor):
            raise LanewiseError(
                f"lw.{name} in a graph of torch.compile takes torch's tensors, not {type(array).__name__}: "
                "let the graph end there, without fullgraph=True"
            )
    for keyword in given:
        if keyword not in taken:
            raise LanewiseError(
                f"lw.{name} in a graph of torch.compile is lanewise.torch.{name}, which has no {keyword}=: "
                "leave it out, or let the graph end there, without fullgraph=True"
            )
    with torch.autocast(arrays[0].device.type, enabled=False):  # which lw.matmul does not follow
        return function(*arrays, **given)


def matmul_in_graph(a: Any, b: Any, **keywords: Any) -> Any:
    """Return what `lw.matmul` does, by the operator."""
    return _in_graph(matmul, a, b, **keywords)


def _attention_in_graph(q: Any, k: Any, v: Any, **keywords: Any) -> Any:
    """Return what `lw.attention` does, by the operator."""
    return _in_graph(attention, q, k, v, **keywords)


def _leave_uncompiled(function: Any) -> None:
    """Let torch.compile run a function that ends a graph as it is, and all that it calls.

    A function that was decorated shares its code with others of the library, which are left, too.
    """
    with suppress(Exception):  # there is no such setting before torch 2.7
        from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy

        skip = _FrameAction.SKIP
        set_code_exec_strategy(function.__code__, _FrameExecStrategy(skip, skip))


_leave_uncompiled(_on_tensors)
_leave_uncompiled(_attention_on_tensors)
_attention_on_tensors.__dict__["_torchdynamo_inline"] = _attention_in_graph


# modules ----------------------------------------------------------------------------------------------------


class Linear(torch.nn.Linear):
    """`torch.nn.Linear` whose product, with its bias and an activation, is lanewise's.

    With `batch_invariant` a row's result does not depend on how many rows are beside it.
    """

    activation: str | None = None
    precision: str | None = None
    batch_invariant: bool = False
    #: Whether `patch` made it of a `torch.nn.Linear`.
    _is_patched: bool = False

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: object = None,
        dtype: object = None,
        *,
        activation: str | None = None,
        precision: str | None = None,
        batch_invariant: bool = False,
    ) -> None:
        super().__init__(in_features, out_features, bias, device, dtype)
        self.activation, self.precision, self.batch_invariant = activation, precision, batch_invariant
        activation_of(activation)
        if precision is not None:
            fmt = format_named(self.weight.dtype, "dtype")
            precision_of(product_of(fmt, fmt), fmt, precision)

    def forward(self, input: Tensor) -> Tensor:
        """Return activation(input · weightᵀ + bias)."""
        _look_for_dtensor()
        return _call(
            input, self.weight.mT, bias=self.bias, activation=self.activation, precision=self.precision,
            batch_invariant=self.batch_invariant,
        )  # fmt: skip

    def _get_name(self) -> str:
        """The name by which a printed model tells it from torch's own."""
        return "lanewise.torch.Linear"

    def extra_repr(self) -> str:
        """What a printed model says of it: its sizes, and the options that are set."""
        options = {
            "activation": self.activation,
            "precision": self.precision,
            "batch_invariant": self.batch_invariant or None,
        }
        given = [f"{name}={value!r}" for name, value in options.items() if value is not None]
        return ", ".join([super().extra_repr(), *given])


@short_traceback
def patch(
    model: torch.nn.Module, *, precision: str | None = None, batch_invariant: bool = False
) -> torch.nn.Module:
    """Let every `torch.nn.Linear` of a model multiply by lanewise, and return the model.

    Patched again, its layers get the new precision, which is for layers of float32. A `lanewise.torch.Linear`
    of your own stays as it is. Parameters and hooks stay. Modules of classes derived from nn.Linear are left
    alone: their own forward may do more.
    """
    _require_model(model, "patch")
    precision_of(product_of(f32, f32), f32, precision)
    for module in model.modules():
        if type(module) is torch.nn.Linear and module.weight.dtype in _DIFFERENTIABLE:
            module.__class__ = Linear
            module._is_patched = True
        if getattr(module, "_is_patched", False):
            module.precision = precision if module.weight.dtype == torch.float32 else None
            module.batch_invariant = batch_invariant
    if not any(isinstance(module, Linear) for module in model.modules()):
        warn("lanewise.torch.patch: the model has no torch.nn.Linear, and stays as it is", stacklevel=2)
    return model


@short_traceback
def unpatch(model: torch.nn.Module) -> torch.nn.Module:
    """Give every module that `patch` changed its own product back. Returns the model."""
    _require_model(model, "unpatch")
    for module in model.modules():
        if type(module) is Linear and module._is_patched:
            module.__class__ = torch.nn.Linear
            for name in ("precision", "batch_invariant", "_is_patched"):
                module.__dict__.pop(name, None)
    left = [name for name, module in model.named_modules() if getattr(module, "_is_patched", False)]
    if left:
        warn(
            f"lanewise.torch.unpatch: {', '.join(left)} got a parametrization after patch, and stays: take "
            "it off, unpatch, and register it again",
            stacklevel=2,
        )
    return model


def _require_model(model: object, function: str) -> None:
    if not isinstance(model, torch.nn.Module):
        raise LanewiseError(f"lanewise.torch.{function} takes a model, an nn.Module, not {shown(model)}")


# sharded tensors --------------------------------------------------------------------------------------------


def _register_sharding() -> None:
    """Tell DTensor which parts of a product can be computed apart: rows of A, columns of B, parts of K."""
    from torch.distributed.tensor import Partial, Replicate, Shard
    from torch.distributed.tensor.experimental import register_sharding

    def shardings(a: Any, b: Any, *rest: Any) -> Any:
        """Return placements of the result, each with those of all arguments."""
        given = _named(rest)
        bias, residual = given["bias"], given["residual"]
        scales = [scale for scale in (given["scale_a"], given["scale_b"]) if hasattr(scale, "ndim")]

        def row(out: object, of_a: object, of_b: object, of_bias: object, of_residual: object) -> Any:
            placed = {"bias": of_bias, "residual": of_residual, "scale_a": whole, "scale_b": whole}
            there = [name if hasattr(given[name], "ndim") else "" for name in _ARGUMENTS]
            return [out], [of_a, of_b, *(placed.get(name) for name in there)]

        whole = Replicate()
        rows = [row(whole, whole, whole, whole, whole)]
        if b.ndim != 2 or a.ndim < 2:
            return rows
        last = a.ndim - 1
        plain = not scales
        if plain and (bias is None or bias.ndim == 1):
            for axis in range(last):
                rows.append(row(Shard(axis), Shard(axis), whole, whole, Shard(axis)))
            rows.append(row(Shard(last), whole, Shard(1), Shard(0), Shard(last)))
        if plain and bias is None and residual is None and given["activation"] is None:
            rows.append(row(Partial(), Shard(last), Shard(0), None, None))
        return rows

    register_sharding(_OPERATOR.default)(shardings)


#: Whether DTensor knows the rules. It takes seconds to import, so that it is told only once it is in use.
_SHARDED: list[bool] = []


def register_sharding() -> None:
    """Tell DTensor how lanewise's product is sharded: over rows of A, columns of B, and K.

    `matmul`, `Linear` and `patch` do so themselves once torch.distributed.tensor is imported; call it before
    `torch.ops.lanewise.matmul` gets the first DTensor.
    """
    if not _SHARDED:
        _SHARDED.append(True)
        _register_sharding()


def _look_for_dtensor() -> None:
    """Register the rules of sharding if DTensor is in use; nothing while a graph is compiled."""
    if not torch.compiler.is_compiling() and not _SHARDED and "torch.distributed.tensor" in sys.modules:
        register_sharding()


_look_for_dtensor()


not_called(
    __name__, "lanewise.torch.matmul(a, b) multiplies tensors, lanewise.torch.patch(model) patches layers"
)
