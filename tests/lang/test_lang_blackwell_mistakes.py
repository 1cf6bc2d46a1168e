"""Mistakes with tensor memory and tcgen05 in kernels: each gets a message that names the remedy."""

import re
from collections.abc import Callable
from typing import Any

import pytest

import lanewise as lw

MMA = lw.instruction("tcgen05.mma.cta_group::1.kind::f16", m=128, n=64, a="bf16", b="bf16", d="f32")
PAIR = lw.instruction("tcgen05.mma.cta_group::2.kind::f16", m=256, n=64, a="bf16", b="bf16", d="f32")
SCALED = lw.instruction("tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale", m=128, n=64)
SW128 = lw.Swizzle(3, 3, 3)


def tile(rows: int = 128, dtype: lw.Format = lw.bf16) -> Any:
    return lw.make_umma_desc(lw.shared(dtype, (rows, 64), swizzle=SW128, align=1024))


def acc(columns: int = 64) -> Any:
    return lw.tmem.alloc(columns).accumulator(MMA)


@lw.device
def in_a_loop(n: Any) -> None:
    for _ in lw.range(n):
        lw.tmem.alloc(32)


#: What a kernel does with its parameters (n: i32, bits: u64, word: u32), and the message.
MISTAKES: list[tuple[Callable[[Any, Any, Any], Any], str]] = [
    (lambda n, bits, word: lw.tmem.alloc(48), "takes a power of two from 32 to 512 columns"),
    (lambda n, bits, word: lw.tmem.alloc(16), "takes a power of two from 32 to 512 columns"),
    (lambda n, bits, word: lw.tmem.alloc(n), "takes a power of two from 32 to 512 columns"),
    (lambda n, bits, word: lw.tmem.alloc(32, cta_group=3), "cta_group is 1 (this block) or 2 (the pair"),
    (lambda n, bits, word: lw.tmem.alloc(32).accumulator(MMA), "takes the columns 0 to 63 of tensor memory"),
    (lambda n, bits, word: lw.tmem.alloc(64).accumulator(MMA, column=1), "takes the columns 1 to 64"),
    (lambda n, bits, word: lw.tmem.alloc(64).accumulator(PAIR), "was allocated with lw.tmem.alloc(…, cta_g"),
    (lambda n, bits, word: lw.tmem.alloc(64).accumulator("mma"), "is that of a tcgen05.mma, not of"),
    (
        lambda n, bits, word: lw.tmem.alloc(64).matrix(lw.f32, 8, slot_bits=16),
        "lie in slots of 32 to 32 bits",
    ),
    (lambda n, bits, word: acc().load(0, 3), "moves a power of two of elements, from 1 on; not 3"),
    (lambda n, bits, word: acc().load(32, 64), "has columns 0 to 63; 32 to 95 are asked for"),
    (lambda n, bits, word: lw.tmem.alloc(512).matrix(lw.f32, 256).load(), "moves 128 elements at most"),
    (lambda n, bits, word: acc().load(0, 4)[n], "by a Python integer; not"),
    (lambda n, bits, word: acc().load(0, 4)[4], "has elements 0 to 3"),
    (lambda n, bits, word: acc()[3], "is cut by columns: matrix[first:end]"),
    (lambda n, bits, word: acc().store(60, [lw.f32(0)] * 8), "has columns 0 to 63; 60 to 67 are asked for"),
    (lambda n, bits, word: MMA(tile(), tile(64)), "adds to an accumulator of f32 in tensor memory"),
    (lambda n, bits, word: MMA(tile(), tile(64), MMA.d), "adds to an accumulator of f32 in tensor memory"),
    (lambda n, bits, word: MMA(tile(64), tile(64), acc()), "reads 128 × 16 elements"),
    (lambda n, bits, word: MMA(tile(), tile(32), acc()), "reads 64 × 16 elements"),
    (lambda n, bits, word: MMA(tile(dtype=lw.f16), tile(64), acc()), "has elements of bf16, and"),
    (
        lambda n, bits, word: MMA(
            lw.make_gmma_desc(lw.shared(lw.bf16, (128, 64), swizzle=SW128, align=1024)), tile(64), acc()
        ),
        "is a descriptor from lw.make_umma_desc, not from lw.make_gmma_desc",
    ),
    (
        lambda n, bits, word: MMA(word, bits, acc()),
        "is a descriptor of shared memory, from lw.make_umma_desc",
    ),
    (lambda n, bits, word: MMA(bits, bits, acc(), metadata=word), "is not sparse and takes no metadata"),
    (lambda n, bits, word: MMA(bits, bits, acc(), scale_a=word), "is not block-scaled and takes no scale_a"),
    (
        lambda n, bits, word: SCALED(bits, bits, lw.tmem.alloc(64).accumulator(SCALED)),
        "takes scale_a= in tensor memory",
    ),
    (lambda n, bits, word: MMA(bits, bits, acc(), m=96), "is 32, 64, 128 or 256, not 96"),
    (lambda n, bits, word: lw.tcgen05.commit(word), "lw.tcgen05.commit completes on an mbarrier"),
    (lambda n, bits, word: lw.tcgen05.commit(lw.mbarrier(2)), "lw.tcgen05.commit completes on an mbarrier"),
    (lambda n, bits, word: lw.tcgen05.commit(lw.mbarrier()[0], multicast=0), "mask of the cluster's blocks"),
    (lambda n, bits, word: lw.tcgen05.copy(acc(), bits, "128x64b"), "knows the shapes 128x256b, 4x256b"),
    (lambda n, bits, word: lw.tcgen05.copy(acc(), bits, "64x128b"), "goes to warps='warpx2::02_13' or"),
    (lambda n, bits, word: lw.tcgen05.copy(acc(), word, "128x256b"), "is a descriptor, not"),
    (lambda n, bits, word: lw.tcgen05.shift(bits), "the address of lw.tcgen05.shift"),
    (lambda n, bits, word: lw.clc.try_cancel(word, lw.mbarrier()[0]), "writes to lw.clc.response(), not to"),
    (lambda n, bits, word: lw.clc.try_cancel(lw.clc.response(), word), "completes on an mbarrier"),
    (lambda n, bits, word: in_a_loop(n), "lw.tmem.alloc stands outside of loops"),
]


@pytest.mark.parametrize("number", range(len(MISTAKES)))
def test_a_mistake_is_named(number: int) -> None:
    make, message = MISTAKES[number]

    @lw.kernel
    def kernel(n: lw.i32, bits: lw.u64, word: lw.u32) -> None:
        make(n, bits, word)

    with pytest.raises(lw.KernelError, match=re.escape(message)):
        kernel.ptx("sm_100a")


@pytest.mark.parametrize("arch", ["sm_90a", "sm_120a", "sm_100"])
def test_other_archs_have_no_tensor_memory(arch: str) -> None:
    @lw.kernel
    def kernel() -> None:
        lw.tmem.alloc(32).free()

    with pytest.raises(lw.KernelError, match='with arch="sm_100a"'):
        kernel.ptx(arch)


def test_outside_of_a_kernel() -> None:
    with pytest.raises(lw.LanewiseError, match="this works inside a kernel only"):
        lw.tmem.alloc(32)
