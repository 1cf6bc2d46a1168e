"""Code written for CUTLASS's pycute runs on lanewise.layout, and gets the answers that pycute itself gave."""

# ruff: noqa: F403, F405  (names come by the star, as pycute's users import them)
import ast
import gzip
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import lanewise.layout as pycute
from everything import sampled
from lanewise.errors import LanewiseError
from lanewise.layout import *

# what `from pycute import *` brings, as of CUTLASS 4.2
PYCUTE = {
    *(
        "Integer",
        "is_int",
        "is_tuple",
        "flatten",
        "signum",
        "product",
        "inner_product",
        "tuple_max",
        "elem_scale",
    ),
    *("shape_div", "prefix_product", "idx2crd", "crd2idx", "crd2crd", "slice_", "has_none"),
    *(
        "LayoutBase",
        "is_layout",
        "Layout",
        "make_layout",
        "size",
        "cosize",
        "coalesce",
        "filter",
        "composition",
    ),
    *("complement", "right_inverse", "left_inverse", "logical_divide", "logical_product", "hier_unzip"),
    *("zipped_divide", "tiled_divide", "zipped_product", "tiled_product", "slice_and_offset"),
    *("shiftr", "shiftl", "Swizzle", "ComposedLayout"),
}


def test_every_name_is_here() -> None:
    assert set(pycute.__all__) >= PYCUTE and set(globals()) >= set(pycute.__all__)


def test_all_names_exist_once() -> None:
    assert len(set(pycute.__all__)) == len(pycute.__all__) and all(hasattr(pycute, n) for n in pycute.__all__)


def test_as_its_users_write() -> None:
    layout = Layout((4, (2, 2)), (2, (1, 8)))
    assert layout.shape == (4, (2, 2)) and layout.stride == (2, (1, 8))
    assert layout(3, 1) == layout((3, (1, 0))) == layout(7) == 7
    assert len(layout) == 2 and layout[1] == Layout((2, 2), (1, 8))
    assert layout.size() == size(layout) == 16 and layout.cosize() == cosize(layout) == 16
    assert layout(None, (1, None)) == Layout((4, 2), (2, 8))
    assert layout(None) == Layout(((4, (2, 2)),), ((2, (1, 8)),))
    assert has_none((1, (None, 2))) and not has_none(3)
    smem = ComposedLayout(Swizzle(2, 0, 3), 0, Layout((8, 8), (8, 1)))
    assert smem(2, 1) == Swizzle(2, 0, 3)(17) and size(smem) == 64 and len(smem) == 2
    assert smem[1].layoutA == Layout(8, 1) and smem.layoutB == Swizzle(2, 0, 3) and smem.offset == 0
    assert issubclass(int, Integer) and not issubclass(bool, Integer)
    assert make_layout(m for m in layout) == layout
    assert hier_unzip(logical_divide, layout, (2, None)) == zipped_divide(layout, (2, None))


# layouts that pycute's own tests put through each operation, (shape, stride)
ONES = [(1, 0), (1, 1), ((1, 1), (0, 0))]
INJECTIVE = [
    *ONES,
    (4, 1),
    (4, 2),
    ((8, 4), (1, 8)),
    ((8, 4), (4, 1)),
    ((2, 4, 6), (1, 2, 8)),
    ((2, 4, 6), (4, 1, 8)),
    ((4, 2), (1, 16)),
    (((2, 2), (2, 2)), ((1, 4), (8, 32))),
]
ANY = [
    *INJECTIVE,
    (4, 0),
    ((3, 7), (0, 0)),
    ((2, 4), (0, 2)),
    ((4, 6), (1, 6)),
    ((4, 10), (1, 10)),
    ((2, 4), (1, 4)),
]


@pytest.mark.parametrize("pair", ANY)
def test_its_postconditions(pair: tuple[Any, Any]) -> None:
    layout = pycute.Layout(*pair)
    for f in (pycute.coalesce, lambda x: pycute.composition(x, pycute.Layout(pycute.size(x)))):
        assert [f(layout)(i) for i in range(layout.size())] == [layout(i) for i in range(layout.size())]  # type: ignore[no-untyped-call]  # pycute has no annotations
    rest = pycute.complement(layout)
    indices = {layout(i) for i in range(layout.size())}
    assert not indices & {rest(i) for i in range(1, rest.size())}
    inverse = pycute.right_inverse(layout)
    assert [layout(inverse(i)) for i in range(inverse.size())] == list(range(inverse.size()))
    if pair in INJECTIVE:
        inverse = pycute.left_inverse(layout)
        assert [inverse(layout(i)) for i in range(layout.size())] == list(range(layout.size()))


# pycute goes on where there is no answer: it drops what does not divide in a composition, and takes the
# complement of overlapping modes. lanewise complains there, so the two are compared where both answer.
RECORD = Path(__file__).parents[1] / "data" / "pycute" / "answers.txt.gz"


@cache
def recorded() -> dict[str, list[tuple[list[Layout], str]]]:
    """(arguments, answer) of every call that the record has, by operation; data/pycute/make.py wrote it."""
    calls: dict[str, list[tuple[list[Layout], str]]] = {}
    for line in gzip.decompress(RECORD.read_bytes()).decode().splitlines()[1:]:
        call, _, answer = line.partition(" = ")
        operation, *arguments = call.split(" ")
        calls.setdefault(operation, []).append(([read_layout(text) for text in arguments], answer))
    return calls


def read_layout(text: str) -> Layout:
    shape, _, stride = text.partition(":")
    return Layout(ast.literal_eval(shape), ast.literal_eval(stride))


@sampled(6)
@pytest.mark.parametrize("operation", ["coalesce", "filter", "complement", "size", "cosize", "left_inverse"])
def test_of_one_layout_as_pycute_itself(operation: str) -> None:
    check_against_record(operation)


@pytest.mark.parametrize(
    "operation",
    ["composition", "logical_divide", "zipped_divide", "tiled_divide", "logical_product", "tiled_product"],
)
def test_of_two_layouts_as_pycute_itself(operation: str) -> None:
    check_against_record(operation)


def check_against_record(operation: str) -> None:
    """Every call that both answer has the recorded answer, and both answer most calls."""
    calls = recorded()[operation]
    compared = sum(same(operation, arguments, answer) for arguments, answer in calls)
    assert len(calls) == 1000 and compared > 750


def same(operation: str, arguments: list[Layout], answer: str) -> bool:
    """Whether both answered this call; if they did, the answers are equal."""
    try:
        mine = getattr(pycute, operation)(*arguments)
    except LanewiseError:
        return False
    if answer == "AssertionError":
        return False
    assert answer != "ZeroDivisionError", f"{operation}{arguments} is {mine} and not refused"
    if ":" not in answer:
        assert mine == int(answer), f"{operation}{arguments}"
        return True
    theirs = read_layout(answer)
    if operation == "left_inverse" and any(theirs(arguments[0](i)) != i for i in range(size(arguments[0]))):
        return False  # pycute's is no inverse where strides leave gaps that do not divide
    assert (mine.shape, mine.stride) == (theirs.shape, theirs.stride), f"{operation}{arguments}"
    return True
