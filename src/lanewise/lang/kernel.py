"""`@lw.kernel` and `@lw.device`: Python functions traced to PTX and launched."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, overload

from lanewise.formats import Format
from lanewise.isa import find_arch
from lanewise.lang.arrays import Array, ArrayType
from lanewise.lang.builder import Address, Builder, Symbol, current, trace, tracing
from lanewise.lang.errors import KernelError
from lanewise.lang.launching import ConfiguredKernel
from lanewise.lang.memory import Pointer
from lanewise.lang.source import Rewritten, named_in_types
from lanewise.lang.text import Writer
from lanewise.lang.types import SCALARS, Constexpr, Ptr, parameter_type, register_kind
from lanewise.lang.values import Scalar
from lanewise.recently_used import RecentlyUsed

if TYPE_CHECKING:
    from lanewise.ptx import Cubin, Module, Resources


#: Configurations of a kernel that are remembered.
_MOST_CONFIGURED = 1024
#: Modules that a kernel keeps: it is traced once for each arch and values of its Constexpr parameters.
_MOST_MODULES = 256


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel: `kind` is a Ptr, a dtype or Constexpr; an array is a Ptr with a layout."""

    name: str
    kind: Any
    default: Any = inspect.Parameter.empty
    layout: Any = None

    @property
    def required(self) -> bool:
        """Whether a launch has to give it."""
        return self.default is inspect.Parameter.empty

    @property
    def is_constexpr(self) -> bool:
        """Whether it is known when tracing."""
        return self.kind is Constexpr


_OPTIONS = ("max_threads", "min_blocks", "max_registers")
_PTX_NAME = re.compile(r"[a-zA-Z]\w*|_\w+", re.ASCII)


