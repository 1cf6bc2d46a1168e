"""What a call of `lw.matmul` must fulfil, and the problem that it is: shapes, types, scales, what is fused.

The rules of shapes are torch's and NumPy's. Each error says what is wrong with which argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, prod
from typing import Any

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.formats import FORMATS, Format, f32
from lanewise.linalg.block_scaling import BLOCK_FORMATS
from lanewise.linalg.epilogue_function import EpilogueFunction
from lanewise.linalg.operands import (
    View,
    batch_strides,
    empty,
    merged_axes,
    operand,
    packed_strides,
    require_apart,
    require_own_elements,
    view_of,
)
from lanewise.linalg.options import Options
from lanewise.linalg.problem import Epilogue, Operand, Problem
from lanewise.linalg.scales import Scale, matching_factors, scale_of
from lanewise.linalg.types import (
    ACTIVATIONS,
    ADDED,
    BLOCK,
    activation_of,
    format_named,
    names_taken,
    number_of,
    precision_of,
    product_of,
    result_of,
    sums_of,
)


@dataclass
class Request:
    """A call that fulfils the rules: its problem, its arrays, and the numbers of its epilogue."""

    a: View
    b: View
    #: The result: (…, M, N) as memory, whatever shape the caller sees.
    out: View
    bias: View | None
    residual: View | None
    scale_a: Scale
    scale_b: Scale
    scale_out: View | None
    alpha: float
    beta: float
    #: The axes of the batch, then M, N, K of one product.
    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    #: None where the axes of the batch cannot be joined to one: the first of them is a loop.
    problem: Problem | None
    #: What the caller gets.
    result: Any
    #: Of a grouped product on a GPU, two rows of i32: where the rows of each group begin and end; or one row:
    #: where they end, if each begins where the one before it ends.
    bounds: Any = None
    #: Of a sparse B on a GPU: where its elements stood, a vector of i32.
    metadata: View | None = None

    @property
    def views(self) -> dict[str, View | None]:
        """The arrays by their names, in the order of a launch's operands."""
        return {
            "a": self.a, "b": self.b, "out": self.out, "bias": self.bias, "residual": self.residual,
            "scale_a": self.scale_a.view, "scale_b": self.scale_b.view, "scale_out": self.scale_out,
        }  # fmt: skip


