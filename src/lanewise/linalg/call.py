"""`lw.matmul` and `lw.plan`: the rules hold, a plan is chosen, and the arrays decide who computes."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from lanewise.errors import LanewiseError
from lanewise.linalg.launch.repeat import (
    KEYWORDS,
    NOT_GIVEN,
    QUICK,
    WarmCall,
    find,
    kind_of_tensor,
    quick_fault,
    quick_sparse,
    remember,
    remember_quick,
)
from lanewise.linalg.operands import plain_tensors, with_items
from lanewise.linalg.plan import Plan
from lanewise.linalg.planning.forced import require_kernel
from lanewise.linalg.planning.gpus import planned_arch
from lanewise.linalg.planning.planned import PlannedProduct
from lanewise.linalg.planning.planner import plan_of
from lanewise.linalg.problem import Operand, Problem
from lanewise.linalg.rules import Options, Request, request_of
from lanewise.linalg.sparse import sparse_product
from lanewise.linalg.sparse_matrix import SparseMatrix
from lanewise.tracebacks import short_traceback, shorten

if TYPE_CHECKING:
    from lanewise.lang.versions.versions import ReadValues
    from lanewise.linalg.launch.prepare import Prepared

#: The GPU that arrays in host memory are computed like, unless arch= says otherwise.
DEFAULT_ARCH = "sm_90a"
#: torch's types of plain tensors, once a product of some was computed on a GPU.
_TENSORS: set[type] = set()
_Call = TypeVar("_Call", bound=Callable[..., Any])


def _machine_code_first(function: _Call) -> _Call:
    """Return `matmul` with a short way for calls that were made before: machine code is asked first.

    It has three keywords of seventeen, as Python fills in defaults one by one; the others are in `more`.
    """

    @wraps(function)
    def matmul(
        a: Any, b: Any, *, out: Any = None, bias: Any = None, activation: Any = None, **more: Any
    ) -> Any:
        try:
            if not QUICK:
                return function(a, b, out=out, bias=bias, activation=activation, **more)
            result = None
            if not more and (activation is None or type(activation) is str):
                if type(b) is SparseMatrix:
                    result = quick_sparse((activation, *NOT_GIVEN), a, b, out, bias, None, None, None, None)
                elif bias is None and activation is None:
                    result = QUICK[0](a, b, out)
                else:
                    number = KEYWORDS.get((activation, *NOT_GIVEN))
                    result = QUICK[0](a, b, out, bias, None, None, None, None, number)
            if result is None:
                return function(a, b, out=out, bias=bias, activation=activation, **more)
            if type(result) is int:
                raise quick_fault(result)
            return result
        except LanewiseError as error:
            shorten(error)
            raise

    return cast(_Call, matmul)


@_machine_code_first
def matmul(
    a: Any,
    b: Any,
    *,
    out: Any = None,
    bias: Any = None,
    activation: str | None = None,
    residual: Any = None,
    alpha: float = 1.0,
    beta: float | None = None,
    scale_a: Any = None,
    scale_b: Any = None,
    scale_out: Any = None,
    epilogue: Any = None,
    out_dtype: Any = None,
    accumulate: Any = None,
    precision: str | None = None,
    batch_invariant: bool = False,
    arch: str | None = None,
    plan: Plan | PlannedProduct | None = None,
    stream: Any = None,
) -> Any:
    """Return the product of two arrays: on their GPU, or on the CPU with the bits of a GPU.

    Shapes follow torch and NumPy: vectors, matrices, batches that broadcast, any strides. The result is

        scale_out · (activation(alpha · scale_a · scale_b · (a · b) + bias) + beta · residual)

    to which `epilogue`, a function of your own (`lw.epilogue`), is applied. It is rounded once, to the type
    of `out`, to `out_dtype`, or to the type of `a`. `bias` is one number for each column (N,) or each row
    (M, 1); `activation` is "relu", "gelu", "gelu_tanh", "silu" or "sigmoid"; `beta` without a residual scales
    what `out` holds. Scales of e4m3, e5m2 and int8 are numbers, one for each row of a or column of b, or, of
    small floats, blocks of 1×128 of a and 128×128 of b. `accumulate` is the type of sums; `precision` of f32
    arrays is "f32" or "tf32".

    `arch` is the GPU that arrays in host memory are computed like, sm_90a unless said otherwise. `plan` is
    what `lw.plan` returned; with `batch_invariant` a row's bits do not depend on how many rows are beside it.

    >>> import numpy as np
    >>> a, b = np.eye(3, 4, dtype=np.float16), np.arange(8, dtype=np.float16).reshape(4, 2)
    >>> matmul(a, b, bias=np.ones(2, np.float16), activation="relu").tolist()
    [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    """
    if stream is not None:
        from lanewise.linalg.launch.streams import working_on

        on_it = working_on(stream, a)
        if on_it is not None:
            with on_it:
                return matmul(
                    a, b, out=out, bias=bias, activation=activation, residual=residual, alpha=alpha,
                    beta=beta, scale_a=scale_a, scale_b=scale_b, scale_out=scale_out, epilogue=epilogue,
                    out_dtype=out_dtype, accumulate=accumulate, precision=precision,
                    batch_invariant=batch_invariant, arch=arch, plan=plan,
                )  # fmt: skip
    try:
        plain = (
            bias is None and activation is None and residual is None and alpha == 1 and beta is None
            and scale_a is None and scale_b is None and scale_out is None and epilogue is None
            and out_dtype is None and accumulate is None and precision is None and not batch_invariant
            and arch is None and plan is None
        )  # fmt: skip
    except (TypeError, ValueError, RuntimeError):  # an array has no truth: the rules below say what is taken
        plain = False
    others: Any = None
    if type(epilogue) is EpilogueFunction:
        epilogue = epilogue.current()
    if not plain:
        others = (
            activation, alpha, beta, epilogue, out_dtype, accumulate, precision, batch_invariant, arch, plan,
        )  # fmt: skip
    key = None
    try:
        if QUICK and not plain:
            tensors = (out, bias, residual, scale_a, scale_b, scale_out)
            if type(b) is SparseMatrix:
                result = quick_sparse(others, a, b, *tensors)
            else:
                result = QUICK[0](a, b, *tensors, KEYWORDS.get(others))
            if result is not None:
                if type(result) is int:
                    raise quick_fault(result)
                return result
        operands = (a, b, bias, residual, scale_a, scale_b, scale_out, out)
        if type(a) in _TENSORS and a.is_cuda and not _records_gradients(operands):
            key = (*map(kind_of_tensor, operands), others)
            made = find(key)
            if made is not None:
                result = made(a, b, out, stream, bias, residual, scale_a, scale_b, scale_out)
                if made.repeat is not None:
                    short = plain and type(b) is not SparseMatrix
                    more = () if short else (bias, residual, scale_a, scale_b, scale_out)
                    remember_quick(made, (a, b, out, *more), others)
                if result is not None:
                    return result
    except (AttributeError, TypeError):  # not what a call takes: the rules below say so
        key = None
    options = Options(
        out, bias, activation, residual, alpha, beta, scale_a, scale_b, scale_out, epilogue, out_dtype,
        accumulate, precision, batch_invariant,
    )  # fmt: skip
    if isinstance(b, SparseMatrix):

        def keep(prepared: Prepared, request: Request) -> None:
            if request.a.library == "torch":
                _remember(out, prepared, request, key)

        return sparse_product(a, b, options, arch, plan, stream, keep)
    request = request_of(a, b, options)
    if request.problem is None:
        _each_of_batch(request, a, b, options, arch, plan, stream)
    elif request.a.device is None:
        _on_cpu(request, request.problem, _plan(request.problem, arch, plan))
    else:
        from lanewise.linalg.launch.prepare import run

        if is_scattered(request.problem):
            return _on_copies(request, request.problem, a, b, options, arch, plan, stream)
        forced = plan.plan if isinstance(plan, PlannedProduct) else plan
        prepared = run(request, request.problem, arch, forced, stream)
        if prepared is not None and request.k and request.a.library == "torch":
            _remember(out, prepared, request, key)
    return _returned(request, a) if out is None else out


def _records_gradients(operands: tuple[Any, ...]) -> bool:
    """Return whether torch records gradients now, and an operand requires one."""
    if not sys.modules["torch"].is_grad_enabled():
        return False
    return any(each is not None and getattr(each, "requires_grad", False) for each in operands)


def is_scattered(problem: Problem) -> bool:
    """Return whether an operand has neighbours along neither axis, or runs backwards."""
    operands: tuple[Operand | None, ...] = (problem.a, problem.b, problem.out, problem.epilogue.residual)
    if not (problem.m and problem.n and problem.batch):
        return False  # nothing is computed
    if not problem.k:
        operands = operands[2:]  # nothing of a and b is read
    return any(each is not None and (each.inner != 1 or each.leading < 0) for each in operands)


def _on_copies(
    request: Request, problem: Problem, a: Any, b: Any, options: Options, arch: Any, plan: Any, stream: Any
) -> Any:
    """Compute a product on a GPU whose operands are scattered, on copies that their library makes of them."""

    def compact(array: Any, operand: Operand | None) -> Any:
        if array is None or operand is None or (operand.inner == 1 and operand.leading >= 0):
            return array
        if hasattr(array, "contiguous"):
            return array.contiguous()
        if hasattr(array, "copy") and request.a.library == "cupy":
            return array.copy(order="C")
        raise LanewiseError(
            f"an array of {request.a.library} is contiguous along neither axis: copy it first"
        )

    residual = options.residual
    if residual is None and request.residual is not None:
        residual = options.out  # what it holds is added
    out = options.out
    scattered = out is not None and compact(out, problem.out) is not out
    keywords = {
        name: getattr(options, name)
        for name in (
            "bias", "activation", "alpha", "scale_a", "scale_b", "scale_out", "epilogue", "accumulate",
            "precision", "batch_invariant",
        )
    }  # fmt: skip
    result = matmul(
        compact(a, problem.a),
        compact(b, problem.b),
        out=None if scattered else out,
        out_dtype=problem.out.dtype.name,
        residual=compact(residual, problem.epilogue.residual),
        beta=options.beta if residual is not None else None,
        arch=arch,
        plan=plan,
        stream=stream,
        **keywords,
    )
    if scattered:
        out[...] = result
    return out if out is not None else result


def _remember(out: Any, prepared: Prepared, request: Request, key: Any) -> None:
    """Keep a call on torch's tensors for the next one of its kind."""
    _TENSORS.update(plain_tensors())
    if key is not None:
        remember(key, WarmCall(prepared, request, out is not None))


@short_traceback
def plan(
    a: Any,
    b: Any,
    *,
    arch: str | None = None,
    **keywords: Any,
) -> PlannedProduct:
    """Return the plan for a call of `lw.matmul` with the same arguments: what runs, how, and why.

    >>> import numpy as np
    >>> found = plan(np.zeros((4096, 4096), np.float16), np.zeros((4096, 4096), np.float16))
    >>> found.plan.family, found.plan.tile
    ('warpgroup', (128, 256, 64))
    """
    request = request_of(a, b, Options(**_plannable(keywords)), empty_result=False)
    problem = request.problem
    if problem is None:
        raise LanewiseError(
            f"with these strides the batch {request.batch} cannot be treated as one axis, and lw.matmul "
            "loops over the first: plan one step of the loop, with a[0] and b[0]"
        )
    own = _arch_of(request, arch)
    if request.a.device is not None and arch is None:
        from lanewise.gpu.device import context
        from lanewise.linalg.planning.tuned import tuned_plan

        fastest = tuned_plan(problem, own, context(request.a.device).device.name)
        if fastest is not None:
            return PlannedProduct(fastest, problem)
    return planned(problem, own)


def planned(problem: Problem, arch: str) -> PlannedProduct:
    """Return the plan of a problem with what the model says of it."""
    return PlannedProduct(plan_of(problem, arch), problem)


def _plannable(keywords: dict[str, Any]) -> dict[str, Any]:
    unknown = [name for name in keywords if name not in Options.__dataclass_fields__]
    if unknown:
        raise LanewiseError(f"lw.plan takes the keywords of lw.matmul; {unknown[0]} is none of them")
    return keywords


def _arch_of(request: Request, arch: str | None) -> str:
    """Return the arch that a request is planned for: the one that was asked for, or that of its device."""
    if request.a.device is None or arch is not None:
        return planned_arch(DEFAULT_ARCH if arch is None else arch)
    from lanewise.linalg.launch.prepare import arch_of_device

    return arch_of_device(request.a.device)


def _plan(problem: Problem, arch: str | None, given: Plan | PlannedProduct | None) -> Plan:
    """Return the plan of a product on the CPU: the one that was given, or the planner's."""
    if given is None:
        return plan_of(problem, planned_arch(DEFAULT_ARCH if arch is None else arch))
    found = given.plan if isinstance(given, PlannedProduct) else given
    if not isinstance(found, Plan):
        raise LanewiseError(f"plan= takes what lw.plan returns, not {type(given).__name__}")
    if arch is not None and planned_arch(arch) != found.arch:
        raise LanewiseError(f"arch={arch!r}, but the plan is for {found.arch}: leave out one of the two")
    require_kernel(problem, found)
    return found


def _on_cpu(request: Request, problem: Problem, found: Plan) -> None:
    from lanewise.linalg.cpu.sums import compute

    compute(request, problem, found)


def _each_of_batch(
    request: Request, a: Any, b: Any, options: Options, arch: str | None, plan: Any, stream: Any
) -> None:
    """Compute a batch whose axes cannot be joined: one product for each index of the first axis."""
    axes = len(request.batch)
    given: dict[str, Any] = {"a": a, "b": b, "residual": options.residual}
    given |= {"scale_a": options.scale_a, "scale_b": options.scale_b}
    given = {name: with_items(array, name) for name, array in given.items()}

    def item(name: str, index: int) -> Any:
        array = given[name]
        if array is None or not hasattr(array, "shape") or len(array.shape) < axes + 2:
            return array
        return array[0 if array.shape[0] == 1 else index]

    for index in range(request.batch[0]):
        matmul(
            item("a", index),
            item("b", index),
            out=with_items(request.result, "out")[index],
            residual=None if given["residual"] is None else given["residual"][index],
            scale_a=item("scale_a", index),
            scale_b=item("scale_b", index),
            **{
                name: getattr(options, name)
                for name in ("bias", "activation", "alpha", "beta", "scale_out", "epilogue", "accumulate",
                             "precision", "batch_invariant")
            },
            arch=arch,
            plan=plan,
            stream=stream,
        )  # fmt: skip


def _returned(request: Request, a: Any) -> Any:
    """Return a new result as the library of `a` has it: JAX gets a copy, as its arrays are never written."""
    if request.a.library == "jax" and request.a.device is None:
        jax = sys.modules["jax"]
        return jax.device_put(request.result, next(iter(a.devices())))
    return request.result


class EpilogueFunction:
    """A function of the user's on a finished value: `lw.epilogue` makes one."""

    is_epilogue = True

    def __init__(self, function: Any) -> None:
        from lanewise.lang import device

        self.function = function if type(function).__name__ == "Device" else device(function)
        self._reads: ReadValues | None = None
        self._latest = self

    def current(self) -> EpilogueFunction:
        """Return the function as it is now: another object once something that it reads has changed.

        Launches are kept by this object, so that those of a function that has changed are made anew.
        """
        latest = self._latest
        if latest._reads is None:
            from lanewise.lang.versions.versions import ReadValues

            latest._reads = ReadValues((latest.function,))
        elif not latest._reads.holds():
            self._latest = EpilogueFunction(self.function)
            return self.current()
        return self._latest

    def __call__(self, value: Any, row: Any, column: Any) -> Any:
        """Return the function's value in the format of the one that it gets."""
        result = self.function(value, row, column)
        if type(result) in (int, float):
            return value.dtype(result)
        if getattr(result, "dtype", None) == value.dtype:
            return result
        from lanewise.lang import KernelError
        from lanewise.lang.trace.traced import describe

        raise KernelError(
            f"an epilogue returns the {value.dtype} value to store; {self.name} returns {describe(result)}",
            *self._place(),
        )

    @property
    def name(self) -> str:
        """The function's own name."""
        return str(getattr(self.function, "__name__", "function"))

    def _place(self) -> tuple[str, int]:
        """Return the file and line where the function is defined."""
        code = inspect.unwrap(self.function).__code__
        return code.co_filename, code.co_firstlineno

    def __repr__(self) -> str:
        return f"<epilogue {self.name}>"


def epilogue(function: Any) -> EpilogueFunction:
    """Mark a function f(value, row, column) of the kernel language as an epilogue of `lw.matmul`.

    It gets the value that would be stored, in f32, with its row and column in the result (of a batch, in its
    own matrix; of groups, in its own group), and returns the value to store. It runs in the product's own
    kernel, without another pass through memory.

    >>> import numpy as np
    >>> import lanewise as lw
    >>> @lw.epilogue
    ... def lower(value, row, column):
    ...     return lw.where(column <= row, value, lw.f32(0.0))
    >>> ones = np.ones((3, 3), np.float16)
    >>> lw.matmul(ones, ones, epilogue=lower).tolist()
    [[3.0, 0.0, 0.0], [3.0, 3.0, 0.0], [3.0, 3.0, 3.0]]
    """
    if not callable(function) or not hasattr(inspect.unwrap(function), "__code__"):
        raise LanewiseError(f"@lw.epilogue goes on a function f(value, row, column), not on {function!r}")
    try:
        inspect.signature(function).bind("value", "row", "column")
    except TypeError:
        name = getattr(function, "__name__", "function")
        raise LanewiseError(
            f"@lw.epilogue goes on a function of three arguments, {name}(value, row, column), "
            f"not on {name}{inspect.signature(function)}"
        ) from None
    return EpilogueFunction(function)