class Kernel:
    """A kernel: `kernel[grid, block](…)` launches it, `kernel.ptx(arch)` shows what it was traced to."""

    def __init__(
        self, function: Callable[..., Any], options: dict[str, Any], around: Mapping[str, Any] | None = None
    ) -> None:
        self.function, self.options = function, options
        self._around = around or {}
        self._rewritten: Rewritten | None = None
        self._parameters: list[Parameter] | None = None
        self._modules: RecentlyUsed[Any, Module] = RecentlyUsed(_MOST_MODULES)
        #: By the text of a module in `_modules`: what its blocks must have.
        self._threads: dict[str, list[tuple[int, str, KernelError]]] = {}
        self._configured: dict[Any, ConfiguredKernel] = {}
        update_wrapper(self, function)

    @property
    def name(self) -> str:
        """Its name, in Python and in the PTX."""
        return str(self.function.__name__)

    @property
    def rewritten(self) -> Rewritten:
        """The function with its control flow rewritten."""
        if self._rewritten is None:
            self._rewritten = Rewritten(self.function, is_kernel=True, around=self._around)
        return self._rewritten

    @property
    def parameters(self) -> list[Parameter]:
        """Its parameters, in order."""
        if self._parameters is None:
            self._parameters = _parameters(self.rewritten)
        return self._parameters

    # tracing --------------------------------------------------------------------------------------------

    def module(self, arch: str | None = None, **constants: Any) -> Module:
        """The traced module, for an arch and the values of the Constexpr parameters."""
        name = None if arch is None else find_arch(arch)
        known = self._constants(constants)
        try:
            # 1, 1.0 and True are equal, and not the same constant
            key = (name, tuple((each, type(value), value) for each, value in known.items()))
            found = self._modules.get(key)
        except TypeError:
            unhashable = [each for each, value in known.items() if not _is_hashable(value)]
            raise KernelError(
                f"{self.name}: a Constexpr is hashable, a tuple, not a list; {', '.join(unhashable)} is not"
            ) from None
        if found is None:
            found = self._traced(name, known)
            self._modules.put(key, found)
            if len(self._threads) > _MOST_MODULES:
                kept = {each.text for each in self._modules.values()}
                self._threads = {text: each for text, each in self._threads.items() if text in kept}
        return found

    def _constants(self, given: dict[str, Any]) -> dict[str, Any]:
        known = {}
        names = [each.name for each in self.parameters if each.is_constexpr]
        for name in given:
            if name not in names:
                raise KernelError(
                    f"{self.name} has no Constexpr parameter {name}; it has {', '.join(names) or 'none'}"
                )
        for each in self.parameters:
            if each.is_constexpr:
                value = given.get(each.name, each.default)
                if value is inspect.Parameter.empty:
                    raise KernelError(
                        f"{self.name} needs a value for the Constexpr {each.name}: {each.name}=…"
                    )
                known[each.name] = value
        return known

    def _traced(self, arch: str | None, constants: dict[str, Any]) -> Module:
        from lanewise.ptx import parse

        return parse(self.traced_text(arch, constants))

    def traced_text(self, arch: str | None, constants: dict[str, Any]) -> str:
        """The PTX, traced anew."""
        rewritten = self.rewritten
        with trace(Builder(arch)) as builder:
            builder.sources[rewritten.file] = rewritten.lines
            builder.place = rewritten.place
            arguments: dict[str, Any] = {}
            declared: list[str] = []
            for each in self.parameters:
                if each.is_constexpr:
                    arguments[each.name] = constants[each.name]
                else:
                    declared.append(_declared(each))
                    arguments[each.name] = _argument(builder, each)
            rewritten.call(arguments)
            names = [each.name for each in self.parameters if not each.is_constexpr]
            text = Writer(builder, self.name, declared, self._limits()).text(names)
            self._threads[text] = [
                (count, what, builder.error("", place)) for count, what, place in builder.threads
            ]
            return text

    def check_block(self, module: Module, block: tuple[int, ...]) -> None:
        """Complain of a block with other threads than a tiling over lw.thread_idx.x is for."""
        for count, what, error in self._threads.get(module.text, ()):
            if block[0] != count:
                message = (
                    f"{what} is for {count} threads, and the block has {block[0]} along x: launch with "
                    f"{count}, or make the tiling for {block[0]}"
                )
                raise KernelError(message, error.file, error.line, error.source)

    def _limits(self) -> list[str]:
        found = []
        if threads := self.options.get("max_threads"):
            found.append(f".maxntid {threads}, 1, 1")
        if blocks := self.options.get("min_blocks"):
            found.append(f".minnctapersm {blocks}")
        if registers := self.options.get("max_registers"):
            found.append(f".maxnreg {registers}")
        return found

    # what it became -------------------------------------------------------------------------------------

    def ptx(self, arch: str | None = None, **constants: Any) -> str:
        """The PTX, for an arch and the values of the Constexpr parameters."""
        return self.module(arch, **constants).text

    def cubin(self, arch: str | None = None, **constants: Any) -> Cubin:
        """The machine code that ptxas makes of it."""
        from lanewise.ptx import ptxas

        return ptxas(self.module(arch, **constants), arch, options=["--generate-line-info"])

    def sass(self, arch: str | None = None, *, lines: bool = False, **constants: Any) -> str:
        """The machine code as text; with `lines`, each part of it under the Python line it comes from."""
        from lanewise.ptx import nvdisasm

        return nvdisasm(self.cubin(arch, **constants), options=["-c", "-g"] if lines else ["-c"])

    def resources(self, arch: str | None = None, **constants: Any) -> Resources:
        """Registers, spills and shared bytes, as ptxas counts them."""
        return self.cubin(arch, **constants).resources[self.name]

    # launching ------------------------------------------------------------------------------------------

    def __getitem__(self, configuration: Any) -> ConfiguredKernel:
        try:
            return self._configured[configuration]
        except (KeyError, TypeError):  # TypeError: a list in it, which cannot be looked up
            configured = ConfiguredKernel(self, configuration)
        if len(self._configured) >= _MOST_CONFIGURED:
            self._configured.clear()
        with suppress(TypeError):
            self._configured[configuration] = configured
        return configured

    def __call__(self, *_: Any, **__: Any) -> Any:
        if tracing():
            raise current().error(
                f"{self.name} is a kernel, and kernels do not call each other: use an @lw.device function"
            )
        raise KernelError(f"a kernel is launched with its grid and block: {self.name}[grid, block](…)")

    def __repr__(self) -> str:
        return f"<kernel {self.name}>"


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _parameters(rewritten: Rewritten) -> list[Parameter]:
    found = []
    for name in (rewritten.original.__name__, *rewritten.signature.parameters):
        if not _PTX_NAME.fullmatch(name):
            raise rewritten.error(f"{name} is no name in PTX: use letters from a to z, digits and _")
    for name, each in rewritten.signature.parameters.items():
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            raise rewritten.error(f"a kernel has a fixed number of parameters: *{name} does not work")
        kind = rewritten.annotations.get(name)
        if kind is None:
            raise rewritten.error(
                f"parameter {name} has no type: write {name}: lw.Ptr[lw.f16], lw.i32, lw.f32 or lw.Constexpr"
            )
        layout = None
        if isinstance(kind, ArrayType):
            layout, kind = kind.layout, kind.pointer
        if isinstance(kind, Format) and kind not in SCALARS:
            raise rewritten.error(
                f"parameter {name}: {kind.name} is not a scalar type; lw.Ptr[lw.{kind.name}] is a pointer"
            )
        if kind is not Constexpr and not isinstance(kind, Ptr | Format):
            raise rewritten.error(
                f"parameter {name}: {kind!r} is no type here; write lw.Ptr[lw.f16], lw.i32, lw.f32 "
                "or lw.Constexpr"
            )
        found.append(Parameter(name, kind, each.default, layout))
    return found