def request_of(
    a: Any, b: Any, options: Options, empty_result: bool = True, kept: View | None = None
) -> Request:
    """Return what a call asks for; an error if it breaks a rule. The array of the result is made if need be.

    Without `empty_result` no array is made: `lw.plan` asks for a problem alone. `kept` is what is in memory
    of a sparse b: half of its elements along K.
    """
    left, right = view_of(a, "a"), view_of(b, "b") if kept is None else kept
    if not left.shape or not right.shape:
        alone = "a" if not left.shape else "b"
        raise LanewiseError(f"{alone} has no axes; a product takes vectors, matrices and batches of matrices")
    shape_a, shape_b = left.shape, right.shape if kept is None else tuple(b.shape)
    product = product_of(left.format, right.format)
    sums, promote = sums_of(product, left.format, options.accumulate)
    precision = precision_of(product, left.format, options.precision)
    of_a, of_b = (1,) * (len(shape_a) == 1), (0,) * (len(shape_b) == 1)
    left, right, missing = _with_axes(left, of_a), _with_axes(right, of_b), of_b + of_a
    (m, k), (k_of_b, n) = left.shape[-2:], right.shape[-2:] if kept is None else shape_b
    if k != k_of_b:
        transposed = "pass b.T" if kept is None else "make b of the transposed matrix"
        mend = f": {transposed}" if len(shape_b) == 2 and k == n else ""
        raise LanewiseError(
            f"a has shape {shape_a} and b {shape_b}: the last axis of a has {k} elements and "
            f"{'the only axis' if len(shape_b) == 1 else 'the last but one'} of b {k_of_b}; they must agree"
            f"{mend}"
        )
    try:
        batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    except ValueError:
        raise LanewiseError(
            f"a has shape {shape_a} and b {shape_b}: the axes before the last two do not broadcast"
        ) from None
    except RuntimeError:  # of more axes than NumPy broadcasts
        raise LanewiseError(
            f"a has {len(shape_a)} axes and b {len(shape_b)}: a product takes at most 32 before the last two"
        ) from None
    scale_a = scale_of(options.scale_a, "scale_a", "a", batch, m, k, product, left)
    scale_b = scale_of(options.scale_b, "scale_b", "b", batch, n, k, product, left)
    scale_a, scale_b = _matching(scale_a, scale_b, k)
    block_format = matching_factors(scale_a, scale_b, left.format)
    if scale_a.form == "block" or block_format:
        promote = None if block_format else BLOCK
    shape = (*batch, *((m,) if len(shape_a) > 1 else ()), *((n,) if len(shape_b) > 1 else ()))
    given = None if options.out is None else view_of(options.out, "out")
    scaled = scale_a.form is not None or scale_b.form is not None or scale_a.number * scale_b.number != 1
    result_format = result_of(
        product, left.format, None if given is None else given.format, options.out_dtype, scaled
    )
    if given is not None and given.shape != shape:
        raise LanewiseError(f"out has shape {given.shape}; the product of a and b has {shape}")
    result = options.out
    if given is None and empty_result:
        result = empty(left, shape, result_format)
        given = view_of(result, "out")
    if given is None:
        given = View(shape, packed_strides(shape), result_format, 0, left.library, left.device, None)
    out = _with_axes(given, missing)
    bias, bias_form = _bias(options.bias, m, n)
    residual, beta = _residual(options, out, given, missing)
    scale_out = _scale_out(options.scale_out, left)
    request = Request(
        left, right, out, bias, residual, scale_a, scale_b, scale_out,
        number_of(options.alpha, "alpha") * scale_a.number * scale_b.number + 0.0, beta, batch, m, n, k, None,
        result,
    )  # fmt: skip
    if sums.name != "f64":
        _require_f32({"alpha (times scale_a and scale_b)": request.alpha, "beta": beta})
    _require_one_device(request)
    if options.out is not None:
        _require_apart(request, given)
    epilogue = Epilogue(
        alpha=request.alpha != 1,
        beta=residual is not None and beta != 1,
        bias=bias_form,
        bias_dtype=None if bias is None else bias.format,
        activation=activation_of(options.activation),
        scale_a=None if block_format else scale_a.form,
        scale_b=None if block_format else scale_b.form,
        scale_a_strides=scale_a.strides,
        scale_b_strides=scale_b.strides,
        scale_out=scale_out is not None,
        function=_function(options.epilogue),
    )
    _require_epilogue(epilogue, residual, result_format, left.format)
    invariant = _flag(options.batch_invariant)
    request.problem = _problem(request, epilogue, sums, precision, promote, invariant, block_format)
    return request


def _with_axes(view: View, places: Sequence[int]) -> View:
    """Return a view with axes of one element put in, each before so many of the last axes: 1 for M of a
    vector a, 0 for N of a vector b, and both for the result of two vectors."""
    shape, strides = list(view.shape), list(view.strides)
    for place in places:
        shape.insert(len(shape) - place, 1)
        strides.insert(len(strides) - place, 0)
    return view._replace(shape=tuple(shape), strides=tuple(strides))


def _flag(value: object) -> bool:
    """Return batch_invariant as a bool; anything else is refused."""
    if isinstance(value, bool | np.bool_) or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    raise LanewiseError(f"batch_invariant must be True or False, not {type(value).__name__}")


def _function(given: Any) -> object | None:
    """Return a user's own function of the epilogue as it is now; `lw.epilogue` marks one."""
    if given is None:
        return None
    if not isinstance(given, EpilogueFunction):
        is_activation = isinstance(given, str) and given in ACTIVATIONS
        hint = f"; activation={given!r} is the function of that name" if is_activation else ""
        raise LanewiseError(
            f"epilogue={given!r} must be a function f(value, row, column) that is marked by @lw.epilogue"
            + hint
        )
    return given.current()


