"""A saxpy with cuda-core, compiled to PTX.

`lanewise run --gpu H100 examples/virtual_gpu/cuda_core_saxpy.py`
"""

import numpy as np
from cuda.core import (
    Device,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    Program,
    ProgramOptions,
    launch,
)

SOURCE = """
extern "C" __global__ void saxpy(float a, const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}"""

device = Device()
device.set_current()
stream = device.create_stream()
options = ProgramOptions(arch="sm_" + "".join(map(str, device.compute_capability)))
kernel = Program(SOURCE, code_type="c++", options=options).compile("ptx").get_kernel("saxpy")

n = 1000
on_host = [LegacyPinnedMemoryResource().allocate(4 * n) for _ in range(2)]
on_device = [device.allocate(4 * n, stream=stream) for _ in range(2)]
x, y = (np.from_dlpack(buffer).view(np.float32) for buffer in on_host)
x[:], y[:] = np.arange(n), 1
for memory, buffer in zip(on_device, on_host, strict=True):
    memory.copy_from(buffer, stream=stream)
config = LaunchConfig(grid=8, block=128)
launch(stream, config, kernel, np.float32(2), *on_device, np.int32(n))
on_device[1].copy_to(on_host[1], stream=stream)
stream.sync()
np.testing.assert_array_equal(y, 2 * x + 1)
print("cuda-core: saxpy is right")
