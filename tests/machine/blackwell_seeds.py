"""Kernels of sm_100a that `test_machine_fuzz.py` mutates: tensor memory, tcgen05, cluster launch control."""

import json
import zipfile
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

import lanewise as lw
from lanewise.ptx import ToolMissing
from machine.classics import FOLDER
from machine.mutants import Seed, alone

TRITON = Path(__file__).parent / "triton"
SWIZZLES = ("none", "32B", "64B", "128B")


def tensor(
    shape: tuple[int, ...], box: tuple[int, ...], dtype: str = "float16", swizzle: str = "128B"
) -> tuple[Any, ...]:
    """A tensor map, as `Seed` takes it."""
    return (prod(shape) * np.dtype(dtype).itemsize, shape, box, swizzle, dtype)


#: In kernels/blackwell/fuzzed.ptx: entry, grid, block, arguments.
SMALL: list[tuple[str, int, int, tuple[Any, ...]]] = [
    ("rows", 2, 128, ((2048,), (2048,))),
    ("product", 2, 128, ((6144,), (4096,), 0x8020010)),
    ("scaled", 1, 128, ((6144,), (4096,))),
    ("taken_over", 6, 64, ((64,),)),
    ("gathered", 1, 32, (tensor((128, 64), (1, 64)), tensor((128, 64), (1, 64)), (1024,), 3)),
]
#: Bytes of a stage's row, and of the mbarriers of the sources in kernels/blackwell.
ROW, BARRIERS = 128, 1024
BYTES = ((128, 128), (128, 128), "uint8")
#: Compiled by NVRTC for a long look: file, entry, grid, dynamic shared bytes, arguments, blocks of a cluster.
LARGE: list[tuple[str, str, tuple[int, ...], int, tuple[Any, ...], int]] = [
    (
        "gemm", "single<bf16, 128, 64, 128, false, false>", (1, 1), 3 * 192 * ROW + BARRIERS,
        (tensor((128, 128), (128, 64)), tensor((64, 128), (64, 64)), (32768,), 64, 2), 0,
    ),
    (
        "gemm", "single<e4m3, 128, 128, 128, true, true>", (1, 1), 3 * 256 * ROW + BARRIERS,
        (tensor(*BYTES), tensor(*BYTES), (65536,), 128, 1), 0,
    ),
    (
        "gemm", "single<s8, 64, 32, 32, false, false>", (2, 2), 3 * 96 * 32 + BARRIERS,
        (
            tensor((128, 64), (64, 32), "uint8", "32B"), tensor((64, 64), (32, 32), "uint8", "32B"),
            (32768,), 64, 2,
        ), 0,
    ),
    (
        "gemm", "pair<bf16, 128, 128>", (2, 1), 3 * 128 * ROW + BARRIERS,
        (tensor((128, 128), (64, 64)), tensor((128, 128), (64, 64)), (65536,), 128, 2), 2,
    ),
    (
        "gemm", "pair<e4m3, 256, 64>", (2, 1), 3 * 160 * ROW + BARRIERS,
        (tensor((256, 128), (128, 128), "uint8"), tensor((64, 128), (32, 128), "uint8"), (65536,), 64, 1), 2,
    ),
    (
        "gemm", "persistent<bf16, 64>", (3, 1), 3 * 192 * ROW + BARRIERS,
        (tensor((128, 64), (128, 64)), tensor((192, 64), (64, 64)), (98304,), 192, 1, (12,)), 0,
    ),
    (
        "scaled", "scaled<mxf8>", (1, 1), 2 * (2 * 128 * ROW + 1024) + BARRIERS,
        (tensor(*BYTES), tensor(*BYTES), (512,), (512,), (65536,), 128, 1), 0,
    ),
    (
        "scaled", "scaled<nvf4>", (1, 1), 2 * (2 * 128 * ROW + 4096) + BARRIERS,
        (tensor(*BYTES), tensor(*BYTES), (2048,), (2048,), (65536,), 128, 1), 0,
    ),
    (
        "attention", "attention<true>", (1, 1), 6 * 8192 + BARRIERS,
        (
            tensor((128, 64), (128, 64)), tensor((128, 64), (64, 64)), tensor((128, 64), (64, 64)),
            (32768,), 128, 0.18,
        ), 0,
    ),
]  # fmt: skip
#: Compiled by Triton: name, grid, its tensors (shape and type) and other arguments, all in order.
COMPILED: list[tuple[str, tuple[int, ...], list[Any]]] = [
    ("dot_fp16", (1, 1), [(8192,), (8192,), (16384,), 64, 64, 64, 64, 64, 64]),
    ("described_e4m3", (1, 1), [((128, 128), "uint8"), ((64, 128), "uint8"), ((128, 64), "float32"), 128]),
    (
        "persistent", (1,),
        [((128, 64), "float16"), ((256, 64), "float16"), ((128, 256), "float16"), 128, 256, 64],
    ),
    (
        "scaled_mxfp4", (1, 1),
        [
            ((128, 64), "uint8"), ((1, 1, 1, 2, 256), "uint8"), ((128, 64), "uint8"),
            ((1, 1, 1, 2, 256), "uint8"), ((128, 128), "float32"), 128,
        ],
    ),
    (
        "gathered", (1, 1),
        [((256, 64), "float16"), (512,), ((128, 64), "float16"), ((256, 128), "float16"), 64],
    ),
]  # fmt: skip


def of_blackwell(long: bool) -> list[Seed]:
    """Small kernels by hand; for a long look also real ones, in CUDA C++ and by Triton."""
    text = (FOLDER / "blackwell" / "fuzzed.ptx").read_text()
    seeds = [
        Seed(entry, alone(text, entry), entry, (grid,), (block,), 0, arguments)
        for entry, grid, block, arguments in SMALL
    ]
    if not long:
        return seeds
    return seeds + _in_cuda() + _by_triton()


def _in_cuda() -> list[Seed]:
    seeds = []
    for file, name, grid, shared, arguments, cluster in LARGE:
        try:
            module = lw.cuda(FOLDER / "blackwell" / f"{file}.cu", arch="sm_100a", lineinfo=False)
        except ToolMissing:
            break
        entry = module[name].function.name
        seeds.append(Seed(name, alone(module.text, entry), entry, grid, (192,), shared, arguments, cluster))
    return seeds


def _by_triton() -> list[Seed]:
    """Triton passes a map, the shape and the strides of a tensor, and two pointers to scratch memory."""
    about = json.loads((TRITON / "blackwell.json").read_text())
    seeds = []
    for name, grid, described in COMPILED:
        boxes, arguments = iter(about[name]["boxes"]), []
        for value in described:
            if not (isinstance(value, tuple) and len(value) == 2):
                arguments.append(value)
                continue
            shape, dtype = value
            box, swizzle = next(boxes)
            strides = [prod(shape[place + 1 :]) for place in range(len(shape))]
            arguments += [tensor(shape, tuple(box), dtype, SWIZZLES[swizzle]), *shape, *strides]
        with zipfile.ZipFile(TRITON / "blackwell.zip") as kept:
            text = kept.read(f"{name}.ptx").decode()
        (entry,) = lw.load(text).entries
        threads, shared = 32 * about[name]["num_warps"], about[name]["shared"]
        seeds.append(Seed(f"triton {name}", text, entry, grid, (threads,), shared, (*arguments, 0, 0)))
    return seeds
