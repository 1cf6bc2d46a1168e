"""Products by wgmma in CUDA C++, for the machine, traces and a GPU."""

from pathlib import Path

BF16 = "wgmma.mma_async.sync.aligned.m64n{}k16.f32.bf16.bf16"


GEMM, BY_TMA = (Path(__file__).parent / "kernels" / name for name in ("wgmma.cu", "wgmma_tma.cu"))


#: Kernels of the file: threads, rows of a block's tile, bytes of shared memory.
KERNELS = {"gemm": (128, 64, 320 * 128), "specialised": (384, 128, 3 * 384 * 128)}
