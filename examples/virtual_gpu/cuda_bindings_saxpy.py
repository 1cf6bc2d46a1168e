"""A saxpy with cuda-bindings: NVRTC, a stream, asynchronous copies.

`lanewise run --gpu H100 examples/virtual_gpu/cuda_bindings_saxpy.py`
"""

import ctypes

import numpy as np
from cuda.bindings import driver, nvrtc

SOURCE = rb"""
extern "C" __global__ void saxpy(float a, const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}"""


def checked(answer):
    """Return the results of a call, whose first value is its status."""
    status, *results = answer
    if status.value:
        raise RuntimeError(status)
    return results[0] if len(results) == 1 else results


checked(driver.cuInit(0))
device = checked(driver.cuDeviceGet(0))
context = checked(driver.cuDevicePrimaryCtxRetain(device))
checked(driver.cuCtxSetCurrent(context))

program = checked(nvrtc.nvrtcCreateProgram(SOURCE, b"saxpy.cu", 0, [], []))
checked(nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=compute_90"]))
ptx = b" " * checked(nvrtc.nvrtcGetPTXSize(program))
checked(nvrtc.nvrtcGetPTX(program, ptx))
function = checked(driver.cuModuleGetFunction(checked(driver.cuModuleLoadData(ptx)), b"saxpy"))

n = 1000
x, y = np.arange(n, dtype=np.float32), np.ones(n, np.float32)
stream = checked(driver.cuStreamCreate(0))
on_device = [checked(driver.cuMemAlloc(array.nbytes)) for array in (x, y)]
for memory, array in zip(on_device, (x, y), strict=True):
    checked(driver.cuMemcpyHtoDAsync(memory, array.ctypes.data, array.nbytes, stream))
arguments = (
    (2.0, *on_device, n),
    (ctypes.c_float, None, None, ctypes.c_int),  # None: an object of cuda-bindings
)
checked(driver.cuLaunchKernel(function, 8, 1, 1, 128, 1, 1, 0, stream, arguments, 0))
result = np.empty_like(y)
checked(driver.cuMemcpyDtoHAsync(result.ctypes.data, on_device[1], result.nbytes, stream))
checked(driver.cuStreamSynchronize(stream))
np.testing.assert_array_equal(result, 2 * x + 1)
for memory in on_device:
    checked(driver.cuMemFree(memory))
print("cuda-bindings: saxpy is right")
