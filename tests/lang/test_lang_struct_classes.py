"""Structs as parameters: what their classes do, what of them may change, and how they are launched."""

import collections
import copy
import dataclasses
import functools
from dataclasses import InitVar, dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

import lanewise as lw
from lanewise.lang.frontend.kernel import Kernel
from lanewise.lang.frontend.launching import ConfiguredKernel

THREADS = 32
FACTOR = [2]


def kernel_of(function: Any, **kinds: object) -> Kernel:
    """Return a kernel whose parameters are of these kinds."""
    function.__annotations__ = kinds
    return lw.kernel(function)


def nothing(out: Any, given: Any) -> None:
    """Do nothing."""


def first_of(kernel: Kernel, *arguments: object) -> int:
    """Return the first of the numbers that a kernel puts into its first parameter."""
    out = np.zeros(THREADS, np.int32)
    kernel[1, THREADS](out, *arguments)
    return int(out[0])


class Pair(NamedTuple):
    """Two numbers."""

    a: lw.i32
    b: lw.i32

    def scaled(self) -> Any:
        """Return one of them, times a number that may change."""
        return self.a * FACTOR[0]


@dataclass
class Record:
    """Two numbers."""

    a: lw.i32
    b: lw.i32


def test_what_methods_of_a_struct_read_may_change() -> None:
    class OfRecord(Record):
        EACH = 10

        @property
        def each(self) -> Any:
            return self.b * self.EACH

    def scaled(out: Any, pair: Any, record: Any) -> None:
        out[lw.thread_idx.x] = pair.scaled() + record.each

    kernel = kernel_of(scaled, out=lw.Ptr[lw.i32], pair=Pair, record=OfRecord)
    given = Pair(4, 1), OfRecord(1, 3)
    try:
        assert first_of(kernel, *given) == 4 * 2 + 3 * 10
        FACTOR[0] = 3
        assert first_of(kernel, *given) == 4 * 3 + 3 * 10
        OfRecord.EACH = 5
        assert first_of(kernel, *given) == 4 * 3 + 3 * 5
    finally:
        FACTOR[0] = 2


def test_structs_are_copied() -> None:
    def copied(out: Any, record: Any) -> None:
        i = lw.thread_idx.x
        a, b = dataclasses.astuple(record)
        other, shallow = copy.deepcopy(record), copy.copy(record)
        other.a += i
        shallow.b += 1
        fields = dataclasses.asdict(record)
        out[i] = a + 10 * b + 100 * other.a + 10000 * fields["b"] + 100000 * shallow.b

    kernel, out = kernel_of(copied, out=lw.Ptr[lw.i32], record=Record), np.zeros(THREADS, np.int32)
    kernel[1, THREADS](out, (1, 2))
    assert np.array_equal(out, 320121 + 100 * np.arange(THREADS))


def test_copies_of_fragments_are_fragments_of_their_own() -> None:
    mma = lw.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")

    def copied(out: Any, by: Any) -> None:
        sums = mma.zeros()
        for number in range(len(sums)):
            sums[number] = by
        others = copy.deepcopy(sums), copy.copy(sums)
        for other in others:
            other[0] = other[0] + 1.0
        out[lw.thread_idx.x] = sums[0] + 10.0 * others[0][0] + 100.0 * others[1][0] + 1000.0 * others[1][1]

    kernel, out = kernel_of(copied, out=lw.Ptr[lw.f32], by=lw.f32), np.zeros(THREADS, np.float32)
    kernel[1, THREADS](out, 3.0)
    assert (out == 3 + 40 + 400 + 3000).all()


@pytest.mark.parametrize("frozen", [False, True])
def test_what_is_computed_once_is_computed_where_it_is_read(frozen: bool) -> None:
    class Kept:
        x: lw.i32

        @functools.cached_property
        def twice(self) -> Any:
            return self.x * 2

        @functools.cached_property
        def both(self) -> Any:
            return self.x, self.twice

    kind: Any = dataclass(frozen=True)(Kept) if frozen else dataclass(Kept)

    def read(out: Any, kept: Any, n: Any) -> None:
        i = lw.thread_idx.x
        if i < 5:
            out[i] = kept.twice + kept.both[0]
        for _ in lw.range(n):
            out[i] += kept.both[1]
        out[i] += kept.twice

    kernel = kernel_of(read, out=lw.Ptr[lw.i32], kept=kind, n=lw.i32)
    out = np.zeros(THREADS, np.int32)
    kernel[1, THREADS](out, kind(3), 2)
    assert np.array_equal(out, np.where(np.arange(THREADS) < 5, 9, 0) + 2 * 6 + 6)


def read_a(out: Any, given: Any) -> None:
    """Store the field `a` of a struct."""
    out[lw.thread_idx.x] = given.a


class Doubling(Pair):
    """A pair that is made with twice its first number."""

    def __new__(cls, a: int, b: int) -> "Doubling":
        return super().__new__(cls, a * 2, b)


class OfOne(Pair):
    """A pair that is made of one number."""

    def __new__(cls, a: int) -> "OfOne":
        return super().__new__(cls, a, a)


