"""`lw.epilogue`: a user's own function of the kernel language, fused with a product."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lanewise.errors import LanewiseError
from lanewise.tracebacks import short_traceback

if TYPE_CHECKING:
    from lanewise.lang.versions.versions import ReadValues


class EpilogueFunction:
    """A function of the user's on a finished value: `lw.epilogue` makes one."""

    def __init__(self, function: Callable[..., object]) -> None:
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

    def __call__(self, value: Any, row: object, column: object) -> Any:
        """Return the function's value in the format of the one that it gets."""
        result = self.function(value, row, column)
        if type(result) in (int, float):
            return value.dtype(result)
        if getattr(result, "dtype", None) == value.dtype:
            return result
        from lanewise.lang import KernelError
        from lanewise.lang.trace.traced import describe

        code = inspect.unwrap(self.function).__code__
        raise KernelError(
            f"an epilogue returns the {value.dtype} value to store; {self.name} returns {describe(result)}",
            code.co_filename,
            code.co_firstlineno,
        )

    @property
    def name(self) -> str:
        """The function's own name."""
        return str(getattr(self.function, "__name__", "function"))

    def __repr__(self) -> str:
        return f"<epilogue {self.name}>"


@short_traceback
def epilogue(function: Callable[..., object]) -> EpilogueFunction:
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
