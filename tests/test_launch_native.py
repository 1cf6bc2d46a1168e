"""Launches in machine code, with a stand-in for the driver: what they pass on, and how long they live."""

import ctypes
import gc
import struct
import weakref
from collections.abc import Callable
from ctypes import addressof, c_int, c_uint64, c_void_p
from typing import Any

import pytest

from lanewise.gpu import native

Launch = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_void_p)
last = c_uint64()


def compiled(
    launch: Any, codes: tuple[tuple[str, type], ...] = (("q", int), ("I4x", int)), **handles: int
) -> Callable[[tuple[Any, ...], int], int]:
    """A launch of kernel 99, named 7, with one s64 and one u32 parameter unless others are given."""
    parameters = [native.parameter(code, type_) for code, type_ in codes]
    made = native.compiled_launch(
        [each for each in parameters if each is not None],
        bytes(56),
        ordinal=0,
        read=1,  # not called: no parameter is an array
        launch=ctypes.cast(launch, c_void_p).value or 0,
        **{"current": 0, "context": 0, **handles},
        function=99,
        low_bits=0,
        last=addressof(last),
        name=7,
    )
    if made is None:
        pytest.skip("this Python has no launches in machine code")
    return made


def test_numbers_and_the_stream_arrive() -> None:
    seen = []

    @Launch  # type: ignore[untyped-decorator]  # a type of ctypes
    def launch(config: int, function: int, values: int, _: int) -> int:
        addresses = (c_uint64 * 2).from_address(values)
        stream = c_uint64.from_address(config + 32).value
        seen.append((function, [c_uint64.from_address(each).value for each in addresses], stream))
        return 0

    made = compiled(launch)
    assert made((41, 2), 5) == 0
    assert seen == [(99, [41, 2], 5)] and last.value == 7
    for unfit in ((41, 1 << 32), (2.5, 2), (41,), (1 << 63, 2)):
        assert made(unfit, 5) == native.NOT_TAKEN
    assert len(seen) == 1


def test_numbers_become_the_types_of_parameters() -> None:
    """Bits of each C type, also of -1, which Python's C interface answers for an error as well."""
    seen: list[bytes] = []

    @Launch  # type: ignore[untyped-decorator]  # a type of ctypes
    def launch(config: int, function: int, values: int, _: int) -> int:
        seen[:] = [ctypes.string_at(each, 8) for each in (c_uint64 * 3).from_address(values)]
        return 0

    made = compiled(launch, (("b7x", int), ("f4x", float), ("d", float)))
    for numbers in ((-1, -1.0, -1.0), (-128, 0.1, 0.1), (127, 3.5e38, -0.0)):
        assert made(numbers, 5) == 0
        wanted = [struct.pack("<q", numbers[0]), struct.pack("<d", numbers[2])]
        assert [seen[0], seen[2]] == wanted
        assert struct.unpack("<f", seen[1][:4])[0] == ctypes.c_float(numbers[1]).value
    for unfit in ((128, 1.0, 1.0), (-129, 1.0, 1.0), (True, 1.0, 1.0), (1, 1, 1.0)):
        seen.clear()
        assert made(unfit, 5) == native.NOT_TAKEN and not seen


def test_only_the_current_context_is_launched_on() -> None:
    context = c_uint64(11)

    @ctypes.CFUNCTYPE(c_int, c_void_p)  # type: ignore[untyped-decorator]  # a type of ctypes
    def current(place: int) -> int:
        c_uint64.from_address(place).value = context.value
        return 0

    launch = Launch(lambda *_: 0)
    made = compiled(launch, current=ctypes.cast(current, c_void_p).value or 0, context=11)
    assert made((1, 2), 0) == 0
    context.value = 12
    assert made((1, 2), 0) == native.NOT_TAKEN


@pytest.mark.usefixtures("only_new_objects")
def test_a_launch_that_is_dropped_takes_its_table_with_it() -> None:
    launch = Launch(lambda *_: 0)
    tables = []
    for _ in range(1000):
        made = compiled(launch)
        assert made((1, 2), 0) == 0
        table = made.__self__.held[0]  # type: ignore[attr-defined]  # a bound method of a compiled module
        tables.append(weakref.ref(table))
        del made, table
    gc.collect()
    assert all(table() is None for table in tables)


@pytest.mark.usefixtures("only_new_objects")
def test_a_launch_may_be_dropped_while_it_runs() -> None:
    made: list[Any] = []

    @Launch  # type: ignore[untyped-decorator]  # a type of ctypes
    def launch(*_: int) -> int:
        made.clear()
        gc.collect()
        return 3

    made.append(compiled(launch))
    assert made[0]((1, 2), 0) == 3
