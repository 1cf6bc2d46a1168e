"""4-bit weights: how they are quantized and packed, products against f64, the bits of their order, errors."""

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lanewise as lw
from everything import only_with_everything
from lanewise.formats import bf16, f32, format_of
from lanewise.isa.multiprocessor import multiprocessor
from lanewise.linalg.arrays import Pointers
from lanewise.linalg.kernels.int4.launches import product_launch, unpack_launch
from lanewise.linalg.kernels.int4.packing import CHUNK, pack, unpack
from lanewise.linalg.kernels.int4.plans import Tile, candidates, int4_plan
from lanewise.linalg.kernels.int4.traits import Traits
from lanewise.linalg.problem import Operand, Problem

BF16 = ml_dtypes.bfloat16


def random_layer(rng: Any, dtype: Any, m: int, k: int, n: int, group: int = 128) -> tuple[Any, Any, Any]:
    """Rows, weights of 4 bits, and these as numbers."""
    x, w = rng.normal(size=(m, k)).astype(dtype), rng.normal(size=(k, n)).astype(dtype)
    weights = lw.quantize(w, group=group)
    return x, weights, weights.dequantize()


def test_packing_keeps_every_integer() -> None:
    rng = np.random.default_rng(np.random.SeedSequence())
    for n, k in ((1, 1), (16, 64), (33, 200), (100, 640)):
        integers = rng.integers(-8, 8, (n, k))
        assert (unpack(pack(integers), n, k) == integers).all()


def test_weights_are_the_nearest_integers_times_their_scales() -> None:
    rng = np.random.default_rng(1)
    for dtype, group in ((np.float16, 64), (BF16, 128), (np.float32, 192)):
        w = (rng.normal(size=(500, 40)) * np.exp(rng.normal(size=40))).astype(dtype)
        weights = lw.quantize(w, group=group)
        kept = np.asarray(weights.dequantize(), np.float64)
        assert weights.shape == (500, 40) and weights.format.name == (
            "f16" if dtype is np.float16 else "bf16"
        )
        assert np.abs(weights.integers).max() <= 7
        scales = np.repeat(weights.scales[:, :40].astype(np.float64), group, axis=0)[:500]
        largest = np.array([np.abs(w[i : i + group].astype(np.float64)).max(0) for i in range(0, 500, group)])
        unit = 2.0**-8 if weights.format.name == "bf16" else 2.0**-11
        assert np.allclose(scales[::group] * 7, largest, rtol=unit)
        # half a step, and what rounding the scale and the product costs of the largest
        assert (np.abs(kept - w.astype(np.float64)) <= scales * (0.5 + 14.1 * unit)).all()
    for dtype, size in ((np.float16, 1e-6), (np.float16, 1e-4), (BF16, 1e-7), (BF16, 1e-30)):
        small = (rng.normal(size=(128, 40)) * size).astype(dtype).astype(np.float64)  # scales are as small
        kept = np.asarray(lw.quantize(small.astype(dtype)).dequantize(), np.float64)
        assert (np.abs(kept - small) <= 0.08 * np.abs(small).max(axis=0)).all()
    largest = np.full((64, 3), np.finfo(np.float16).max)
    assert (abs(lw.quantize(largest).dequantize() - largest) < 0.001 * largest).all()  # and not infinite
    zeros = lw.quantize(np.zeros((64, 3), np.float16))
    assert (zeros.dequantize() == 0).all() and "int4 64 × 3" in repr(zeros)
    assert lw.quantize(np.zeros((64, 3), np.float32), dtype="f16").format.name == "f16"


@pytest.mark.parametrize("dtype", [BF16, np.float16])
def test_products_are_those_of_the_weights_as_numbers(dtype: Any) -> None:
    rng = np.random.default_rng(np.random.SeedSequence())
    for m, k, n in ((1, 64, 16), (5, 200, 33), (70, 320, 40), (300, 128, 24)):
        x, weights, w = random_layer(rng, dtype, m, k, n)
        exact = x.astype(np.float64) @ w.astype(np.float64)
        bias, residual = rng.normal(size=n).astype(np.float32), rng.normal(size=(m, n)).astype(dtype)
        plain = lw.matmul(x, weights, out_dtype="f32")
        assert np.allclose(plain, exact, rtol=0, atol=2e-5 * np.abs(exact).max())
        assert lw.matmul(x, weights).dtype == dtype
        fused = lw.matmul(x, weights, bias=bias, activation="relu", residual=residual, out_dtype="f32")
        wanted = np.maximum(exact + bias, 0) + residual.astype(np.float64)
        assert np.allclose(fused, wanted, rtol=0, atol=2e-5 * np.abs(exact).max() + 1e-5)


