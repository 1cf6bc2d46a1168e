"""What a message proposes: the nearest name, how a function is called, the file that was meant."""

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial, wraps
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, ClassVar, NoReturn, ParamSpec, TypeVar, cast

from lanewise.errors import LanewiseError

Given = ParamSpec("Given")
Value = TypeVar("Value")
Method = TypeVar("Method", bound=Callable[..., object])
#: How Python says that a call does not fit the parameters of a function.
_MISFIT = re.compile(
    r"[\w.<>]+\(\) (?:takes .*?(?P<most>\d+|fewer) positional arguments? but (?P<given>\d+) "
    r"(?:positional arguments? \(and \d+ keyword-only arguments?\) )?w\w+ given"
    r"|missing \d+ required (?:positional|keyword-only) arguments?: (?P<missing>.*)"
    r"|got an unexpected keyword argument '(?P<unknown>\w+)'.*)"
)
#: A list of names longer than this says nothing to a reader.
_MOST_NAMES = 24


def at_caller(function: Callable[Given, Value]) -> Callable[Given, Value]:
    """Return a function whose own errors show the line of its caller last; those of what it calls stay."""

    @wraps(function)
    def call(*args: Given.args, **kwargs: Given.kwargs) -> Value:
        try:
            return function(*args, **kwargs)
        except (AttributeError, TypeError, KeyError) as error:
            trace = error.__traceback__
            if trace is not None and trace.tb_next is not None and trace.tb_next.tb_next is None:
                error.__traceback__ = None
            raise  # which adds no frame of this function

    return call


class MisfitCall(LanewiseError, TypeError):
    """A call that does not fit the parameters of a function: also a TypeError, as Python would raise it."""


# names ------------------------------------------------------------------------------------------------------


