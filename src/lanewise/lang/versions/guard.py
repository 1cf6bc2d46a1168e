"""A guard: a compiled function that sees in well under a microsecond whether what a kernel read is the same.

It compares identities, which never misses a change of a value. It may see a change where an equal value took
the place of another; then `versions.py` compares by value.
"""

import ast
from collections.abc import Callable, Iterable, Mapping
from operator import is_
from types import CellType, CodeType, FunctionType
from typing import Any

from lanewise.records import record

#: What a guard may raise where something that it reads is no longer there.
GONE = (NameError, LookupError, AttributeError, TypeError, ValueError, RuntimeError)


@record(frozen=True)
class Check:
    """An expression that holds as long as something is unchanged, with its operands for `{}`."""

    template: str
    operands: tuple[object, ...]


@record(frozen=True)
class GlobalCheck:
    """A global variable that must hold the same object; Python itself looks it up, as fast as it can."""

    variables: dict[str, object]
    name: str
    value: Any


def same_items(values: Iterable[object], first: tuple[object, ...]) -> bool:
    """Return whether a sequence has the same objects in the same order."""
    now = tuple(values)
    return len(now) == len(first) and all(map(is_, now, first))


def same_mapping(values: Mapping[object, object], keys: tuple[object, ...], held: tuple[object, ...]) -> bool:
    """Return whether a mapping has the same objects under the same keys in the same order."""
    return len(values) == len(keys) and all(map(is_, values, keys)) and all(map(is_, values.values(), held))


def is_empty(cell: CellType) -> bool:
    """Return whether a closure's cell has no value yet."""
    try:
        cell.cell_contents  # noqa: B018  # it raises if there is none
    except ValueError:
        return True
    return False


def attribute_of(value: object, name: str, default: object = None) -> object:
    """Return an attribute of any object, also of one whose lookup raises what it likes."""
    try:
        return getattr(value, name, default)
    except Exception:
        return default


def content_of(value: Any) -> tuple[object, ...] | None:
    """Return type, shape and bytes of an array, or a tensor's version; None for anything else.

    The bytes of an array of objects are None.
    """
    if isinstance(attribute_of(value, "_version"), int) and attribute_of(value, "data_ptr"):
        facts = (str(value.dtype), tuple(value.shape), value._version, value.data_ptr())
        return (*facts, _host_bytes(value) or b"")
    if attribute_of(value, "__array_interface__") and attribute_of(value, "tobytes"):
        if value.dtype.hasobject:
            return (value.shape, None)
        return (value.dtype.str, value.dtype.descr if value.dtype.names else "", value.shape, value.tobytes())
    try:
        with memoryview(value) as view:
            return (view.format, view.shape, view.tobytes())
    except (TypeError, ValueError, BufferError):
        return None


def _host_bytes(tensor: Any) -> bytes | None:
    """Return the bytes of a tensor in host memory; None if NumPy cannot see them."""
    try:
        return bytes(tensor.detach().numpy().tobytes())
    except (TypeError, RuntimeError, AttributeError):
        return None


_FUNCTIONS = {function.__name__: function for function in (same_items, same_mapping, is_empty, content_of)}


def guard(checks: list[Check | GlobalCheck]) -> Callable[[], bool]:
    """Return a function that says whether all checks hold; it may raise one of `GONE` if they do not.

    >>> numbers = [1, 2]
    >>> unchanged = guard([Check("same_items({}, {})", (numbers, tuple(numbers)))])
    >>> unchanged()
    True
    >>> numbers.append(3)
    >>> unchanged()
    False
    """
    of_globals: dict[int, list[GlobalCheck]] = {}
    others: list[Check] = []
    for check in checks:
        if isinstance(check, Check):
            others.append(check)
        elif check.name.isidentifier():
            of_globals.setdefault(id(check.variables), []).append(check)
        else:  # pytest's assertions read variables such as @pytest_ar
            others.append(Check("{}[{}] is {}", (check.variables, check.name, check.value)))
    groups = list(of_globals.values())
    others += [Check("{}()", (_compiled(group, [], group[0].variables),)) for group in groups[1:]]
    first = groups[0] if groups else []
    return _compiled(first, others, first[0].variables if first else {})


def _compiled(
    of_globals: list[GlobalCheck], others: list[Check], variables: dict[str, object]
) -> Callable[[], bool]:
    """Return a function of the given globals whose operands are its default arguments."""
    operands: dict[int, tuple[str, object]] = {}

    def name_of(value: object) -> str:
        return operands.setdefault(id(value), (f"_lw{len(operands)}", value))[0]

    tests = [f"{read.name} is {name_of(read.value)}" for read in of_globals]
    for check in others:
        text = check.template
        for name, function in _FUNCTIONS.items():
            if text.startswith(name):
                text = name_of(function) + text[len(name) :]
        tests.append(text.format(*map(name_of, check.operands)))
    names = ", ".join(name for name, _ in operands.values())
    body = ast.parse(f"def unchanged({names}): return {' and '.join(tests) or 'True'}")
    module = compile(body, "<guard of a kernel>", "exec", dont_inherit=True)
    code = next(constant for constant in module.co_consts if isinstance(constant, CodeType))
    return FunctionType(code, variables, "unchanged", tuple(value for _, value in operands.values()))
