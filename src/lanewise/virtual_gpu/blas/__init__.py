"""cuBLAS and cuBLASLt over a virtual GPU: products by `lw.matmul`, vectors by NumPy."""

from lanewise.virtual_gpu.blas.blas import Blas

__all__ = ["Blas"]
