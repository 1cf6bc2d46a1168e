"""A launch of a kernel of the language: arguments and block checked, the kernel traced for them, and run.

What a traced kernel needs of its block is known when it is traced, and held against the launch before
anything runs. The kernel itself is in `kernel.py`; what runs it, and how data decide where, is in
`lanewise.launch`.
"""

from __future__ import annotations

from math import prod
from reprlib import repr
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from lanewise.errors import LanewiseError
from lanewise.formats import Format
from lanewise.lang.frontend.parameters import Parameter, opened, singles
from lanewise.lang.trace.builder import Builder, current, tracing
from lanewise.lang.trace.errors import KernelError
from lanewise.lang.trace.types import Ptr, TensorMapType, dtype_name, is_int, pred, storage_bytes
from lanewise.lang.versions.constant_keys import constants_key
from lanewise.lang.versions.guard import GONE
from lanewise.ptx.host_tensors import host_array
from lanewise.records import record
from lanewise.tracebacks import shorten

if TYPE_CHECKING:
    from lanewise.lang.versions.versions import Version
    from lanewise.launch import Configured

_WARP = 32
#: Floats of one size that are no other's words.
_HALVES = {"f16", "bf16"}


@record(frozen=True)
class BlockNeeds:
    """The block that a kernel needs; each requirement stands with an error that names its Python line."""

    #: Threads along x: how many, and for which tiling.
    threads: tuple[tuple[int, str, KernelError], ...] = ()
    #: Functions that take whole warps.
    whole_warps: tuple[tuple[str, KernelError], ...] = ()
    #: Bytes of dynamic shared memory that the kernel's arrays take; 0 if it has none.
    shared_bytes: int = 0

    @classmethod
    def of(cls, builder: Builder) -> BlockNeeds:
        """Return what the kernel that a builder has traced needs."""
        return cls(
            tuple((count, what, builder.error("", at)) for count, what, at in builder.required_threads),
            tuple((what, builder.error("", at)) for what, at in builder.whole_warps),
            builder.dynamic_shared_bytes,
        )

    def check(self, block: tuple[int, ...]) -> None:
        """Raise an error for a block with other threads than the kernel is for."""
        for count, what, error in self.threads:
            if block[0] != count:
                raise _at(
                    error,
                    f"{what} is for {count} threads, and the block has {block[0]} along x: launch with "
                    f"{count}, or make the tiling for {block[0]}",
                )
        for what, error in self.whole_warps:
            if prod(block) % _WARP:
                raise _at(
                    error,
                    f"{what} takes whole warps, and the block has {prod(block)} threads: launch with a "
                    f"multiple of {_WARP}",
                )

    def configuration(self, given: object) -> Any:
        """Return grid, block and the bytes of shared memory: those given, or as many as the arrays take."""
        if self.shared_bytes and isinstance(given, tuple) and len(given) == 2:
            return (*given, self.shared_bytes)
        return given


def _at(error: KernelError, message: str) -> KernelError:
    return KernelError(message, error.file, error.line, error.source)


#: Keywords of a launch that are no parameters of the kernel.
_OPTIONS = ("steps", "progress", "executor", "schedule", "stream", "cluster", "overlap", "unchecked")
#: Values of the Constexpr parameters whose warm launches are remembered. Not those used last: to keep their
#: order would take longer than the rest of a warm launch.
_MOST_LAUNCHED = 256


class TraceableKernel(Protocol):
    """What a launch needs of a kernel: its name and parameters, and the module that it is traced to."""

    @property
    def name(self) -> str:
        """The name of the kernel, in Python and in the PTX."""

    @property
    def kept_as(self) -> str:
        """The name of what is compiled in, if the kernel depends on nothing else."""

    @property
    def signature(self) -> list[Parameter]:
        """The parameters of the kernel, in order, with structs among them."""

    @property
    def parameters(self) -> list[Parameter]:
        """The parameters of the kernel, in order, with the fields of structs in place of the structs."""

    def version(self, arch: str | None, constants: dict[str, object]) -> Version[BlockNeeds]:
        """Return what the kernel is traced to, for an arch, Constexpr values, and what it reads of Python."""