class Seen(Pair):
    """A pair that shows another number than it holds."""

    a = property(lambda self: self[0] * 2)


@dataclass
class Converted:
    """What converts its field when it is made, and has others than fields."""

    COUNT: ClassVar[int] = 7
    a: lw.i32
    by: InitVar[int]
    b: lw.i32 = field(init=False, default=5)
    c: lw.i32 = field(kw_only=True, default=6)

    def __post_init__(self, by: int) -> None:
        self.a *= by


@pytest.mark.parametrize(
    ("kind", "given", "wanted"),
    [
        (Doubling, Doubling(3, 1), 6),
        (OfOne, OfOne(3), 3),
        (Seen, Seen(3, 4), 6),
        (Converted, Converted(3, 4), 12),
    ],
)
def test_a_struct_in_the_kernel_is_as_the_object_is(kind: Any, given: Any, wanted: int) -> None:
    assert given.a == wanted
    kernel = kernel_of(read_a, out=lw.Ptr[lw.i32], given=kind)
    assert first_of(kernel, given) == wanted


def test_all_fields_of_a_dataclass_are_parameters_and_nothing_else() -> None:
    def read(given: Any, out: Any, last: Any) -> None:
        out[lw.thread_idx.x] = given.a + 10 * given.b + 100 * given.c + 1000 * last + 10000 * given.COUNT

    kernel, out = (
        kernel_of(read, given=Converted, out=lw.Ptr[lw.i32], last=lw.i32),
        np.zeros(THREADS, np.int32),
    )
    names = [parameter.name for parameter in kernel.module().entries["read"].parameters]
    assert names == ["given_a", "given_b", "given_c", "out", "last"]
    for given in (Converted(1, 1), (1, 5, 6)):
        kernel[1, THREADS](given, out, 8)
        assert (out == 78651).all()


def test_arrays_and_tensor_maps_are_fields() -> None:
    by_rows = lw.Array[lw.f32, lw.Layout((4, 8), (8, 1))]

    def read(out: Any, given: Any) -> None:
        i = lw.thread_idx.x
        out[i] = given[0][i // 8, i % 8]

    kernel = kernel_of(read, out=lw.Ptr[lw.f32], given=(by_rows,))
    x, out = np.random.default_rng().random(THREADS, np.float32), np.zeros(THREADS, np.float32)
    kernel[1, THREADS](out, (x,))
    assert np.array_equal(out, x)
    maps = kernel_of(nothing, out=lw.Ptr[lw.f32], given=(lw.TensorMap[lw.f16, (8, 64)],))
    assert [each.size for each in maps.module("sm_90")["nothing"].parameters] == [8, 128]


def test_pointers_in_structs_keep_their_alignment() -> None:
    def read(out: Any, given: Any) -> None:
        out[0] = given[0].align

    kernel = kernel_of(read, out=lw.Ptr[lw.i32], given=(lw.Ptr[lw.f32, 16],))
    assert first_of(kernel, (np.zeros(4, np.float32),)) == 16
    assert ".align 16 given_0" in kernel.ptx()


Untyped = collections.namedtuple("Untyped", "a b")


class OfItself(NamedTuple):
    """A struct in which there is another of its kind, without end."""

    a: lw.i32
    inner: "OfItself"


class Foreign(NamedTuple):
    """A field whose name PTX does not have."""

    größe: lw.i32


MANY = NamedTuple("MANY", [(f"f{number}", lw.i64) for number in range(5000)])


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Untyped, r"field a of Untyped has no type; an object of types says them: Untyped\(lw.i32, lw.i32\)"),
        (OfItself, r"given\.inner: OfItself is a field of itself"),
        (Foreign, r"given\.größe is no name in PTX"),
        (Pair(lw.Constexpr, lw.i32), r"given\.a: a Constexpr is a parameter of the kernel, and no field"),
        (lw.Ptr, r"write lw\.Ptr\[lw\.f16\]"),
        (MANY, "the parameters have 40,008 bytes, and a kernel has 32,764 at most"),
    ],
)
def test_types_that_no_kernel_has_are_refused(kind: object, said: str) -> None:
    with pytest.raises(lw.LanewiseError, match=said):
        kernel_of(nothing, out=lw.Ptr[lw.i32], given=kind).ptx()


def test_tuples_of_types_are_structs() -> None:
    def read(out: Any, given: Any, of_it: Any) -> None:
        out[lw.thread_idx.x] = given[0] + 10 * given[1][0] + 100 * of_it[0]

    inner = tuple[lw.i32, lw.f32]
    kernel = kernel_of(read, out=lw.Ptr[lw.i32], given=tuple[lw.i32, inner], of_it=(lw.i32, lw.i64))
    assert first_of(kernel, (1, (2, 0.5)), (3, 4)) == 321
    with pytest.raises(lw.LanewiseError, match=r"given\.1: Ellipsis is no type"):
        kernel_of(nothing, out=lw.Ptr[lw.i32], given=tuple[lw.i32, ...]).ptx()


