"""The ladder's rungs for Hopper and Blackwell on a GPU: the bits of the CPU machine, also for tails."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from gpu.device import torch_here

pytestmark = pytest.mark.gpu
#: The rungs of each generation, by its compute capability.
RUNGS = {9: (9, 10, 11), 10: (12, 13)}
torch = torch_here("these rungs need sm_90a or sm_100a", lambda capability: capability[0] in RUNGS)
CAPABILITY = torch.cuda.get_device_capability()[0]

FOLDER = Path(__file__).parents[2] / "examples" / "gemm"
SHAPES = [(256, 256, 64), (520, 264, 328), (130, 8, 72), (1, 1032, 8)]


@pytest.fixture(scope="module")
def ladder() -> Any:
    sys.path.insert(0, str(FOLDER))
    try:
        import ladder
    finally:
        sys.path.remove(str(FOLDER))
    return ladder


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
@pytest.mark.parametrize("pair", [(lw.bf16, lw.f32), (lw.f16, lw.f16)], ids=lambda pair: pair[0].name)
@pytest.mark.parametrize("number", RUNGS[CAPABILITY])
def test_a_rung_has_the_machine_s_bits(ladder: Any, number: int, pair: Any, shape: Any) -> None:
    (m, n, k), (dtype, accumulate) = shape, pair
    rung = ladder.RUNGS[number - 1]
    rng = np.random.default_rng(m * n * k + number)
    a, b = (rng.normal(size=size).astype(dtype.dtype) for size in ((m, k), (k, n)))
    c = np.zeros((m, n), dtype.dtype)
    configured, arguments, constants = rung.prepare(a, b, c, accumulate)
    configured(*arguments, **constants, arch=rung.arch)
    kind = getattr(torch, ladder.TORCH[dtype])
    there = [torch.from_numpy(each.view(np.int16)).cuda().view(kind) for each in (a, b, np.zeros_like(c))]
    configured, arguments, constants = rung.prepare(*there, accumulate)
    configured(*arguments, **constants)
    torch.cuda.synchronize()
    assert np.array_equal(there[2].view(torch.int16).cpu().numpy(), c.view(np.int16))