def test_a_batch_a_vector_strides_and_out() -> None:
    rng = np.random.default_rng(3)
    x, weights, _ = random_layer(rng, np.float16, 12, 100, 20)
    whole = lw.matmul(x, weights)
    assert (lw.matmul(x.reshape(3, 4, 100), weights) == whole.reshape(3, 4, 20)).all()
    assert (lw.matmul(x[3], weights) == whole[3]).all()
    assert (lw.matmul(np.asfortranarray(x), weights) == whole).all()
    out = np.zeros((20, 12), np.float16).T
    assert lw.matmul(x, weights, out=out) is out and (out == whole).all()
    many = lw.matmul(np.concatenate([x] * 30), weights, batch_invariant=True)
    assert (many[:12] == whole).all() and (many[-12:] == whole).all()
    assert lw.matmul(x[:0], weights).shape == (0, 20)
    batch = x.reshape(3, 4, 100)
    apart = np.zeros((3, 5, 200), np.float16)[:, :4, ::2]  # matrices that do not lie as one
    apart[...] = batch
    for few, into in ((apart, None), (batch, np.zeros((3, 5, 20), np.float16)[:, :4])):
        made = lw.matmul(few, weights, out=into, batch_invariant=True)
        assert made.tobytes() == whole.tobytes() and (into is None or made is into)


def test_a_group_longer_than_k_is_all_of_k() -> None:
    w = np.random.default_rng(2).normal(size=(200, 20)).astype(np.float16)
    long, whole = lw.quantize(w, group=1 << 40), lw.quantize(w, group=256)
    assert long.group == 256 and (long.dequantize() == whole.dequantize()).all()


def test_weights_without_elements() -> None:
    """Sums over no elements of K are zeros."""
    x, bias = np.ones((2, 64), np.float16), np.arange(3, dtype=np.float32)
    assert lw.matmul(x, lw.quantize(np.ones((64, 0), np.float16))).shape == (2, 0)
    none = lw.quantize(np.ones((0, 3), np.float16))
    assert none.dequantize().shape == (0, 3)
    assert (lw.matmul(x[:, :0], none, bias=bias, out_dtype="f32") == bias).all()


def test_a_gpu_may_be_named_in_place_of_its_arch() -> None:
    x, weights, _ = random_layer(np.random.default_rng(8), np.float16, 2, 64, 8)
    named = lw.matmul(x, weights, arch="H100")
    assert named.tobytes() == lw.matmul(x, weights, arch="sm_90a").tobytes()


TEAMS = Tile(8, 1, 1, 2, teams=4)
TWO_BLOCKS_OF_TEAMS = Tile(8, 1, 2, 2, teams=4)


