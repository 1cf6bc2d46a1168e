"""Classes that `records.record` makes behave as those of `dataclasses` with slots do."""

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, field
from typing import Any

import pytest

from lanewise.ptx.model import directives, function, statements
from lanewise.records import record


@record(frozen=True)
class Place:
    """A place in a text."""

    line: int
    column: int = 1
    names: list[str] = field(default_factory=list, compare=False)
    note: str = field(default="", compare=False, repr=False)


@record()
class Mark:
    """A place that can be moved."""

    line: int = 0
    column: int = field(default=0, compare=False)


def _as_dataclass(made: type[Any], frozen: bool) -> type[Any]:
    """Return the dataclass with the same fields, as an oracle."""
    namespace = {"__annotations__": made.__annotations__, "__qualname__": made.__qualname__}
    for name in made.__annotations__:
        default = _DEFAULTS[made].get(name)
        if default is not None:
            namespace[name] = default() if callable(default) else default
    return dataclass(frozen=frozen, slots=True)(type(made.__name__, (), namespace))


_DEFAULTS: dict[type[Any], dict[str, Any]] = {
    Place: {
        "column": 1,
        "names": lambda: field(default_factory=list, compare=False),
        "note": lambda: field(default="", compare=False, repr=False),
    },
    Mark: {"line": 0, "column": lambda: field(default=0, compare=False)},
}


@pytest.mark.parametrize(("made", "frozen"), [(Place, True), (Mark, False)])
@pytest.mark.parametrize("arguments", [(3,), (3, 1), (3, 2)])
def test_it_is_what_a_dataclass_is(made: type[Any], frozen: bool, arguments: tuple[int, ...]) -> None:
    oracle = _as_dataclass(made, frozen)
    assert repr(made(*arguments)) == repr(oracle(*arguments))
    assert made.__match_args__ == oracle.__match_args__
    for other in [(3,), (3, 2), (4, 1)]:
        assert (made(*arguments) == made(*other)) == (oracle(*arguments) == oracle(*other))
    if frozen:
        assert hash(made(*arguments)) == hash(oracle(*arguments))
    else:
        assert made.__hash__ is oracle.__hash__ is None


def test_a_default_factory_makes_an_object_for_each() -> None:
    first, second = Place(1), Place(1)
    first.names.append("x")
    assert second.names == []
    assert Place(1, names=["y"]).names == ["y"]


def test_a_frozen_one_refuses_to_change_and_is_copied() -> None:
    place = Place(3, 4, ["a"], "b")
    with pytest.raises(FrozenInstanceError, match="field 'line' of a Place"):
        place.line = 5  # type: ignore[misc]  # it is frozen
    with pytest.raises(FrozenInstanceError):
        del place.line
    for other in (pickle.loads(pickle.dumps(place)), copy.deepcopy(place)):
        assert (other.line, other.column, other.names, other.note) == (3, 4, ["a"], "b")


def test_there_are_no_other_attributes_than_fields() -> None:
    mark = Mark()
    mark.line = 7
    assert mark == Mark(7) and mark != Mark(8) and mark != object()
    with pytest.raises(AttributeError):
        mark.row = 1  # type: ignore[attr-defined]  # there is none


def test_missing_and_unknown_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="'line'"):
        Place()  # type: ignore[call-arg]  # line is missing
    with pytest.raises(TypeError, match="row"):
        Place(1, row=2)  # type: ignore[call-arg]  # there is no row


@pytest.mark.parametrize("module", [directives, statements, function])
def test_classes_of_ptx_are_records_with_slots(module: Any) -> None:
    """A class that `dataclasses` makes there would cost each new process a millisecond."""
    classes = [each for each in vars(module).values() if isinstance(each, type)]
    own = [each for each in classes if each.__module__ == module.__name__]
    assert own and all(hasattr(each, "__slots__") for each in own)
    assert not any(hasattr(each, "__dataclass_fields__") for each in own)
