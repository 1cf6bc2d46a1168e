"""Clusters through `cluster=`: the same launches on the machine and on a GPU, with the same words."""

from typing import Any

import numpy as np
import pytest

import cluster_kernels as kernels
import lanewise as lw
from gpu.device import torch_here

torch = torch_here("these kernels are for sm_90a", lambda capability: capability == (9, 0))


def both(launch: Any, shape: tuple[int, ...], **options: Any) -> tuple[Any, Any]:
    """What the machine and the GPU leave in an array of words, the only argument."""
    here, there = np.zeros(shape, np.uint32), torch.zeros(shape, dtype=torch.int32, device="cuda")
    launch(here, **options)
    for _ in range(20):  # the last ones are launched by machine code
        launch(there, **options)
    return here, there.cpu().numpy().view(np.uint32)


@pytest.mark.parametrize(
    ("grid", "cluster"),
    [((8, 4, 2), (4, 2, 1)), ((4, 4, 4), (1, 2, 4)), (32, 16), ((4, 8), (2, 8)), (6, 3), (3, 1), (3, None)],
)
def test_registers(grid: Any, cluster: Any) -> None:
    launch = lw.load(kernels.registers())["k"][grid, 32]
    here, there = both(launch, (int(np.prod(grid)), 16), cluster=cluster)
    np.testing.assert_array_equal(here, there)


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_addresses(size: int) -> None:
    for rank in (0, size - 1, size, 77):
        launch = lw.load(kernels.addresses(str(rank)))["k"][16, 32]
        here, there = both(launch, (16, 16), cluster=size)
        np.testing.assert_array_equal(here, there)


@pytest.mark.parametrize("size", [1, 2, 8, 16])
def test_rings_and_atomics(size: int) -> None:
    for text, threads in ((kernels.RING, 32), (kernels.ATOMICS, 1)):
        here, there = both(lw.load(text)["k"][16, threads], (16, 16), cluster=size)
        np.testing.assert_array_equal(here, there)


def test_histogram_in_ptx() -> None:
    here, there = both(lw.load(kernels.HISTOGRAM)["k"][16, 64], (16, 16), cluster=4)
    np.testing.assert_array_equal(here, there)


def test_histogram_and_sum() -> None:
    try:
        module = lw.cuda(kernels.CUDA, arch="sm_90a")
    except lw.LanewiseError as error:
        pytest.skip(f"no cooperative groups here: {str(error).splitlines()[0]}")
    data = np.random.default_rng(0).integers(0, 1 << 31, 50_000, dtype=np.uint32)
    there = torch.from_numpy(data.view(np.int32)).cuda()
    for size in (1, 2, 4, 8, 16):
        bins = torch.zeros(1024, dtype=torch.int32, device="cuda")
        each = 1024 // size
        module["histogram"][64, 128, 4 * each](there, data.size, bins, each, cluster=size)
        np.testing.assert_array_equal(bins.cpu().numpy(), np.bincount(data % 1024, minlength=1024))
    floats = torch.from_numpy((data % 64).astype(np.float32)).cuda()
    out = torch.zeros(8, device="cuda")
    for _ in range(20):
        module["sum"][32, 128](floats, data.size, out)
    assert out.sum().item() == (data % 64).sum()


def test_launches_that_are_refused() -> None:
    launch, out = (
        lw.load(kernels.registers())["k"][32, 32],
        torch.zeros(512, dtype=torch.int32, device="cuda"),
    )
    for size in (3, 32, "two"):
        with pytest.raises(lw.LanewiseError, match="cluster"):
            launch(out, cluster=size)
    launch(out, cluster=16)
    torch.cuda.synchronize()