class ConfiguredKernel:
    """A kernel with its grid, block and dynamic shared memory: to be called with its arguments."""

    def __init__(self, kernel: TraceableKernel, configuration: object) -> None:
        self.kernel, self.configuration = kernel, configuration
        #: What was launched before, by the Constexpr values, for a warm launch; with its version, which knows
        #: whether what the kernel has read of Python is unchanged.
        self._launched: dict[object, tuple[Version[BlockNeeds], Configured]] = {}
        #: Whether the kernel has no structs, and how many arguments a warm launch has.
        self._plain, self._count = True, 0

    __iter__ = None  # Python would ask for items

    def __getitem__(self, block: object) -> NoReturn:
        raise LanewiseError("a launch has its grid and block in one pair of brackets: kernel[grid, block](…)")

    def bind(
        self, *args: object, arch: str | None = None, **kwargs: object
    ) -> tuple[Configured, tuple[object, ...]]:
        """Return the traced kernel, ready to launch, and its arguments without the Constexpr ones."""
        _, configured, arguments = self._bind(args, arch, kwargs)
        return configured, arguments

    def _bind(
        self, args: tuple[object, ...], arch: str | None, kwargs: dict[str, object]
    ) -> tuple[Version[BlockNeeds], Configured, tuple[object, ...]]:
        """Return the version of the kernel, the kernel ready to launch, and its arguments."""
        arguments, constants = split_arguments(self.kernel, args, kwargs)
        from lanewise.launch import arch_of_arrays

        version = self.kernel.version(arch or arch_of_arrays(arguments), constants)
        configured = version.module[self.kernel.name][version.needs.configuration(self.configuration)]
        version.needs.check(configured.shape.block)
        return version, configured, arguments

    def __call__(self, *args: Any, arch: str | None = None, stream: object = None, **kwargs: Any) -> None:
        """Launch it: on the machine for NumPy arrays, on the GPU for CUDA arrays.

        `steps`, `progress`, `executor`, `stream`, `cluster` and `overlap` are passed on to the launch; other
        keywords are parameters.
        """
        if tracing():
            raise current().error(
                f"{self.kernel.name} is a kernel, and a kernel does not launch another: mark the function "
                "@lw.device and call it"
            )
        if arch is None:
            try:
                version, configured = self._launched[constants_key(kwargs) if kwargs else ()]
                known = version.unchanged()
            except GONE:  # also a Constexpr that cannot be looked up: an error below
                known = False
            if known:
                given = args if self._plain else self._opened(args)
                if given is not None and configured.warm(given, stream):
                    return
        launch = {option: kwargs.pop(option) for option in _OPTIONS if option in kwargs}
        try:
            version, configured, arguments = self._bind(args, arch, kwargs)
            configured(*arguments, arch=arch, stream=stream, **launch)
        except LanewiseError as error:
            shorten(error)
            raise
        if arch is None and not launch and self._takes_as_given(args):
            if len(self._launched) >= _MOST_LAUNCHED:
                self._launched.clear()
            self._launched[constants_key(kwargs)] = version, configured

    def _takes_as_given(self, args: tuple[object, ...]) -> bool:
        """Return whether the PTX kernel takes the same arguments: no Constexpr, nothing that is encoded."""
        parameters = [parameter for parameter in self.kernel.parameters if not parameter.is_constexpr]
        first = self.kernel.signature[: len(args)]
        self._plain, self._count = first == parameters, len(first)
        encoded = [
            parameter
            for parameter in parameters
            if isinstance(parameter.kind, Format) and parameter.kind.bits < 32 and not is_int(parameter.kind)
        ]
        return len(args) == len(first) and singles(first) == parameters and not encoded

    def _opened(self, args: tuple[object, ...]) -> tuple[object, ...] | None:
        """Return arguments with the fields of structs in place of structs; None if they misfit."""
        if len(args) != self._count:
            return None
        given = zip(self.kernel.signature, args, strict=False)
        try:
            return tuple(value for pair in given for _, value in opened(*pair, self.kernel.name))
        except KernelError:
            return None

    def __repr__(self) -> str:
        chosen = self.configuration
        return f"<{self.kernel.name}[{', '.join(map(str, chosen)) if isinstance(chosen, tuple) else chosen}]>"


