"""A kernel that torch compiles from CUDA C++.

`lanewise run --gpu H100 examples/virtual_gpu/torch_compile_kernel.py`
"""

import torch

SOURCE = """
extern "C" __global__ void saxpy(double a, const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}"""

saxpy = torch.cuda._compile_kernel(SOURCE, "saxpy")
x, y = torch.arange(1000.0, device="cuda"), torch.ones(1000, device="cuda")
saxpy((8, 1, 1), (128, 1, 1), (2.0, x, y, x.numel()))  # torch passes a float as a double
torch.testing.assert_close(y, 2 * x + 1, rtol=0, atol=0)
print("torch.cuda._compile_kernel: saxpy is right")
