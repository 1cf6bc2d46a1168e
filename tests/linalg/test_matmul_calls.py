"""`lw.matmul` on arrays in host memory: hundreds of random calls against products in float64."""

from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lanewise as lw
from everything import examples, sampled
from lanewise.linalg.launch import known_calls

#: Relative error of a sum of K products by the type of the operands, and how the numbers are made.
TYPES = {
    "float16": 2e-3,
    "bfloat16": 1.5e-2,
    "float32": 1e-5,
    "float64": 1e-14,
    "float8_e4m3fn": 2e-2,
    "float8_e5m2": 2e-2,
    "int8": 0.0,
}
QUICK = settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))


def dtype_of(name: str) -> np.dtype[Any]:
    """A NumPy dtype by its name, those of ml_dtypes too."""
    return np.dtype(getattr(ml_dtypes, name, name))


def numbers(rng: np.random.Generator, shape: tuple[int, ...], name: str) -> np.ndarray[Any, Any]:
    """Random numbers of a type."""
    if name == "int8":
        return rng.integers(-128, 128, shape).astype(np.int8)
    return rng.standard_normal(shape).astype(np.float32).astype(dtype_of(name))


def strided(rng: np.random.Generator, array: np.ndarray[Any, Any], how: str) -> np.ndarray[Any, Any]:
    """The same numbers with other strides."""
    if array.ndim < 1 or how == "plain":
        return array
    if how == "transposed" and array.ndim > 1:
        return array.swapaxes(-1, -2).copy().swapaxes(-1, -2)
    if how == "sliced":
        wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1] + 3), array.dtype)
        wide[..., 1 : 1 + 2 * array.shape[-1] : 2] = array
        return wide[..., 1 : 1 + 2 * array.shape[-1] : 2]
    return array[..., ::-1].copy()[..., ::-1]


def tolerance(a: Any, b: Any, name: str, out: str) -> Any:
    """How far a product may be from the exact one."""
    size = np.matmul(np.abs(a.astype(np.float64)), np.abs(b.astype(np.float64)))
    return TYPES[name] * size + {"bfloat16": 1e-2, "float16": 1e-3}.get(out, 0) * (1 + size)


