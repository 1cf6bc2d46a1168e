"""What several parts of the products must agree on, so that bits are right, is said once.

Each test compares what a kernel is compiled with to what `lw.plan` prints, the CPU computes, or a launch
allocates, for problems drawn at random.
"""

import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lanewise as lw
from everything import sampled
from lanewise.linalg import sum_order
from lanewise.linalg.kernels.hopper.traits import traits_of
from lanewise.linalg.kernels.warp.traits import traits_of as warp_traits_of
from lanewise.linalg.operand_copies import as_loaded
from lanewise.linalg.options import ARRAYS, SETTINGS, Options
from lanewise.linalg.orientation import computes_transpose, oriented
from lanewise.linalg.plan import Plan
from lanewise.linalg.rules import request_of

SOURCE = Path(lw.__file__).parent / "linalg"
E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2


@sampled(12)
@pytest.mark.parametrize("arch", ["sm_90a", "sm_89"])
@pytest.mark.parametrize("types", [(E4M3, E5M2), (E5M2, E4M3), (E4M3, E4M3)])
@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("sizes", [(64, 512), (512, 64), (300, 300)])
def test_plans_name_the_instruction_of_the_kernel(arch: str, types: Any, columns: bool, sizes: Any) -> None:
    """A kernel that computes the transpose multiplies b by a."""
    m, n = sizes
    a, b = np.zeros((m, 256), types[0]), np.zeros((n, 256), types[1]).T
    out = np.zeros((n, m), np.float32).T if columns else np.zeros((m, n), np.float32)
    planned = lw.plan(a, b, out=out, arch=arch)
    problem = oriented(planned.problem, planned.plan)
    names = ("e4m3", "e5m2") if types[0] is E4M3 else ("e5m2", "e4m3")
    names = (names[0], "e4m3" if types[1] is E4M3 else "e5m2")
    if computes_transpose(planned.problem, planned.plan):
        names = names[::-1]
    if planned.plan.family == "warpgroup":
        compiled = traits_of(as_loaded(problem, planned.plan), planned.plan).instruction.text
    else:
        compiled = warp_traits_of(problem, planned.plan).mma.text
    printed = dict(planned.rows())["instruction"]
    assert printed == compiled
    assert ".".join(names) in printed


@pytest.mark.parametrize("precision", ["f32", "tf32"])
def test_kernels_multiply_what_the_order_says(precision: str) -> None:
    """Formats, planes and widths of a kernel are those by which the CPU computes."""
    a = np.zeros((200, 300), np.float32)
    planned = lw.plan(a, a.T, precision=precision)
    traits = traits_of(oriented(as_loaded(planned.problem, planned.plan), planned.plan), planned.plan)
    assert (traits.a.name, traits.b.name) == sum_order.multiplied_as(planned.problem)
    assert traits.element_bytes == sum_order.element_bytes(planned.problem)
    assert traits.instruction.k == sum_order.instruction_of(planned.problem, planned.plan).k
    products = sum_order.plane_products(traits.planes)
    assert len(products) == (len(sum_order.SPLIT_PRODUCTS) if precision == "f32" else 1)
    assert max(max(pair) for pair in products) + 1 == traits.planes


@pytest.mark.parametrize(
    ("text", "home"),
    [
        (r"= 16384\b", {"arrays.py"}),  # counters of a workspace
        (r"\(2, 0\), \(1, 1\)", {"sum_order.py"}),  # products of split f32
        (r"k_major == .*swap", {"orientation.py"}),  # which orientation a kernel computes
        (r'"tf32": (4|8)', {"sum_order.py"}),  # widths by format
        (r"wgmma\.mma_async\.sync\.aligned\.m64n\{", {"sum_order.py"}),  # names of instructions
        (r"def needs_(copy|transpose)", {"operand_copies.py"}),  # what TMA and wgmma take as it lies
    ],
)
def test_there_is_no_second_copy(text: str, home: set[str]) -> None:
    """The text of a rule stands in one file."""
    holding = {path.name for path in SOURCE.rglob("*.py") if re.search(text, path.read_text("utf-8"))}
    assert holding == home


def test_every_keyword_of_matmul_is_an_option() -> None:
    """Options is the list of keywords, with their defaults; torch's operator has some of them."""
    signature = inspect.signature(lw.matmul)
    keywords = {
        name: each.default
        for name, each in signature.parameters.items()
        if each.kind is inspect.Parameter.KEYWORD_ONLY
    }
    assert keywords == {each.name: each.default for each in fields(Options)}
    assert {*ARRAYS, *SETTINGS, "stream"} == set(keywords)


@pytest.mark.parametrize("family", ["warpgroup", "warp"])
def test_strides_are_arguments_of_a_kernel(family: str) -> None:
    """Problems that differ in sizes and strides alone, also of a residual or of scales, share a kernel."""
    found: set[object] = set()
    for m, n, k, wide in ((256, 128, 512, 128), (512, 256, 1024, 512)):
        residual = np.zeros((m, wide), np.float32)[:, :n]
        a, b = np.zeros((m, k), np.float16), np.zeros((k, n), np.float16)
        problem = request_of(a, b, Options(residual=residual, bias=np.zeros(n, np.float32))).problem
        assert problem is not None
        if family == "warpgroup":
            plan = Plan(family, "sm_90a", (128, 128, 64), 4)
            found.add(traits_of(oriented(problem, plan), plan))
        else:
            plan = Plan(family, "sm_80", (128, 128, 32), 4)
            found.add(warp_traits_of(oriented(problem, plan), plan))
    assert len(found) == 1


def test_kernels_know_no_gpu() -> None:
    """The number of multiprocessors comes from the table of GPUs, or from the GPU."""
    for path in (SOURCE / "kernels").rglob("*.py"):
        code = re.sub(r'"""(?s:.)*?"""|#.*', "", path.read_text("utf-8"))
        assert not re.search(r"\b132\b", code), path
