"""An axpy in numba-cuda on NumPy arrays: `lanewise run --gpu H100 examples/virtual_gpu/numba_axpy.py`."""

import numpy as np
from numba import cuda


@cuda.jit
def axpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] += a * x[i]


x, y = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
axpy[8, 128](np.float32(2), x, y)
np.testing.assert_array_equal(y, 2 * x + 1)
print("numba-cuda: axpy is right")