def _bias(given: object, m: int, n: int) -> tuple[View | None, str | None]:
    """Return a bias as a vector, and whether it is added to every row, or to every column."""
    if given is None:
        return None, None
    view = view_of(given, "bias")
    if view.format.name not in ADDED:
        raise LanewiseError(
            f"bias has elements of type {view.format.dtype_name}; it must have {names_taken('bias')}"
        )
    if view.shape in ((n,), (1, n)):
        form, step, size = "row", view.strides[-1], n
    elif view.shape == (m, 1):
        form, step, size = "column", view.strides[0], m
    else:
        raise LanewiseError(
            f"bias has shape {view.shape}; it must be ({n},), a number for each column of the result, or "
            f"({m}, 1), a number for each row; residual= adds a whole matrix"
        )
    if step != 1 and size > 1:
        raise LanewiseError("bias is not contiguous: pass a copy of it")
    return view._replace(shape=(size,), strides=(1,)), form


def _residual(options: Options, out: View, given: View, missing: Sequence[int]) -> tuple[View | None, float]:
    """Return what is added after the activation, as (…, M, N), and its factor.

    As in BLAS, `beta` without a residual scales what `out` holds.
    """
    beta = None if options.beta is None else number_of(options.beta, "beta")
    if options.residual is None:
        if not beta:
            return None, 1.0
        if options.out is None:
            raise LanewiseError(
                "beta= scales a matrix that is added: pass it as residual=, or as the contents of out="
            )
        return out, beta
    view = view_of(options.residual, "residual")
    if view.format.name not in ADDED:
        raise LanewiseError(
            f"residual has elements of type {view.format.dtype_name}; it must have {names_taken('residual')}"
        )
    if view.shape != given.shape:
        raise LanewiseError(f"residual has shape {view.shape}; the result has {given.shape}")
    return _with_axes(view, missing), 1.0 if beta is None else beta


def _require_f32(numbers: dict[str, float]) -> None:
    """Raise an error for a number that f32, in which an epilogue computes, does not hold."""
    for name, number in numbers.items():
        if f32.max < abs(number) < inf:
            raise LanewiseError(f"{name} is {number:g}, and epilogues compute in f32, up to {f32.max:.4g}")


def _scale_out(given: Any, like: View) -> View | None:
    """Return the factor of the result: an array of one f32, or None. A number becomes one, beside `like`."""
    if given is None:
        return None
    if isinstance(given, int | float | np.integer | np.floating):
        number = number_of(given, "scale_out")
        _require_f32({"scale_out": number})
        given = empty(like, (1,), f32)
        given[...] = number
    view = view_of(given, "scale_out")
    if view.format != f32 or view.shape not in ((), (1,)):
        raise LanewiseError(
            "scale_out must be a number, or an array of one float32, not one of "
            f"{view.format.dtype_name} with shape {view.shape}"
        )
    return view._replace(shape=(1,), strides=(1,))


def _matching(a: Scale, b: Scale, k: int) -> tuple[Scale, Scale]:
    """Return both scales in forms that go together: blocks of A want blocks of B."""
    if "block" not in (a.form, b.form):
        return a, b
    if k <= BLOCK:  # one block of K: one scale, or one for each row, is the same
        if a.form in ("row", "tensor"):
            a = replace(a, form="block")
        if b.form == "tensor":
            b = replace(b, form="block")
    if (a.form, b.form) != ("block", "block"):
        raise LanewiseError(
            "scales of blocks must be given for both a and b: scale_a of shape (M, K/128) and scale_b of "
            "shape (K/128, N/128)"
        )
    return a, b


def _require_one_device(request: Request) -> None:
    """Raise an error if arrays lie on several devices or are of several libraries' devices."""
    for name, view in request.views.items():
        if view is not None and view.device != request.a.device:
            if name == "scale_out" and view.device is None:
                raise LanewiseError("scale_out must be a number, or an array on the GPU of a and b")
            raise LanewiseError(f"a is {request.a.where} and {name} {view.where}: move them to one device")


