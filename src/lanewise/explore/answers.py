"""Questions of the page and the functions that answer them: names, checked arguments, errors in words.

A function registers with `@question(room, name)`. Its keyword parameters and their annotations say which
JSON it takes; a first parameter `session` is given the session. What it returns becomes JSON, or is sent as
it is where it is `bytes`.
"""

from __future__ import annotations

import copy
import inspect
import json
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from lanewise.errors import InternalError, LanewiseError


class Session:
    """What one run of `lanewise explore` was started with, and the launches of scripts that it opened."""

    #: Why Python that is typed on the page is not run, as a sentence; empty where it is run.
    refuses_python: str

    def __init__(self, files: Sequence[Path] = (), *, runs_python: bool = False) -> None:
        """Begin with the files that the command line names; typed Python is not run unless that is said."""
        self.files = tuple(files)
        #: How a kernel in one of the files may be launched, by the name of the file: fields of a request.
        self.suggested: dict[str, dict[str, Any]] = {}
        self.refuses_python = "" if runs_python else "This page does not run Python."
        #: What the room Kernels shows of each launch of a script that was opened.
        self.opened: list[Any] = []

    def for_others(self) -> Session:
        """Return the same session as somebody sees it who is not on this machine: Python is not run.

        >>> Session(runs_python=True).for_others().refuses_python
        'The page is served to others here, and runs Python on its own machine only.'
        """
        session = copy.copy(self)
        session.refuses_python = "The page is served to others here, and runs Python on its own machine only."
        return session


#: The module with the questions of each room; it is imported when the first question comes.
ROOMS = {
    "instructions": "lanewise.explore.instructions",
    "layouts": "lanewise.explore.layouts",
    "bits": "lanewise.explore.bits",
    "kernels": "lanewise.explore.kernels",
    "tour": "lanewise.explore.tour",
}

#: Statuses of HTTP that an answer has.
FOUND, REFUSED, UNKNOWN, BROKEN = 200, 400, 404, 500

_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Question:
    """A question that a room answers: the function, and the types of its keyword arguments."""

    function: Callable[..., Any]
    types: dict[str, object]
    required: frozenset[str]
    takes_session: bool


@dataclass(frozen=True)
class Answer:
    """What goes back to the page: a status of HTTP, the content, and its type."""

    status: int
    content: bytes
    type: str = "application/json"


_questions: dict[tuple[str, str], Question] = {}


def question(room: str, name: str) -> Callable[[_Function], _Function]:
    """Register the decorated function as what answers `POST api/<room>/<name>`."""

    def register(function: _Function) -> _Function:
        hints = typing.get_type_hints(function)
        parameters = dict(inspect.signature(function).parameters)
        takes_session = parameters.pop("session", None) is not None
        _questions[room, name] = Question(
            function,
            {parameter: hints[parameter] for parameter in parameters},
            frozenset(
                parameter
                for parameter, value in parameters.items()
                if value.default is inspect.Parameter.empty
            ),
            takes_session,
        )
        return function

    return register


def answer(session: Session, room: str, name: str, body: bytes) -> Answer:
    """Answer one question; whatever goes wrong becomes a sentence.

    >>> answer(Session(), "attic", "look", b"{}").status
    404
    """
    try:
        question = _found(room, name)
        if question is None:
            return _json(UNKNOWN, {"error": f"there is no question {name!r} in a room {room!r}"})
        arguments = _checked(question, _parsed(body))
        given = (session,) if question.takes_session else ()
        result = question.function(*given, **arguments)
        if isinstance(result, bytes):
            return Answer(FOUND, result, "application/octet-stream")
        return _json(FOUND, result)
    except InternalError as error:
        return _json(BROKEN, {"error": str(error)})
    except LanewiseError as error:
        return _json(REFUSED, {"error": str(error)})
    except MemoryError:
        return _json(REFUSED, {"error": "there is not enough memory for this; ask for something smaller"})
    except Exception as error:
        return _json(BROKEN, {"error": str(InternalError("the page's question failed", error))})


def _found(room: str, name: str) -> Question | None:
    """Return a question by its names; the room's module is imported where it was not yet."""
    if room not in ROOMS:
        return None
    import_module(ROOMS[room])
    return _questions.get((room, name))


def _parsed(body: bytes) -> dict[str, object]:
    """Return the JSON object that was sent."""
    try:
        parsed = json.loads(body.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise LanewiseError(f"the question is not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise LanewiseError("the question is JSON, but no object with names and values")
    return parsed


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _checked(asked: Question, body: dict[str, object]) -> dict[str, object]:
    """Return the arguments, each held against its annotation."""
    unknown = sorted(body.keys() - asked.types.keys())
    if unknown:
        allowed = ", ".join(asked.types) or "nothing"
        raise LanewiseError(f"the question takes {allowed}, and not {', '.join(unknown)[:80]}")
    missing = sorted(asked.required - body.keys())
    if missing:
        raise LanewiseError(f"the question needs {', '.join(missing)}")
    for name, value in body.items():
        if not _fits(value, asked.types[name]):
            raise LanewiseError(f"{name} has the wrong type: {_named(asked.types[name])} is wanted")
    return body


def _fits(value: Any, wanted: Any) -> bool:
    """Whether a value from JSON has the type of an annotation."""
    if wanted is Any:
        return True
    origin, inner = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, kind) for kind in inner)
    if origin is typing.Literal:
        return value in inner and not isinstance(value, bool)
    if origin is list:
        return isinstance(value, list) and all(_fits(item, inner[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(item, inner[1]) for item in value.values())
    if wanted is None or wanted is types.NoneType:
        return value is None
    if wanted is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, wanted)


def _named(wanted: object) -> str:
    """Return the name of a type as a reader of JSON knows it."""
    return str(getattr(wanted, "__name__", wanted) if typing.get_origin(wanted) is None else wanted)


def _json(status: int, value: object) -> Answer:
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, default=_plain)
    return Answer(status, text.encode())


def _plain(value: object) -> object:
    """Return a number of NumPy's as one of Python's."""
    item = getattr(value, "item", None)
    if item is None:
        raise TypeError(f"{type(value).__name__} cannot be sent")
    return item()
