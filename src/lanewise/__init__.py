"""lanewise: Tensor Core programming in Python, lane by lane.

`import lanewise as lw` is the whole public API. Rooms that need time to load are loaded when first used.
"""

from functools import cache as _cache
from importlib import import_module
from typing import TYPE_CHECKING

import lanewise.disk_cache as _disk_cache  # noqa: F401 (first: it notes when the library was imported)
from lanewise import providers as _providers  # noqa: F401 (connects the rooms; loads none of them)
from lanewise.errors import IllegalInstruction, LanewiseError
from lanewise.formats import FORMATS, Format, format_of
from lanewise.isa import ARCHS, FAMILIES, Holder, Instruction, Operand, instruction, instructions
from lanewise.layout import ComposedLayout, Layout, Swizzle, Tensor, make_layout

if TYPE_CHECKING:
    from lanewise import arith, atoms, draw, gpu, lang, ptx, traces
    from lanewise.arith.comparison import compare
    from lanewise.atoms import (
        Copy_Atom,
        MMA_Atom,
        TiledCopy,
        TiledMMA,
        atom,
        make_tiled_copy,
        make_tiled_copy_A,
        make_tiled_copy_B,
        make_tiled_copy_C,
        make_tiled_mma,
        make_tmem_copy,
        make_tmem_warp_partitioner,
        make_utccp_copy,
    )
    from lanewise.autotuning import AutotunedKernel, autotune
    from lanewise.benchmarking import Timing, benchmark
    from lanewise.isa.asynchronous import (
        AsyncInstruction,
        InstructionDescriptor,
        async_instruction,
        async_instructions,
    )
    from lanewise.isa.sparsity import prune_2_4
    from lanewise.lang import *  # noqa: F403 (its __all__ is the list of what it exports)
    from lanewise.lang.frontend.annotations import *  # noqa: F403 (formats are types, too: `x: lw.f32`)
    from lanewise.launch import address
    from lanewise.linalg.attention import attention
    from lanewise.linalg.block_scaling import SwizzledScales
    from lanewise.linalg.epilogue_function import epilogue
    from lanewise.linalg.grouped_matmul import grouped_matmul
    from lanewise.linalg.matmul import matmul, plan
    from lanewise.linalg.quantize import quantize
    from lanewise.linalg.sparsify import sparsify
    from lanewise.linalg.tune import tune
    from lanewise.machine.checker.check import check
    from lanewise.ptx import Module, cuda, load
    from lanewise.ptx.textures import surface, texture
    from lanewise.tensor_maps import encode_im2col, encode_tiled, tensor_map
    from lanewise.traces.trace import trace
    from lanewise.virtual_gpu.session import virtual_gpu
else:
    from lanewise.formats import (
        b1,
        bf16,
        e2m1,
        e2m3,
        e3m2,
        e4m3,
        e5m2,
        f16,
        f32,
        f64,
        s4,
        s8,
        s32,
        tf32,
        u4,
        u8,
        ue4m3,
        ue8m0,
    )

__version__ = "0.1.0"

#: Loaded on first use: a room, or a name out of one.
_HOMES = {
    "": "arith atoms draw gpu lang ptx traces virtual_gpu",
    "isa.asynchronous": "AsyncInstruction InstructionDescriptor async_instruction async_instructions",
    "atoms": (
        "Copy_Atom MMA_Atom TiledCopy TiledMMA atom make_tiled_copy make_tiled_copy_A "
        "make_tiled_copy_B make_tiled_copy_C make_tiled_mma make_tmem_copy "
        "make_tmem_warp_partitioner make_utccp_copy"
    ),
    "ptx": "Module cuda load",
    "launch": "address",
    "ptx.textures": "surface texture",
    "tensor_maps": "encode_im2col encode_tiled tensor_map",
    "machine.checker.check": "check",
    "arith.comparison": "compare",
    "linalg.attention": "attention",
    "linalg.epilogue_function": "epilogue",
    "linalg.grouped_matmul": "grouped_matmul",
    "linalg.matmul": "matmul plan",
    "linalg.quantize": "quantize",
    "linalg.sparsify": "sparsify",
    "linalg.block_scaling": "SwizzledScales",
    "linalg.tune": "tune",
    "isa.sparsity": "prune_2_4",
    "traces.trace": "trace",
    "autotuning": "AutotunedKernel autotune",
    "benchmarking": "Timing benchmark",
}
_LATER = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "ARCHS",
    "FAMILIES",
    "FORMATS",
    "AsyncInstruction",
    "AutotunedKernel",
    "ComposedLayout",
    "Copy_Atom",
    "Format",
    "Holder",
    "IllegalInstruction",
    "Instruction",
    "InstructionDescriptor",
    "LanewiseError",
    "Layout",
    "MMA_Atom",
    "Module",
    "Operand",
    "Swizzle",
    "SwizzledScales",
    "Tensor",
    "TiledCopy",
    "TiledMMA",
    "Timing",
    "__version__",
    "address",
    "arith",
    "async_instruction",
    "async_instructions",
    "atom",
    "atoms",
    "attention",
    "autotune",
    "b1",
    "benchmark",
    "bf16",
    "check",
    "compare",
    "cuda",
    "draw",
    "e2m1",
    "e2m3",
    "e3m2",
    "e4m3",
    "e5m2",
    "encode_im2col",
    "encode_tiled",
    "epilogue",
    "f16",
    "f32",
    "f64",
    "format_of",
    "gpu",
    "grouped_matmul",
    "instruction",
    "instructions",
    "lang",
    "load",
    "make_layout",
    "make_tiled_copy",
    "make_tiled_copy_A",
    "make_tiled_copy_B",
    "make_tiled_copy_C",
    "make_tiled_mma",
    "make_tmem_copy",
    "make_tmem_warp_partitioner",
    "make_utccp_copy",
    "matmul",
    "plan",
    "prune_2_4",
    "ptx",
    "quantize",
    "s4",
    "s8",
    "s32",
    "sparsify",
    "surface",
    "tensor_map",
    "texture",
    "tf32",
    "trace",
    "traces",
    "tune",
    "u4",
    "u8",
    "ue4m3",
    "ue8m0",
    "virtual_gpu",
]