@st.composite
def shapes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes that can be multiplied, vectors and zero sizes among them."""
    size = st.integers(0, 40)
    m, n, k = draw(size), draw(size), draw(st.integers(0, 300))
    batch_a = draw(st.sampled_from([(), (), (1,), (3,), (2, 3), (2, 1), (0,)]))
    batch_b = draw(st.sampled_from([(), (), (1,), (3,), (2, 3), (1, 3)]))
    try:
        np.broadcast_shapes(batch_a, batch_b)
    except ValueError:
        batch_b = ()
    a = (k,) if draw(st.integers(0, 9)) == 0 else (*batch_a, m, k)
    b = (k,) if draw(st.integers(0, 9)) == 0 else (*batch_b, k, n)
    return a, b


@QUICK
@given(
    shapes(),
    st.sampled_from(list(TYPES)),
    st.sampled_from(["plain", "transposed", "sliced", "backwards"]),
    st.sampled_from(["plain", "transposed", "sliced", "backwards"]),
    st.integers(0, 1 << 30),
    st.booleans(),
)
def test_products_are_near_those_of_float64(
    both: Any, name: str, how_a: str, how_b: str, seed: int, invariant: bool
) -> None:
    rng = np.random.default_rng(seed)
    a = strided(rng, numbers(rng, both[0], name), how_a)
    b = strided(rng, numbers(rng, both[1], name), how_b)
    found = lw.matmul(a, b, batch_invariant=invariant)
    exact = np.matmul(a.astype(np.float64), b.astype(np.float64))
    assert found.shape == exact.shape
    out = lw.plan(a, b).problem.out.dtype.dtype_name if found.ndim < 3 else found.dtype.name
    assert found.dtype == dtype_of(out)
    assert np.all(np.abs(found.astype(np.float64) - exact) <= tolerance(a, b, name, out))


@QUICK
@given(shapes(), st.sampled_from(["float16", "float32"]), st.integers(0, 1 << 30))
def test_results_go_where_out_says(both: Any, name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = numbers(rng, both[0], name), numbers(rng, both[1], name)
    expected = lw.matmul(a, b)
    if not expected.ndim:
        return
    frame = np.full((*expected.shape[:-1], expected.shape[-1] + 5), 7, expected.dtype)
    inside = frame[..., 2:-3]
    assert lw.matmul(a, b, out=inside) is inside
    # The strides of the result may ask for another plan, and plans may add in another order.
    exact = np.matmul(a.astype(np.float64), b.astype(np.float64))
    assert np.all(np.abs(inside.astype(np.float64) - exact) <= tolerance(a, b, name, expected.dtype.name))
    if expected.ndim == 2 and lw.plan(a, b, out=inside).plan == lw.plan(a, b).plan:
        np.testing.assert_array_equal(inside, expected)
    assert (frame[..., :2] == 7).all() and (frame[..., -3:] == 7).all()


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh", "silu", "sigmoid"])
def test_activations_with_all_that_is_fused(activation: str) -> None:
    rng = np.random.default_rng(5)
    a, b = numbers(rng, (2, 9, 64), "bfloat16"), numbers(rng, (64, 33), "bfloat16")
    bias, residual = numbers(rng, (33,), "bfloat16"), numbers(rng, (2, 9, 33), "float32")
    found = lw.matmul(
        a, b, bias=bias, activation=activation, residual=residual, alpha=0.25, beta=0.5, out_dtype="f32"
    )
    x = 0.25 * np.matmul(a.astype(np.float64), b.astype(np.float64)) + bias.astype(np.float64)
    erf = np.vectorize(__import__("math").erf)
    values = {
        "relu": np.maximum(x, 0),
        "gelu": x * 0.5 * (1 + erf(x / np.sqrt(2))),
        "gelu_tanh": x * 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
        "silu": x / (1 + np.exp(-x)),
        "sigmoid": 1 / (1 + np.exp(-x)),
    }
    np.testing.assert_allclose(found, values[activation] + 0.5 * residual, atol=2e-5)


def test_biases_of_rows_and_columns_and_beta_of_out() -> None:
    rng = np.random.default_rng(6)
    a, b = numbers(rng, (7, 24), "float16"), numbers(rng, (24, 5), "float16")
    exact = a.astype(np.float64) @ b.astype(np.float64)
    column = numbers(rng, (7, 1), "float32")
    np.testing.assert_allclose(lw.matmul(a, b, bias=column, out_dtype="f32"), exact + column, atol=1e-4)
    held = numbers(rng, (7, 5), "float32")
    out = held.copy()
    lw.matmul(a, b, beta=2.0, out=out)
    np.testing.assert_allclose(out, exact + 2.0 * held, atol=1e-4)


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, np.float16])
def test_what_out_holds_is_added_wherever_it_lies(dtype: Any) -> None:
    """Also of types that no residual has."""
    a, b = np.ones((3, 4), np.float16), np.ones((4, 5), np.float16)
    whole = np.full((6, 10), 8, dtype)
    for out in (whole[:3, :5], whole[:3, ::2], whole[::-2, ::-2]):
        whole[...] = 8
        assert lw.matmul(a, b, alpha=0.5, beta=0.25, out=out) is out
        assert (out.astype(float) == 4).all() and (whole.astype(float) == 8).sum() == 45


def test_alpha_is_a_number_of_any_type_and_small_ones_are_no_warning() -> None:
    a, b = np.ones((3, 64), np.float16), np.ones((64, 5), np.float16)
    scaled = lw.quantize(a.astype("f4"), "nvfp4", axis=1), lw.quantize(b.astype("f4"), "nvfp4")
    products: list[tuple[Any, Any, dict[str, Any]]] = [(a, b, {}), (*scaled, {"arch": "B200"})]
    for left, right, keywords in products:
        alphas: list[tuple[Any, str]] = [(True, "not bool"), (10**400, "at most"), ("2", "not str")]
        for alpha, said in [*alphas, *((each, "") for each in (np.float32(2), np.int8(2), 2))]:
            if said:
                with pytest.raises(lw.LanewiseError, match=said):
                    lw.matmul(left, right, alpha=alpha, **keywords)
            else:
                assert (lw.matmul(left, right, alpha=alpha, **keywords) == 128).all()
    with np.errstate(all="raise"):
        assert not lw.matmul(a, b, alpha=1e-45).any()
        assert lw.quantize(np.full((64, 2), 1e-45, "f4"), "nvfp4").dequantize().shape == (64, 2)


def test_float64_takes_alpha_beta_bias_and_relu() -> None:
    rng = np.random.default_rng(7)
    a, b, bias = (rng.standard_normal(shape) for shape in ((5, 40), (40, 6), (6,)))
    residual = rng.standard_normal((5, 6))
    found = lw.matmul(a, b, alpha=0.5, bias=bias, activation="relu", residual=residual, beta=3.0)
    np.testing.assert_allclose(
        found, np.maximum(0.5 * (a @ b) + bias, 0) + 3 * residual, rtol=1e-12, atol=1e-12
    )


@sampled(2)
@pytest.mark.parametrize(
    ("scale_a", "scale_b"), [((), ()), ((30, 1), (1, 150)), ((30,), (150,)), ((30, 3), (3, 2))]
)
def test_scales_of_small_floats(scale_a: tuple[int, ...], scale_b: tuple[int, ...]) -> None:
    rng = np.random.default_rng(8)
    a, b = numbers(rng, (30, 300), "float8_e4m3fn"), numbers(rng, (300, 150), "float8_e5m2")
    of_a = np.asarray(rng.random(scale_a) + 0.5, np.float32)
    of_b = np.asarray(rng.random(scale_b) + 0.5, np.float32)
    found = lw.matmul(a, b, scale_a=of_a, scale_b=of_b, out_dtype="f32")
    wide_a, wide_b = of_a, of_b
    if scale_a == (30,):
        wide_a, wide_b = of_a[:, None], of_b[None]
    if scale_a == (30, 3):
        wide_a = np.repeat(of_a, 128, 1)[:, :300]
        wide_b = np.repeat(np.repeat(of_b, 128, 0)[:300], 128, 1)[:, :150]
    exact = (a.astype(np.float64) * wide_a) @ (b.astype(np.float64) * wide_b)
    assert np.abs(found - exact).max() < 5e-3 * np.abs(exact).max()


def test_int8_scaled_to_floats() -> None:
    rng = np.random.default_rng(9)
    a, b = numbers(rng, (20, 64), "int8"), numbers(rng, (64, 24), "int8")
    rows = (rng.random((20, 1)) / 100).astype(np.float32)
    found = lw.matmul(a, b, scale_a=rows, scale_b=0.5, out_dtype="f32")
    exact = a.astype(np.int64) @ b.astype(np.int64) * rows.astype(np.float64) * 0.5
    np.testing.assert_allclose(found, exact, rtol=1e-6)


def test_results_of_e4m3_are_at_most_the_largest() -> None:
    a = np.full((2, 16), 60, np.float16)
    found = lw.matmul(a, a.T, out_dtype="e4m3")
    assert found.astype(np.float32).tolist() == [[448.0, 448.0], [448.0, 448.0]]


def test_f32_by_split_products_is_as_good_as_sgemm() -> None:
    rng = np.random.default_rng(10)
    for k in (100, 2000):
        a, b = numbers(rng, (40, k), "float32"), numbers(rng, (k, 40), "float32")
        exact = a.astype(np.float64) @ b.astype(np.float64)
        one_by_one = np.zeros((40, 40), np.float32)
        for i in range(k):  # SGEMM's own order: a chain of additions
            one_by_one += a[:, i : i + 1] * b[i : i + 1]
        own = np.sqrt(((lw.matmul(a, b) - exact) ** 2).mean())
        assert own <= np.sqrt(((one_by_one - exact) ** 2).mean())


def test_grouped_rows_are_those_of_single_products() -> None:
    rng = np.random.default_rng(11)
    a, b = numbers(rng, (50, 96), "bfloat16"), numbers(rng, (4, 96, 32), "bfloat16")
    ends = [10, 10, 45, 50]
    found = lw.grouped_matmul(a, b, np.array(ends))
    for group, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        if end > start:
            chain = lw.plan(a[start:end], b[group]).with_(split=1, groups=1)
            np.testing.assert_array_equal(found[start:end], lw.matmul(a[start:end], b[group], plan=chain))
    masked = lw.grouped_matmul(a, b, ends, counts=[3, 0, 35, 1])
    assert (masked[3:10] == 0).all() and (masked[46:] == 0).all()
    np.testing.assert_array_equal(masked[10:46], found[10:46])


def test_sparse_products() -> None:
    rng = np.random.default_rng(12)
    for name in ("float16", "bfloat16", "int8", "float8_e4m3fn"):
        a, b = numbers(rng, (2, 5, 100), name), numbers(rng, (100, 24), name)
        sparse = lw.sparsify(b)
        kept = sparse.dense()
        groups = (kept.T.reshape(24, 25, 4) != 0).sum(-1)
        assert (groups <= 2).all() and ((kept == b) | (kept == 0)).all()
        exact = np.matmul(a.astype(np.float64), kept.astype(np.float64))
        found = lw.matmul(a, sparse).astype(np.float64)
        assert np.all(np.abs(found - exact) <= tolerance(a, kept, name, "bfloat16") * (name != "int8"))


FACTOR = 2.0


@lw.epilogue
def scaled(value: Any, row: Any, column: Any) -> Any:
    return value * FACTOR


def test_what_an_epilogue_reads_may_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches are kept by what `current` returns: another object for each change, the same without one."""
    a, b = np.ones((4, 16), np.float16), np.eye(16, dtype=np.float16)
    seen = [scaled.current()]
    for factor in (3.0, 5.0):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        assert (lw.matmul(a, b, epilogue=scaled) == factor).all()
        seen.append(scaled.current())
        assert scaled.current() is seen[-1]
    assert len(set(map(id, seen))) == 3


