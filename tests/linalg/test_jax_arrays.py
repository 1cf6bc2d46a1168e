"""Products of JAX's arrays in host memory: the bits of NumPy's, as arrays of JAX."""

from typing import Any

import numpy as np
import pytest

jax: Any = pytest.importorskip("jax")

import lanewise as lw  # noqa: E402 (needs jax)

jnp = jax.numpy


def numbers(rows: int, columns: int, dtype: Any) -> Any:
    """Return random numbers of a type as an array of JAX."""
    rng = np.random.default_rng(rows)
    return jnp.asarray(4 * rng.standard_normal((rows, columns)).astype(np.float32)).astype(dtype)


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16", "int8", "float8_e4m3fn", "float8_e5m2"])
def test_products_of_each_type_have_the_bits_of_numpy(name: str) -> None:
    a, b = numbers(5, 24, getattr(jnp, name)), numbers(24, 9, getattr(jnp, name))
    found = lw.matmul(a, b)
    expected = lw.matmul(np.asarray(a), np.asarray(b))
    assert isinstance(found, jax.Array) and found.devices() == a.devices()
    assert found.dtype == expected.dtype and np.asarray(found).tobytes() == expected.tobytes()


def test_results_of_jit_are_taken_and_given_back() -> None:
    double = jax.jit(lambda x: x * 2)
    a = numbers(4, 8, jnp.float16)
    found = double(lw.matmul(double(a), double(a).T, bias=jnp.ones(4, jnp.float16), activation="relu"))
    two = 2 * np.asarray(a)
    expected = 2 * lw.matmul(two, two.T, bias=np.ones(4, np.float16), activation="relu")
    assert np.asarray(found).tobytes() == expected.tobytes()


def test_vectors_batches_and_zero_sizes() -> None:
    a = numbers(4, 8, jnp.float16)
    assert lw.matmul(a[0], a[0]).shape == ()
    assert lw.matmul(jnp.stack([a, a]), a.T).shape == (2, 4, 4)
    assert lw.matmul(a[:0], a.T).shape == (0, 4)


def test_numpy_takes_the_result_and_jax_is_not_written() -> None:
    a, out = numbers(4, 8, jnp.float32), np.zeros((4, 4), np.float32)
    assert lw.matmul(a, a.T, out=out) is out and out.any()
    with pytest.raises(lw.LanewiseError, match="array of JAX, which cannot be written"):
        lw.matmul(a, a.T, out=jnp.zeros((4, 4), jnp.float32))


def test_a_tracer_is_refused_and_a_callback_computes_inside_jit() -> None:
    a = numbers(4, 8, jnp.float32)
    with pytest.raises(lw.LanewiseError, match=r"outside of jax\.jit"):
        jax.jit(lambda x: lw.matmul(x, x.T))(a)
    shape = jax.ShapeDtypeStruct((4, 4), jnp.float32)
    inside = jax.jit(lambda x: jax.pure_callback(lambda p, q: np.asarray(lw.matmul(p, q)), shape, x, x.T))
    assert np.asarray(inside(a)).tobytes() == np.asarray(lw.matmul(a, a.T)).tobytes()