def split_arguments(
    kernel: TraceableKernel, args: tuple[object, ...], kwargs: dict[str, object]
) -> tuple[tuple[object, ...], dict[str, object]]:
    """Return the arguments of a launch, checked, and apart from them the values of the Constexpr ones."""
    parameters = kernel.signature
    names = [parameter.name for parameter in parameters]
    count = f"{len(names)} argument{'s' if len(names) != 1 else ''}"
    takes = f"{kernel.name} takes {count} ({', '.join(names)})"
    if len(args) > len(parameters):
        raise KernelError(f"{takes}; {len(args)} are given")
    given = dict(zip(names, args, strict=False))
    for name, value in kwargs.items():
        if name not in names:
            raise KernelError(f"{kernel.name} has no parameter {name}; it has {', '.join(names)}")
        if name in given:
            raise KernelError(f"{kernel.name}: {name} is given twice")
        given[name] = value
    missing = [
        parameter.name for parameter in parameters if parameter.name not in given and parameter.required
    ]
    if missing:
        raise KernelError(f"{takes}; {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
    singles: dict[str, object] = {}
    for parameter in parameters:
        singles.update(opened(parameter, given.get(parameter.name, parameter.default), kernel.name))
    arguments, constants = [], {}
    for parameter in kernel.parameters:
        value = singles[parameter.name]
        if parameter.is_constexpr:
            constants[parameter.name] = value
        elif isinstance(parameter.kind, Ptr):
            arguments.append(_check_pointer(kernel, parameter, value))
        elif isinstance(parameter.kind, TensorMapType):
            arguments.append(_check_tensor_map(kernel, parameter, value))
        else:
            arguments.append(_check_scalar(kernel, parameter, value))
    return tuple(arguments), constants


def _check_pointer(kernel: TraceableKernel, parameter: Parameter, value: object) -> Any:
    """Return the argument for a pointer parameter; an error unless it is an array of its dtype."""
    import numpy as np

    is_tensor = type(value).__module__ == "torch"
    value = host_array(value)
    dtype = getattr(value, "dtype", None)
    wanted = parameter.kind.dtype
    if isinstance(value, np.ndarray) and dtype != wanted.dtype and not _holds_raw_words(wanted, dtype):
        name = wanted.dtype.name
        convert = f"tensor.to(torch.{name})" if is_tensor else f"array.astype({_numpy_name(wanted.dtype)})"
        raise KernelError(
            f"{kernel.name}: {parameter.name} is {parameter.kind} and takes arrays of dtype {wanted.dtype}, "
            f"not of {dtype}; {convert} converts it"
        )
    if isinstance(value, bool | float | list | tuple | str | np.floating | np.bool_):
        raise KernelError(
            f"{kernel.name}: {parameter.name} is {parameter.kind} and takes an array, not {repr(value)}; "
            f"np.array(…, {_numpy_name(wanted.dtype)}) makes one"
        )
    return value


def _numpy_name(dtype: Any) -> str:
    """Return a dtype as it is written in a call: np.float32, or ml_dtypes.bfloat16."""
    return f"{'np' if dtype.type.__module__ == 'numpy' else 'ml_dtypes'}.{dtype.name}"


def _check_tensor_map(kernel: TraceableKernel, parameter: Parameter, value: Any) -> Any:
    """Return the argument for a tensor map; an error unless it is one of the annotation's kind."""
    kind, what = parameter.kind, f"{kernel.name}: {parameter.name} is {parameter.kind}"
    if isinstance(value, bytes | bytearray):  # as the driver made it
        if len(value) != 128:
            raise KernelError(f"{what}; a tensor map has 128 bytes, and {len(value)} are given")
        return bytes(value)
    tensor = getattr(value, "tensor", None)
    if tensor is None or not callable(getattr(value, "encode", None)):
        given = type(value).__name__
        raise KernelError(f"{what} and takes lw.tensor_map(array, box), or its 128 bytes; not {given}")
    for name, wanted, actual in (
        ("rank", kind.rank, tensor.rank),
        ("box", kind.box, value.box),
        ("swizzle", kind.swizzle, tensor.swizzle),
        ("bytes of an element", storage_bytes(kind.dtype), tensor.element.bytes),
    ):
        if wanted is not None and actual != wanted:
            raise KernelError(f"{what}: its {name} is {wanted!r}, and that of {value!r} is {actual!r}")
    if {kind.dtype.name, tensor.element.name} == _HALVES:
        raise KernelError(
            f"{what}, and {value!r} is of {tensor.element.name}: the same bits are other numbers"
        )
    expected = prod(kind.box or ()) * storage_bytes(kind.dtype)
    if kind.box is not None and tensor.element.elements == 1 and value.box_bytes != expected:
        raise KernelError(
            f"{what}: a copy brings {value.box_bytes} bytes by the element strides or the interleave of "
            f"{value!r}, and its nbytes are {expected}; write the rank in place of the box, "
            f"lw.TensorMap[lw.{dtype_name(kind.dtype)}, {kind.rank}], and the bytes where they are expected"
        )
    return value


def _holds_raw_words(wanted: Format, dtype: object) -> bool:
    """Return whether an array of a NumPy dtype may hold a format as raw words."""
    return wanted is pred or (wanted.kind == "float" and wanted.bits <= 8 and dtype == "uint8")


def _is_whole(value: object) -> bool:
    """Return whether a number is a float without a fraction, such as 64.0."""
    return isinstance(value, float) and value.is_integer()


def _as_pointer(parameter: Parameter, value: object) -> str:
    """Return how a parameter that an array is given for is annotated, as the end of a message."""
    if not hasattr(value, "dtype"):
        return ""
    return f"; for an array write {parameter.name}: lw.Ptr[lw.{dtype_name(parameter.kind)}]"


def _check_scalar(kernel: TraceableKernel, parameter: Parameter, value: Any) -> Any:
    """Return the number for a scalar parameter; 16-bit floats as their bits."""
    dtype = parameter.kind
    plain = value.item() if getattr(value, "shape", None) == () else value
    what = f"{kernel.name}: {parameter.name} is lw.{dtype_name(dtype)}"
    if is_int(dtype):
        if isinstance(plain, bool) or not isinstance(plain, int):
            given = "an array" if getattr(value, "shape", ()) else f"{type(value).__name__} {plain!r}"
            mend = f"; int(…) makes {int(plain)} of it" if _is_whole(plain) else _as_pointer(parameter, value)
            raise KernelError(f"{what} and takes an integer, not {given}{mend}")
        if not dtype.min <= plain <= dtype.max:
            raise KernelError(f"{what}, {dtype.min} to {dtype.max}: {plain} does not fit")
        return plain
    if not isinstance(plain, int | float):
        raise KernelError(
            f"{what} and takes a number, not {type(value).__name__}{_as_pointer(parameter, value)}"
        )
    try:
        number = float(plain)
    except OverflowError:
        raise KernelError(f"{what}: {repr(plain)} does not fit") from None
    if dtype.max < abs(number) < float("inf"):
        raise KernelError(f"{what}, up to {dtype.max:.17g}: {repr(plain)} does not fit")
    return int(dtype.encode([number])[0]) if dtype.bits == 16 else number
