"""What a family of kernels is: a module that makes the launches of a plan. It launches nothing itself.

A family has `launches`, `workspace_bytes`, `kernel` and `require_kernel`; `family_of` finds it by its name in
a plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.formats import tf32
from lanewise.linalg.arrays import DeviceView, Memory, OnGpu, Pointers, element_steps, flat
from lanewise.linalg.plan import FAMILIES, Plan
from lanewise.linalg.problem import Operand, Problem

if TYPE_CHECKING:
    from lanewise.lang.frontend.kernel import Kernel
    from lanewise.lang.frontend.launching import ConfiguredKernel
    from lanewise.launch import Configured


class Launch(NamedTuple):
    """One launch: a kernel with its grid and block, its arguments, and whether it may begin before the launch
    ahead of it has ended."""

    kernel: ConfiguredKernel
    arguments: tuple[object, ...]
    overlap: bool = False

    def __call__(self, stream: object = None) -> None:
        """Make it: on the GPU of the arrays or, for NumPy's, on the CPU machine."""
        if self.overlap:
            self.kernel(*self.arguments, stream=stream, overlap=True)
        else:  # without a keyword, which a warm launch does not have
            self.kernel(*self.arguments, stream=stream)

    def traced(self) -> tuple[Configured, tuple[object, ...]]:
        """Return the kernel as PTX, ready to launch, and its arguments."""
        configured, arguments = self.kernel.bind(*self.arguments)
        return (configured.overlapping() if self.overlap else configured), arguments


def launch(
    kernel: ConfiguredKernel,
    arguments: Mapping[str, object] | Sequence[object],
    overlap: bool = False,
    promoted: Collection[str] = (),
) -> Launch:
    """Return the launch of a kernel on arrays and numbers, in its parameters' order or by their names.

    Where a parameter is a tensor map, an array is passed as one; of those that are `promoted`, by name, L2
    reads 256 bytes at once. Elsewhere its memory is passed, from the first element to the last. None is the
    address that a kernel never reads.
    """
    from lanewise.lang.trace.types import TensorMapType
    from lanewise.tensor_maps import tensor_map

    def passed(parameter: Any, value: Any) -> object:
        kind = parameter.kind
        if isinstance(value, np.ndarray) and not isinstance(kind, TensorMapType):
            value = flat(value)
        if isinstance(value, DeviceView):
            value = OnGpu(value)
        if not isinstance(kind, TensorMapType):
            return 0 if value is None else value
        assert kind.box is not None
        swizzle: Any = kind.swizzle or "none"
        return tensor_map(
            value, kind.box, swizzle=swizzle, l2_promotion="256B" if parameter.name in promoted else None,
            dtype="tf32" if kind.dtype is tf32 else None,
        )  # fmt: skip

    parameters = kernel.kernel.parameters
    if isinstance(arguments, Mapping):
        arguments = [arguments[parameter.name] for parameter in parameters]
    return Launch(kernel, tuple(passed(*pair) for pair in zip(parameters, arguments, strict=True)), overlap)


class Family(Protocol):
    """The functions of a family's module."""

    def launches(
        self, problem: Problem, plan: Plan, pointers: Pointers, multiprocessors: int | None = None
    ) -> list[Launch]:
        """Return the launches of a plan, in order; without a number, for the GPU that its arch stands for."""

    def workspace_bytes(self, problem: Problem, plan: Plan) -> int:
        """Return how many bytes of workspace a plan takes, at an address that is a multiple of 128; 0: none.

        Its first bytes are counters: they are zero before the first launch, and each launch leaves them zero.
        """

    def kernel(self, problem: Problem, plan: Plan) -> Kernel:
        """Return the kernel of a plan, cached by what is compiled in."""

    def require_kernel(self, problem: Problem, plan: Plan) -> None:
        """Raise the error that a launch would raise if there is no kernel of a plan for a problem."""


#: The packages of the families by their names in a plan.
_PACKAGES = {"warpgroup": "hopper", "sparse": "hopper", "warp": "warp", "blackwell": "blackwell"}


@cache
def family_of(name: str) -> Family:
    """Return the family of kernels that a plan names."""
    if name not in _PACKAGES:
        raise LanewiseError(f"a plan's family must be one of {', '.join(FAMILIES)}, not {name!r}")
    return cast(Family, import_module(f"lanewise.linalg.kernels.{_PACKAGES[name]}.launches"))


def run(launches: Iterable[Launch], stream: object = None) -> None:
    """Make launches, one after the other."""
    for launch in launches:
        launch(stream)


def arguments_of(problem: Problem, pointers: Pointers, group: int = 0) -> dict[str, object]:
    """Return the arguments of products, by the names of kernels' parameters; `group` is the plan's.

    A, B and the result have the contiguous axis last, as tensor maps see them.
    """

    def lines(array: Memory, operand: Operand) -> Memory:
        return array if operand.k_major else array.swapaxes(-1, -2)

    a, b, out, residual = problem.a, problem.b, problem.out, problem.epilogue.residual
    result = lines(pointers.out, out)
    steps = (0, 0, 0) if residual is None else (*residual.strides, residual.batch_stride)
    scale_steps = [0, 0, 0, 0]
    if problem.promote is not None and any(problem.scale_blocks):
        assert pointers.scale_a is not None and pointers.scale_b is not None
        scale_steps = element_steps(pointers.scale_a) + element_steps(pointers.scale_b)
    return {
        "A": lines(pointers.a, a), "B": lines(pointers.b, b), "C": result, "Out": result,
        "metadata": pointers.metadata, "M": problem.m, "N": problem.n, "K": problem.k,
        "batch": problem.batch, "group": group,
        "lda": a.leading, "a_leading": a.leading, "batch_a": a.batch_stride, "a_stride": a.batch_stride,
        "ldb": b.leading, "batch_b": b.batch_stride,
        "ldo": out.leading, "leading": out.leading, "batch_out": out.batch_stride, "stride": out.batch_stride,
        "bias": pointers.bias, "residual": pointers.residual, "residual_row": steps[0],
        "residual_column": steps[1], "residual_stride": steps[2], "residual_batch": steps[2],
        "scale_a": pointers.scale_a, "scale_b": pointers.scale_b, "scale_out": pointers.scale_out,
        "scale_row": scale_steps[0], "scale_row_k": scale_steps[1],
        "scale_column": scale_steps[2], "scale_column_k": scale_steps[3],
        "alpha": float(pointers.alpha), "beta": float(pointers.beta), "folded_rows": problem.folded_rows,
        "starts": pointers.starts, "ends": pointers.ends, "experts": problem.experts,
        "clears_rest": int(problem.clears_rest),
    }  # fmt: skip
