"""What a family of kernels is: a module that makes the launches of a plan. It launches nothing itself.

A family has `launches`, `workspace_bytes`, `kernel` and `require_kernel`; `family_of` finds it by its name in
a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, Protocol, cast

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.formats import Format, tf32
from lanewise.linalg.arrays import DeviceView, OnGpu, Pointers, flat
from lanewise.linalg.plan import FAMILIES, Plan
from lanewise.linalg.problem import Problem

if TYPE_CHECKING:
    from lanewise.lang.frontend.kernel import Kernel
    from lanewise.lang.frontend.launching import ConfiguredKernel
    from lanewise.lang.frontend.parameters import Parameter
    from lanewise.ptx import Entry, Shape

#: What a kernel is made of: frozen dataclasses, formats and numbers.
Constants = ParamSpec("Constants")


def made_by_constants(make: Callable[Constants, Kernel]) -> Callable[Constants, Kernel]:
    """Return a function that makes a kernel once for the same constants.

    Where these say all in words, the kernel has a name, under which launches find its machine code without
    its source.
    """

    of_any = cast("Callable[..., Kernel]", make)

    @cache
    def made(*constants: Any) -> Kernel:
        kernel = of_any(*constants)
        if _says_all(constants):
            kernel.kept_as = f"{make.__module__}.{make.__qualname__}{constants!r}"
        return kernel

    return cast("Callable[Constants, Kernel]", wraps(make)(made))


def _says_all(value: object) -> bool:
    """Return whether what Python writes of a value tells it from all others: not of a user's function."""
    if isinstance(value, tuple):
        return all(map(_says_all, value))
    if is_dataclass(value) and not isinstance(value, Format):
        own = type(value).__module__.startswith("lanewise.")
        return own and all(each.repr and _says_all(getattr(value, each.name)) for each in fields(value))
    return value is None or isinstance(value, bool | int | float | str | Enum | Format)


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

    @property
    def name(self) -> str:
        """The name of the kernel by what is compiled in; nothing if it has none."""
        return self.kernel.kernel.kept_as

    def traced(self, arch: str | None = None) -> tuple[Entry, int]:
        """Return the kernel as PTX, and the bytes of shared memory that its arrays take.

        It is traced for the lowest arch that it can run on, sm_80 or a later one, unless another is named.
        """
        kernel = self.kernel.kernel
        version = kernel.version(arch, {})
        return version.module[kernel.name], version.needs.shared_bytes

    def bound(self, entry: Entry, shared_bytes: int) -> tuple[Shape, tuple[object, ...]]:
        """Return the grid and block of this launch and its arguments, for the kernel as PTX, which may be
        declared only."""
        from lanewise.lang.frontend.launching import BlockNeeds, split_arguments

        needs = BlockNeeds(shared_bytes=shared_bytes)
        configured = entry[needs.configuration(self.kernel.configuration)]
        arguments, _ = split_arguments(self.kernel.kernel, self.arguments, {})
        return (configured.overlapping() if self.overlap else configured).shape, arguments


def launch(
    kernel: ConfiguredKernel,
    arguments: Mapping[str, object] | Sequence[object],
    overlap: bool = False,
    promoted: Collection[str] = (),
) -> Launch:
    """Return the launch of a kernel on arrays and numbers: in the order of its parameters, those of structs
    among them, or by their names, of structs those of the fields.

    Where a parameter is a tensor map, an array is passed as one; of those that are `promoted`, by name, L2
    reads 256 bytes at once. Elsewhere its memory is passed, from the first element to the last. None is the
    address that a kernel never reads.
    """
    from lanewise.lang.frontend.parameters import built
    from lanewise.lang.trace.types import TensorMapType
    from lanewise.tensor_maps import tensor_map

    def passed(parameter: Parameter, value: Any) -> object:
        kind = parameter.kind
        if not isinstance(kind, TensorMapType):
            value = flat(value) if isinstance(value, np.ndarray) else value
            return OnGpu(value) if isinstance(value, DeviceView) else 0 if value is None else value
        assert kind.box is not None
        swizzle: Any = kind.swizzle or "none"
        made = tensor_map(
            value, kind.box, swizzle=swizzle, l2_promotion="256B" if parameter.name in promoted else None,
            dtype="tf32" if kind.dtype is tf32 else None,
        )  # fmt: skip
        if isinstance(value, DeviceView):
            made.array = OnGpu(value)
        return made

    kernel_of = kernel.kernel
    if not isinstance(arguments, Mapping):
        names = (parameter.name for parameter in kernel_of.parameters)
        arguments = dict(zip(names, arguments, strict=True))

    def filled(parameter: Parameter) -> object:
        name = parameter.name
        return passed(parameter, arguments[name if name in arguments else name.rpartition(".")[2]])

    return Launch(kernel, tuple(built(parameter, filled) for parameter in kernel_of.signature), overlap)


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
