"""`lw.matmul` and `lw.plan`: the rules hold, a plan is chosen, and the arrays decide who computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar, cast

from lanewise import engines
from lanewise.errors import LanewiseError
from lanewise.hints import too_many_arguments
from lanewise.linalg.arrays import Array, Scale
from lanewise.linalg.block_scaling import BlockScaledMatrix, SwizzledScales
from lanewise.linalg.epilogue_function import EpilogueFunction
from lanewise.linalg.int4_matmul import product as int4_product
from lanewise.linalg.launch.known_calls import NATIVE_CALLS, known_call, repeated
from lanewise.linalg.operands import (
    View,
    is_followed,
    note_written,
    of_library,
    require_not_followed,
    with_items,
)
from lanewise.linalg.options import Options, options_of, require_keywords
from lanewise.linalg.plan import Plan
from lanewise.linalg.planning.gpus import planned_arch
from lanewise.linalg.planning.planned import PlannedProduct
from lanewise.linalg.planning.planner import plan_of, require_kernel
from lanewise.linalg.problem import Problem
from lanewise.linalg.quantize import QuantizedMatrix
from lanewise.linalg.rules import Request, problem_of_copies, request_of, scattered
from lanewise.linalg.sparsify import SparseMatrix, sparse_plan_of, sparse_request
from lanewise.linalg.types import number_of
from lanewise.tracebacks import short_traceback, shorten

_Call = TypeVar("_Call", bound=Callable[..., Any])


def _machine_code_first(function: _Call, of_operator: bool = False) -> _Call:
    """Return `matmul` with a short way for calls that were made before: machine code is asked first.

    It has three keywords of seventeen, as Python fills in defaults one by one; the others are in `more`.
    Where torch follows a computation, the call is refused, but for that of torch's operator.
    """

    @wraps(function)
    def matmul(
        a: object,
        b: object,
        *by_position: object,
        out: object = None,
        bias: object = None,
        activation: object = None,
        **more: object,
    ) -> Any:
        try:
            if by_position:
                raise too_many_arguments(function, (a, b, *by_position))
            if NATIVE_CALLS:
                result = repeated(a, b, out, bias, activation, more)
                if result is not None:
                    return result
            if not of_operator and is_followed():
                given = {"a": a, "b": b, "out": out, "bias": bias, **more}
                require_not_followed("matmul", given)
            require_keywords("lw.matmul", more)
            return function(a, b, out=out, bias=bias, activation=activation, **more)
        except LanewiseError as error:
            shorten(error)
            raise

    return cast(_Call, matmul)


@_machine_code_first
def matmul(
    a: Array | BlockScaledMatrix,
    b: Array | SparseMatrix | QuantizedMatrix | BlockScaledMatrix,
    *,
    out: Array | None = None,
    bias: Array | None = None,
    activation: str | None = None,
    residual: Array | None = None,
    alpha: float = 1.0,
    beta: float | None = None,
    scale_a: Scale | SwizzledScales | None = None,
    scale_b: Scale | SwizzledScales | None = None,
    scale_out: Scale | None = None,
    epilogue: EpilogueFunction | None = None,
    out_dtype: object = None,
    accumulate: object = None,
    precision: str | None = None,
    batch_invariant: bool = False,
    arch: str | None = None,
    plan: Plan | PlannedProduct | None = None,
    stream: object = None,
) -> Any:
    """Return the product of two arrays: on their GPU, or on the CPU with the bits of a GPU.

    Shapes follow torch and NumPy: vectors, matrices, batches that broadcast, any strides. The result is

        scale_out · (activation(alpha · scale_a · scale_b · (a · b) + bias) + beta · residual)

    to which `epilogue`, a function of your own (`lw.epilogue`), is applied. It is rounded once, to the type
    of `out`, to `out_dtype`, or to the type of `a`. `bias` is one number for each column (N,) or each row
    (M, 1); `activation` is "relu", "gelu", "gelu_tanh", "silu" or "sigmoid"; `beta` without a residual scales
    what `out` holds. Scales of e4m3, e5m2 and int8 are numbers, one for each row of a or column of b, or, of
    small floats, blocks of 1×128 of a and 128×128 of b. Scales of mxfp8, mxfp4 and nvfp4 are float8_e8m0fnu
    for each 32 elements of K, or float8_e4m3fn for each 16, in rows or as `lw.SwizzledScales`. `accumulate`
    is the type of sums; `precision` of f32 arrays is "f32" or "tf32".

    `arch` is the GPU that arrays in host memory are computed like, sm_90a unless said otherwise. `plan` is
    what `lw.plan` returned; with `batch_invariant` a row's bits do not depend on how many rows are beside it.

    >>> import numpy as np
    >>> a, b = np.eye(3, 4, dtype=np.float16), np.arange(8, dtype=np.float16).reshape(4, 2)
    >>> matmul(a, b, bias=np.ones(2, np.float16), activation="relu").tolist()
    [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    """
    return product(
        a,
        b,
        Options(
            out, bias, activation, residual, alpha, beta, scale_a, scale_b, scale_out, epilogue, out_dtype,
            accumulate, precision, batch_invariant, arch, plan, stream,
        ),
    )  # fmt: skip


def product(a: object, b: object, options: Options) -> Any:
    """Return the product of two arrays by options; every product of the library is computed here."""
    if options.stream is not None:
        from lanewise.linalg.launch.streams import working_on

        on_it = working_on(options.stream, a)
        if on_it is not None:
            with on_it:
                return product(a, b, replace(options, stream=None))
    if type(a) is BlockScaledMatrix or type(b) is BlockScaledMatrix:
        a, b, options = _unwrapped(a, b, options)
    known = known_call(a, b, options)
    if known is not None and known.call is not None:
        result = known.call(a, b, options)
        if result is not None:
            known.offer(a, b, options)
            note_written(options.out)
            return result
    if type(b) is QuantizedMatrix:
        return int4_product(a, b, options, known, product, _each_of_batch)
    request = sparse_request(a, b, options) if isinstance(b, SparseMatrix) else request_of(a, b, options)
    problem = request.problem
    if problem is None or (problem.sparse and problem.batch > 1 and request.a.device is not None):
        _each_of_batch(request, a, b, options)
    elif _is_copied(request, problem):
        return _on_copies(request, problem, a, b, options)
    elif request.a.device is None:
        from lanewise.linalg.cpu.sums import compute

        try:
            compute(request, problem, _plan(problem, options), b)
        except MemoryError as error:
            raise LanewiseError(
                f"a product of {problem.m} × {problem.n} × {problem.k} needs more memory than there is "
                f"({error}): compute some rows of a at a time"
            ) from None
    else:
        from lanewise.linalg.launch.prepare import run

        prepared = run(request, problem, options.arch, given_plan(options), options.stream)
        if known is not None and prepared is not None and request.k:
            known.remember(prepared, request, options)
    note_written(options.out)
    return of_library(request.a, a, request.result) if options.out is None else options.out


def require_product(a: View, b: View, options: Options, on_cpu: bool) -> None:
    """Raise an error for a call that `matmul` refuses; its arrays need no memory."""
    request = request_of(a, b, options, empty_result=False)
    planned_arch(options.arch)
    problem = request.problem
    if on_cpu and problem is not None and not scattered(problem):
        _plan(problem, options)


#: The libraries whose scattered arrays in host memory are copied.
_COPIED_IN_HOST = ("numpy", "torch")


def given_plan(options: Options) -> Plan | None:
    """Return the plan that a caller gave, without its problem; an error if it is none."""
    given = options.plan.plan if isinstance(options.plan, PlannedProduct) else options.plan
    if given is not None and not isinstance(given, Plan):
        raise LanewiseError(f"plan= takes what lw.plan returns, not {type(given).__name__}")
    return given


def _is_copied(request: Request, problem: Problem) -> bool:
    """Return whether operands are scattered, and are copied by their library first."""
    takes_copies = request.a.device is not None or request.a.library in _COPIED_IN_HOST
    return takes_copies and bool(scattered(problem))


def _on_copies(request: Request, problem: Problem, a: object, b: object, options: Options) -> Any:
    """Compute a product whose operands are scattered, on copies that their library makes of them.

    This is what a GPU takes; in host memory the copies have the same plan, and so the same bits.
    """
    names = scattered(problem)

    def compact(array: object, name: str) -> Any:
        if array is None or name not in names:
            return array
        if hasattr(array, "contiguous"):
            return array.contiguous()
        if hasattr(array, "copy") and request.a.library in ("cupy", "numpy"):
            return array.copy(order="C")
        raise LanewiseError(
            f"an array of {request.a.library} is contiguous along neither axis: copy it first"
        )

    out: Any = options.out
    apart = out is not None and "out" in names
    into = out
    if apart:
        adds = options.residual is None and request.residual is not None  # what out holds
        into = compact(out, "out") if adds else None
    changed = replace(
        options,
        out=into,
        out_dtype=problem.out.dtype.name,
        residual=compact(options.residual, "residual"),
        beta=options.beta if request.residual is not None else None,
    )
    result = product(compact(a, "a"), compact(b, "b"), changed)
    if apart:
        out[...] = result
    return out if out is not None else result


def _each_of_batch(request: Request, a: Any, b: Any, options: Options) -> None:
    """Compute a batch whose axes cannot be joined: one product for each index of the first axis."""
    axes = len(request.batch)

    def items(array: Any, name: str) -> Any:
        return array if isinstance(array, SparseMatrix | SwizzledScales) else with_items(array, name)

    a, b, residual, result = (
        items(a, "a"), items(b, "b"), items(options.residual, "residual"), items(request.result, "out")
    )  # fmt: skip
    scale_a, scale_b = items(options.scale_a, "scale_a"), items(options.scale_b, "scale_b")

    def item(array: Any, index: int) -> Any:
        if array is None or not hasattr(array, "shape") or len(array.shape) < axes + 2:
            return array
        return array[0 if array.shape[0] == 1 else index]

    for index in range(request.batch[0]):
        part = replace(
            options,
            out=result[index],
            out_dtype=None,
            residual=None if residual is None else residual[index],
            scale_a=item(scale_a, index),
            scale_b=item(scale_b, index),
        )
        product(item(a, index), item(b, index), part)


def _unwrapped(a: object, b: object, options: Options) -> tuple[Any, Any, Options]:
    """Return a product's operands as arrays, and its options with the scales of block-scaled ones."""
    for name, given, axis in (("a", a, 1), ("b", b, 0)):
        if not isinstance(given, BlockScaledMatrix):
            continue
        if getattr(options, f"scale_{name}") is not None:
            raise LanewiseError(f"{name} has scales of its own: leave out scale_{name}=")
        if given.axis != axis:
            raise LanewiseError(
                f"{name} is scaled along axis {given.axis}; blocks must lie along K, axis {axis} of {name}: "
                f"lw.quantize(…, axis={axis})"
            )
        scales = {f"scale_{name}": given.scales}
        options = replace(options, alpha=number_of(options.alpha, "alpha") * given.factor, **scales)
    return (
        a.values if isinstance(a, BlockScaledMatrix) else a,
        b.values if isinstance(b, BlockScaledMatrix) else b,
        options,
    )


#: `matmul` as torch's operator calls it.
matmul_of_operator = _machine_code_first(vars(matmul)["__wrapped__"], of_operator=True)
#: What torch.compile traces in place of `matmul`: an operator.
matmul.__dict__["_torchdynamo_inline"] = engines.PRODUCT_IN_GRAPH.function


# plans ------------------------------------------------------------------------------------------------------


@short_traceback
def plan(
    a: Array | BlockScaledMatrix, b: Array | BlockScaledMatrix, *, arch: str | None = None, **keywords: object
) -> PlannedProduct:
    """Return the plan for a call of `lw.matmul` with the same arguments: what runs, how, and why.

    >>> import numpy as np
    >>> planned = plan(np.zeros((4096, 4096), np.float16), np.zeros((4096, 4096), np.float16))
    >>> planned.plan.family, planned.plan.tile
    ('warpgroup', (128, 256, 64))
    """
    a, b, options = _unwrapped(a, b, options_of("lw.plan", keywords, without=("plan", "stream")))
    request = request_of(a, b, options, empty_result=False)
    problem = request.problem
    if problem is not None and _is_copied(request, problem):
        problem = problem_of_copies(request, problem)
    if problem is None:
        raise LanewiseError(
            f"with these strides the batch {request.batch} cannot be treated as one axis, and lw.matmul "
            "loops over the first: plan one step of the loop, with a[0] and b[0]"
        )
    if request.a.device is None or arch is not None:
        return planned(problem, planned_arch(arch))
    from lanewise.gpu.device import context
    from lanewise.linalg.launch.prepare import arch_of_device
    from lanewise.linalg.planning.tuned import tuned_plan

    own = arch_of_device(request.a.device)
    fastest = tuned_plan(problem, own, context(request.a.device).device.name)
    return planned(problem, own) if fastest is None else PlannedProduct(fastest, problem)


def planned(problem: Problem, arch: str) -> PlannedProduct:
    """Return the plan of a problem with what the model says of it."""
    return PlannedProduct(plan_of(problem, arch), problem)


def _plan(problem: Problem, options: Options) -> Plan:
    """Return the plan of a product on the CPU: the one that was given, or the planner's."""
    if problem.sparse:
        return sparse_plan_of(options)
    given, arch = given_plan(options), options.arch
    if given is None:
        return plan_of(problem, planned_arch(arch))
    if arch is not None and planned_arch(arch) != given.arch:
        raise LanewiseError(f"arch={arch!r}, but the plan is for {given.arch}: leave out one of the two")
    require_kernel(problem, given)
    return given