def __getattr__(name: str) -> object:
    room = _LATER.get(name)
    if room is None:  # everything else that is here is of the kernel language
        room = "lang"
        if name.startswith("_") or name not in import_module("lanewise.lang").__all__:
            # without an object Python adds no hint of its own to the one that is there
            message = f"module 'lanewise' has no attribute {name!r}{_meant(name)}"
            try:
                raise AttributeError(message, name=name, obj=None)
            except AttributeError as error:
                error.__traceback__ = None  # the line of the caller is the last one that is shown
                raise
    module = import_module(f"lanewise.{room or name}")
    value = getattr(module, name) if room else module
    globals()[name] = value
    return value


#: Names that other kernel languages have, and what takes their place.
_ELSEWHERE = {
    "program_id": "Triton's program_id(0) is block_idx.x",
    "num_programs": "Triton's num_programs(0) is grid_dim.x",
    "arange": "a kernel is written for one thread, whose number is thread_idx.x",
    "grid": "Numba's grid(1) is block_idx.x * block_dim.x + thread_idx.x",
    "jit": "kernel marks a kernel, device a function that kernels call",
    "global_id": "the thread's number in the grid is block_idx.x * block_dim.x + thread_idx.x",
    "sync": "syncthreads() is the barrier of a block, syncwarp() that of a warp",
    "zeros": "np.zeros makes an array; in a kernel, mma.zeros() makes an accumulator",
    "empty": "np.empty makes an array; in a kernel, shared(f32, n) and local(f32, n) do",
    "version": "__version__ is its version",
    "explore": "`lanewise explore` in a shell opens the page of instructions and kernels",
    "debug": "`lanewise debug script.py` in a shell steps through the kernels of a script",
    "run": "kernel[grid, block](…) launches a kernel; `lanewise run FILE` in a shell runs a file",
    "explain": "instruction(…) knows it all; `lanewise explain` in a shell prints it",
    "profile": "check(kernel[grid, block], …).counters has counters, and benchmark(f) measures",
    "warp_sum": "warp_reduce adds over the lanes of a warp",
    "mm": "matmul multiplies arrays",
    "select": "where(condition, a, b) chooses one of two values; CuTe's select is lanewise.layout.select",
    "dot": "instruction(…) gives a matrix instruction, which a kernel calls; matmul multiplies arrays",
}


@_cache
def _meant(name: str) -> str:
    """Return a hint for a name that is not there: CUDA's threadIdx is thread_idx, and half is f16."""
    import re

    from lanewise.formats import AMBIGUOUS, SPELLINGS
    from lanewise.hints import nearest

    if name in _ELSEWHERE:
        return f"; {_ELSEWHERE[name]}"
    lower = name.lower()
    formats = AMBIGUOUS.get(lower) or [SPELLINGS[spelling] for spelling in (lower,) if spelling in SPELLINGS]
    integer = re.fullmatch(r"(u?)int(\d+)", name)
    if integer:  # of which the kernel language has types of its own
        own = f"{integer[1] or 'i'}{integer[2]}"
        formats = [*((own,) if own in import_module("lanewise.lang").__all__ else ()), *formats]
    if formats:
        return f"; did you mean {' or '.join(formats)}?"
    if name.endswith("__"):  # what tools ask every module for
        return ""
    rooms = (import_module(f"lanewise.{room}") for room in ("layout", "draw", "atoms", "ptx", "arith"))
    home = next((room.__name__ for room in rooms if name in room.__all__), None)
    public = [known for known in __dir__() if not known.startswith("_")]
    close = f"{home}.{name}" if home is not None else nearest(name, public)
    return f"; did you mean {close}?" if close else ""


def __dir__() -> list[str]:
    language = import_module("lanewise.lang").__all__
    return sorted({*__all__, *language, *(name for name in globals() if name.startswith("__"))})
