"""The kernel language: Python functions traced to PTX, that run on the CPU machine and on GPUs.

What users call is exported by `lanewise` itself.
"""

from lanewise.lang.arithmetic import truncated_div as div
from lanewise.lang.arithmetic import truncated_rem as rem
from lanewise.lang.arithmetic import where
from lanewise.lang.arrays import Array, dynamic_shared, local, shared, tensor
from lanewise.lang.builder import tracing
from lanewise.lang.convert import bitcast, pack, unpack
from lanewise.lang.coordinates import (
    block_dim,
    block_idx,
    grid_dim,
    lane_id,
    thread_idx,
    thread_rank,
    warp_id,
)
from lanewise.lang.errors import KernelError
from lanewise.lang.intrinsics.copies import cp_async, cp_async_commit, cp_async_wait
from lanewise.lang.intrinsics.debug import assert_, clock, printf, trap
from lanewise.lang.intrinsics.matrices import ldmatrix, movmatrix, stmatrix
from lanewise.lang.intrinsics.sync import arrive, barrier, fence, syncthreads, syncwarp
from lanewise.lang.kernel import Device, Kernel, device, kernel
from lanewise.lang.loops import range
from lanewise.lang.matrix import Fragment
from lanewise.lang.memory import Pointer, pointer
from lanewise.lang.types import Constexpr, Ptr, bf16x2, f16x2, i8, i16, i32, i64, pred, u16, u32, u64

__all__ = [
    "Array",
    "Constexpr",
    "Device",
    "Fragment",
    "Kernel",
    "KernelError",
    "Pointer",
    "Ptr",
    "arrive",
    "assert_",
    "barrier",
    "bf16x2",
    "bitcast",
    "block_dim",
    "block_idx",
    "clock",
    "cp_async",
    "cp_async_commit",
    "cp_async_wait",
    "device",
    "div",
    "dynamic_shared",
    "f16x2",
    "fence",
    "grid_dim",
    "i8",
    "i16",
    "i32",
    "i64",
    "kernel",
    "lane_id",
    "ldmatrix",
    "local",
    "movmatrix",
    "pack",
    "pointer",
    "pred",
    "printf",
    "range",
    "rem",
    "shared",
    "stmatrix",
    "syncthreads",
    "syncwarp",
    "tensor",
    "thread_idx",
    "thread_rank",
    "tracing",
    "trap",
    "u16",
    "u32",
    "u64",
    "unpack",
    "warp_id",
    "where",
]  # fmt: skip
