"""What a family of kernels is: a module that makes the launches of a plan. It launches nothing itself.

A family has `launches`, `workspace_bytes`, `kernel` and `require_kernel`; `family_of` finds it by its name in
a plan.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.formats import tf32
from lanewise.lang.trace.types import TensorMapType
from lanewise.linalg.arrays import DeviceView, Memory, OnGpu, Pointers, element_steps, flat
from lanewise.linalg.plan import FAMILIES, Plan
from lanewise.linalg.problem import Problem
from lanewise.ptx.tensor_maps import TensorMap
from lanewise.tensor_maps import tensor_map

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
        arguments = map(_launched, self.arguments)
        if self.overlap:
            self.kernel(*arguments, stream=stream, overlap=True)
        else:  # without a keyword, which a warm launch does not have
            self.kernel(*arguments, stream=stream)

    def traced(self) -> tuple[Configured, tuple[object, ...]]:
        """Return the kernel as PTX, ready to launch, and its arguments."""
        configured, arguments = self.kernel.bind(*map(_launched, self.arguments))
        return (configured.overlapping() if self.overlap else configured), arguments


def launch(kernel: ConfiguredKernel, arguments: Iterable[object], overlap: bool = False) -> Launch:
    """Return the launch of a kernel on arrays and numbers; None is the address that a kernel never reads.

    Where the kernel's parameter is a tensor map, an array is passed as one. Elsewhere its memory is, from the
    first element to the last.
    """

    def passed(kind: object, value: Any) -> object:
        if isinstance(kind, TensorMapType):
            assert kind.box is not None
            swizzle: Any = kind.swizzle or "none"
            return tensor_map(value, kind.box, swizzle=swizzle, dtype="tf32" if kind.dtype is tf32 else None)
        if value is None:
            return 0
        return flat(value) if isinstance(value, np.ndarray) else value

    kinds = [parameter.kind for parameter in kernel.kernel.parameters]
    return Launch(kernel, tuple(passed(*pair) for pair in zip(kinds, arguments, strict=True)), overlap)


def _launched(argument: object) -> object:
    """Return an argument as launches take it: memory on a GPU says so."""
    if isinstance(argument, TensorMap):
        return TensorMap(_launched(argument.array), argument.tensor)
    return OnGpu(argument) if isinstance(argument, DeviceView) else argument


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


def residual_strides(problem: Problem) -> tuple[int, int, int]:
    """Return the residual's steps along rows, columns and the batch; zeros if there is none."""
    residual = problem.epilogue.residual
    return (0, 0, 0) if residual is None else (*residual.strides, residual.batch_stride)


def epilogue_arguments(
    problem: Problem, pointers: Pointers, batched: bool = True, block_strides: tuple[int, ...] = ()
) -> tuple[object, ...]:
    """Return the arguments of an epilogue in every kernel's order: bias, residual and its strides, scales,
    the strides of block scales where a kernel has those, alpha and beta."""
    return (
        pointers.bias, pointers.residual, *residual_strides(problem)[: 3 if batched else 2],
        pointers.scale_a, pointers.scale_b, pointers.scale_out, *block_strides,
        float(pointers.alpha), float(pointers.beta),
    )  # fmt: skip


def block_scale_strides(pointers: Pointers) -> tuple[int, int, int, int]:
    """Return the steps of block scales in elements: along rows and K of A's, along columns and K of B's."""

    assert pointers.scale_a is not None and pointers.scale_b is not None
    (row, row_k), (column_k, column) = element_steps(pointers.scale_a), element_steps(pointers.scale_b)
    return row, row_k, column, column_k


def rows_of_operands(problem: Problem, pointers: Pointers) -> tuple[Memory, Memory]:
    """Return A and B as tensor maps see them: with the contiguous axis last."""
    return (
        pointers.a if problem.a.k_major else pointers.a.swapaxes(-1, -2),
        pointers.b.swapaxes(-1, -2) if problem.b.k_major else pointers.b,
    )
