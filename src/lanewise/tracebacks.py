"""Short tracebacks: an error of the library shows the user's own lines, and none of the library's.

How lanewise noticed a mistake in a kernel or in the arguments of a call is of no use to the person who made
it. Functions that users call therefore shorten the traceback of a LanewiseError on its way out. Every line
is kept for a mistake in lanewise itself (InternalError), and where the environment says LANEWISE_TRACEBACK=1.
"""

import contextlib
import os
import sys
from collections.abc import Callable
from functools import wraps
from inspect import unwrap
from pathlib import Path
from types import FunctionType, TracebackType
from typing import Final, ParamSpec, TypeVar

from lanewise.errors import InternalError, LanewiseError
from lanewise.hints import MisfitCall, misfit_call

#: With this set in the environment, errors of the compiler are raised as they are, for debugging.
RAISE_AS_IS: Final = "LANEWISE_RAISE_INTERNAL_ERRORS"
#: With one of these set in the environment, tracebacks are left as they are.
_KEEPS_ALL = ("LANEWISE_TRACEBACK", RAISE_AS_IS)
#: The library, and what of Python's library it runs its own code through.
_FILES = (contextlib.__file__,)
_FOLDERS = tuple(
    f"{folder}{os.sep}" for folder in (Path(__file__).parent, Path(contextlib.__file__).parent / "concurrent")
)

#: Marks a function whose tracebacks are short already.
_IS_SHORT = "has_short_tracebacks"

_Given = ParamSpec("_Given")
_Returned = TypeVar("_Returned")
_Class = TypeVar("_Class", bound=type)


def shorten(error: BaseException) -> None:
    """Remove the library's frames from the traceback of an error, and from those that it was raised from.

    Call it in an `except` clause that ends with a bare `raise`: Python then adds no frame of the function
    that the clause is in.
    """
    if isinstance(error, InternalError) or any(os.environ.get(name) for name in _KEEPS_ALL):
        return
    seen: list[BaseException] = []
    while error not in seen:
        seen.append(error)
        error.__traceback__ = _of_user(error.__traceback__)
        before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if before is None or isinstance(before, InternalError):
            return
        if _adds_nothing(before, error):
            error.__cause__ = None  # which also keeps Python from showing the context
            return
        error = before


def _of_user(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of the library."""
    frames = []
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith(_FOLDERS) and file not in _FILES:
            frames.append(trace)
        trace = trace.tb_next
    kept = None
    for frame in reversed(frames):
        kept = TracebackType(kept, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return kept


def _adds_nothing(before: BaseException, error: BaseException) -> bool:
    """Return whether the error that another one was raised from is of no use to the user.

    That is so for one that the library dealt with, which passed through no line of the user's. It is also so
    if the message of the later error says the same, and it passed through one line, which that message names.
    """
    trace = _of_user(before.__traceback__)
    if trace is None and before is not error.__cause__:
        return True
    return str(before) in str(error) and (trace is None or trace.tb_next is None)


def short_traceback(function: Callable[_Given, _Returned]) -> Callable[_Given, _Returned]:
    """Return a function whose errors have short tracebacks; a call that does not fit says what would."""

    @wraps(function)
    def call(*args: _Given.args, **kwargs: _Given.kwargs) -> _Returned:
        try:
            return function(*args, **kwargs)
        except (LanewiseError, MemoryError) as error:
            shorten(error)
            raise
        except TypeError as error:
            message = "" if _was_entered(function, error) else misfit_call(function, error, args)
            if not message:
                raise
            misfit = MisfitCall(message)
        try:
            raise misfit
        except MisfitCall:
            shorten(misfit)
            raise

    call.__dict__[_IS_SHORT] = True
    return call


def _was_entered(function: Callable[..., object], error: BaseException) -> bool:
    """Return whether a function, or the one that it wraps, ran until an error."""
    code = getattr(unwrap(function), "__code__", None)
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code is not code:
        trace = trace.tb_next
    return trace is not None


def short_functions(room: str) -> None:
    """Let the functions that a package exports have short tracebacks for those who call them there.

    What its own modules call among themselves stays as it is.
    """
    module = sys.modules[room]
    functions = [value for value in vars(module).values() if isinstance(value, FunctionType)]
    short = {value: short_traceback(value) for value in functions if _IS_SHORT not in vars(value)}
    for name in vars(module)["__all__"]:
        value = vars(module).get(name)
        if isinstance(value, FunctionType) and value in short:
            short[value].__module__ = room  # where pickle finds it
            setattr(module, name, short[value])


def short_methods(owner: _Class) -> _Class:
    """Return a class whose public methods, items and calls have short tracebacks: a decorator."""
    for name, method in vars(owner).copy().items():
        is_public = not name.startswith("_") or name in ("__call__", "__getitem__")
        if is_public and isinstance(method, FunctionType) and _IS_SHORT not in vars(method):
            type.__setattr__(owner, name, short_traceback(method))
    return owner


def short_constructor(made: _Class) -> _Class:
    """Return a class whose constructor has short tracebacks: a decorator."""
    type.__setattr__(made, "__init__", short_traceback(made.__dict__["__init__"]))
    return made
