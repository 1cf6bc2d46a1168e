"""The kernel language: Python functions traced to PTX, that run on the CPU machine and on GPUs.

This is the one list of what the language exports; `lanewise` itself passes it on to users. The packages stand
in this order, and each imports only itself and those before it:

trace → versions → memory → matrix → intrinsics → wmma → hopper → blackwell → tiles → frontend

What only some kernels need, such as TMA and tiles, is loaded when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING

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
from lanewise.lang.intrinsics.sync import (
    arrive,
    barrier,
    fence,
    fence_mbarrier_init,
    fence_proxy_async,
    launch_dependents,
    syncthreads,
    syncwarp,
    wait_on_dependencies,
)
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
from lanewise.lang.memory.array import dynamic_shared, local, shared, tensor
from lanewise.lang.memory.pointer import Pointer, pointer
from lanewise.lang.trace.builder import arch, tracing
from lanewise.lang.trace.convert import bitcast, pack, unpack
from lanewise.lang.trace.errors import KernelError
from lanewise.lang.trace.operators import mul_wide, where
from lanewise.lang.trace.operators import truncated_div as div
from lanewise.lang.trace.operators import truncated_rem as rem
from lanewise.lang.trace.special_registers import (
    block_dim,
    block_idx,
    grid_dim,
    lane_id,
    thread_idx,
    thread_rank,
    warp_id,
)

if TYPE_CHECKING:
    from lanewise.lang import wmma
    from lanewise.lang.blackwell import clc, tcgen05, tmem
    from lanewise.lang.frontend.annotations import (
        Array,
        Constexpr,
        Ptr,
        TensorMap,
        bf16x2,
        e2m1x2,
        e2m3x2,
        e3m2x2,
        e4m3x2,
        e5m2x2,
        f16x2,
        i8,
        i16,
        i32,
        i64,
        pred,
        u16,
        u32,
        u64,
        ue8m0x2,
    )
    from lanewise.lang.hopper import cluster, tma
    from lanewise.lang.hopper.mbarrier import mbarrier
    from lanewise.lang.hopper.warpgroup import (
        elect_one,
        setmaxnreg_dec,
        setmaxnreg_inc,
        wgmma_commit,
        wgmma_fence,
        wgmma_wait,
    )
    from lanewise.lang.intrinsics.reductions import block_reduce, block_scan, warp_reduce, warp_scan
    from lanewise.lang.matrix.descriptor import make_gmma_desc, make_umma_desc
    from lanewise.lang.memory.array import vectorized
    from lanewise.lang.tiles.copy import copy, inside
    from lanewise.lang.tiles.gemm import gemm
    from lanewise.lang.tiles.partition import local_partition
    from lanewise.lang.tiles.pipeline import Pipeline, PipelineState
    from lanewise.lang.tiles.register_tensor import clear, fill, make_fragment_like
    from lanewise.lang.tiles.scheduler import PersistentTiles
    from lanewise.lang.tiles.tensor import local_tile, make_identity_tensor, make_tensor
    from lanewise.lang.tiles.tma_copy import make_tma_copy, tma_partition
    from lanewise.lang.tiles.umma_pipeline import (
        PipelineCLCFetchAsync,
        PipelineTmaUmmaAsync,
        PipelineUmmaAsync,
    )

#: Names that are loaded on first use, and the module that has them; the module itself where it has its name.
#: Dtypes and annotations are among them because type checkers find others there, above.
_HOMES = {
    "blackwell.clc": "clc",
    "blackwell.tcgen05": "tcgen05",
    "blackwell.tmem": "tmem",
    "hopper.cluster": "cluster",
    "hopper.tma": "TensorMap tma",
    "hopper.mbarrier": "mbarrier",
    "hopper.warpgroup": "elect_one setmaxnreg_dec setmaxnreg_inc wgmma_commit wgmma_fence wgmma_wait",
    "intrinsics.reductions": "block_reduce block_scan warp_reduce warp_scan",
    "matrix.descriptor": "make_gmma_desc make_umma_desc",
    "memory.array": "Array vectorized",
    "tiles.copy": "copy inside",
    "tiles.gemm": "gemm",
    "tiles.partition": "local_partition",
    "tiles.pipeline": "Pipeline PipelineState",
    "tiles.register_tensor": "clear fill make_fragment_like",
    "tiles.scheduler": "PersistentTiles",
    "tiles.tensor": "local_tile make_identity_tensor make_tensor",
    "tiles.tma_copy": "make_tma_copy tma_partition",
    "tiles.umma_pipeline": "PipelineCLCFetchAsync PipelineTmaUmmaAsync PipelineUmmaAsync",
    "trace.types": (
        "Constexpr Ptr bf16x2 e2m1x2 e2m3x2 e3m2x2 e4m3x2 e5m2x2 f16x2 "
        "i8 i16 i32 i64 pred u16 u32 u64 ue8m0x2"
    ),
    "wmma": "wmma",
}
_LATER = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "Array",
    "Constexpr",
    "Device",
    "Fragment",
    "Kernel",
    "KernelError",
    "PersistentTiles",
    "Pipeline",
    "PipelineCLCFetchAsync",
    "PipelineState",
    "PipelineTmaUmmaAsync",
    "PipelineUmmaAsync",
    "Pointer",
    "Ptr",
    "TensorMap",
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
    "block_reduce",
    "block_scan",
    "brev",
    "cdiv",
    "ceil",
    "clc",
    "clear",
    "clock",
    "cluster",
    "clz",
    "copy",
    "cos",
    "cp_async",
    "cp_async_commit",
    "cp_async_wait",
    "device",
    "div",
    "dynamic_shared",
    "e2m1x2",
    "e2m3x2",
    "e3m2x2",
    "e4m3x2",
    "e5m2x2",
    "elect_one",
    "exp",
    "exp2",
    "f16x2",
    "fence",
    "fence_mbarrier_init",
    "fence_proxy_async",
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
    "launch_dependents",
    "ldmatrix",
    "local",
    "local_partition",
    "local_tile",
    "log",
    "log2",
    "make_fragment_like",
    "make_gmma_desc",
    "make_identity_tensor",
    "make_tensor",
    "make_tma_copy",
    "make_umma_desc",
    "match_all_sync",
    "match_any_sync",
    "max",
    "mbarrier",
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
    "setmaxnreg_dec",
    "setmaxnreg_inc",
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
    "tcgen05",
    "tensor",
    "thread_idx",
    "thread_rank",
    "tma",
    "tma_partition",
    "tmem",
    "tracing",
    "trap",
    "trunc",
    "u16",
    "u32",
    "u64",
    "ue8m0x2",
    "unpack",
    "vectorized",
    "wait_on_dependencies",
    "warp_id",
    "warp_reduce",
    "warp_scan",
    "wgmma_commit",
    "wgmma_fence",
    "wgmma_wait",
    "where",
    "wmma",
]


def __getattr__(name: str) -> object:
    home = _LATER.get(name)
    if home is None:
        raise AttributeError(f"module 'lanewise.lang' has no attribute {name!r}")
    module = import_module(f"lanewise.lang.{home}")
    value = module if home.rpartition(".")[2] == name and not hasattr(module, name) else getattr(module, name)
    globals()[name] = value
    return value
