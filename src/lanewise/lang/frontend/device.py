"""`@lw.device`: functions with traced control flow that kernels call, inlined where they are called.

Kernels themselves, which are launched, are in `kernel.py`.
"""

import inspect
from collections.abc import Callable
from functools import update_wrapper
from types import FunctionType
from typing import Any, Generic, TypeVar

from lanewise.lang.frontend.source import RewrittenFunction
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.errors import KernelError
from lanewise.lang.versions.source_text import SourceText
from lanewise.tracebacks import short_traceback

#: Calls of a device function inside itself after which they are taken to have no end.
_DEEPEST_RECURSION = 50


Result = TypeVar("Result")


class _OfFunction:
    """An attribute that is the function's own: one that is set is seen at the next trace."""

    def __set_name__(self, owner: object, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: object = None) -> Any:
        return self if instance is None else getattr(instance.function, self.name)

    def __set__(self, instance: Any, value: object) -> None:
        setattr(instance.function, self.name, value)


class Device(Generic[Result]):
    """A function with traced control flow, called from kernels: inlined where it is called."""

    #: By this attribute a version of a kernel knows that it depends on the function.
    is_device_function = True
    __code__, __defaults__, __kwdefaults__ = _OfFunction(), _OfFunction(), _OfFunction()

    def __init__(self, function: Callable[..., Result]) -> None:
        assert isinstance(function, FunctionType)
        self.function = function
        self._source = SourceText(function)
        self._rewritten: RewrittenFunction | None = None
        self._depth = 0
        update_wrapper(self, function)

    def __get__(self, instance: object, owner: object = None) -> Any:
        if instance is None:
            return self
        return lambda *args, **kwargs: self(instance, *args, **kwargs)

    def __call__(self, *args: object, **kwargs: object) -> Result:
        builder = current()
        rewritten = self._rewritten
        if rewritten is None or self._source.code is not self.function.__code__:
            if self._source.code is not self.function.__code__:  # another one was put into its place
                self._source = SourceText(self.function)
            rewritten = self._rewritten = RewrittenFunction(self._source, is_kernel=False)
        rewritten.function.__defaults__ = self.function.__defaults__
        rewritten.function.__kwdefaults__ = self.function.__kwdefaults__
        builder.device_functions[id(self)] = self
        builder.sources.setdefault(rewritten.file, rewritten.lines)
        location = builder.location
        if self._depth > _DEEPEST_RECURSION:
            raise builder.error(
                f"{self.function.__name__} calls itself without end: device functions are inlined"
            )
        self._depth += 1
        try:
            return rewritten.function(*args, **kwargs)  # type: ignore[no-any-return]  # traced
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                raise builder.error(str(error)) from None  # the arguments do not fit
            raise
        finally:
            self._depth -= 1
            builder.location = location

    def __repr__(self) -> str:
        return f"<device function {self.function.__name__}>"


@short_traceback
def device(function: Callable[..., Result]) -> Device[Result]:
    """Make a function one that kernels call, with control flow on traced values; it is inlined."""
    if not inspect.isfunction(function):
        raise KernelError(f"@lw.device goes on a function defined with `def`, not on {function!r}")
    return Device(function)
