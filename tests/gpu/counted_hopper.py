"""Hopper kernels whose counters are read twice: by Nsight Compute on a GPU, and by `lanewise.check`.

Each is a few asynchronous operations: loads, stores and reductions by TMA, bulk copies, wgmma, and accesses
to the shared memory of another block of a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

import lanewise as lw

TMA = "smsp__inst_executed_pipe_tma.sum"
TMA_WAYS = tuple(f"smsp__sass_inst_executed_op_tma_{way}.sum" for way in ("ld", "st", "red"))
TMA_READ = tuple(f"l1tex__m_xbar2l1tex_read_{what}_mem_global_op_tma_ld.sum" for what in ("sectors", "bytes"))
TMA_WRITTEN = tuple(
    f"l1tex__m_l1tex2xbar_write_{what}_mem_global_op_tma_{way}.sum"
    for way in ("st", "red")
    for what in ("sectors", "bytes")
)
TENSOR = "smsp__inst_executed_pipe_tensor.sum"
GMMA = (
    TENSOR,
    "smsp__inst_executed_pipe_tensor_op_gmma.sum",
    "smsp__sass_data_bytes_mem_shared_op_gmma.sum",
    "sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_gmma.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_gmma.sum",
)
CLUSTERS = "gpc__cgas_launched.sum"
COPIES = (TMA, *TMA_WAYS, *TMA_READ, *TMA_WRITTEN)
METRICS = (*COPIES, *GMMA, CLUSTERS)
#: The names of the kernels.
KERNELS = ("copies", "multiplies")

#: An array as it goes to a kernel: itself, or a box of it behind a tensor map.
Given = tuple[np.ndarray, Callable[[Any], Any]]


@dataclass(frozen=True)
class HopperCase:
    """A launch: its name, the configured kernel, its arrays, and which counters are compared."""

    name: str
    kernel: Any
    given: tuple[Given, ...]
    metrics: tuple[str, ...]


def _as_it_is(array: Any) -> Any:
    return array


def swizzle_of(name: str, dtype: lw.Format) -> lw.Swizzle | None:
    """The XOR of a tensor map's swizzle, on elements."""
    if name == "none":
        return None
    bits = {"32B": 1, "64B": 2, "128B": 3}[name]
    return lw.Swizzle(bits, 4 - (dtype.bits // 8).bit_length() + 1, 3)


def tensor_copy(
    box: tuple[int, ...], way: str, dtype: lw.Format, swizzle: str = "none", *, at: tuple[int, ...] = (),
    shape: tuple[int, ...] = (), times: int = 1, strides: tuple[int, ...] | None = None,
) -> HopperCase:  # fmt: skip
    """A thread that copies a box of a tensor a few times."""
    kind = lw.TensorMap[dtype, box, int(swizzle[:-1])] if swizzle != "none" else lw.TensorMap[dtype, box]
    if strides:
        kind = lw.TensorMap[dtype, len(box)]
    layout = lw.Layout(box, tuple(prod(box[place + 1 :]) for place in range(len(box))))
    size, at, shape = prod(box) * dtype.bits // 8, at or (0,) * len(box), shape or box
    places = tuple(-(-n // s) for n, s in zip(box, strides or (1,) * len(box), strict=True))
    arriving = prod(places) * dtype.bits // 8

    @lw.kernel(max_threads=32)
    def copies(X: kind):
        tile = lw.dynamic_shared(dtype, layout, swizzle=swizzle_of(swizzle, dtype))
        full = lw.mbarrier(1)
        if lw.thread_idx.x == 0:
            full[0].init(1)
            lw.fence_mbarrier_init()
            for turn in range(times):
                if way == "load":
                    full[0].arrive(expect=arriving)
                    lw.tma.load(tile, X, at, full[0])
                    full[0].wait(turn % 2)
                elif way == "store":
                    lw.tma.store(X, at, tile)
                elif way == "reduce":
                    lw.tma.reduce("add", X, at, tile)
                else:
                    lw.tma.prefetch(X, at)
            if way in ("store", "reduce"):
                lw.tma.commit()
                lw.tma.wait(0)

    def mapped(array: Any) -> Any:
        return lw.tensor_map(array, box, swizzle=swizzle, element_strides=strides)

    name = f"tensor {way} {box} of {shape} {dtype.name} {swizzle} at {at} x{times}"
    if strides:
        name += f" every {strides}"
    return HopperCase(name, copies[1, 32, size + 1024], ((np.zeros(shape, dtype.dtype), mapped),), COPIES)


def bulk_copy(size: int, way: str, first: int = 0, times: int = 1) -> HopperCase:
    """A thread that copies some bytes of global memory to shared memory, or back."""

    @lw.kernel(max_threads=32)
    def copies(X: lw.Ptr[lw.u8, 16]):
        tile = lw.dynamic_shared(lw.u8, (size,))
        full = lw.mbarrier(1)
        if lw.thread_idx.x == 0:
            full[0].init(1)
            lw.fence_mbarrier_init()
            for turn in range(times):
                if way == "load":
                    full[0].arrive(expect=size)
                    lw.tma.copy(tile.ptr(0), X + first, size, full[0])
                    full[0].wait(turn % 2)
                else:
                    lw.tma.copy(X + first, tile.ptr(0), size)
            if way == "store":
                lw.tma.commit()
                lw.tma.wait(0)

    name = f"bulk {way} of {size} bytes at {first} x{times}"
    return HopperCase(
        name, copies[1, 32, size + 128], ((np.zeros(first + size, np.uint8), _as_it_is),), COPIES
    )


def multicast(box: tuple[int, int], blocks: int) -> HopperCase:
    """A cluster in which one block loads a box for all."""
    kind = lw.TensorMap[lw.f16, box, 128]
    size = prod(box) * 2

    @lw.kernel(max_threads=32, cluster=blocks)
    def copies(X: kind):
        tile = lw.dynamic_shared(lw.f16, lw.Layout(box, (box[1], 1)), swizzle=lw.Swizzle(3, 3, 3))
        full = lw.mbarrier(1)
        if lw.thread_idx.x == 0:
            full[0].init(1)
            lw.fence_mbarrier_init()
        lw.cluster.sync()
        if lw.thread_idx.x == 0:
            full[0].arrive(expect=size)
            if lw.cluster.rank() == 0:
                lw.tma.load(tile, X, (0, 0), full[0], multicast=(1 << blocks) - 1)
            full[0].wait(0)
        lw.cluster.sync()

    def mapped(array: Any) -> Any:
        return lw.tensor_map(array, box, swizzle="128B")

    name = f"multicast {box} to {blocks} blocks"
    return HopperCase(
        name, copies[2 * blocks, 32, size + 1024], ((np.zeros(box, np.float16), mapped),), (*COPIES, CLUSTERS)
    )


def product(
    n: int, k: int, dtype: lw.Format, sums: lw.Format, swizzle: str = "128B", *, registers: bool = False,
    groups: int = 1, steps: int = 2,
) -> HopperCase:  # fmt: skip
    """Warpgroups that multiply 64 by n, a few steps of K, both operands K-major."""
    text = f"wgmma.mma_async.sync.aligned.m64n{n}k{k}.{sums.name}.{dtype.name}.{dtype.name}"
    mma = lw.instruction(text, a_source="registers") if registers else lw.instruction(text)
    row = int(swizzle[:-1]) // (dtype.bits // 8)
    steps = min(steps, row // k)

    @lw.kernel(max_threads=128 * groups)
    def multiplies(out: lw.Ptr[sums]):
        rule = swizzle_of(swizzle, dtype)
        sA = lw.dynamic_shared(dtype, lw.Layout((64, row), (row, 1)), swizzle=rule)
        sB = lw.dynamic_shared(dtype, lw.Layout((n, row), (row, 1)), swizzle=rule, offset=64 * 1024)
        a, b, acc = lw.make_gmma_desc(sA), lw.make_gmma_desc(sB), mma.zeros()
        held = mma.a.full(0) if registers else None
        lw.wgmma_fence()
        for step in range(steps):
            left = held if registers else a[0, step * k]
            acc = mma(left, b[0, step * k], acc)
        lw.wgmma_commit()
        lw.wgmma_wait(0)
        out[lw.thread_idx.x] = acc[0]

    name = f"{text}{' A in registers' if registers else ''} {swizzle} {steps} steps, {groups} warpgroups"
    return HopperCase(
        name, multiplies[1, 128 * groups, 160 * 1024],
        ((np.zeros(128 * groups, sums.dtype), _as_it_is),), GMMA,
    )  # fmt: skip


def hopper_cases() -> Iterator[HopperCase]:
    """All launches, in order."""
    for box, dtype, swizzle in (
        ((64, 64), lw.f16, "128B"), ((64, 64), lw.f16, "none"), ((8, 64), lw.f16, "128B"),
        ((1, 64), lw.f16, "128B"), ((64, 32), lw.f16, "64B"), ((64, 16), lw.f16, "32B"),
        ((64, 8), lw.f16, "none"), ((256,), lw.f32, "none"), ((128, 64), lw.u8, "none"),
        ((4, 8, 32), lw.f32, "128B"), ((2, 4, 8, 32), lw.f32, "128B"), ((256, 64), lw.f16, "128B"),
    ):  # fmt: skip
        yield tensor_copy(box, "load", dtype, swizzle)
        yield tensor_copy(box, "store", dtype, swizzle)
    yield tensor_copy((64, 64), "load", lw.f16, "128B", times=3)
    yield tensor_copy((64, 64), "store", lw.f16, "128B", times=3)
    yield tensor_copy((64, 64), "prefetch", lw.f16, "128B")
    yield tensor_copy((64, 32), "reduce", lw.f32, "128B")
    for way in ("load", "store"):  # in the middle of a larger tensor, over its edges, off the sectors
        yield tensor_copy((16, 64), way, lw.f16, "128B", at=(8, 64), shape=(64, 256))
        yield tensor_copy((16, 64), way, lw.f16, "128B", at=(8, 8), shape=(64, 256))
        yield tensor_copy((16, 64), way, lw.f16, "128B", at=(56, 200), shape=(64, 256))
        yield tensor_copy((16, 24), way, lw.f16, at=(3, 8), shape=(64, 264))
        yield tensor_copy((16, 8), way, lw.f16, at=(3, 8), shape=(64, 264))
        yield tensor_copy((4, 128), way, lw.f16, at=(3, 8), shape=(64, 264))
        yield tensor_copy((4, 120), way, lw.f16, at=(3, 24), shape=(64, 264))
        yield tensor_copy((4, 128), way, lw.f16, at=(62, 168), shape=(64, 264))
    yield tensor_copy((16, 64), "load", lw.f16, "128B", at=(-8, -16), shape=(64, 256))
    yield tensor_copy((16, 64), "load", lw.f16, "128B", at=(64, 0), shape=(64, 256))
    yield tensor_copy((8, 32), "load", lw.f32, shape=(64, 256), strides=(2, 1))
    for size in (16, 128, 1024, 4096, 8208):
        yield bulk_copy(size, "load")
        yield bulk_copy(size, "store")
    for first in (16, 32, 48):
        yield bulk_copy(1008, "load", first)
        yield bulk_copy(1008, "store", first)
    yield bulk_copy(1024, "load", times=3)
    yield multicast((64, 64), 2)
    yield multicast((64, 64), 4)
    for n in (8, 16, 64, 128, 256):
        yield product(n, 16, lw.bf16, lw.f32)
    for swizzle in ("32B", "64B"):
        yield product(64, 16, lw.bf16, lw.f32, swizzle)
    for dtype, sums, k in (
        (lw.f16, lw.f16, 16), (lw.e4m3, lw.f32, 32), (lw.s8, lw.s32, 32), (lw.tf32, lw.f32, 8),
    ):  # fmt: skip
        yield product(64, k, dtype, sums)
    yield product(64, 16, lw.bf16, lw.f32, registers=True)
    yield product(256, 16, lw.bf16, lw.f32, registers=True)
    yield product(64, 16, lw.bf16, lw.f32, groups=2)
    yield product(64, 16, lw.bf16, lw.f32, steps=4)


def on_cpu(case: HopperCase) -> dict[str, int]:
    """The counters by `lanewise.check`."""
    report = lw.check(case.kernel, *(make(array) for array, make in case.given), arch="sm_90a")
    return {name: int(report.counters.get(name, 0)) for name in case.metrics}


def on_gpu(case: HopperCase) -> None:
    """Launch a case once on the GPU."""
    import torch

    held = [
        torch.from_numpy(array.view({1: np.uint8, 2: np.float16, 4: np.float32}[array.itemsize])).cuda()
        for array, _ in case.given
    ]
    case.kernel(*(make(array) for array, (_, make) in zip(held, case.given, strict=True)))
    torch.cuda.synchronize()
