"""A function rewritten from its source, and compiled again with its own globals and closure.

What becomes of its statements is in `rewrite.py`; what the rewritten code calls, in `control_flow.py`.
"""

import ast
import inspect
import linecache
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from types import CellType, CodeType, FunctionType, ModuleType, TracebackType
from typing import TypeGuard

from lanewise.errors import LanewiseError
from lanewise.hints import instead_in_module, instead_of_attribute, misfit_call
from lanewise.lang.frontend.control_flow import Runtime
from lanewise.lang.frontend.heap import Scope, captured_names
from lanewise.lang.frontend.rewrite import Unsupported, rewrite
from lanewise.lang.frontend.structs import leaves
from lanewise.lang.frontend.syntax_nodes import without_collections
from lanewise.lang.memory.pointer import Pointer
from lanewise.lang.trace.builder import SourceLocation, current
from lanewise.lang.trace.errors import KernelError
from lanewise.lang.trace.traced import RUNTIME_NAME, Traced
from lanewise.lang.versions.source_text import SourceText

#: Exceptions that Python itself raises at a mistake.
_PYTHON_ERRORS = (
    TypeError, AttributeError, NameError, LookupError, ArithmeticError, ValueError, RecursionError,
)  # fmt: skip
#: What NumPy's arrays say of their size, and pointers do not.
_SIZES = ("shape", "ndim", "T", "strides", "nbytes")
#: The folder of the library itself.
_PACKAGE = str(Path(__file__).parents[2])


class RewrittenFunction:
    """A function compiled anew, whose control flow asks while tracing whether its condition is traced."""

    def __init__(
        self, source: SourceText, is_kernel: bool, annotations: Mapping[str, object] | None = None
    ) -> None:
        self.source = source
        self.original = source.function
        self.file, self.lines = source.file, source.lines
        self.location = SourceLocation(self.file, source.code.co_firstlineno, 1)
        with without_collections():
            self.function = self._rewrite(is_kernel)
        self.annotations = self._annotations(annotations or {})

    @cached_property
    def signature(self) -> inspect.Signature:
        """The parameters of the function, in order."""
        return inspect.signature(self.original)

    def _rewrite(self, is_kernel: bool) -> FunctionType:
        """Return the function with its control flow rewritten, compiled."""
        tree = self.source.tree()
        self.location = SourceLocation(self.file, tree.lineno, 1)
        if is_kernel:
            self._require_own_parameters()
        try:
            tree = rewrite(tree, is_kernel)
        except Unsupported as unsupported:
            raise self.source.error(str(unsupported), unsupported.line) from None
        return self._compiled(tree, Runtime(self.file, Scope(self.original.__globals__)))

    def _require_own_parameters(self) -> None:
        """Raise an error for a function of any arguments, as other decorators make of the one below them."""
        code = self.original.__code__
        if not code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
            return
        stars = [
            f"{'*' if parameter.kind is parameter.VAR_POSITIONAL else '**'}{parameter.name}"
            for parameter in inspect.signature(self.original, follow_wrapped=False).parameters.values()
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        ]
        made = ""
        if hasattr(self.original, "__wrapped__") or "<locals>" in code.co_qualname:
            made = (
                f". Has another decorator made {code.co_name} of the kernel? @lw.kernel goes right above "
                "`def`, below all others"
            )
        raise self.error(f"a kernel has a fixed number of parameters: {', '.join(stars)} does not work{made}")

    def error(self, message: str) -> KernelError:
        """Return an error that names the function's first line."""
        return self.source.error(message, self.location.line)

    def _compiled(self, tree: ast.FunctionDef, runtime: Runtime) -> FunctionType:
        """Return the rewritten function compiled; cells of the closure are the original's own."""
        original = self.original
        cells = dict(zip(original.__code__.co_freevars, original.__closure__ or (), strict=True))
        cells[RUNTIME_NAME] = CellType(runtime)
        module = ast.parse(f"def __factory({', '.join(cells)}):\n    pass")
        assert isinstance(module.body[0], ast.FunctionDef)
        tree.name = f"{RUNTIME_NAME}_function"  # so that a function that calls itself finds the global one
        module.body[0].body = [tree]
        code = compile(module, self.file, "exec", dont_inherit=True)
        factory = next(constant for constant in code.co_consts if isinstance(constant, CodeType))
        inner = next(
            constant
            for constant in factory.co_consts
            if isinstance(constant, CodeType) and constant.co_name == tree.name
        )
        inner = inner.replace(co_name=original.__name__, co_qualname=original.__qualname__)
        runtime.scope = Scope(original.__globals__, captured_names(inner))
        closure = tuple(cells[name] for name in inner.co_freevars)
        made = FunctionType(inner, original.__globals__, original.__name__, original.__defaults__, closure)
        made.__kwdefaults__ = original.__kwdefaults__
        return made

    def _annotations(self, known: Mapping[str, object]) -> dict[str, object]:
        """Return the types of the parameters; those written as text are evaluated, unless they are known."""
        annotations = {}
        for name, kind in self.original.__annotations__.items():
            if isinstance(kind, str):
                try:
                    kind = known[name] if name in known else _evaluated(kind, self.original, {})
                except Exception as error:
                    raise self.error(f"the type {kind!r} of {name} cannot be read: {error}") from None
            annotations[name] = kind
        return annotations

    def call(self, arguments: dict[str, object]) -> None:
        """Call the rewritten function, so that it is traced; Python's errors become errors of the kernel."""
        try:
            self.function(**arguments)
        except KernelError:
            raise
        except LanewiseError as error:  # of the catalogue, say, which knows no lines
            raise _error(str(error), error) from error
        except UnboundLocalError as error:
            name = str(error).split("'")[1] if "'" in str(error) else "a variable"
            raise _error(
                f"{name} has no value yet: give every variable a value before you use it", error
            ) from None
        except _PYTHON_ERRORS as error:
            if isinstance(error, AttributeError) and isinstance(error.obj, Pointer) and error.name in _SIZES:
                raise _error(
                    f"a pointer has no {error.name}: pass the sizes of the array as parameters", error
                ) from None
            if "setting an array element" in str(error):
                raise _error(
                    "an array of NumPy cannot hold values of the kernel: lw.local(lw.f32, 4) is an array of "
                    "each thread, lw.shared(lw.f32, 4) one of the block",
                    error,
                ) from None
            message = _misfit(error) or f"{type(error).__name__}: {error}{_instead(error)}"
            message = f"Python raised while tracing: {message}{_origin(error)}"
            raise _error(f"{message}{_constants_of(error, arguments)}", error) from error


