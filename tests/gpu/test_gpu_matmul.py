"""`lw.matmul` on a Hopper GPU: random calls against products in float64, and bit for bit against the CPU.

`LANEWISE_MATMUL_CALLS` says how many random calls there are; every fourth is compared with the CPU.
"""

import os
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from lanewise.ptx.host_tensors import host_array

pytestmark = pytest.mark.gpu

CALLS = int(os.environ.get("LANEWISE_MATMUL_CALLS", "60"))
TYPES = {"float16": 2e-3, "bfloat16": 1.5e-2, "float32": 1e-5, "float8_e4m3fn": 3e-2, "int8": 0.0}


@pytest.fixture(scope="module")
def torch() -> Any:
    """torch with a Hopper GPU."""
    found = pytest.importorskip("torch")
    if not found.cuda.is_available() or found.cuda.get_device_capability()[0] != 9:
        pytest.skip("needs torch and a Hopper GPU")
    return found


def bits(tensor: Any) -> bytes:
    """The bits of a tensor's elements."""
    return np.ascontiguousarray(host_array(tensor.cpu())).tobytes()


def matrix(torch: Any, rng: np.random.Generator, rows: int, columns: int, name: str) -> Any:
    """A random matrix on the GPU: stored by rows or by columns, perhaps a part of a wider one."""
    turned = bool(rng.integers(2))
    shape = (columns, rows) if turned else (rows, columns)
    pad = int(rng.choice([0, 0, 3, 8]))
    wide = torch.randn(shape[0], shape[1] + pad, device="cuda") * (30 if name == "int8" else 1)
    made = wide.to(getattr(torch, name))[:, : shape[1]]
    return made.t() if turned else made


@pytest.mark.parametrize("seed", range(CALLS))
def test_random_calls(torch: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    name = str(rng.choice(list(TYPES)))
    most = 200 if seed % 4 == 0 else 1500
    m, n, k = (int(rng.integers(1, most)) for _ in range(3))
    a, b = matrix(torch, rng, m, k, name), matrix(torch, rng, k, n, name)
    keywords: dict[str, Any] = {}
    if name != "int8" and rng.integers(2):
        keywords["bias"] = torch.randn(n, device="cuda")
        keywords["out_dtype"] = torch.float32
    if name != "int8" and rng.integers(3) == 0:
        keywords["activation"] = str(rng.choice(["relu", "gelu"]))
    found = lw.matmul(a, b, **keywords)
    exact = a.double() @ b.double()
    size = a.double().abs() @ b.double().abs()
    if "bias" in keywords:
        exact, size = exact + keywords["bias"], size + keywords["bias"].abs()
    if "activation" in keywords:
        exact = torch.nn.functional.__dict__[keywords["activation"]](exact)
    rounding = {torch.bfloat16: 1e-2, torch.float16: 1e-3}.get(found.dtype, 0.0)
    assert bool(((found.double() - exact).abs() <= (TYPES[name] + rounding) * size + 1e-6).all())
    if seed % 4 == 0:
        on_cpu = {key: value.cpu() if hasattr(value, "cpu") else value for key, value in keywords.items()}
        assert bits(found) == bits(lw.matmul(a.cpu(), b.cpu(), **on_cpu))


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
