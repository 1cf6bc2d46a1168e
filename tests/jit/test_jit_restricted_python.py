"""The restricted Python: what functions compute, compared with Python; and what is refused, with its line."""

import re
from enum import IntEnum, IntFlag

import numpy as np
import pytest

from lanewise.jit import ir, machine_code
from lanewise.jit.compiled_functions import Function, Library
from lanewise.jit.host_memory import address, zeroed_bytes
from lanewise.jit.lane_functions import (
    address_of,
    any_lane,
    choose,
    count_bits,
    joined,
    lanes_in,
    largest,
    lowest_bit,
    mask_of,
    set_bits,
    smallest,
    unsigned_less,
)
from lanewise.jit.record_layout import (
    LANES,
    Conditions,
    RecordLayout,
    Words,
    embedded,
    field,
    numbers,
    per_lane,
    pointer,
    table,
)
from lanewise.jit.restricted_expressions import RestrictedPythonError
from lanewise.jit.restricted_python import compiled, inlined
from lanewise.jit.simd import Code, Value, i64

RNG = np.random.default_rng()  # every run draws other numbers


def run(function: Function[..., object], *arguments: int) -> int:
    """Compile a function and call it."""
    library = Library("test")
    names = tuple(f"a{place}" for place in range(len(arguments)))
    code = Code(library, "main", (*names, "result"))
    answer = code.builder.call(library.declared(function), [code[each].handle for each in names])
    code.pointer("result", i64).store(Value(code, i64, answer))
    code.end()
    library.finish()
    result = np.zeros(1, np.int64)
    program = machine_code.Program([machine_code.compile(str(library))])
    program("main", [*arguments, address(result)])
    return int(result[0])


def like_python(function: Function[..., object], *arguments: int) -> None:
    """The compiled function returns what Python returns."""
    assert run(function, *arguments) == function.python(*arguments)


def some(count: int, most: int = 1 << 20) -> list[int]:
    return [int(each) for each in RNG.integers(0, most, count)]


# numbers, conditions, control -------------------------------------------------------------------------------


@compiled()
def arithmetic(a: int, b: int) -> int:
    c = a * 3 + b - 7
    d = (c & 255) | (a << 4) ^ (b >> 2)
    return d + c // (b + 1) + c % (a + 1) + min(a, b, 5) - max(c, d) + -a + ~b


