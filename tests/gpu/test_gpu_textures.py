"""Textures and surfaces through `lw.texture` and `lw.surface`: the same call on the machine and on a GPU."""

import itertools
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from gpu.device import torch_here

torch = torch_here()

SOURCE = """
extern "C" __global__ void plane(cudaTextureObject_t t, const float2* x, float* o) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    o[i] = tex2D<float>(t, x[i].x, x[i].y);
}
extern "C" __global__ void fetch(cudaTextureObject_t t, const int* x, float* o) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    o[i] = tex1Dfetch<float>(t, x[i]);
}
extern "C" __global__ void add(cudaSurfaceObject_t s) {
    int x = threadIdx.x, y = blockIdx.x;
    surf2Dwrite(surf2Dread<float>(s, 4 * x, y) + 1, s, 4 * x, y);
}
"""


@pytest.fixture(scope="module")
def kernels() -> Any:
    return lw.cuda(SOURCE, arch="sm_80")


@pytest.mark.parametrize("filter_", ["point", "linear"])
def test_fetches_have_the_same_bits(kernels: Any, filter_: Any) -> None:
    rng = np.random.default_rng(0)
    texels = rng.standard_normal((13, 21)).astype(np.float32)
    there = torch.from_numpy(texels).cuda()
    modes: tuple[Any, ...] = ("wrap", "clamp", "mirror", "border")
    for mode, normalized in itertools.product(modes, (False, True)):
        span = (1, 1) if normalized else (21, 13)
        points = (rng.uniform(-1.5, 2.5, (1024, 2)) * span).astype(np.float32)
        settings = {"filter": filter_, "address": mode, "normalized": normalized, "border": 0.5}
        mine, theirs = np.zeros(1024, np.float32), torch.zeros(1024, device="cuda")
        kernels["plane"][8, 128](lw.texture(texels, **settings), points, mine)
        kernels["plane"][8, 128](lw.texture(there, **settings), torch.from_numpy(points).cuda(), theirs)
        np.testing.assert_array_equal(mine.view(np.uint32), theirs.cpu().numpy().view(np.uint32))


def test_fetch_by_integers_and_surfaces(kernels: Any) -> None:
    rng = np.random.default_rng(1)
    texels = rng.standard_normal(100).astype(np.float32)
    places = rng.integers(0, 100, 128, dtype=np.int32)
    found = torch.zeros(128, device="cuda")
    image = lw.texture(torch.from_numpy(texels).cuda())
    kernels["fetch"][1, 128](image, torch.from_numpy(places).cuda(), found)
    np.testing.assert_array_equal(found.cpu().numpy(), texels[places])
    picture = rng.standard_normal((8, 32)).astype(np.float32)
    there = torch.from_numpy(picture.copy()).cuda()
    kernels["add"][8, 32](lw.surface(there))
    torch.cuda.synchronize()
    np.testing.assert_array_equal(there.cpu().numpy(), picture + 1)
