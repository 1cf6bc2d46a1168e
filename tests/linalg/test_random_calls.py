"""A few of the random calls of `gpu/random_products.py`, computed in host memory and judged by float64.

`python -m gpu.random_products` draws thousands, on a GPU where there is one. These keep its generator and its
judgement in order.
"""

from datetime import date
from importlib.util import find_spec
from typing import Any

import pytest

from everything import EVERYTHING

if find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

#: Calls whose kinds differ: scales of rows and blocks, of matrices of a batch, functions, sparse strides.
SEEDS = range(9_000_000, 9_000_000 + (400 if EVERYTHING else 12))


@pytest.fixture(scope="module")
def random_products() -> Any:
    """Return the module, imported where these tests run."""
    from gpu import random_products as found

    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_random_calls_are_right(random_products: Any, seed: int) -> None:
    import torch

    assert not random_products.judged(torch, seed, "cpu", 60)


def test_wrong_results_are_noticed(random_products: Any) -> None:
    """The judgement fails if one element of a result is off by more than the type's error."""
    import torch

    noticed = 0
    for seed in SEEDS[:12]:
        call = random_products.draw(torch, seed, "cpu", 60)
        result = random_products.computed(call).clone()
        if not result.numel() or random_products.complaint(torch, call, result):
            continue
        worst = result.double().abs().max() + 1
        result.reshape(-1)[-1] = float(worst) if result.dtype != torch.float8_e4m3fn else 100.0
        noticed += bool(random_products.complaint(torch, call, result))
    assert noticed >= 8


def test_days_and_nights_have_seeds_of_their_own(random_products: Any) -> None:
    days = [date(2026, 1, 31), date(2026, 2, 1), date(2027, 1, 31)]
    seeds = [random_products.first_seed(nightly, day) for day in days for nightly in (False, True)]
    assert len(set(seeds)) == len(seeds)
    assert all(abs(one - other) >= 500_000 for one in seeds for other in seeds if one != other)