def _declared(parameter: Parameter) -> str:
    if isinstance(parameter.kind, Ptr):
        return f".param .u64 .ptr .global .align {parameter.kind.align} {parameter.name}"
    return f".param .{parameter_type(parameter.kind)} {parameter.name}"


def _argument(builder: Builder, parameter: Parameter) -> Any:
    symbol = Symbol(parameter.name)
    symbol.name = parameter.name
    with builder.at_entry():
        if isinstance(parameter.kind, Ptr):
            generic = builder.define("ld.param.u64", "b64", Address(symbol))
            base = builder.define("cvta.to.global.u64", "b64", generic, hint=parameter.name)
            pointer = Pointer(parameter.kind.dtype, "global", base, 0, parameter.kind.align)
            return pointer if parameter.layout is None else Array(pointer, parameter.layout)
        kind = register_kind(parameter.kind)
        opcode = f"ld.param.{parameter_type(parameter.kind)}"
        return Scalar(parameter.kind, builder.define(opcode, kind, Address(symbol), hint=parameter.name))


class Device:
    """A function with traced control flow, called from kernels: inlined where it is called."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self._rewritten: Rewritten | None = None
        self._depth = 0
        update_wrapper(self, function)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        return lambda *args, **kwargs: self(instance, *args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        builder = current()
        if self._rewritten is None:
            self._rewritten = Rewritten(self.function, is_kernel=False)
        rewritten = self._rewritten
        builder.sources.setdefault(rewritten.file, rewritten.lines)
        place = builder.place
        if self._depth > 50:
            raise builder.error(
                f"{self.function.__name__} calls itself without end: device functions are inlined"
            )
        self._depth += 1
        try:
            return rewritten.function(*args, **kwargs)
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                raise builder.error(str(error)) from None  # the arguments do not fit
            raise
        finally:
            self._depth -= 1
            builder.place = place

    def __repr__(self) -> str:
        return f"<device function {self.function.__name__}>"


@overload
def kernel(function: Callable[..., Any]) -> Kernel: ...
@overload
def kernel(
    *, max_threads: int | None = None, min_blocks: int | None = None, max_registers: int | None = None
) -> Callable[[Callable[..., Any]], Kernel]: ...
def kernel(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Make a function a kernel. Its control flow on traced values becomes the kernel's own.

    `max_threads` a block, `min_blocks` on a multiprocessor and `max_registers` a thread guide ptxas, as
    CUDA's `__launch_bounds__` and `__maxnreg__` do.
    """
    if function is None:
        return lambda given: _kernel(given, options, sys._getframe(1).f_locals)
    return _kernel(function, options, sys._getframe(1).f_locals)


def _kernel(function: Any, options: dict[str, Any], around: Mapping[str, Any]) -> Kernel:
    for name, value in options.items():
        if name not in _OPTIONS:
            raise KernelError(f"@lw.kernel takes {', '.join(_OPTIONS)}; not {name}")
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise KernelError(f"{name}= of @lw.kernel is an integer of at least 1, not {value!r}")
    if not inspect.isfunction(function):
        raise KernelError(f"@lw.kernel goes on a function defined with `def`, not on {function!r}")
    return Kernel(function, options, named_in_types(function, around))


def device(function: Callable[..., Any]) -> Device:
    """Make a function one that kernels call, with control flow on traced values; it is inlined."""
    if not inspect.isfunction(function):
        raise KernelError(f"@lw.device goes on a function defined with `def`, not on {function!r}")
    return Device(function)


__all__ = ["Device", "Kernel", "Parameter", "device", "kernel"]
