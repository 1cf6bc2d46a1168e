"""What can be indexed is iterated over to an end, or refused in a sentence: nothing loops for ever."""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lanewise as lw

SOURCE = Path(lw.__file__).parent
#: Classes of Python that iterate in their own right, and protocols, of which there are no objects.
ITERATE = ("Mapping", "MutableMapping", "Sequence", "MutableSequence", "Protocol")
PTX = """
.version 8.0
.target sm_80
.address_size 64
.global .u32 table[3] = {5, 6, 7};
.visible .entry first(.param .u64 p) { ret; }
.visible .entry second(.param .u64 p) { ret; }
"""


def test_a_class_with_items_says_how_it_is_iterated_over() -> None:
    """Python takes `x[0]`, `x[1]`, … for iteration otherwise, up to an IndexError, which may never come."""
    culprits = []
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "__getitem__" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.ClassDef):
                continue
            names = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
            for each in node.body:
                if isinstance(each, ast.Assign):
                    names |= {target.id for target in each.targets if isinstance(target, ast.Name)}
            bases = {ast.unparse(base).partition("[")[0] for base in node.bases}
            if "__getitem__" in names and "__iter__" not in names and not bases & set(ITERATE):
                culprits.append(f"{path.relative_to(SOURCE)}: {node.name}")
    assert not culprits


@lw.kernel
def traced(x: lw.Ptr[lw.f32]):  # type: ignore[no-untyped-def]  # a kernel may have no result type
    x[0] = 1.0


@lw.autotune({"N": (1, 2)})
@lw.kernel
def tuned(x: lw.Ptr[lw.f32], N: lw.Constexpr):  # type: ignore[no-untyped-def]  # a kernel may have no result type
    x[0] = float(N)


KERNELS = [traced, tuned, lw.load(PTX)["first"]]


@pytest.mark.parametrize("ask", [list, tuple, iter, lambda x: 5 in x, lambda x: [*x], lambda x: dict([x])])
@pytest.mark.parametrize(
    "kernel", [traced, tuned, lw.load(PTX)["first"]], ids=["kernel", "autotuned", "entry"]
)
def test_kernels_are_not_iterated_over(kernel: Any, ask: Callable[[Any], Any]) -> None:
    with pytest.raises(lw.LanewiseError, match=r"a kernel is launched, \w+\[grid, block\]"):
        ask(kernel)


@pytest.mark.parametrize(
    "kernel", [traced, tuned, lw.load(PTX)["first"]], ids=["kernel", "autotuned", "entry"]
)
def test_launches_are_not_iterated_over(kernel: Any) -> None:
    with pytest.raises(TypeError, match="not iterable"):
        tuple(kernel[1, 32])


def test_modules_iterate_over_their_kernels_and_comparisons_over_archs() -> None:
    module = lw.load(PTX)
    assert list(module) == ["first", "second"] and "second" in module and "third" not in module
    assert 5 not in module
    assert list(module.globals["table"]) == [5, 6, 7] and 6 in module.globals["table"]
    ones = np.ones((4, 4), np.float16)
    assert list(lw.compare(ones, ones, archs=["V100", "A100"])) == ["sm_70", "sm_80"]


@pytest.mark.parametrize(
    "made",
    [
        lambda p: p,
        lambda p: lw.shared(lw.f32, (4, 4)),
        lambda p: lw.shared(lw.f32, (4, 4))[0, None],
        lambda p: lw.vectorized(lw.shared(lw.f32, 8)),
        lambda p: lw.PersistentTiles(4, 4),
        lambda p: lw.thread_idx.x,
        lambda p: lw.make_gmma_desc(lw.shared(lw.f16, (64, 64), swizzle=lw.Swizzle(3, 3, 3), align=1024)),
    ],
    ids=["pointer", "array", "slice", "vectors", "tiles", "number", "descriptor"],
)
@pytest.mark.parametrize("ask", [list, tuple, lambda x: [*x], lambda x: 5 in x])
def test_values_of_a_kernel_are_refused_in_a_sentence(
    made: Callable[[Any], Any], ask: Callable[[Any], Any]
) -> None:
    @lw.kernel
    def kernel(p: lw.Ptr[lw.f32]):  # type: ignore[no-untyped-def]  # a kernel may have no result type
        ask(made(p))

    with pytest.raises(lw.KernelError, match=r"iterated|length|number of groups|lw\.range|not iterable"):
        kernel.ptx("sm_90a")
