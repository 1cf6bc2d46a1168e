"""An extension of torch in CUDA C++: `lanewise run --gpu H100 examples/virtual_gpu/torch_extension.py`."""

import torch
from torch.utils.cpp_extension import load_inline

CUDA = """
__global__ void saxpy(float a, const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}

void add(double a, torch::Tensor x, torch::Tensor y) {
    saxpy<<<(x.numel() + 127) / 128, 128>>>(a, x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
}"""

extension = load_inline(
    "saxpy",
    cpp_sources="void add(double a, torch::Tensor x, torch::Tensor y);",
    cuda_sources=CUDA,
    functions=["add"],
)
x, y = torch.arange(1000.0, device="cuda"), torch.ones(1000, device="cuda")
extension.add(2.0, x, y)
torch.testing.assert_close(y, 2 * x + 1, rtol=0, atol=0)
print("torch.utils.cpp_extension: saxpy is right")
