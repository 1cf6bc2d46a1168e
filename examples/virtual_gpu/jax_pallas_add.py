"""An addition in JAX Pallas.

`JAX_PLATFORMS=cuda lanewise run --gpu H100 examples/virtual_gpu/jax_pallas_add.py`
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl


def add(x, y, out):
    out[...] = x[...] + y[...]


x, y = jnp.arange(128.0), jnp.ones(128)
result = pl.pallas_call(add, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x, y)
assert (result == x + 1).all()
print("JAX Pallas: the sum is right")
