"""What a kernel has read of Python may change: the next launch sees the new value.

The law is Python's own: after any change, a launch gives what the same function gives if it is decorated
afresh. Changes to and fro are drawn at random, too.
"""

import functools
import importlib
import importlib.machinery
import importlib.util
import random
import sys
import types
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import lanewise as lw

NUMBER, FLOAT, LIST, NESTED, TABLE = 1, 1.0, [1, 2], {"a": [1, (2, [3])]}, np.arange(4)
SET, DEQUE, BYTES, ARRAY = {3}, deque([4]), bytearray(b"\5"), array("i", [6])
LAYOUT, OPERATION = lw.Layout((4, 2), (1, 4)), max
SWIZZLE = lw.Swizzle(1, 0, 1)
HELD, NAMED = [1, 2], {"a": 1}
GET, LOOK_UP, LENGTH, VALUES = HELD.__getitem__, NAMED.get, HELD.__len__, NAMED.values()


class Slotted:
    __slots__ = ("rows",)

    def __init__(self, rows: int) -> None:
        self.rows = rows


class Config:
    """Attributes of the object, of the class, computed, in slots and in objects."""

    CLASS = 2

    def __init__(self) -> None:
        self.block, self.inner, self.slots = 1, types.SimpleNamespace(depth=3), Slotted(5)

    @property
    def computed(self) -> int:
        return self.block * 10

    def method(self, n: int) -> int:
        return self.block + n + NUMBER


@dataclass
class Tile:
    rows: int = 4


class Frozen(NamedTuple):
    rows: int
    names: list[int]


class Colour(Enum):
    RED = 1
    BLUE = 2


class Computed:
    """Attributes that are looked up in a dict, and a lookup that raises for everything else."""

    def __init__(self) -> None:
        self.__dict__["held"] = {"rows": 1}

    def __getattr__(self, name: str) -> int:
        if name not in self.__dict__["held"]:
            raise ValueError(name)
        return int(self.__dict__["held"][name])


COMPUTED, NAMES = Computed(), types.SimpleNamespace(a=types.SimpleNamespace(b=[1]))
ORDER = {"a": 1, "b": 2}
CFG, TILE, FROZEN, COLOUR = Config(), Tile(), Frozen(1, [2]), Colour.RED
PARTIAL = functools.partial(lambda a, b: a * 100 + b, 1)


def plain(n: int) -> int:
    return n + NUMBER


def of_helpers(n: int) -> int:
    return plain(n) * 2


def with_default(n: int, more: int = 5) -> int:
    return n + more


@lw.device
def on_device(n: Any) -> Any:
    return n + of_helpers(3)


@lw.device
def with_device_default(n: Any, more: int = 5, *, most: int = 7) -> Any:
    return n + more * 100 + most


HELPER = plain
HELPERS = {"first": plain}
OTHER = types.ModuleType("other_module")
exec("DEPTH = 7\ndef read(n): return n * DEPTH", OTHER.__dict__)


def passed_on(what: Any) -> int:
    return int(what.DEPTH)


def attribute_named(what: Any, name: str) -> int:
    return int(getattr(what, name))


#: A kernel that stores what an expression of Python gives, for each kind of value that it may read.
EXPRESSIONS: dict[str, Callable[[], Any]] = {
    "number": lambda: NUMBER,
    "float": lambda: FLOAT,
    "list": lambda: LIST[-1] + len(LIST),
    "nested": lambda: NESTED["a"][1][1][0],
    "set": lambda: sum(SET),
    "deque": lambda: DEQUE[0],
    "bytearray": lambda: BYTES[0],
    "array": lambda: ARRAY[0],
    "NumPy": lambda: int(TABLE[1]) + int(TABLE.sum()),
    "shape": lambda: TABLE.shape[0],
    "layout": lambda: LAYOUT(5),
    "swizzle": lambda: SWIZZLE(2),
    "builtin": lambda: OPERATION(3, 4),
    "bound method of a list": lambda: GET(0) + LENGTH(),
    "bound method of a dict": lambda: LOOK_UP("a"),
    "view of a dict": lambda: sum(VALUES),
    "attribute": lambda: CFG.block,
    "class attribute": lambda: CFG.CLASS,
    "of a class": lambda: Config.CLASS,
    "attribute of attribute": lambda: CFG.inner.depth,
    "slot": lambda: CFG.slots.rows,
    "property": lambda: CFG.computed,
    "method": lambda: CFG.method(2),
    "dataclass": lambda: TILE.rows,
    "lookup": lambda: COMPUTED.rows,
    "namespaces": lambda: NAMES.a.b[0],
    "order": lambda: next(iter(ORDER.values())),
    "by name": lambda: attribute_named(TILE, "ro" + "ws"),
    "named tuple": lambda: FROZEN.rows + FROZEN.names[0],
    "enum": lambda: COLOUR.value,
    "partial": lambda: PARTIAL(2),
    "function": lambda: plain(1),
    "function's function": lambda: of_helpers(1),
    "default": lambda: with_default(1),
    "function by another name": lambda: HELPER(1),
    "function in a dict": lambda: HELPERS["first"](1),
    "function of a module": lambda: OTHER.read(2),
    "variable of a module": lambda: OTHER.DEPTH,
    "module passed on": lambda: passed_on(OTHER),
    "device function": lambda: on_device(1),
    "default of a device function": lambda: with_device_default(1),
}
HERE = globals()


