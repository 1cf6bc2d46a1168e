"""e4m3 products with a scale for each row of A and column of B, which are loaded before the products."""

from typing import Any

import numpy as np
import pytest

import lanewise as lw
from lanewise.formats import bf16, e4m3, f32
from lanewise.linalg.kernels.hopper import launches as hopper
from lanewise.linalg.plan import Plan
from lanewise.linalg.problem import Epilogue
from linalg.hopper_products import plan, product, some


@pytest.mark.parametrize(
    "chosen",
    some(
        [
            plan((64, 48, 128), schedule="pingpong"),
            plan((128, 160, 128), stages=2),
            plan((64, 64, 128), split=2),
            plan((64, 80, 128), swap=True),
        ],
        plan((64, 48, 128), schedule="pingpong"),
    ),
    ids=lambda each: f"{each.tile} {each.schedule}",
)
def test_scales_and_biases_of_several_tiles(chosen: Plan) -> None:
    """The terms of a tile's columns are not written before the last tile's have been read."""
    m, n, k = 150, 200, 272
    rng = np.random.default_rng(1)
    scale_a, scale_b = rng.random(m, np.float32) + 0.5, rng.random(n, np.float32) + 0.5
    bias = rng.normal(size=n).astype(bf16.dtype)
    epilogue = Epilogue(scale_a="row", scale_b="row", bias="row", bias_dtype=bf16)
    given: dict[str, Any] = {"scale_a": scale_a, "scale_b": scale_b, "bias": bias}
    problem, pointers, sums = product(m, n, k, e4m3, e4m3, f32, layout="NT", epilogue=epilogue, **given)
    configured, arguments, _ = hopper.launches(problem, chosen, pointers, multiprocessors=chosen.split)[0]
    configured(*arguments)
    wanted = sums * (scale_a[:, None] * scale_b) + bias.astype(np.float32)
    if chosen.split == 1:
        assert np.array_equal(pointers.out, wanted)
    assert np.allclose(pointers.out, wanted, rtol=1e-3, atol=1e-2)
    assert lw.check(configured, *arguments).ok
