"""The CUDA runtime API over the driver of the virtual GPU, for programs in CUDA C++.

A program that nvcc compiled calls `cudaMalloc`, `cudaLaunchKernel` and what nvcc itself writes, such as
`__cudaRegisterFunction`. NVIDIA's own runtime asks a driver for tables that are not documented; this one
answers the calls by the driver in Python.
"""

from lanewise.virtual_gpu.runtime.runtime import Runtime

__all__ = ["Runtime"]