def _error(message: str, error: BaseException) -> KernelError:
    """Return an error that names the line being traced.

    In a kernel of the library itself, it names the user's line that an error came from: that of an epilogue.
    """
    here, of_user = current().location, _last_of_user(error)
    if of_user is None or not here.file.startswith(_PACKAGE):
        return current().error(message)
    file, line = of_user.tb_frame.f_code.co_filename, of_user.tb_lineno
    return KernelError(message, file, line, linecache.getline(file, line).strip())


def _constants_of(error: BaseException, arguments: dict[str, object]) -> str:
    """Return which Constexpr parameters have the type that an error names, as the end of a message."""
    named = [
        f"{name} is {value!r}" + (f": pass {int(value)}" if _is_whole(value) else "")
        for name, value in arguments.items()
        if isinstance(error, TypeError) and not _has_traced(value) and _names_type(error, value)
    ]
    return f"; the Constexpr {', '.join(named)}" if named else ""


def _has_traced(value: object) -> bool:
    """Return whether an argument is a value of the kernel, or a struct of such."""
    return any(isinstance(leaf, Traced) for leaf in leaves(value))


def _names_type(error: TypeError, value: object) -> bool:
    return re.search(rf"\b{type(value).__name__}\b", str(error)) is not None


def _is_whole(value: object) -> TypeGuard[float]:
    return isinstance(value, float) and value.is_integer()


def _instead(error: BaseException) -> str:
    """Return what serves instead of an attribute that an object of the library does not have."""
    if not isinstance(error, AttributeError):
        return ""
    if isinstance(error.obj, ModuleType):
        own = error.obj.__name__.startswith("lanewise.")
        return instead_in_module(error.obj, error.name or "") if own else ""
    owner: type = type(error.obj)
    return instead_of_attribute(owner, error.name or "") if owner.__module__.startswith("lanewise.") else ""


def _misfit(error: BaseException) -> str:
    """Return what is wrong with a call of a function of the library that Python refused; else nothing."""
    if not isinstance(error, TypeError):
        return ""
    name = str(error).partition("()")[0]
    for module in [module for key, module in sys.modules.items() if key.startswith("lanewise.")]:
        with suppress(AttributeError):
            function = attrgetter(name)(module)
            message = misfit_call(function, error) if isinstance(function, FunctionType) else ""
            if message:
                return message
    return ""


def _origin(error: BaseException) -> str:
    """Return where an error of Python comes from, if the message names another line, as in a macro."""
    here, frame = current().location, _last_of_user(error)
    if frame is None or here.file.startswith(_PACKAGE):
        return ""
    code = frame.tb_frame.f_code
    origin = Path(code.co_filename).name, frame.tb_lineno
    same = origin == (Path(here.file).name, here.line)
    return "" if same else f" ({code.co_name}, {origin[0]}:{origin[1]})"


def _last_of_user(error: BaseException) -> TracebackType | None:
    """Return the last entry of an error's traceback that lies outside of the library."""
    last, trace = None, error.__traceback__
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(_PACKAGE):
            last = trace
        trace = trace.tb_next
    return last


def _evaluated(kind: str, function: FunctionType, around: Mapping[str, object]) -> object:
    """Return the type that an annotation names, among globals, the closure and variables around it."""
    names = dict(around)
    if function.__closure__:
        names |= inspect.getclosurevars(function).nonlocals
    return eval(kind, function.__globals__, names)


def read_annotations(function: FunctionType, around: Mapping[str, object]) -> dict[str, object]:
    """Return the types that a function's annotations name, evaluated where the function is defined.

    With `from __future__ import annotations` they are texts, and a function does not keep the local variables
    that they name. One that cannot be evaluated yet is left out: it is tried again at the first launch.
    """
    annotations = {}
    for name, kind in function.__annotations__.items():
        if isinstance(kind, str):
            with suppress(Exception):
                annotations[name] = _evaluated(kind, function, around)
    return annotations
