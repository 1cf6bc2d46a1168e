"""A RawKernel of CuPy: `lanewise run --gpu H100 examples/virtual_gpu/cupy_raw_kernel.py`."""

import cupy

SOURCE = """
extern "C" __global__ void saxpy(float a, const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}"""

saxpy = cupy.RawKernel(SOURCE, "saxpy")
x, y = cupy.arange(1000, dtype=cupy.float32), cupy.ones(1000, cupy.float32)
saxpy((8,), (128,), (cupy.float32(2), x, y, cupy.int32(x.size)))
cupy.testing.assert_array_equal(y, 2 * x + 1)
print("CuPy: saxpy is right")