def _require_apart(request: Request, given: View) -> None:
    """Raise an error if `out` overlaps itself, or what is read."""
    require_own_elements(given, "out")
    for name in ("a", "b", "bias", "scale_a", "scale_b", "residual", "scale_out"):
        view = request.views[name]
        if view is None or (name == "residual" and view[:4] == request.out[:4]):  # the same elements
            continue
        require_apart(request.out, view, name)


def _require_epilogue(epilogue: Epilogue, residual: View | None, result: Format, a: Format) -> None:
    """Raise an error for what cannot be fused with a type."""
    if result.name == "s32" and (epilogue != Epilogue() or residual is not None):
        raise LanewiseError(
            "int32 results of int8 operands are stored as they are: for bias, activation, residual, alpha or "
            "scales, pass out_dtype= float16, bfloat16 or float32"
        )
    if a.name == "f64":
        if epilogue.activation not in (None, "relu") or epilogue.function or epilogue.scale_out:
            raise LanewiseError(
                "products of float64 take only alpha, beta, bias, residual and activation='relu'"
            )
        if (residual is not None and residual.format != a) or epilogue.bias_dtype not in (None, a):
            raise LanewiseError("bias and residual of a product of float64 must be float64")
    elif (residual is not None and residual.format.name == "f64") or (
        epilogue.bias_dtype is not None and epilogue.bias_dtype.name == "f64"
    ):
        raise LanewiseError("bias and residual can be float64 only if a and b are float64, too")


# the problem ------------------------------------------------------------------------------------------------


def _problem(
    request: Request, epilogue: Epilogue, sums: Format, precision: str, promote: int | None, invariant: bool,
    block_format: str,
) -> Problem | None:  # fmt: skip
    """Return the problem, the axes of the batch joined to one and, where B is shared, to M; None if they
    cannot be joined."""
    batch, m, n, k = request.batch, request.m, request.n, request.k
    if block_format and prod(batch) > 1:
        return None  # kernels have one matrix of scale factors
    views = {"a": request.a, "b": request.b, "out": request.out}
    if request.residual is not None:
        views["residual"] = request.residual
    scales = {"scale_a": request.scale_a, "scale_b": request.scale_b}
    steps = {name: batch_strides(view, batch) for name, view in views.items()}
    steps |= {name: scale.batch or (0,) * len(batch) for name, scale in scales.items()}
    count, along = 0 if 0 in batch else 1, dict.fromkeys(steps, 0)
    if count:
        sizes, strides = merged_axes(batch, list(steps.values()))
        if len(sizes) > 1:
            return None
        if sizes:
            count, along = sizes[0], dict(zip(steps, strides[0], strict=True))
    rows = {name: view.strides[-2] for name, view in views.items()}
    if epilogue.scale_a in ("row", "block"):
        rows["scale_a"] = epilogue.scale_a_strides[1]
    folded_rows = 0
    if count > 1 and along["b"] == along["scale_b"] == 0 and epilogue.bias != "column":
        # All matrices of A have the same B: they are one longer A if each continues where the last one ends.
        of_m = rows.keys() - {"b"}
        if m == 1 or all(along[name] == m * rows[name] for name in of_m):
            if m == 1:
                rows |= {name: along[name] for name in of_m}
            m, count, along = m * count, 1, dict.fromkeys(along, 0)
            if epilogue.function is not None:
                folded_rows = request.m
    if count > 1 and (along["scale_a"] or along["scale_b"] or epilogue.scale_a == "block"):
        return None  # kernels have one vector or matrix of scales

    def of(name: str, outer: int, inner: int) -> Operand:
        return operand(views[name], outer, inner, rows[name], views[name].strides[-1], count, along[name])

    b = operand(request.b, n, k, request.b.strides[-1], request.b.strides[-2], count, along["b"])
    fused = replace(
        epilogue,
        residual=of("residual", m, n) if "residual" in views else None,
        folded="row" if folded_rows else None,
        scale_a_strides=(along["scale_a"], rows.get("scale_a", 0), epilogue.scale_a_strides[2]),
        scale_b_strides=(along["scale_b"], *epilogue.scale_b_strides[1:]),
    )
    # Sums that are promoted without scales have none for any rows and columns.
    blocks = (1, BLOCK) if epilogue.scale_a == "block" or promote is None else (0, 0)
    made = Problem(
        m, n, k, of("a", m, k), b, of("out", m, n), sums, count, fused, precision, promote, blocks, invariant,
        folded_rows=folded_rows,
    )  # fmt: skip
    if not block_format:
        return made
    factor_steps = request.scale_a.strides[1:], request.scale_b.strides[1:]
    return replace(made, block_format=block_format, factor_steps=factor_steps)