def _set(name: str, value: Any) -> None:
    HERE[name] = value


def _defined(text: str) -> Any:
    made: dict[str, Any] = {}
    exec(text, HERE, made)
    return made.popitem()[1]


def _recoded(function: Any, text: str) -> None:
    function.__code__ = _defined(text).__code__


def _defined_on_device(number: int) -> Any:
    def device(n: Any) -> Any:
        return n + number

    return lw.device(device)


#: Every way to change what those expressions read: each takes a number.
CHANGES: dict[str, Callable[[int], Any]] = {
    "number": lambda n: _set("NUMBER", n),
    "type of a number": lambda n: _set("FLOAT", (1, 1.0, 0.0, -0.0)[n % 4]),
    "list item": lambda n: LIST.__setitem__(0, n),
    "list append": lambda n: LIST.append(n),
    "list anew": lambda n: _set("LIST", [n, n + 1]),
    "list within": lambda n: NESTED["a"][1][1].__setitem__(0, n),
    "set": lambda n: SET.add(n),
    "deque": lambda n: DEQUE.appendleft(n),
    "bytearray": lambda n: BYTES.__setitem__(0, n % 256),
    "array": lambda n: ARRAY.__setitem__(0, n),
    "NumPy item": lambda n: TABLE.__setitem__(1, n),
    "NumPy anew": lambda n: _set("TABLE", np.arange(n % 5 + 2)),
    "layout": lambda n: _set("LAYOUT", lw.Layout((4, 2), (1, 4 + n % 7))),
    "swizzle": lambda n: _set("SWIZZLE", lw.Swizzle(1, 0, 1 + n % 2)),
    "builtin": lambda n: _set("OPERATION", (max, min)[n % 2]),
    "list behind a method": lambda n: HELD.__setitem__(0, n),
    "longer list behind a method": lambda n: HELD.append(n),
    "dict behind a method": lambda n: NAMED.update(a=n),
    "attribute": lambda n: setattr(CFG, "block", n),
    "object": lambda n: _set("CFG", Config()),
    "class attribute": lambda n: setattr(Config, "CLASS", n),
    "class attribute hidden": lambda n: setattr(CFG, "CLASS", n),
    "attribute of attribute": lambda n: setattr(CFG.inner, "depth", n),
    "slot": lambda n: setattr(CFG.slots, "rows", n),
    "property": lambda n: setattr(Config, "computed", property(lambda self: self.block + n)),
    "method": lambda n: setattr(Config, "method", lambda self, m: self.block * m * n),
    "dataclass": lambda n: setattr(TILE, "rows", n),
    "lookup": lambda n: COMPUTED.__dict__["held"].update(rows=n),
    "namespaces": lambda n: NAMES.a.b.__setitem__(0, n),
    "order": lambda n: ORDER.update(a=ORDER.pop("a")),
    "named tuple": lambda n: FROZEN.names.__setitem__(0, n),
    "enum": lambda n: _set("COLOUR", (Colour.RED, Colour.BLUE)[n % 2]),
    "partial": lambda n: _set("PARTIAL", functools.partial(lambda a, b: a * 100 + b, n)),
    "function anew": lambda n: _set("plain", _defined(f"def plain(n): return n * NUMBER + {n}")),
    "function's code": lambda n: _recoded(with_default, f"def f(n, more): return {n}"),
    "default": lambda n: setattr(with_default, "__defaults__", (n,)),
    "function by another name": lambda n: _set("HELPER", (plain, of_helpers)[n % 2]),
    "function in a dict": lambda n: HELPERS.update(first=(plain, of_helpers)[n % 2]),
    "variable of a module": lambda n: setattr(OTHER, "DEPTH", n),
    "device function": lambda n: _set("on_device", _defined_on_device(n)),
    "default of a device function": lambda n: setattr(with_device_default, "__defaults__", (n,)),
    "named default of a device function": lambda n: setattr(
        with_device_default, "__kwdefaults__", {"most": n}
    ),
}  # fmt: skip


