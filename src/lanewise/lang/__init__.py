"""The kernel language: Python functions traced to PTX, that run on the CPU machine and on GPUs.

This is the one list of what the language exports; `lanewise` itself passes it on to users. The packages stand
in this order, and each imports only itself and those before it:

trace → memory → matrix → intrinsics → wmma → tiles → frontend
"""

from lanewise.lang import wmma
from lanewise.lang.frontend.device import Device, device
from lanewise.lang.frontend.kernel import Kernel, kernel
from lanewise.lang.frontend.loops import range
from lanewise.lang.intrinsics.atomics import (
    atomic_add,
    atomic_and,
    atomic_cas,
    atomic_dec,
    atomic_exch,
    atomic_inc,
    atomic_max,
    atomic_min,
    atomic_or,
    atomic_xor,
)
from lanewise.lang.intrinsics.cp_async import cp_async, cp_async_commit, cp_async_wait
from lanewise.lang.intrinsics.debug import assert_, clock, printf, trap
from lanewise.lang.intrinsics.inline_ptx import asm
from lanewise.lang.intrinsics.ldmatrix import ldmatrix, movmatrix, stmatrix
from lanewise.lang.intrinsics.maths import absolute_value as abs
from lanewise.lang.intrinsics.maths import (
    assume,
    brev,
    cdiv,
    ceil,
    clz,
    cos,
    exp,
    exp2,
    floor,
    fma,
    isnan,
    log,
    log2,
    mulhi,
    popc,
    rcp,
    round,
    rsqrt,
    sin,
    sqrt,
    tanh,
    trunc,
)
from lanewise.lang.intrinsics.maths import maximum as max
from lanewise.lang.intrinsics.maths import minimum as min
from lanewise.lang.intrinsics.maths import permute_bytes as prmt
from lanewise.lang.intrinsics.sync import arrive, barrier, fence, syncthreads, syncwarp
from lanewise.lang.intrinsics.warp import (
    activemask,
    all_sync,
    any_sync,
    ballot_sync,
    match_all_sync,
    match_any_sync,
    reduce_add_sync,
    reduce_and_sync,
    reduce_max_sync,
    reduce_min_sync,
    reduce_or_sync,
    reduce_xor_sync,
    shfl_down_sync,
    shfl_sync,
    shfl_up_sync,
    shfl_xor_sync,
)
from lanewise.lang.matrix.fragment import Fragment
from lanewise.lang.memory.array import Array, dynamic_shared, local, shared, tensor
from lanewise.lang.memory.pointer import Pointer, pointer
from lanewise.lang.tiles.copy import copy, inside
from lanewise.lang.tiles.gemm import gemm
from lanewise.lang.tiles.partition import local_partition
from lanewise.lang.tiles.register_tensor import clear, fill, make_fragment_like
from lanewise.lang.tiles.tensor import local_tile, make_identity_tensor, make_tensor
from lanewise.lang.trace.arithmetic import mul_wide
from lanewise.lang.trace.builder import arch, tracing
from lanewise.lang.trace.compare import where
from lanewise.lang.trace.convert import bitcast, pack, unpack
from lanewise.lang.trace.division import truncated_div as div
from lanewise.lang.trace.division import truncated_rem as rem
from lanewise.lang.trace.errors import KernelError
from lanewise.lang.trace.special_registers import (
    block_dim,
    block_idx,
    grid_dim,
    lane_id,
    thread_idx,
    thread_rank,
    warp_id,
)
from lanewise.lang.trace.types import Constexpr, Ptr, bf16x2, f16x2, i8, i16, i32, i64, pred, u16, u32, u64

__all__ = [
    "Array",
    "Constexpr",
    "Device",
    "Fragment",
    "Kernel",
    "KernelError",
    "Pointer",
    "Ptr",
    "abs",
    "activemask",
    "all_sync",
    "any_sync",
    "arch",
    "arrive",
    "asm",
    "assert_",
    "assume",
    "atomic_add",
    "atomic_and",
    "atomic_cas",
    "atomic_dec",
    "atomic_exch",
    "atomic_inc",
    "atomic_max",
    "atomic_min",
    "atomic_or",
    "atomic_xor",
    "ballot_sync",
    "barrier",
    "bf16x2",
    "bitcast",
    "block_dim",
    "block_idx",
    "brev",
    "cdiv",
    "ceil",
    "clear",
    "clock",
    "clz",
    "copy",
    "cos",
    "cp_async",
    "cp_async_commit",
    "cp_async_wait",
    "device",
    "div",
    "dynamic_shared",
    "exp",
    "exp2",
    "f16x2",
    "fence",
    "fill",
    "floor",
    "fma",
    "gemm",
    "grid_dim",
    "i8",
    "i16",
    "i32",
    "i64",
    "inside",
    "isnan",
    "kernel",
    "lane_id",
    "ldmatrix",
    "local",
    "local_partition",
    "local_tile",
    "log",
    "log2",
    "make_fragment_like",
    "make_identity_tensor",
    "make_tensor",
    "match_all_sync",
    "match_any_sync",
    "max",
    "min",
    "movmatrix",
    "mul_wide",
    "mulhi",
    "pack",
    "pointer",
    "popc",
    "pred",
    "printf",
    "prmt",
    "range",
    "rcp",
    "reduce_add_sync",
    "reduce_and_sync",
    "reduce_max_sync",
    "reduce_min_sync",
    "reduce_or_sync",
    "reduce_xor_sync",
    "rem",
    "round",
    "rsqrt",
    "shared",
    "shfl_down_sync",
    "shfl_sync",
    "shfl_up_sync",
    "shfl_xor_sync",
    "sin",
    "sqrt",
    "stmatrix",
    "syncthreads",
    "syncwarp",
    "tanh",
    "tensor",
    "thread_idx",
    "thread_rank",
    "tracing",
    "trap",
    "trunc",
    "u16",
    "u32",
    "u64",
    "unpack",
    "warp_id",
    "where",
    "wmma",
]
