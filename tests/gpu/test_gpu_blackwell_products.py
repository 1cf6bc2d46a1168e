"""`lw.matmul` on a B200: random plain and block-scaled calls, bit for bit against host memory.

Nobody has run this yet. It settles whether the kernels of `linalg/kernels/blackwell/` are right on hardware;
`python -m lanewise plan … --regret` says how far the model of their times is off.
"""

from typing import Any

import numpy as np
import pytest

import lanewise as lw
from lanewise import gpu
from linalg.blackwell_calls import E4M3, draw, matrix

if not gpu.available():
    pytest.skip("no CUDA device here: these tests launch on one", allow_module_level=True)
torch = pytest.importorskip("torch")
if torch.cuda.get_device_capability() != (10, 0):
    pytest.skip("plans of family 'blackwell' are for sm_100a", allow_module_level=True)
pytestmark = pytest.mark.gpu
ARCH = "sm_100a"


def on_gpu(value: Any) -> Any:
    """Return an array as a tensor on the GPU with the same strides; other values as they are."""
    if not isinstance(value, np.ndarray):
        return value
    words = torch.from_numpy(value.view(f"i{value.itemsize}"))
    there = torch.empty_strided(words.shape, words.stride(), dtype=words.dtype, device="cuda").copy_(words)
    return there.view(getattr(torch, str(value.dtype)))


def same_bits(result: Any, wanted: Any) -> bool:
    raw = result.contiguous().view(torch.uint8).cpu().numpy()
    return bool(np.array_equal(raw, np.ascontiguousarray(wanted).view(np.uint8)))


@pytest.mark.parametrize("number", range(60))
def test_random_calls_have_the_bits_of_host_arrays(number: int, seed: int) -> None:
    call = draw(seed + number)
    wanted = lw.matmul(call.a, call.b, arch=ARCH, **call.keywords)
    keywords = {name: on_gpu(value) for name, value in call.keywords.items()}
    result = lw.matmul(on_gpu(call.a), on_gpu(call.b), **keywords)
    assert same_bits(result, wanted), str(call)


@pytest.mark.parametrize("cluster", [(1, 1), (2, 1)])
def test_large_products_of_single_blocks_and_pairs(cluster: tuple[int, int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = (rng.normal(size=shape).astype(np.float16) for shape in ((1500, 2048), (2048, 1700)))
    plan = lw.plan(a, b, arch=ARCH).with_(tile=(128, 256, 64), cluster=cluster)
    assert same_bits(lw.matmul(on_gpu(a), on_gpu(b), plan=plan), lw.matmul(a, b, plan=plan))


@pytest.mark.parametrize("swizzled", [False, True])
def test_mxfp8_with_scales_in_both_orders(swizzled: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(8):
        m, n, k = (int(each) for each in rng.integers(1, 700, 3))
        a, b = matrix(rng, (m, k), E4M3), matrix(rng, (k, n), E4M3)
        factors = -(-k // 32)
        scales = [lw.ue8m0.array(2.0 ** rng.integers(-9, 9, shape)) for shape in ((m, factors), (factors, n))]
        wanted = lw.matmul(a, b, scale_a=scales[0], scale_b=scales[1], arch=ARCH, out_dtype="f32")
        given = [on_gpu(each) for each in scales]
        if swizzled:
            orders = lw.SwizzledScales.of(scales[0]), lw.SwizzledScales.of(scales[1].T)
            given = [lw.SwizzledScales(on_gpu(each.array), each.rows, each.factors) for each in orders]
        result = lw.matmul(on_gpu(a), on_gpu(b), scale_a=given[0], scale_b=given[1], out_dtype="f32")
        assert same_bits(result, wanted), (m, n, k)
