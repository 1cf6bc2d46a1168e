"""Tensor memory on a B200 or B300: loads, stores, copies and shifts, against what the CPU machine leaves.

Nobody has run this yet. It settles which lanes and columns each shape moves, where expanded elements lie,
what .unpack::16b leaves in upper halves, which way tcgen05.shift moves rows, and what .16x32bx2 reduces.
"""

from typing import Any

import numpy as np
import pytest

import lanewise as lw
from gpu.device import TENSOR_MEMORY, torch_here
from lanewise.isa.tensor_memory import copy_shapes, load_shapes
from machine.tensor_memory_kernels import (
    COLUMNS,
    dump,
    fill,
    kernel,
    registers,
    registers_to_global,
    row_pointer,
)

torch = torch_here("only sm_100, sm_103 and sm_110 have tensor memory", TENSOR_MEMORY.__contains__)
CAPABILITY = torch.cuda.get_device_capability()
ARCH = f"sm_{CAPABILITY[0]}{CAPABILITY[1]}a"


def compare(body: str, arrays: dict[str, np.ndarray]) -> None:
    """Launch a kernel on the CPU and on the GPU, and compare all arrays."""
    module = lw.load(kernel(body, tuple(arrays), shared=".shared .align 1024 .b8 tile[16384];", target=ARCH))
    there = [torch.from_numpy(each.view(np.uint8).copy()).cuda() for each in arrays.values()]
    module["k"][1, 128](*there)
    torch.cuda.synchronize()
    here = [each.copy() for each in arrays.values()]
    module["k"][1, 128](*here)
    for name, mine, other in zip(arrays, here, there, strict=True):
        found: Any = other.cpu().numpy().view(mine.dtype).reshape(mine.shape)
        np.testing.assert_array_equal(found, mine, err_msg=name)


def words(seed: int, *shape: int) -> np.ndarray:
    """Random words."""
    return np.random.default_rng(seed).integers(0, 1 << 32, shape, dtype=np.uint32)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("num", [1, 2, 4, 8])
@pytest.mark.parametrize("name", load_shapes.SHAPES)
def test_loads_and_stores(name: str, num: int, packed: bool, seed: int) -> None:
    shape = load_shapes.SHAPES[name]
    if shape.columns_of(num, packed) * shape.halves > COLUMNS:
        pytest.skip("more columns than the kernel fills")
    count = shape.registers_of(num)
    half = f", {shape.columns_of(num, packed)}" if shape.halves == 2 else ""
    head, data = f"sync.aligned.{name}.x{num}", registers("d", count)
    pack, unpack = (".pack::16b", ".unpack::16b") if packed else ("", "")
    body = [
        fill("before"),
        f"    tcgen05.ld.{head}{pack}.b32 {data}, [%taddr]{half};",
        "    tcgen05.wait::ld.sync.aligned;",
        row_pointer("%rd0", "loaded", count),
        registers_to_global("%rd0", "d", count),
        *(f"    not.b32 %d{number}, %d{number};" for number in range(count)),
        "    bar.sync 0;",
        f"    tcgen05.st.{head}{unpack}.b32 [%taddr]{half}, {data};",
        "    tcgen05.wait::st.sync.aligned;",
        dump("after"),
    ]
    empty = np.zeros((128, count), np.uint32), np.zeros((128, COLUMNS), np.uint32)
    compare("\n".join(body), {"before": words(seed, 128, COLUMNS), "loaded": empty[0], "after": empty[1]})


@pytest.mark.skipif(ARCH == "sm_100a", reason="sm_100a has no tcgen05.ld.red")
@pytest.mark.parametrize("name", ["32x32b", "16x32bx2"])
@pytest.mark.parametrize("kind", ["min.f32", "max.abs.f32", "min.NaN.f32", "max.u32", "min.s32"])
def test_reductions(name: str, kind: str, seed: int) -> None:
    half = ", 8" if name == "16x32bx2" else ""
    body = [
        fill("before"),
        f"    tcgen05.ld.red.sync.aligned.{name}.x8.{kind} {registers('d', 8)}, %r5, [%taddr]{half};",
        "    tcgen05.wait::ld.sync.aligned;",
        row_pointer("%rd0", "out", 1),
        "    st.global.u32 [%rd0], %r5;",
    ]
    compare("\n".join(body), {"before": words(seed, 128, COLUMNS), "out": np.zeros((128, 1), np.uint32)})


#: Thread 0 issues operations and commits them; all threads wait.
ISSUED = """
    mov.u32 %r1, tile;
    shl.b32 %r2, %tid0, 2;
FILLING:
    cvt.u64.u32 %rd1, %r2; add.u64 %rd1, %rd1, %p_bytes;
    ld.global.u32 %r3, [%rd1]; add.u32 %r4, %r1, %r2; st.shared.u32 [%r4], %r3;
    add.u32 %r2, %r2, 512; setp.lt.u32 %p1, %r2, 16384; @%p1 bra FILLING;
    setp.eq.u32 %p2, %tid0, 0;
    @%p2 mbarrier.init.shared::cta.b64 [bars], 1;
    fence.proxy.async.shared::cta;
    tcgen05.fence::before_thread_sync;
    bar.sync 0;
    tcgen05.fence::after_thread_sync;
    and.b32 %r5, %r1, 0x3FFFF; shr.u32 %r5, %r5, 4; cvt.u64.u32 %rd2, %r5;
    or.b64 %rd2, %rd2, 0x0000401000080000;
    {operation}
    @%p2 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bars];
WAITING:
    mbarrier.try_wait.parity.shared::cta.b64 %p3, [bars], 0;
    @!%p3 bra WAITING;
    tcgen05.fence::after_thread_sync;
"""


@pytest.mark.parametrize("fmt", ["", *(f".b8x16.{name}" for name in copy_shapes.EXPANSIONS)])
@pytest.mark.parametrize("name", copy_shapes.SHAPES)
def test_copies(name: str, fmt: str, seed: int) -> None:
    """Pieces of eight rows next to one another: a leading offset of 128 bytes, a stride of 256."""
    copy = f"@%p2 tcgen05.cp.cta_group::1.{name}{fmt} [%taddr], %rd2;"
    body = fill("before") + ISSUED.replace("{operation}", copy) + dump("after")
    arrays = {"before": words(seed, 128, COLUMNS), "bytes": words(seed + 1, 4096)}
    compare(body, arrays | {"after": np.zeros((128, COLUMNS), np.uint32)})


@pytest.mark.parametrize("lane", [0, 32, 64, 96])
def test_shifts(lane: int, seed: int) -> None:
    shift = f"add.u32 %r6, %taddr, {lane << 16}; @%p2 tcgen05.shift.cta_group::1.down [%r6];"
    body = fill("before") + ISSUED.replace("{operation}", shift) + dump("after")
    arrays = {"before": words(seed, 128, COLUMNS), "bytes": words(seed + 1, 4096)}
    compare(body, arrays | {"after": np.zeros((128, COLUMNS), np.uint32)})
