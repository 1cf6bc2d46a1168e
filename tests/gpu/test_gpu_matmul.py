"""`lw.matmul` on a Hopper GPU: random calls against products in float64, and bit for bit against the CPU.

`LANEWISE_MATMUL_CALLS` says how many random calls there are; every fifth is compared with the CPU.
`python -m gpu.random_products` spreads many over processes.
"""

import os
from typing import Any

import pytest

import lanewise as lw
from gpu.random_products import bits, judged

pytestmark = pytest.mark.gpu

CALLS = int(os.environ.get("LANEWISE_MATMUL_CALLS", "60"))


@pytest.fixture(scope="module")
def torch() -> Any:
    """torch with a Hopper GPU."""
    found = pytest.importorskip("torch")
    if not found.cuda.is_available() or found.cuda.get_device_capability()[0] != 9:
        pytest.skip("needs torch and a Hopper GPU")
    return found


@pytest.mark.parametrize("seed", range(CALLS))
def test_random_calls(torch: Any, seed: int) -> None:
    assert not judged(torch, seed)


def test_calls_of_one_kind_on_other_memory(torch: Any) -> None:
    for shapes in (((65, 127), (127, 33)), ((64, 128), (128, 64)), ((128, 16384), (16384, 128))):
        for _ in range(12):  # machine code takes over on the way
            a, b = (torch.randn(shape, device="cuda").bfloat16() for shape in shapes)
            found = lw.matmul(a, b)
            assert bits(found) == bits(lw.matmul(a.cpu(), b.cpu()))


def test_graphs_and_streams(torch: Any) -> None:
    a, b = torch.randn(256, 512, device="cuda").bfloat16(), torch.randn(512, 256, device="cuda").bfloat16()
    expected = lw.matmul(a, b)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = lw.matmul(a, b)
    found.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(found, expected)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    other = lw.matmul(a, b, stream=stream)
    stream.synchronize()
    assert torch.equal(other, expected)


def test_groups_in_one_launch(torch: Any) -> None:
    a = torch.randn(300, 256, device="cuda").bfloat16()
    b = torch.randn(5, 256, 64, device="cuda").bfloat16()
    ends = [40, 40, 130, 131, 300]
    assert bits(lw.grouped_matmul(a, b, ends)) == bits(lw.grouped_matmul(a.cpu(), b.cpu(), ends))


def test_wrong_calls_launch_nothing(torch: Any) -> None:
    a, b = torch.ones(8, 8, device="cuda").half(), torch.ones(8, 8).half()
    with pytest.raises(lw.LanewiseError, match="one device"):
        lw.matmul(a, b)
    with pytest.raises(lw.LanewiseError, match="out overlaps a"):
        lw.matmul(a, a.clone(), out=a)