@pytest.fixture
def restored() -> Iterator[None]:
    """Leave this module's variables as they were."""
    before = dict(HERE)
    yield
    HERE.update(before)


def stored(expression: Callable[[], Any]) -> lw.Kernel:
    """Return a kernel that stores what an expression gives while the kernel is traced, as f32."""

    @lw.kernel
    def kernel(out: lw.Ptr[lw.f32]):
        value = expression()
        out[0] = lw.f32(float(value)) if not hasattr(value, "is_traced") else value.to(lw.f32)
        out[1] = lw.f32(1.0 if isinstance(value, float) else 0.0)

    return kernel


def outcome(kernel: lw.Kernel) -> float:
    out = np.zeros(2, np.float32)
    kernel[1, 1](out)
    return float(out[0])


@pytest.mark.usefixtures("restored")
def test_every_change_of_what_a_kernel_has_read_is_seen() -> None:
    kernels = {name: stored(expression) for name, expression in EXPRESSIONS.items()}
    first = {name: kernel.ptx() for name, kernel in kernels.items()}
    draw = random.Random(26)
    seen: set[str] = set()
    for number, (change, function) in enumerate(
        [*CHANGES.items(), *draw.choices(list(CHANGES.items()), k=20)]
    ):
        function(2 * number + 3 if number < len(CHANGES) else draw.randrange(60))
        for name, expression in EXPRESSIONS.items():
            now = kernels[name].ptx()
            try:
                bits = np.array(expression(), np.float32).view(np.uint32)
            except lw.KernelError:  # a device function runs in a kernel only
                assert now == stored(expression).ptx(), f"{name} after a change of {change}"
            else:
                assert f"0f{bits:08X}" in now, f"{name} after a change of {change}"
            seen |= {name} if now != first[name] else set()
    assert seen == set(EXPRESSIONS)  # each kind of read has changed at least once


def test_a_launch_sees_changes_and_known_versions_are_not_traced_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    number, traced, trace = 1, [], lw.Kernel._trace

    @lw.kernel
    def kernel(out: lw.Ptr[lw.f32], SCALE: lw.Constexpr = 1):
        out[0] = lw.f32(float(number * SCALE))

    def counted(self: lw.Kernel, arch: Any, constants: Any) -> Any:
        traced.append(number)
        return trace(self, arch, constants)

    monkeypatch.setattr(lw.Kernel, "_trace", counted)
    configured, out = kernel[1, 1], np.zeros(1, np.float32)
    for number in (1, 2, 1, 2, 1000, int("1000"), 1):
        configured(out)
        assert out[0] == number
        configured(out, SCALE=3)
        assert out[0] == 3 * number
    assert traced == [1, 1, 2, 2, 1000, 1000]  # not again for the other 1000, which is equal


def test_what_the_trace_itself_changes_is_no_reason_to_trace_again() -> None:
    calls: list[int] = []

    @lw.kernel
    def kernel(out: lw.Ptr[lw.f32]):
        calls.append(len(calls))
        out[0] = lw.f32(float(len(calls)))

    assert [outcome(kernel), outcome(kernel)] == [1, 1]
    calls.append(7)
    assert outcome(kernel) == 3


def test_an_array_whose_shape_alone_is_read_may_hold_anything() -> None:
    data, traced = np.zeros(5, np.float32), []

    @lw.kernel
    def kernel(out: lw.Ptr[lw.f32]):
        traced.append(0)
        out[0] = lw.f32(float(data.shape[0]))

    assert outcome(kernel) == 5
    data[:] = 7
    assert outcome(kernel) == 5 and len(traced) == 1
    data = np.zeros(6, np.float32)
    assert outcome(kernel) == 6