def nearest(name: str, names: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the name that was probably meant, or an empty string; case and underscores do not count.

    >>> nearest("threadIdx", ["thread_idx", "block_idx"]), nearest("abc", ["thread_idx"])
    ('thread_idx', '')
    """
    from difflib import get_close_matches  # wanted for a message alone

    key = _plain(name)
    by_key = {
        plain: known
        for known in sorted(names, key=len, reverse=True)  # of equal ones the shortest counts
        if 5 * len(plain := _plain(known)) > 3 * len(key) or key.startswith(plain)  # `sin` is not `version`
    }
    close = [key] if key in by_key else get_close_matches(key, by_key, 1, cutoff)
    return by_key[close[0]] if close else ""


def _plain(name: str) -> str:
    return name.lower().replace("_", "")


def names_with_words(name: str, names: Iterable[str], most: int = 6) -> list[str]:
    """Return the names in which all words of a name occur, if there are not too many.

    >>> names_with_words("bank_conflict", ["l1__bank_conflicts.sum", "l1__banks.sum"])
    ['l1__bank_conflicts.sum']
    """
    words = _words(name)
    found = [known for known in names if words and words <= _words(known)]
    return found if len(found) <= most else []


def _words(name: str) -> set[str]:
    return {word.removesuffix("s") for word in re.split(r"[^a-z0-9]+", name.lower())} - {""}


def instead_of(
    name: str, names: Iterable[str], instead: Mapping[str, str] | None = None, most: int = _MOST_NAMES
) -> str:
    """Return the end of a message about a name that is not there, from the first semicolon on.

    `instead` says what serves for names that other libraries have. If no name is near, the message lists
    all of them, but for a list of more than `most`.

    >>> instead_of("findins", ["findings", "counters"]), instead_of("x", ["findings", "counters"])
    ('; did you mean findings?', '; it has counters, findings')
    """
    public = sorted(known for known in names if not known.startswith("_"))
    if instead is not None and name in instead:
        return f"; {instead[name]}"
    if name.startswith("_"):  # asked for by tools
        return ""
    close = nearest(name, public)
    if close:
        return f"; did you mean {close}?"
    return f"; it has {', '.join(public)}" if 0 < len(public) <= most else ""


@cache
def instead_of_attribute(owner: type, name: str) -> str:
    """Return the end of a message about an attribute that objects of a class do not have."""
    fields = (field for base in owner.__mro__ for field in getattr(base, "__annotations__", ()))
    names = {*dir(owner), *fields} - {"INSTEAD", "mro"}
    most = _MOST_NAMES if issubclass(owner, Suggests) else 0  # others have names for the library alone, too
    if name in ("draw", "show", "plot", "display"):
        if hasattr(owner, "_repr_svg_"):
            return '; lanewise.draw.save(thing, "picture.svg") draws it, and a notebook shows it'
        if hasattr(owner, "save"):
            return '; save("file.html") writes a page, print(…) prints it, and a notebook shows it'
    return instead_of(name, names, getattr(owner, "INSTEAD", None), most)


class Suggests:
    """An object whose missing attribute is an error that says what it has, or what serves instead."""

    __slots__ = ()
    #: Names that people look for here, and what serves instead.
    INSTEAD: ClassVar[Mapping[str, str]] = {}

    if not TYPE_CHECKING:  # a checker knows the attributes

        @at_caller
        def __getattr__(self, name: str) -> NoReturn:
            owner = type(self)
            if hasattr(owner, name):  # the code of a property raised an error of its own
                return object.__getattribute__(self, name)
            raise AttributeError(
                f"{owner.__name__} has no attribute {name!r}{instead_of_attribute(owner, name)}",
                name=name,
                obj=None,  # Python would add a second proposal
            )


# calls ------------------------------------------------------------------------------------------------------


def misfit_call(function: Callable[..., object], error: TypeError, given: tuple[object, ...] = ()) -> str:
    """Return what is wrong with a call that Python refused, and how the function is called.

    It is empty for an error of another kind, or about another function. `given` are the positional
    arguments, if they are known.

    >>> def holder(row: int, col: int) -> None: ...
    >>> misfit_call(holder, TypeError("holder() missing 1 required positional argument: 'col'"), ((3, 9),))
    'holder takes row and col; col is missing: write holder(3, 9), without the inner parentheses'
    """
    import inspect  # wanted for a message alone

    match = _MISFIT.fullmatch(str(error))
    if match is None:
        return ""
    name, parameters = _called_name(function), list(inspect.signature(function).parameters.values())
    is_method = bool(parameters) and parameters[0].name == "self"
    parameters, given = parameters[is_method:], given[is_method:]
    by_position = [
        part for part in parameters if part.kind in (part.POSITIONAL_ONLY, part.POSITIONAL_OR_KEYWORD)
    ]
    by_name = [part.name for part in parameters if part.kind is part.KEYWORD_ONLY]
    written = [
        part.name if part.default is part.empty else f"{part.name}={part.default!r}" for part in by_position
    ]
    names = re.findall(r"'(\w+)'", match["missing"] or "")
    is_other = match["most"] not in (None, "fewer", str(len(by_position) + is_method))
    if is_other or not {part.name for part in parameters}.issuperset(names):
        return ""  # another function of this name
    takes = f"{name} takes {_listed(written) or 'nothing'}"
    if match["given"]:
        wrong = f"{takes} by position, and {int(match['given']) - is_method} arguments were given"
        wrong += (
            f"; these are given by name: {_names([f'{keyword}=' for keyword in by_name])}" if by_name else ""
        )
    elif match["missing"]:
        wrong = f"{takes}; {_listed(names)} {'is' if len(names) == 1 else 'are'} missing"
        if names[0] in by_name:
            wrong = f"{name} needs {_listed([f'{keyword}=' for keyword in names])}"
        inner = given[0] if len(given) == 1 and isinstance(given[0], tuple) else ()
        if inner and len(inner) == 1 + len(names) and all(isinstance(item, int) for item in inner):
            return f"{wrong}: write {name}({', '.join(map(str, inner))}), without the inner parentheses"
    else:
        known = [part.name for part in parameters if part.kind is not part.VAR_KEYWORD]
        close = nearest(match["unknown"], known)
        wrong = f"{name} has no parameter {match['unknown']}"
        wrong += f"; did you mean {close}?" if close else f"; it takes {_names(known)}"
    example = _example_of(function)
    return f"{wrong}; an example: {example}" if example else wrong


def too_many_arguments(function: Callable[..., object], given: tuple[object, ...]) -> MisfitCall:
    """Return the error for a function that took more positional arguments than it has parameters."""
    error = TypeError(
        f"{function.__qualname__}() takes fewer positional arguments but {len(given)} were given"
    )
    return MisfitCall(misfit_call(function, error, given))


def _called_name(function: Callable[..., object]) -> str:
    """Return the name under which users call a function: that of a class for its __init__."""
    return function.__qualname__.removesuffix(".__init__").rpartition(".")[2]


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def _names(names: list[str]) -> str:
    return ", ".join(names[:_MOST_NAMES])


def _example_of(function: Callable[..., object]) -> str:
    """Return the first example in a function's docstring that calls it, with the variables that it needs."""
    owner = getattr(sys.modules[function.__module__], function.__qualname__.partition(".")[0], None)
    for documented in (function, owner):
        before: list[str] = []
        for line in (documented.__doc__ or "").splitlines():
            if not line.strip().startswith(">>> "):
                continue
            text = line.strip().removeprefix(">>> ").partition("  # doctest")[0]
            if re.search(rf"\b{_called_name(function)}[(\[].*[)\]]", text):
                return _with_definitions(text, before, _called_name(function))
            before.append(text)
    return ""


def _with_definitions(example: str, before: list[str], called_name: str) -> str:
    """Return an example after the assignments that it needs, of the statements before it.

    The object whose method is called is one that the reader has.

    >>> _with_definitions("g.f(x, y)", ["import numpy as np", "y = np.zeros(4)", "z = 3", "g = Some()"], "f")
    'y = np.zeros(4); g.f(x, y)'
    """
    owner = re.search(rf"(\w+)\.{called_name}\b", example)
    import ast  # wanted for a message alone

    for statement in reversed(before):
        try:
            assignment = ast.parse(statement).body[0]
        except SyntaxError:  # the first line of several
            continue
        targets = assignment.targets if isinstance(assignment, ast.Assign) else []
        names = [node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]
        if owner is not None and names == [owner[1]]:
            continue
        if any(re.search(rf"\b{name}\b", example) for name in names):
            example = f"{statement}; {example}"
    return example


# methods that are not called, and values that are -----------------------------------------------------------


class _Uncalled(partial[object]):
    """A method of an object: what is looked for in its result is an error that says to call it.

    It is a `partial` because a call of one adds no line to a traceback.
    """

    @at_caller
    def __getattr__(self, name: str) -> object:
        if hasattr(self.func, name):
            return getattr(self.func, name)
        method = self.func.__name__
        raise AttributeError(f"{method} is a method: write {method}().{name}", name=name, obj=None)

    def __repr__(self) -> str:
        return f"{self.func!r}, to be called: {self.func.__name__}()"


class _Called:
    def __init__(self, function: Callable[..., object]) -> None:
        self.__wrapped__, self.__doc__ = function, function.__doc__

    def __get__(self, instance: object, owner: type) -> object:
        if instance is None:
            return self.__wrapped__
        bound = _Uncalled(self.__wrapped__.__get__(instance))
        bound.__doc__ = self.__doc__
        return bound


def called(method: Method) -> Method:
    """Return a method that returns a text, and says to call it where its parentheses were left out."""
    return cast(Method, _Called(method))


class _Value:
    """A value, not a method: a call says so."""

    __slots__ = ()
    if not TYPE_CHECKING:  # a checker knows that it is not callable

        @at_caller
        def __call__(self, *_: object, **__: object) -> NoReturn:
            kind = next(base.__name__ for base in type(self).__mro__ if base.__module__ == "builtins")
            raise TypeError(f"this is a {kind}, not a method: leave out the parentheses")


class Values(_Value, tuple[Value, ...]):
    """A tuple that is an attribute of an object of the library."""

    __slots__ = ()


class Items(_Value, list[Value]):
    """A list that is an attribute of an object of the library."""


# rooms, tables and files ------------------------------------------------------------------------------------


class Room(ModuleType):
    """A module whose missing name is an error that says what it has, or what serves instead."""

    if not TYPE_CHECKING:  # a checker knows the names

        @at_caller
        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(
                f"module {self.__name__!r} has no attribute {name!r}{instead_in_module(self, name)}",
                name=name,
                obj=None,
            )


class _NotCalled(Room):
    """A module that says what to call instead of it."""

    @at_caller
    def __call__(self, *_: object, **__: object) -> NoReturn:
        raise TypeError(f"{self.__name__} is a module and is not called: {vars(self)['called_instead']}")


def instead_in_module(module: ModuleType, name: str) -> str:
    """Return the end of a message about a name that a module of the library does not have.

    The module lists its names in `__all__`; `INSTEAD`, a table or a function, says what serves for names of
    other libraries.
    """
    instead = vars(module).get("INSTEAD")
    if callable(instead) and (meant := instead(name)):
        return f"; {meant}"
    return instead_of(name, vars(module).get("__all__", ()), None if callable(instead) else instead)


def not_called(module: str, instead: str) -> None:
    """Let a call of a module of the library say what to call instead."""
    room = sys.modules[module]
    room.__class__ = _NotCalled
    room.__dict__["called_instead"] = instead


class Named(_Value, dict[str, Value]):
    """Values by name: a name that is not there is an error that says which one was probably meant.

    >>> Named("counter", {"cycles": 5})["cycle"]
    Traceback (most recent call last):
    KeyError: "there is no counter 'cycle'; did you mean cycles?"
    >>> Named("counter", {"sm__bank_conflicts_op_ld.sum": 5, "sm__cycles": 3})["bank_conflict"]
    Traceback (most recent call last):
    KeyError: "there is no counter 'bank_conflict'; did you mean sm__bank_conflicts_op_ld.sum?"
    """

    what = "value"

    def __init__(self, what: str, values: Mapping[str, Value]) -> None:
        super().__init__(values)
        self.what = what

    @at_caller
    def __missing__(self, name: str) -> NoReturn:
        meant = [] if nearest(str(name), self) else names_with_words(str(name), self)
        if meant:
            instead = f"; did you mean {' or '.join(filter(None, [', '.join(meant[:-1]), meant[-1]]))}?"
        else:
            instead = instead_of(str(name), self) or f"; list(…) of this table has its {len(self)} names"
        raise KeyError(f"there is no {self.what} {name!r}{instead}")

    if not TYPE_CHECKING:  # a checker knows that the names are no attributes

        @at_caller
        def __getattr__(self, name: str) -> NoReturn:
            meant = nearest(name, self) or name
            raise AttributeError(
                f"a {self.what} is no attribute: look it up by its name, [{meant!r}]", name=name, obj=None
            )

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.what, dict(self))


def missing_file(path: Path) -> LanewiseError:
    """Return the error for a file that is not there: it names the one that was probably meant."""
    if path.is_dir():
        return LanewiseError(f"{path}: a folder, not a file")
    where = "" if path.is_absolute() else f"; the working folder is {Path.cwd()}"
    if not path.parent.is_dir():
        return LanewiseError(f"{path}: no such file: there is no folder {path.parent}{where}")
    beside = [file.name for file in path.parent.iterdir() if file.is_file()]
    same = sorted(name for name in beside if Path(name).stem == path.stem)
    close = " or ".join(same) or nearest(path.name, beside, 0.75)
    return LanewiseError(f"{path}: no such file" + (f"; did you mean {close}?" if close else where))
