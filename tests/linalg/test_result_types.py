"""Every type of sums with every type of results that it may have: kernels store the bits of host arrays."""

import re
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import sampled
from lanewise.formats import FORMATS
from lanewise.linalg.options import Options
from lanewise.linalg.planning.gpus import GPUS
from lanewise.linalg.planning.planner import plan_of
from lanewise.linalg.rules import request_of
from lanewise.linalg.types import PRODUCTS
from linalg.kernels_on_cpu import by_kernels

#: (M, N, K); rows of the first results are whole multiples of 16 bytes.
SIZES = ((40, 48, 64), (33, 41, 50))
CASES = [
    (arch, name, precision, sums, result, sizes)
    for arch in GPUS
    for name, product in PRODUCTS.items()
    if product.scales != ("factors",)
    for precision in product.precisions
    for sums in product.sums
    for result in product.results
    for sizes in SIZES
]


def numbers(rng: np.random.Generator, shape: tuple[int, int], name: str) -> Any:
    """Return random elements; of int8 they are large and positive, so that f32 rounds their sums."""
    if name == "s8":
        return rng.integers(100, 128, shape).astype(np.int8)
    return rng.normal(size=shape).astype(FORMATS[name].dtype)


@sampled(16)
@pytest.mark.parametrize(("arch", "name", "precision", "sums", "result", "sizes"), CASES)
def test_kernels_store_the_bits_of_host_arrays(
    arch: str, name: str, precision: str, sums: str, result: str, sizes: tuple[int, int, int]
) -> None:
    rng = np.random.default_rng(np.random.SeedSequence())
    m, n, k = sizes
    k *= 32 if name == "s8" else 1
    a, b = numbers(rng, (m, k), name), numbers(rng, (n, k), name).T
    keywords: dict[str, Any] = {"out_dtype": result, "precision": precision or None}
    if sums == "f16":
        keywords["accumulate"] = "f16"
    problem = request_of(a, b, Options(**keywords)).problem
    assert problem is not None
    try:
        plan_of(problem, arch)
    except lw.LanewiseError as error:
        assert re.search("has no (mma.sync|instruction that rounds)", str(error))
        return
    assert (
        by_kernels(a, b, arch, launch_arch=arch, **keywords).tobytes()
        == lw.matmul(a, b, arch=arch, **keywords).tobytes()
    )
