"""Whatever is passed to a public function, it returns or raises LanewiseError with a sentence."""

import inspect
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import lanewise.layout as ll
from lanewise.errors import LanewiseError

MATRIX = ll.Layout((4, 8), (8, 1))
THINGS = [
    *(
        0,
        1,
        -1,
        2,
        3,
        4,
        1000,
        np.int8(3),
        True,
        1.5,
        None,
        "x",
        "",
        object(),
        {},
        len,
        slice(None),
        slice(1, 2),
    ),
    *(
        (),
        (1,),
        (2, 4),
        ((2, 2), 4),
        (None, 1),
        (None, None),
        (2, None),
        ("a", 2),
        (MATRIX, 2),
        [1, 2],
        [MATRIX],
    ),
    *(MATRIX, ll.Layout(8), ll.Layout(4, 0), ll.Layout(((2, 2), 4), ((1, 8), 2)), ll.Layout((), ())),
    *(ll.Layout(4, -1), ll.Layout((4, 4), (1, 2)), ll.make_identity_layout((4, 2)), ll.Swizzle(2, 1, 3)),
    *(ll.composition(ll.Swizzle(2, 1, 3), MATRIX), ll.composition(ll.Swizzle(2, 1, 3), 3, ll.Layout((2, 3)))),
    *(ll.Tensor(0, MATRIX), ll.Tensor(list(range(40)), MATRIX), ll.make_identity_tensor((4, 2))),
    *(ll.E(0), ll.E(1, 0), ll.ArithmeticTuple((1, 2)), np.arange(4), np.zeros((2, 2)), np.arange(4.0)),
]
# these are types to test with or subclass, a tuple, and one that calls what it is given
EXEMPT = {"Integer", "LayoutBase", "ArithmeticTuple", "hier_unzip"}
METHODS = ("__call__", "__getitem__", "get_flat_coord", "get_hier_coord", "get_1d_coord")


@pytest.mark.parametrize("name", sorted(set(ll.__all__) - EXEMPT))
def test_functions(name: str) -> None:
    f = getattr(ll, name)
    _try(f, name, lambda rnd: [rnd.choice(THINGS) for _ in range(rnd.choice((1, 2, 2, 3)))])


@pytest.mark.parametrize("kind", [ll.Layout, ll.ComposedLayout, ll.Tensor])
def test_methods(kind: Any) -> None:
    instances = [x for x in THINGS if isinstance(x, kind)]
    for method in METHODS:
        if hasattr(kind, method):
            _try(getattr(kind, method), method, partial(_on_instance, instances))


def _on_instance(instances: list[Any], rnd: random.Random) -> list[Any]:
    return [rnd.choice(instances), *rnd.choices(THINGS, k=rnd.choice((1, 1, 2)))]


def _try(f: Any, seed: str, arguments: Callable[..., Any]) -> None:
    rnd = random.Random(seed)
    for _ in range(150):
        args = arguments(rnd)
        try:
            inspect.signature(f).bind(*args)
        except TypeError:
            continue
        try:
            f(*args)
        except LanewiseError as e:
            assert len(str(e)) > 10, f"{f}{args}: {e}"