@pytest.fixture
def by_kernel(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function by which `lw.matmul` runs the kernel with a tile on the CPU machine, or is checked.

    Rows lie as those that are copied first, with NaN behind them.
    """

    def call(tile: Tile, x: Any, weights: Any, check: bool = False, **keywords: Any) -> Any:
        launches = []

        def run(request: Any, problem: Any, b: Any, chosen: Tile) -> None:
            rows = np.full((problem.m, b.chunks * CHUNK), np.nan, x.dtype)
            rows[:, : b.k] = x
            words, scales = (part.reshape(1, -1) for part in b.parts())
            bias, residual = (
                None if view is None else np.asarray(view.array) for view in (request.bias, request.residual)
            )
            pointers = Pointers(
                rows[:, : b.k], words.view(np.int32), np.asarray(request.out.array), metadata=scales,
                bias=bias, residual=residual, alpha=request.alpha, beta=request.beta,
            )  # fmt: skip
            launches.append(product_launch(problem, pointers, b.packed, chosen))
            if not check:
                launches[0]()

        with monkeypatch.context() as patched:
            patched.setattr("lanewise.linalg.int4_matmul.int4_plan", lambda problem, chunks: tile)
            patched.setattr("lanewise.linalg.int4_matmul._on_cpu", run)
            result = lw.matmul(x, weights, **keywords)
        return lw.check(launches[0].kernel, *launches[0].arguments) if check else result

    return call


def by_order_of(monkeypatch: pytest.MonkeyPatch, tile: Tile, x: Any, weights: Any, **keywords: Any) -> Any:
    """The product on the CPU, in the order in which a tile sums."""
    with monkeypatch.context() as patched:
        patched.setattr("lanewise.linalg.int4_matmul.int4_plan", lambda problem, chunks: tile)
        return lw.matmul(x, weights, **keywords)


def seldom(*case: Any) -> Any:
    return pytest.param(*case, marks=only_with_everything)


@pytest.mark.parametrize(
    ("dtype", "sizes", "group", "tile"),
    [
        (BF16, (11, 648, 140), 64, Tile(16, 1, 3, 4)),
        (np.float16, (5, 1352, 100), 64, TWO_BLOCKS_OF_TEAMS),
        (BF16, (3, 4, 75), 128, TEAMS),
        # stages that are loaded again, the last one in part
        (BF16, (7, 128 * 4 * 9 - 60, 100), 128, TEAMS),
        (np.float16, (5, 128 * 16 - 60, 70), 192, Tile(8, 2, 1, 3)),
        seldom(np.float16, (3, 128 * 4 * 5 + 4, 70), 192, TWO_BLOCKS_OF_TEAMS),
        seldom(BF16, (9, 128 * 20 - 60, 100), 128, Tile(16, 1, 1, 4)),
        seldom(BF16, (60, 128 * 12 - 60, 100), 64, Tile(64, 1, 1, 2)),
        seldom(BF16, (250, 128 * 8 - 60, 100), 128, Tile(256, 2, 1, 1)),
        seldom(BF16, (8, 1408, 66), 256, TEAMS),
        seldom(BF16, (1, 200, 141), 128, TWO_BLOCKS_OF_TEAMS),
        seldom(BF16, (3, 192, 141), 128, Tile(8, 2, 1, 3)),
        seldom(BF16, (9, 1104, 66), 128, Tile(8, 1, 8, 4)),
        seldom(np.float16, (70, 520, 130), 128, Tile(64, 2, 4, 2)),
        seldom(np.float16, (260, 192, 40), 64, Tile(256, 2, 1, 1)),
        seldom(np.float16, (140, 328, 200), 64, Tile(128, 1, 2, 2)),
    ],
)
def test_the_kernel_has_the_bits_of_the_cpu(
    by_kernel: Any, monkeypatch: pytest.MonkeyPatch, dtype: Any, sizes: tuple[int, int, int], group: int,
    tile: Tile,
) -> None:  # fmt: skip
    """Parts of K that are empty, columns beyond the last, scales for half a stage, tails of rows and K."""
    x, weights, _ = random_layer(np.random.default_rng(4), dtype, *sizes, group)
    expected = by_order_of(monkeypatch, tile, x, weights)
    assert by_kernel(tile, x, weights).tobytes() == expected.tobytes()


@pytest.mark.parametrize("tile", [TEAMS, seldom(Tile(8, 2, 1, 3))])
def test_results_go_where_out_lies_and_all_is_fused(
    by_kernel: Any, monkeypatch: pytest.MonkeyPatch, tile: Tile
) -> None:
    rng = np.random.default_rng(7)
    x, weights, _ = random_layer(rng, np.float16, 3, 300, 139)
    part = slice(0, 139)
    for shape, of_out in (((3, 144), np.s_[:, part]), ((139, 3), np.s_[:, :]), ((139, 16), np.s_[:, :3])):
        whole = [np.ones(shape, np.float16) for _ in range(2)]
        one, other = (each[of_out] if shape[0] == 3 else each[of_out].T for each in whole)
        by_order_of(monkeypatch, tile, x, weights, out=one)
        by_kernel(tile, x, weights, out=other)
        assert whole[0].tobytes() == whole[1].tobytes()
    keywords: dict[str, Any] = {
        "residual": np.asfortranarray(rng.normal(size=(3, 139)).astype(np.float32)), "beta": 3.0,
        "alpha": 0.5, "bias": rng.normal(size=139).astype(np.float32), "activation": "silu",
        "out_dtype": "f32",
    }  # fmt: skip
    expected = by_order_of(monkeypatch, tile, x, weights, **keywords)
    assert by_kernel(tile, x, weights, **keywords).tobytes() == expected.tobytes()


@pytest.mark.parametrize(("dtype", "size"), [(np.float16, 1e-6), (BF16, 1e-39)])
def test_unpacked_weights_with_subnormal_scales_have_the_bits_of_dequantize(dtype: Any, size: float) -> None:
    weights = lw.quantize((np.random.default_rng(9).normal(size=(200, 40)) * size).astype(dtype))
    rows = np.zeros((40, weights.chunks * CHUNK), dtype)
    arrays = [each.reshape(-1) for each in (weights.words.view(np.int32), weights.parts()[1], rows)]
    unpack_launch(weights.format, arrays, 40, weights.packed)()
    assert rows[:, :200].any()
    assert rows[:, :200].tobytes() == np.ascontiguousarray(weights.dequantize().T).tobytes()


def test_as_many_blocks_share_a_multiprocessor_as_the_plan_says() -> None:
    """By their threads and their shared memory, with what the system takes of it; few rows leave three stages
    or more."""
    sm = multiprocessor("sm_90a")
    rows = Operand(bf16, True, 128)
    tiles = {tile for m in (1, 16, 32, 64, 128, 129) for tile in candidates(m, 128)}
    assert {tile.rows for tile in tiles} == {8, 16, 32, 64, 128, 256}
    for tile in tiles:
        traits = Traits(Problem(1, 128, 128, rows, rows, rows, f32), tile, 2, 4)
        shared = traits.shared_bytes + 1024 + sm.reserved_bytes
        assert shared * tile.at_once <= sm.shared_bytes and traits.stages >= (3 if tile.rows < 128 else 2)
        assert traits.threads * tile.at_once <= sm.warps * 32


def test_teams_are_for_eight_rows() -> None:
    with pytest.raises(lw.LanewiseError, match="teams multiply tiles of 8 rows and one tile of columns"):
        Tile(16, 1, 1, 2, teams=4)
    assert not any(tile.teams for m in (9, 16, 2000) for tile in candidates(m, 4096))
    x, weights, _ = random_layer(np.random.default_rng(1), BF16, 9, 128, 64)
    pointers = Pointers(x, weights.words, np.zeros((9, 64), BF16), metadata=weights.scales)
    rows = Operand(bf16, True, 128)
    with pytest.raises(lw.LanewiseError, match="up to 8 rows, and a has 9"):
        product_launch(Problem(9, 64, 128, rows, rows, rows, f32), pointers, weights.packed, TEAMS)


def test_unpacked_weights_have_the_bits_of_dequantize() -> None:
    weights = lw.quantize(np.random.default_rng(5).normal(size=(200, 40)).astype(BF16))
    rows = np.zeros((40, weights.chunks * CHUNK), BF16)
    arrays = [each.reshape(-1) for each in (weights.words.view(np.int32), weights.parts()[1], rows)]
    unpack_launch(weights.format, arrays, 40, weights.packed)()
    assert rows[:, :200].tobytes() == np.ascontiguousarray(weights.dequantize().T).tobytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "sizes", "group", "tile"),
    [
        (BF16, (7, 128 * 4 * 5, 50), 64, TEAMS),
        seldom(BF16, (7, 128 * 8 * 5 - 60, 50), 128, TWO_BLOCKS_OF_TEAMS),
        seldom(BF16, (70, 128 * 12 - 60, 50), 128, Tile(64, 1, 3, 2)),
        seldom(np.float16, (60, 128 * 10 - 60, 50), 128, Tile(64, 1, 1, 2)),
        seldom(BF16, (200, 128 * 5 - 60, 50), 64, Tile(256, 2, 1, 1)),
    ],
)
def test_the_checker_finds_nothing(
    by_kernel: Any, dtype: Any, sizes: tuple[int, int, int], group: int, tile: Tile
) -> None:
    x, weights, _ = random_layer(np.random.default_rng(6), dtype, *sizes, group)
    report = by_kernel(tile, x, weights, check=True)
    assert not report.findings, report.findings[0]


@pytest.mark.parametrize("m", [1, 8, 9, 60])
def test_results_that_must_not_vary_are_summed_alike_for_any_number_of_rows(m: int) -> None:
    """Though one row alone may be computed by warps that each sum a part of K."""
    rows = Operand(bf16, True, 8192)
    problem = Problem(m, 8192, 8192, rows, rows, rows, f32, batch_invariant=True)
    assert int4_plan(problem, 64).parts == int4_plan(replace(problem, m=1000), 64).parts
    assert int4_plan(replace(problem, m=1, batch_invariant=False), 64).teams


def test_torch_tensors_are_taken_and_returned() -> None:
    torch = pytest.importorskip("torch")
    w = torch.nn.Parameter(torch.randn(100, 24, dtype=torch.bfloat16))
    weights = lw.quantize(w)
    x = torch.randn(2, 3, 100, dtype=torch.bfloat16)
    product = lw.matmul(x, weights)
    kept = weights.dequantize()
    assert kept.dtype == torch.bfloat16 and product.shape == (2, 3, 24)
    exact = x.double() @ kept.double()
    assert (product.double() - exact).abs().max() <= exact.abs().max() * 2**-8


def _mistakes() -> dict[str, tuple[Any, str]]:
    w = np.ones((64, 8), np.float16)
    weights: Any = lw.quantize(w)
    x = np.ones((4, 64), np.float16)
    text: Any = "w"
    return {
        "format": (lambda: lw.quantize(w, "int2"), "makes 'int4', 'mxfp8', 'mxfp4' or 'nvfp4', not 'int2'"),
        "range": (
            lambda: lw.quantize(w.astype(np.float32) + 1e30, dtype=np.float16),
            r'magnitudes up to 1e\+30, and float16, .* ends at 6.55e\+04; dtype="bfloat16" has a wider range',
        ),
        "group": (lambda: lw.quantize(w, group=100), "group=100 must be a multiple of 64"),
        "no group": (lambda: lw.quantize(w, group=True), "group=True must be"),
        "no array": (lambda: lw.quantize(text, "nvfp4"), "^w must be an array"),
        "a vector": (lambda: lw.quantize(w[0]), r"takes a matrix \(K, N\)"),
        "e4m3": (lambda: lw.quantize(w.astype(ml_dtypes.float8_e4m3fn)), "float16, bfloat16, float32"),
        "dtype": (lambda: lw.quantize(w, dtype="f32"), "scales are float16 or bfloat16"),
        "infinite": (lambda: lw.quantize(w * np.float16(np.inf)), "infinities or NaN"),
        "types": (lambda: lw.matmul(x.astype(BF16), weights), "a is bfloat16 and b is float16"),
        "sizes": (lambda: lw.matmul(x[:, :32], weights), "they must agree"),
        "scale": (lambda: lw.matmul(x, weights, scale_a=2.0), "take no scale_a="),
        "plan": (lambda: lw.matmul(x, weights, plan=lw.plan(x, w)), "take no plan="),
        "arch": (lambda: lw.matmul(x, weights, arch="sm_80"), "are for sm_90a, not for sm_80"),
        "no arch": (lambda: lw.matmul(x, weights, arch="sm_42"), "unknown arch 'sm_42'"),
        "grouped": (lambda: lw.grouped_matmul(x, weights, [2, 4]), "QuantizedMatrix"),
        "sparse": (lambda: lw.sparsify(weights), "QuantizedMatrix"),
    }  # fmt: skip


@pytest.mark.parametrize("name", _mistakes())
def test_mistakes_are_refused_in_a_sentence(name: str) -> None:
    call, said = _mistakes()[name]
    with pytest.raises(lw.LanewiseError, match=said):
        call()


def test_the_format_of_scales_is_that_of_rows() -> None:
    assert lw.quantize(np.ones((64, 8), np.float32), dtype=np.float16).format == format_of(np.float16)