def test_constants_of_equal_value_and_other_type_are_told_apart_in_warm_launches() -> None:
    @lw.kernel
    def kernel(out: lw.Ptr[lw.f32], C: lw.Constexpr):
        out[0] = lw.f32(2.0 if isinstance(C, float) else 3.0 if isinstance(C, bool) else 4.0)

    configured, out = kernel[1, 1], np.zeros(1, np.float32)
    for constant, wanted in [(1, 4), (1.0, 2), (True, 3)] * 2:
        configured(out, C=constant)
        assert out[0] == wanted


@dataclass(frozen=True)
class Choice:
    """Fields of any type, and one that comparisons leave out."""

    rows: Any
    swizzle: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class SlottedChoice:
    rows: Any
    swizzle: int = field(default=0, compare=False)


class NamedChoice(NamedTuple):
    rows: Any


class Whatever:
    """An object that is equal to all others of its class."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Whatever)

    def __hash__(self) -> int:
        return 1


def nan_of(payload: int) -> float:
    return float(np.uint64(0x7FF8 << 48 | payload).view(np.float64))


#: Values that Python finds equal, or cannot find equal to themselves, and that are different constants.
_ALIKE: list[Any] = [
    0.0, -0.0, 0, False, 0j, -0j, complex(0.0, -0.0), np.float32(0), np.float32(-0.0), np.float64(-0.0),
    np.int32(0), np.int64(0), np.bool_(False), nan_of(0), nan_of(1), range(0), range(5, 5), range(0, 4, 2),
    range(0, 3, 2),
]  # fmt: skip


def _wrapped(values: list[Any]) -> list[Any]:
    makers: list[Callable[[Any], Any]] = [
        lambda x: x, lambda x: (x,), lambda x: (1, ((x,), "a")), lambda x: frozenset([x]), Choice,
        SlottedChoice, lambda x: NamedChoice((x,)), lambda x: Choice((1, x)), Whatever,
        lambda x: (Whatever(Choice(x)),),
    ]  # fmt: skip
    found = [make(each) for make in makers for each in values]
    found += [kind(1, swizzle) for kind in (Choice, SlottedChoice) for swizzle in range(3)]
    return found + [(Choice(1, swizzle),) for swizzle in range(3)]


def _described(value: Any) -> str:
    """Return type and bits of a value, and of its parts."""
    if isinstance(value, tuple | frozenset):
        return f"{type(value)}({[_described(each) for each in value]})"
    if isinstance(value, Choice | SlottedChoice | Whatever):
        return f"{type(value)}({_described(value.rows)}, {getattr(value, 'swizzle', '')})"
    if isinstance(value, float | complex | np.generic):
        return f"{type(value)}({np.asarray(value).tobytes().hex()})"
    return f"{type(value)}({value!r})"


def test_constants_that_compare_equal_are_told_apart_by_type_and_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = _wrapped(_ALIKE)
    wanted = [_described(each) for each in values]
    assert len(set(wanted)) == len(values)  # by an oracle of its own
    traced: list[str] = []
    trace = lw.Kernel._traced

    def counted(kernel: lw.Kernel, arch: str | None, constants: dict[str, Any]) -> Any:
        traced.append(_described(constants["C"]))
        return trace(kernel, arch, constants)

    @lw.kernel
    def kernel(out: lw.Ptr[lw.i32], C: lw.Constexpr):
        out[0] = 1

    monkeypatch.setattr(lw.Kernel, "_traced", counted)
    for value in values:
        kernel.module(C=value)
    assert traced == wanted
    for value in _wrapped([0.0, -0.0, nan_of(1), 0]) * 2:  # new objects of known values are not traced again
        kernel.module(C=value)
    assert len(traced) == len(values)


def test_a_launch_takes_the_object_that_it_is_given_and_not_an_equal_one_that_has_changed() -> None:
    @lw.kernel
    def kernel(out: lw.Ptr[lw.i32], C: lw.Constexpr):
        out[0] = C.rows

    out, first = np.zeros(1, np.int32), Whatever(1)
    for launched, wanted in [(first, 1), (Whatever(2), 2), (first, 1)]:
        kernel[1, 1](out, C=launched)
        assert out[0] == wanted
    first.rows = 3
    for launched, wanted in [(Whatever(1), 1), (first, 3), (Whatever(3), 3), (Whatever(1), 1)]:
        kernel[1, 1](out, C=launched)
        assert out[0] == wanted


def test_sets_are_read_by_the_types_and_bits_of_what_they_hold() -> None:
    held: set[Any] = set()

    @lw.kernel
    def kernel(out: lw.Ptr[lw.f32]):
        (value,) = held
        out[0] = lw.f32(1.0 if isinstance(value, float) else 2.0) * (-1.0 if str(value)[0] == "-" else 1.0)

    for value, wanted in [(0.0, 1), (-0.0, -1), (0, 2), (0.0, 1), (False, 2)]:
        held.clear()
        held.add(value)
        assert outcome(kernel) == wanted


def test_what_a_kernel_was_made_of_cannot_be_set_unseen() -> None:
    kernel = stored(lambda: 1)
    for name in ("__code__", "__defaults__", "__kwdefaults__"):
        with pytest.raises(lw.KernelError, match=f"{name} of the kernel kernel cannot be set"):
            setattr(kernel, name, None)


def test_objects_and_functions_that_are_given_as_constants_may_change() -> None:
    config, factor = Config(), 2

    def function(n: int) -> int:
        return n * factor

    @lw.kernel
    def kernel(out: lw.Ptr[lw.f32], CFG: lw.Constexpr, F: lw.Constexpr):
        out[0] = lw.f32(float(F(CFG.block)))

    out = np.zeros(1, np.float32)
    for config.block, factor in [(1, 2), (5, 2), (5, 3), (1, 2)]:
        kernel[1, 1](out, CFG=config, F=function)
        assert out[0] == config.block * factor


def test_device_functions_that_only_the_trace_finds_are_followed() -> None:
    number = 1

    @lw.device
    def first(n: Any) -> Any:
        return n + number

    functions = types.SimpleNamespace(**{"func" + "tion": first})

    @lw.kernel
    def kernel(out: lw.Ptr[lw.f32]):
        out[0] = vars(functions)["func" + "tion"](lw.f32(1.0))

    assert outcome(kernel) == 2
    number = 5
    assert outcome(kernel) == 6


# the source ---------------------------------------------------------------------------------------------

TEXT = """
import lanewise as lw