def test_minus_zero_as_a_factor_is_zero() -> None:
    a, b = np.ones((4, 16), np.float16), np.eye(16, dtype=np.float16)
    for alpha in (0.0, -0.0):
        assert not np.signbit(lw.matmul(a, b, alpha=alpha)).any()


def test_negated_tensors_are_no_call_that_was_made_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of x.conj().imag holds the numbers with the other sign: machine code is not asked."""
    plain, negated = (SimpleNamespace(is_neg=lambda sign=sign: sign) for sign in (False, True))
    asked: list[Any] = []

    def call(*arguments: Any) -> str:
        asked.append(arguments)
        return "made"

    machine_code = SimpleNamespace(call=call)
    monkeypatch.setattr(known_calls, "NATIVE_CALLS", [machine_code])
    assert known_calls.repeated(plain, plain, None, None, None, {}) == "made"
    assert known_calls.repeated(plain, plain, plain, None, None, {}) == "made"
    for a, b, out in ((negated, plain, None), (plain, negated, None), (plain, plain, negated)):
        assert known_calls.repeated(a, b, out, None, None, {}) is None
    assert known_calls.repeated(plain, plain, None, negated, None, {}) is None
    assert known_calls.repeated(plain, plain, None, None, None, {"residual": negated}) is None
    assert known_calls.repeated(np.ones(2), plain, None, None, None, {}) is None
    assert len(asked) == 2
    assert known_calls.is_negated(None, 2.0, plain, negated) and not known_calls.is_negated(plain, None)