def test_types_that_python_cannot_name() -> None:
    kernel = kernel_of(read_a, out=lw.Ptr[lw.i32], given=Untyped(lw.i32, (lw.i32, None)))
    assert first_of(kernel, Untyped(4, (5, None))) == 4
    empty = kernel_of(nothing, out=lw.Ptr[lw.i32], given=Pair(None, None))
    assert len(empty.parameters) == 1


def test_many_parameters_need_a_newer_ptx() -> None:
    for count, version in ((500, "7.0"), (600, "8.1")):
        kind = NamedTuple("Some", [(f"f{number}", lw.i64) for number in range(count)])
        kernel = kernel_of(nothing, out=lw.Ptr[lw.i64], given=kind)
        assert kernel.ptx().startswith(f".version {version}") and kernel.cubin("sm_80")


def test_a_constexpr_may_be_called_as_a_field_is_in_the_ptx() -> None:
    def read(out: Any, given: Any, given_a: Any) -> None:
        out[lw.thread_idx.x] = given.a + given_a

    kernel = kernel_of(read, out=lw.Ptr[lw.i32], given=Pair, given_a=lw.Constexpr)
    out = np.zeros(THREADS, np.int32)
    kernel[1, THREADS](out, (3, 4), given_a=5)
    assert out[0] == 8


@dataclass
class Unset:
    """A field that is set later, or never."""

    a: lw.i32
    b: lw.i32 = field(init=False)


class Heir(Record):
    """What inherits from a struct."""


class Other(NamedTuple):
    """Of which there is another."""

    a: lw.i32


OTHER, Other = Other, NamedTuple("Other", [("a", lw.i32)])


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        (Unset, Unset(3), r"given\.b is not set in this Unset"),
        (Record, Heir(1, 2), "its class inherits from Record; write that class in the kernel's signature"),
        (OTHER, Other(1), "of another class Other, defined anew since; define the kernel anew, too"),
        ((lw.i32, lw.f32), (1, 10**400), r"given\.1 is lw\.f32: 1000.* does not fit"),
    ],
)  # fmt: skip
def test_arguments_that_are_no_such_struct(kind: object, given: object, said: str) -> None:
    with pytest.raises(lw.LanewiseError, match=said):
        kernel_of(nothing, out=lw.Ptr[lw.i32], given=kind)[1, 1](np.zeros(1, np.int32), given)


def test_dataclasses_are_compared_field_by_field() -> None:
    def compared(out: Any, one: Any, other: Any) -> None:
        if one == other:
            out[0] = 1

    with pytest.raises(lw.LanewiseError, match=r"__eq__.*compare the fields one by one"):
        kernel_of(compared, out=lw.Ptr[lw.i32], one=Record, other=Record).ptx()


def test_warm_launches_take_structs_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later launches on a GPU are prepared for the fields of structs, in their order."""

    def read(out: Any, given: Any, n: Any) -> None:
        out[lw.thread_idx.x] = given.a + given.b + n

    kernel, out = kernel_of(read, out=lw.Ptr[lw.i32], given=Pair, n=lw.i32), np.zeros(THREADS, np.int32)
    launch = kernel[1, THREADS]
    assert isinstance(launch, ConfiguredKernel)
    launch(out, (1, 2), 3)
    seen: list[tuple[object, ...]] = []

    def warm(arguments: tuple[object, ...], stream: object) -> bool:
        seen.append(arguments)
        return True

    ((key, (version, _)),) = launch._launched.items()
    launch._launched[key] = version, SimpleNamespace(warm=warm)
    launch(out, Pair(4, 5), 6)
    assert seen == [(out, 4, 5, 6)]
    for misfit in (7, (1, 2, 3), Record(1, 2)):
        with pytest.raises(lw.LanewiseError, match="given takes Pair"):
            launch(out, misfit, 6)
    with pytest.raises(lw.LanewiseError, match="n is missing"):
        launch(out, (1, 2))
    assert len(seen) == 1


def test_structs_have_names_for_the_debugger() -> None:
    kernel = kernel_of(read_a, out=lw.Ptr[lw.i32], given=Pair)
    assert {"given", "given.a"} <= kernel.module().names.values.keys()


def test_defaults_of_structs_beside_arguments_by_name() -> None:
    usual = Pair(2, 3)

    def read(out: Any, given: Any = usual) -> None:
        out[lw.thread_idx.x] = given.a

    kernel, out = kernel_of(read, out=lw.Ptr[lw.i32], given=Pair), np.zeros(THREADS, np.int32)
    kernel[1, THREADS](out=out)
    assert out[0] == 2


def test_autotuning_tells_sizes_in_structs_apart() -> None:
    def added(given: Any, EACH: Any) -> None:
        given[0][lw.thread_idx.x] += given[1] * EACH

    kernel = kernel_of(added, given=(lw.Ptr[lw.i32], lw.i32), EACH=lw.Constexpr)
    tuned, x = lw.autotune({"EACH": (1,)})(kernel), np.zeros(THREADS, np.int32)
    tuned[1, THREADS](given=(x, 5))
    assert (x == 5).all()  # once, however often it was tried
    tuned[1, THREADS](given=(x, 6))
    assert (x == 11).all()