# operands that are copied first -----------------------------------------------------------------------------


def scattered(problem: Problem) -> set[str]:
    """Return which operands have neighbours along neither axis, or run backwards, of those that are read or
    written."""
    if not (problem.m and problem.n and problem.batch):
        return set()
    operands = {"out": problem.out, "residual": problem.epilogue.residual}
    if problem.k:
        operands |= {"a": problem.a, "b": problem.b}
    return {
        name
        for name, operand in operands.items()
        if operand is not None and (operand.inner != 1 or operand.leading < 0)
    }


def problem_of_copies(request: Request, problem: Problem) -> Problem | None:
    """Return the problem that a request is once its scattered operands are copied to contiguous ones; None if
    the axes of the batch cannot be joined then."""

    def copy(view: View) -> View:
        return view._replace(strides=packed_strides(view.shape), address=0)

    copies: dict[str, Any] = {name: copy(getattr(request, name)) for name in scattered(problem)}
    copied = replace(request, **copies)
    epilogue = replace(
        problem.epilogue, scale_a_strides=request.scale_a.strides, scale_b_strides=request.scale_b.strides
    )
    return _problem(
        copied, epilogue, problem.sums, problem.precision, problem.promote, problem.batch_invariant,
        problem.block_format,
    )  # fmt: skip


# problems of sizes and types alone, without arrays: for plans and tables ------------------------------------


def problem_of_sizes(
    m: int,
    n: int,
    k: int,
    dtype: object,
    *,
    out: object = None,
    precision: str | None = None,
    layout: str = "nn",
    batch: int = 1,
    batch_invariant: bool = False,
) -> Problem:
    """Return the problem of contiguous arrays of these sizes; `layout` has a t for each that is transposed.

    >>> problem_of_sizes(64, 128, 256, "bf16", layout="nt").b.k_major
    True
    """
    blocks = BLOCK_FORMATS.get(str(dtype))
    fmt = FORMATS[blocks.elements[0]] if blocks else format_named(dtype, "dtype")
    if fmt.name == "e2m1" and blocks is None:
        raise LanewiseError(f"dtype={dtype!r}: products of e2m1 are block-scaled, mxfp4 or nvfp4")
    product = product_of(fmt, fmt)
    sums, promote = sums_of(product, fmt, None)
    kind = precision_of(product, fmt, precision)
    result = result_of(product, fmt, None, out, False)

    def contiguous(fmt: Format, rows: int, columns: int, k_major: bool) -> Operand:
        nowhere = View((rows, columns), (columns, 1), fmt, 0, "numpy", None, None)
        strides = (columns, 1) if k_major else (1, rows)
        return operand(nowhere, rows, columns, *strides, batch, rows * columns if batch > 1 else 0)

    return Problem(
        m,
        n,
        k,
        contiguous(fmt, m, k, layout[0] == "n"),
        contiguous(fmt, n, k, layout[1] == "t"),
        contiguous(result, m, n, True),
        sums,
        batch,
        precision=kind,
        promote=promote,
        batch_invariant=batch_invariant,
        block_format=blocks.name if blocks else "",
    )