@lw.device
def more(x):
    return x + 1.0

@lw.kernel
def kernel(out: lw.Ptr[lw.f32]):
    out[0] = more(lw.f32(1.0))

def made(factor):
    @lw.kernel
    def kernel(out: lw.Ptr[lw.f32]):
        out[0] = lw.f32(factor)

    return kernel
"""


def imported(path: Path, name: str) -> Any:
    """Import a file as it is now: bytecode of the same second and size would pass for the edited file's."""
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    try:
        return _imported(path, name)
    finally:
        sys.dont_write_bytecode = before


def _imported(path: Path, name: str) -> Any:
    loader = importlib.machinery.SourceFileLoader(name, str(path))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    loader.exec_module(module)
    return module


def test_the_source_is_that_of_the_decoration(tmp_path: Path) -> None:
    path = tmp_path / "edited_later.py"
    path.write_text(TEXT)
    module = imported(path, "edited_later")
    path.write_text(
        TEXT.replace("x + 1.0", "x * 7.0 + 3.0").replace(
            "out: lw.Ptr[lw.f32]", "out: lw.Ptr[lw.f32], n: lw.i32"
        )
    )
    assert outcome(module.kernel) == 2
    with pytest.raises(lw.KernelError, match="the file has changed since Python read kernel") as refused:
        module.made(3.0).ptx()
    assert "importlib.reload" in str(refused.value)
    path.write_text(TEXT)
    assert outcome(module.made(3.0)) == 3
    path.write_text("# a line more\n" + TEXT)
    with pytest.raises(lw.KernelError, match="the file has changed"):
        module.made(4.0).ptx()
    path.write_text(TEXT.replace("+ 1.0", "+ 4.0"))
    assert outcome(imported(path, "edited_later").kernel) == 5


def test_functions_of_a_loop_have_their_own_closures() -> None:
    kernels = []
    for number in range(4):

        def expression(number: int = number) -> int:
            return number

        kernels.append(stored(expression))
    assert [outcome(each) for each in kernels] == [0, 1, 2, 3]