@compiled()
def choices(a: int, b: int) -> int:
    if a < b and a % 3 == 0:
        return 1
    if a == b or (b > 100 and not a > 50):
        kind = 2
    elif a != b and 10 <= a < 1000:
        kind = 3
    else:
        kind = 4
    return kind + (5 if a > b else b // 2)


@compiled()
def loops(a: int, b: int) -> int:
    total = 0
    for number in range(a % 50):
        if number == 7:
            continue
        for other in range(number, b % 60):
            if other > 30:
                break
            total += number * other
    while total > 1000:
        total = total // 3
    for step in (1, 10, 100):
        total += step
    return total


@compiled()
def bits(mask: int) -> int:
    total = 0
    for bit in set_bits(mask):
        total = total * 3 + bit
    return total + count_bits(mask) + lowest_bit(mask | 1024)


def bits_in_python(mask: int) -> int:
    total = 0
    for bit in (each for each in range(64) if mask >> each & 1):
        total = total * 3 + bit
    return total + mask.bit_count() + (((mask | 1024) & -(mask | 1024)).bit_length() - 1)


@pytest.mark.parametrize("function", [arithmetic, choices, loops], ids=lambda each: each.name)
def test_numbers_and_control_as_in_python(function: Function[..., object]) -> None:
    library = some(2)
    for a, b in (library, (0, 0), (3, 9), (9, 9), (20, 200)):
        like_python(function, a, b)


def test_bits() -> None:
    for mask in some(3, 1 << 31):
        assert run(bits, mask) % (1 << 64) == bits_in_python(mask) % (1 << 64)


@compiled()
def signs(a: int, b: int) -> int:
    return int(a < b) + 2 * int(unsigned_less(a, b))


@pytest.mark.parametrize(("a", "b", "answer"), [(-1, 1, 1), (1, -1, 2), (1, 2, 3), (2, 1, 0)])
def test_signs_of_comparisons(a: int, b: int, answer: int) -> None:
    assert run(signs, a, b) == answer


# calls ------------------------------------------------------------------------------------------------------


class Size(IntEnum):
    SMALL = 3
    LARGE = 40


class Mark(IntFlag):
    ODD = 1
    HUGE = 4


@inlined
def classified(number: int, flags: int, is_strict: bool) -> int:
    if is_strict and number < Size.SMALL:
        return -1
    if flags & Mark.HUGE != 0:
        return Size.LARGE
    return number + 1


@compiled()
def doubled(number: int, twice: bool) -> int:
    return number * 4 if twice else number * 2


@compiled()
def calling(number: int, flags: int) -> int:
    first = classified(number, flags, is_strict=True)
    second = classified(number=number, is_strict=False, flags=flags)
    return first * 1000 + second + doubled(number, twice=first > second - 1)


def calling_in_python(number: int, flags: int) -> int:
    def of(strict: bool) -> int:
        return -1 if strict and number < 3 else 40 if flags & 4 else number + 1

    return of(True) * 1000 + of(False) + (number * 4 if of(True) > of(False) - 1 else number * 2)


@pytest.mark.parametrize(("number", "flags"), [(1, 0), (1, 4), (30, 0), (30, 5)])
def test_calls(number: int, flags: int) -> None:
    assert run(calling, number, flags) == calling_in_python(number, flags)


# records ----------------------------------------------------------------------------------------------------


class Inner(RecordLayout):
    small = field(4)
    number = field()


class Outer(RecordLayout):
    inner = pointer(lambda: Inner)
    rows = table(lambda: Inner)
    words = numbers(4)
    here = embedded(Inner, 3)
    list = field(4, 5)
    seen = per_lane()
    grid = per_lane(4, 3)
    total = field()


class Memory:
    """An Outer in Python's memory, with what it points to."""

    def __init__(self) -> None:
        self.outer, self.inner = zeroed_bytes(Outer.BYTES), zeroed_bytes(Inner.BYTES)
        self.rows, self.words = zeroed_bytes(4 * Inner.BYTES), np.arange(10, dtype=np.uint32)
        self.put(Outer.inner, address(self.inner))
        self.put(Outer.rows, address(self.rows))
        self.put(Outer.words, address(self.words))

    def put(self, offset: int, value: int) -> None:
        self.outer[offset : offset + 8].view(np.int64)[0] = value

    def seen(self, offset: int) -> np.ndarray:
        return self.outer[offset : offset + 4 * LANES].view(np.uint32)

    @property
    def address(self) -> int:
        return address(self.outer)


@compiled()
def uses_fields(outer: Outer, number: int) -> int:
    outer.inner.small = number
    outer.inner.number = -number
    outer.inner.number += outer.words[3]
    outer.rows[2].small = outer.inner.small + 1
    outer.here[1].number = 17
    place = outer.here[1]
    place.number += outer.rows[2].small
    outer.list[4] = number - 1
    outer.grid[2][5] = number
    outer.total = place.number
    again = Outer.at(address_of(outer))
    return outer.list[4] + outer.grid[2][5] + int(again is outer) + int(outer.inner is not outer.rows[0])


def test_fields_of_records() -> None:
    memory, number = Memory(), some(1)[0]
    assert run(uses_fields, memory.address, number) == 2 * number - 1 + 2
    assert memory.inner[Inner.small : Inner.small + 4].view(np.uint32)[0] == number
    assert memory.inner[Inner.number :].view(np.int64)[0] == 3 - number
    assert memory.outer[Outer.total :].view(np.int64)[0] == 17 + number + 1


@inlined
def later(seen: Words, epoch: int) -> Conditions:
    return (seen > epoch) & ~(seen == 900)


@compiled()
def uses_vectors(outer: Outer, mask: int) -> int:
    outer.seen = choose(lanes_in(mask), outer.seen + 10, outer.grid[1])
    outer.grid[0] = joined(outer.seen, outer.grid[1])
    outer.grid[2] = 7
    known = later(outer.seen, 500)
    if not any_lane(known):
        return -1
    return mask_of(known) * 4096 + largest(outer.seen) - smallest(choose(known, outer.seen, 2000))


def test_vectors_of_lanes() -> None:
    memory, mask = Memory(), int(RNG.integers(1 << 32))
    seen, grid = RNG.integers(0, 1000, (2, LANES)).astype(np.uint32)
    memory.seen(Outer.seen)[:] = seen
    memory.seen(Outer.grid + 4 * LANES)[:] = grid
    answer = run(uses_vectors, memory.address, mask)
    chosen = np.where([mask >> lane & 1 for lane in range(LANES)], seen + 10, grid)
    known = (chosen > 500) & (chosen != 900)
    bits = sum(1 << lane for lane in range(LANES) if known[lane])
    expected = -1
    if known.any():
        expected = bits * 4096 + int(chosen.max()) - int(chosen[known].min())
    assert answer == expected
    assert np.array_equal(memory.seen(Outer.grid), np.maximum(chosen, grid))
    assert (memory.seen(Outer.grid + 8 * LANES) == 7).all()


@compiled()
def lazy(outer: Outer, number: int) -> int:
    if number != 0 and outer.words[number] > 2:  # no address is read for 0
        return 1
    value = outer.words[number] if number != 0 else 8
    return value + Outer.on_stack().list[0] * 0


def test_what_is_not_needed_is_not_read() -> None:
    assert run(lazy, 0, 0) == 8
    memory = Memory()
    assert [run(lazy, memory.address, number) for number in (1, 2, 3)] == [1, 2, 1]


# what is refused --------------------------------------------------------------------------------------------


@compiled()
def fenced(outer: Outer, epoch: int, is_shared: bool) -> bool:
    return is_shared and outer.total >= epoch


@compiled()
def wrong_name(outer: Outer) -> bool:
    return fenced(outer, epochs=1, is_shared=True)  # type: ignore[call-arg]  # mypy sees it, too


@compiled()
def too_few(outer: Outer) -> bool:
    return fenced(outer, 1)  # type: ignore[call-arg]  # mypy sees it, too


@compiled()
def too_many(outer: Outer) -> bool:
    return fenced(outer, 1, True, 2)  # type: ignore[call-arg]  # mypy sees it, too


@compiled()
def twice_given(outer: Outer) -> bool:
    return fenced(outer, 1, True, epoch=2)  # type: ignore[misc]  # mypy sees it, too


@compiled()
def record_of_another_kind(outer: Outer) -> bool:
    return fenced(outer.inner, 1, True)  # type: ignore[arg-type]  # mypy sees it, too


@compiled()
def condition_for_a_number(outer: Outer) -> bool:
    return fenced(outer, outer.total == 1, True)


@compiled()
def number_for_a_condition(outer: Outer) -> bool:
    return fenced(outer, 1, outer.total)  # type: ignore[arg-type]  # mypy sees it, too


@compiled()
def wrong_result(outer: Outer) -> int:
    return fenced(outer, 1, True)


@compiled()
def no_result(outer: Outer) -> int:  # type: ignore[return]  # mypy sees it, too
    if outer.total == 1:
        return 1


@compiled()
def no_such_field(outer: Outer) -> int:
    return outer.totals  # type: ignore[attr-defined, no-any-return]  # mypy sees it, too


@compiled()
def number_as_condition(outer: Outer) -> int:
    if outer.total:
        return 1
    return 0


@compiled()
def has_no_value(outer: Outer) -> int:
    if outer.total == 1:
        found = 1
    return found


@compiled()
def other_syntax(outer: Outer) -> int:
    try:
        return 1
    finally:
        outer.total = 1


@compiled()
def other_expression(outer: Outer) -> int:
    return [outer.total][0]


@compiled()
def python_function(outer: Outer) -> int:
    return some(outer.total)[0]


@compiled()
def changes_its_type(outer: Outer) -> int:
    value = outer.total
    value = outer.total == 1
    return int(value)


@compiled()
def unreachable(outer: Outer) -> int:
    return 1
    outer.total = 2


@compiled()
def assigns_a_parameter(outer: Outer) -> int:
    outer = Outer.at(0)
    return outer.total


@compiled()
def unused_value(outer: Outer) -> int:
    outer.total == 1  # noqa: B015  # the mistake
    return 1


@compiled()
def stores_a_condition(outer: Outer) -> int:
    outer.total = outer.total == 1
    return 1


REFUSED = [
    (wrong_name, "has no parameter `epochs`"),
    (too_few, "lacks `is_shared`"),
    (too_many, "takes 3 arguments, and 4 are given"),
    (twice_given, "is given `epoch` twice"),
    (
        record_of_another_kind,
        "`outer` of fenced(outer, epoch, is_shared) is a record Outer, and a record Inner",
    ),
    (condition_for_a_number, "is a number, and a condition is given"),
    (number_for_a_condition, "is a condition, and a number is given"),
    (wrong_result, "wrong_result returns a condition, and a number is declared"),
    (no_result, "no_result returns nothing, and a number is declared"),
    (no_such_field, "Outer has no field `totals`"),
    (number_as_condition, "a condition is needed here, and it is a number"),
    (has_no_value, "`found` has no value on some way to here"),
    (other_syntax, "the restricted Python has no Try"),
    (other_expression, "the restricted Python has no List"),
    (python_function, "only compiled functions are called"),
    (changes_its_type, "a variable keeps its type, and a condition is assigned to it"),
    (unreachable, "this is never reached"),
    (assigns_a_parameter, "the parameter `outer` keeps its value"),
    (unused_value, "the value is not used"),
    (stores_a_condition, "a condition does not fit there"),
]


@pytest.mark.parametrize(("function", "message"), REFUSED, ids=lambda each: getattr(each, "name", ""))
def test_refused_with_the_line(function: Function[..., object], message: str) -> None:
    library = Library("test")
    library.declared(function)
    with pytest.raises(RestrictedPythonError, match=re.escape(message)) as caught:
        library.finish()
    line = re.search(rf"{re.escape(__file__)}:(\d+): in {function.name}", str(caught.value))
    first = function.python.__code__.co_firstlineno
    assert line is not None and first < int(line[1]) < first + 6


def test_calls_that_python_writes_are_checked_too() -> None:
    cases: list[tuple[dict[str, object], str]] = [
        ({"epoch": 1}, "lacks `outer`, `is_shared`"),
        (
            {"outer": 1, "epoch": 1, "is_shared": True},
            "`outer` of fenced(outer, epoch, is_shared) is a record Outer",
        ),
        ({"when": 1}, "no parameter `when`"),
    ]
    for arguments, message in cases:
        code = Code(Library("test"), "main", ())
        with pytest.raises(TypeError, match=re.escape(message)):
            fenced.call(code, **arguments)


def test_compiled_functions_are_not_called_from_python() -> None:
    with pytest.raises(TypeError, match="only other compiled functions call it"):
        arithmetic(1, 2)


def test_names_are_unique_in_a_module() -> None:
    @compiled(name="fenced")
    def other(number: int) -> int:
        return number

    library = Library("test")
    library.declared(fenced)
    with pytest.raises(TypeError, match="two functions are called fenced"):
        library.declared(other)


def test_a_function_of_a_library_hides_no_other() -> None:
    """The linker gives a module the function of that name that another module offers."""

    @compiled()
    def changed(number: int) -> int:
        return number * 2

    def calling(name: str, library: Library, function: ir.Function) -> str:
        code = Code(library, name, ("number", "result"))
        answer = code.builder.call(function, [code["number"].handle])
        code.pointer("result", i64).store(Value(code, i64, answer))
        code.end()
        library.finish()
        return str(library)

    own, other = Library("own"), Library("other")
    declared = ir.Function(other, ir.FunctionType(ir.LONG, [ir.LONG]), "changed")
    offering = "define i64 @changed(i64 %n) { %m = mul i64 %n, %n ret i64 %m }"
    texts = calling("asking", other, declared), offering, calling("main", own, own.declared(changed))
    program = machine_code.Program([machine_code.compile_quickly(text) for text in texts])
    result = np.zeros(2, np.int64)
    for place, name in enumerate(("main", "asking")):
        program(name, [7, address(result[place:])])
    assert result.tolist() == [14, 49]
