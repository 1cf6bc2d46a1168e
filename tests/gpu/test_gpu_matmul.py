"""`lw.matmul` on a Hopper GPU: random calls against products in float64, and bit for bit against the CPU.

`LANEWISE_MATMUL_CALLS` says how many random calls there are; every fifth is compared with the CPU.
`python -m gpu.random_products` spreads many over processes.
"""

import os
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from gpu.random_products import bits, judged

pytestmark = pytest.mark.gpu

CALLS = int(os.environ.get("LANEWISE_MATMUL_CALLS", "60"))


@pytest.mark.parametrize("seed", range(CALLS))
def test_random_calls(torch: Any, seed: int) -> None:
    assert not judged(torch, seed)


def test_calls_of_one_kind_on_other_memory(torch: Any) -> None:
    for shapes in (((65, 127), (127, 33)), ((64, 128), (128, 64)), ((128, 16384), (16384, 128))):
        for _ in range(12):  # machine code takes over on the way
            a, b = (torch.randn(shape, device="cuda").bfloat16() for shape in shapes)
            found = lw.matmul(a, b)
            assert bits(found) == bits(lw.matmul(a.cpu(), b.cpu()))


def test_every_call_tells_torch_that_out_has_changed(torch: Any) -> None:
    """Calls that machine code makes, too: what a backward pass saved of it is refused."""
    a = torch.randn(64, 64, device="cuda").bfloat16()
    out = torch.empty_like(a)
    for number in range(20):
        assert out._version == number
        lw.matmul(a, a, out=out)
    weight, x = (torch.randn(64, 64, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    product = x.requires_grad_() @ weight
    lw.matmul(a, a, out=weight)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


@pytest.mark.parametrize("shape", [(256, 256, 512), (255, 129, 515), (128, 128, 16384)])
def test_graphs_and_streams(torch: Any, shape: tuple[int, int, int]) -> None:
    """The same bits from a graph and on another stream: plain, with copies first, with K in parts."""
    m, n, k = shape
    a, b = torch.randn(m, k, device="cuda").bfloat16(), torch.randn(k, n, device="cuda").bfloat16()
    expected = lw.matmul(a, b)
    for _ in range(12):  # machine code takes over on the way
        assert torch.equal(lw.matmul(a, b), expected)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = lw.matmul(a, b)
    for _ in range(3):
        found.zero_()
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(found, expected)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    others = [lw.matmul(a, b, stream=stream) for _ in range(12)]
    stream.synchronize()
    assert all(torch.equal(each, expected) for each in others)


def test_weights_that_require_gradients(torch: Any) -> None:
    """Where none are recorded, calls are made again quickly; where they are, they are refused."""
    layer = torch.nn.Linear(64, 48, device="cuda", dtype=torch.bfloat16)
    x = torch.randn(16, 64, device="cuda").bfloat16()
    with torch.no_grad():
        found = [lw.matmul(x, layer.weight.t(), bias=layer.bias, activation="relu") for _ in range(24)]
        assert all(torch.equal(each, found[0]) for each in found)
        assert torch.allclose(found[0], layer(x).relu(), atol=0.05)
    with pytest.raises(lw.LanewiseError, match="requires a gradient"):
        lw.matmul(x, layer.weight.t(), bias=layer.bias, activation="relu")


def test_calls_with_keywords_by_machine_code(torch: Any) -> None:
    """Other memory, other keywords and numbers: each call is the one that was asked for."""
    a, b = torch.randn(40, 64, device="cuda").half(), torch.randn(64, 24, device="cuda").half()
    bias, rest = torch.randn(24, device="cuda").half(), torch.randn(40, 24, device="cuda").half()
    cases: list[dict[str, Any]] = [
        {"bias": bias}, {"bias": bias, "activation": "relu"}, {"residual": rest, "beta": 0.5}, {"alpha": 2.0},
        {"alpha": 3.0}, {"out_dtype": torch.float32}, {"residual": rest}, {"scale_out": 0.5}, {},
    ]  # fmt: skip
    expected = [lw.matmul(a, b, **each) for each in cases]
    for _ in range(24):
        for each, wanted in zip(cases, expected, strict=True):
            assert torch.equal(lw.matmul(a.clone(), b.clone(), **each), wanted)
    for _ in range(24):
        out = rest.clone()
        lw.matmul(a, b, out=out, beta=0.5)
        assert torch.equal(out, expected[2])


FACTOR = 2.0


@lw.epilogue
def scaled(value: Any, row: Any, column: Any) -> Any:
    return value * FACTOR


def test_what_an_epilogue_reads_may_change(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = torch.ones(64, 64, device="cuda").bfloat16(), torch.eye(64, device="cuda").bfloat16()
    for factor in (2.0, 3.0, 2.0, 5.0):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        for _ in range(12):  # machine code takes over on the way
            assert (lw.matmul(a, b, epilogue=scaled) == factor).all()


def test_arrays_of_cupy(torch: Any) -> None:
    """CuPy's arrays, with steps and backwards, and on a stream of its own."""
    cupy: Any = pytest.importorskip("cupy")
    rng = np.random.default_rng(0)
    host = [rng.standard_normal(shape).astype(np.float16) for shape in ((65, 130), (130, 90))]

    def views(a: Any, b: Any) -> list[tuple[Any, Any]]:
        return [(a, b), (a[::-1, ::2], b[::2, 5:60]), (b.T, a.T), (a[:, :128], b[:128])]

    a, b = map(cupy.asarray, host)
    for given, same in zip(views(a, b), views(*host), strict=True):
        found = lw.matmul(*given)
        assert isinstance(found, cupy.ndarray)
        assert cupy.asnumpy(found).tobytes() == lw.matmul(*same).tobytes()
    stream = cupy.cuda.Stream(non_blocking=True)
    stream.wait_event(cupy.cuda.get_current_stream().record())
    on_it = [lw.matmul(a, b, stream=stream) for _ in range(5)]
    stream.synchronize()
    assert all(bool((each == on_it[0]).all()) for each in on_it)


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


@pytest.mark.parametrize(("experts", "rows"), [(3, 700), (40, 900)])
def test_offsets_on_the_gpu(torch: Any, experts: int, rows: int) -> None:
    """Kernels read offsets on the GPU: the same bits, rows of nobody cleared, and strange offsets moved."""
    torch.manual_seed(experts)
    a = torch.randn(rows, 128, device="cuda").bfloat16()
    b = torch.randn(experts, 128, 256, device="cuda").bfloat16()
    ends = torch.sort(torch.randint(0, rows, (experts,), dtype=torch.int32)).values
    expected = lw.grouped_matmul(a.cpu(), b.cpu(), ends.tolist())
    for given in (ends.cuda(), ends.long().cuda(), ends.cuda(), ends.tolist()):
        assert bits(lw.grouped_matmul(a, b, given)) == bits(expected)
    out = torch.full((rows, 256), 7.0, device="cuda").bfloat16()
    lw.grouped_matmul(a, b, ends.cuda(), out=out)
    last = int(ends[-1])
    assert bits(out[:last]) == bits(expected[:last]) and (out[last:] == 7).all()
    strange = ends.clone()
    strange[1], strange[-1] = -5, rows + 1000
    moved = torch.cummax(strange.clamp(0, rows), 0).values
    found = lw.grouped_matmul(a, b, strange.cuda())
    assert bits(found) == bits(lw.grouped_matmul(a.cpu(), b.cpu(), moved.tolist()))
