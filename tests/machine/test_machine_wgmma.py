"""wgmma on the machine: the bits of `instruction(…)`, addresses of descriptors, waits, faults, counters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import lanewise as lw
from gpu.address_probe import SHARED_BYTES, THREADS, Probe, random_descriptors
from gpu.execution import PLAIN, compare, multiply, name_of
from gpu.inputs import operands
from gpu.kernels import Warpgroup
from gpu.test_gpu_arithmetic import choices, negated
from lanewise.isa import Instruction
from lanewise.isa.matrix_descriptor import SWIZZLE_MODES, MatrixDescriptor
from lanewise.machine import KernelFault, Unsupported
from lanewise.machine.codegen.function_code import Kernel
from lanewise.machine.compile.kernel_writer import KernelWriter
from lanewise.machine.program.basic_blocks import split
from lanewise.machine.program.resolve import resolve
from lanewise.ptx import parse
from machine.warpgroup import ARCH, Machine, by_types, module, statement

#: Few and many columns, whole strips and not, of those that all types have.
WIDTHS = (8, 24, 48, 64, 128, 256)
BF16 = "wgmma.mma_async.sync.aligned.m64n{}k16.f32.bf16.bf16"


def forms() -> list[Instruction]:
    """Each choice of types, dense and sparse; A comes from registers and memory by turns, N goes round.

    Of the pairs of e4m3 and e5m2, whose kernels take long to compile, two dense and one sparse are taken.
    """
    found = []
    for family in ("wgmma", "wgmma.sp"):
        every = list({(each.types, each.satfinite): each for each in by_types(family, 8)})
        for number, (types, satfinite) in enumerate(every):
            if types[1].startswith("e") and types not in _SMALL[family]:
                continue
            width, source = WIDTHS[number % len(WIDTHS)], ("registers", "descriptor")[number // 2 % 2]
            found += [
                each
                for each in by_types(family, width)
                if (each.types, each.satfinite, each.a_source) == (types, satfinite, source)
            ]
    return found


_SMALL = {
    "wgmma": [("f16", "e4m3", "e5m2"), ("f32", "e5m2", "e4m3")],
    "wgmma.sp": [("f32", "e4m3", "e5m2")],
}


def check(instruction: Instruction, choice: Warpgroup, seed: int = 1) -> None:
    """Hold the machine to what the instruction computes on arrays."""
    given = operands(instruction, 1, seed)
    a = negated(instruction.a.format, given.a) if choice.negate_a else given.a
    b = negated(instruction.b.format, given.b) if choice.negate_b else given.b
    expected = instruction(a, b, given.c if choice.accumulate else None, arch=ARCH, **given.further)
    returned = multiply(Machine(), instruction, given, choice)  # type: ignore[arg-type]  # in place of a GPU
    outcome = compare(instruction, given, expected, returned)
    assert not outcome.first, f"{name_of(instruction)} {choice}\n{outcome.report}"


@pytest.mark.parametrize("instruction", forms(), ids=name_of)
def test_every_bit(instruction: Instruction) -> None:
    check(instruction, PLAIN)


CHOICES = [
    (each, choice)
    for family in ("wgmma", "wgmma.sp")
    for each in by_types(family, 24)
    if each.types in (("f32", "bf16", "bf16"), ("s32", "s8", "s8")) and not each.satfinite
    for choice in choices(each)
]


@pytest.mark.parametrize(("instruction", "choice"), CHOICES, ids=lambda each: str(each).replace(" ", "_"))
def test_choices(instruction: Instruction, choice: Warpgroup) -> None:
    check(instruction, choice)


def test_every_form_becomes_code() -> None:
    """A step of threaded code for every seventh form of the catalogue, each with its operands."""
    every = [each for family in ("wgmma", "wgmma.sp") for each in lw.instructions(ARCH, family)][::7]
    assert len(every) > 200
    text = module("\n".join(statement(each) for each in every))
    parsed = parse(text)
    program = resolve(parsed, parsed["k"].function)
    KernelWriter(Kernel(program, ARCH), split(program), None, lambda each: None).write("table")
    assert sum(op.record.multiplies for op in program.sites) == len(every)


# descriptors ------------------------------------------------------------------------------------------------


def launch(ptx: str, blocks: int, arrays: list[NDArray[Any]]) -> None:
    lw.load(ptx)["k"][blocks, THREADS, SHARED_BYTES](*arrays, arch=ARCH)


PROBES = [
    Probe("f16", "b", False, "K", 72),
    Probe("f16", "b", True, "MN", 24),
    Probe("f16", "a", False, "K", 16),
    Probe("f16", "a", False, "MN", 16),
    Probe("u8", "b", True, "K", 24),
    Probe("tf32", "b", True, "K", 24),
]


@pytest.mark.parametrize("probe", PROBES, ids=str)
def test_random_descriptors(probe: Probe) -> None:
    """The machine reads each element where the descriptor says: any swizzle, offsets, start, base offset."""
    descriptors = [
        each for mode in SWIZZLE_MODES for each in random_descriptors(probe, 4, 11 + mode.code, mode.name)
    ]
    found, _ = probe.addresses(launch, [each.encode() for each in descriptors])
    for descriptor, addresses in zip(descriptors, found, strict=True):
        assert np.array_equal(addresses, probe.expected(descriptor)), descriptor


def test_bits_of_no_field_are_ignored() -> None:
    probe = Probe("f16", "b", n=8)
    descriptor = MatrixDescriptor(0x2000, 0, 1024, swizzle="64B")
    reserved = 0x3FF0_0000 << 32 | 3 << 14 | 3 << 30 | 7 << 46
    found, _ = probe.addresses(launch, [descriptor.encode() | reserved & ~(3 << 62)])
    assert np.array_equal(found[0], probe.expected(descriptor))


# waiting ----------------------------------------------------------------------------------------------------


def test_operands_are_read_before_any_warp_goes_on() -> None:
    """One thread may say that a buffer is free: what it writes then is not seen by warps that came late."""
    text = module(
        f"""
        // B is ones in row 0 of K, and A too: D is 1 everywhere.
        mov.u32 %r10, tile;
        mad.lo.u32 %r11, %r8, 128, %r10;
        shl.b32 %r12, %r8, 4; and.b32 %r12, %r12, 0x70;
        add.u32 %r11, %r11, %r12;
        mov.b32 %r13, 0x00003f80;
        st.shared.b32 [%r11], %r13;
        fence.proxy.async.shared::cta;
        bar.sync 0;
        add.u64 %rd1, %rd0, 0;
        // The later a warp, the longer it spins.
        shr.u32 %r14, %r8, 5;
        mad.lo.u32 %r14, %r14, 3000, 1;
    SPIN:
        sub.u32 %r14, %r14, 1;
        setp.ne.u32 %p0, %r14, 0;
        @%p0 bra SPIN;
        wgmma.fence.sync.aligned;
        {statement(lw.instruction(BF16.format(8)), scale_d="0").replace("%rd0, %rd1", "%rd0, %rd1")}
        wgmma.commit_group.sync.aligned;
        wgmma.wait_group.sync.aligned 0;
        setp.lt.u32 %p1, %r8, 32;
        mov.b32 %r13, 0x7fc07fc0;
        @%p1 st.shared.b32 [%r11], %r13;
        mad.wide.u32 %rd3, %r8, 4, %rd2;
        st.global.b32 [%rd3], %f0;
        """
    )
    out = np.zeros(128, np.float32)
    lw.load(text)["k"][1, 128](out, arch=ARCH)
    assert (out == 1).all()


def test_a_warp_that_never_comes_is_a_deadlock() -> None:
    body = f"""
    setp.ge.u32 %p0, %r8, 96;
    @%p0 ret;
    {statement(lw.instruction(BF16.format(8)))}
    """
    with pytest.raises(KernelFault, match="96 threads wait for the other warps of their warpgroup"):
        lw.load(module(body))["k"][1, 128](np.zeros(4, np.float32), arch=ARCH)


# mistakes ---------------------------------------------------------------------------------------------------

WGMMA = statement(lw.instruction(BF16.format(8)))
SPARSE = next(
    each for each in by_types("wgmma.sp", 8) if each.types[1] == "bf16" and each.a_source == "registers"
)


@pytest.mark.parametrize(
    ("threads", "body", "message"),
    [
        (64, WGMMA, "the block has not four warps for this warpgroup"),
        (160, f"setp.lt.u32 %p0, %r8, 128; @%p0 bra L; {WGMMA} L:", "has not four warps"),
        (128, f"and.b32 %r9, %r8, 1; setp.eq.u32 %p0, %r9, 0; @%p0 {WGMMA}", "not all lanes of the warp"),
        (128, f"cvt.u64.u32 %rd3, %r8; add.u64 %rd1, %rd1, %rd3; {WGMMA}", "descriptor is not the same"),
        (
            128,
            f"setp.lt.u32 %p0, %r8, 40; {statement(lw.instruction(BF16.format(8)), scale_d='%p0')}",
            "scale-d is not the same in all threads",
        ),
        (
            128,
            f"mov.b64 %rd1, 0x4000004000003e00; {WGMMA}",
            r"(?s)shared read of 16 bytes out of bounds.*0x3e000",
        ),
        (128, f"mov.b32 %r4, 0; {statement(SPARSE)}", "the sparsity selector or the metadata"),
    ],
)
def test_mistakes_are_faults(threads: int, body: str, message: str) -> None:
    with pytest.raises(KernelFault, match=message) as caught:
        lw.load(module(body))["k"][1, threads](np.zeros(4, np.float32), arch=ARCH)
    assert "wgmma.mma_async" in str(caught.value)


@pytest.mark.parametrize(
    ("written", "instead", "message"),
    [
        (", 1, 1, 1, 0, 0;", ", 1, 0, 1, 0, 0;", "an imm-scale is the constant 1 or -1"),
        (", 1, 1, 1, 0, 0;", ", 1, 1, 1, 0, 2;", "an imm-trans is the constant 0 or 1"),
        (", 1, 1, 1, 0, 0;", ", %r0, 1, 1, 0, 0;", "scale-d is a predicate, 0 or 1"),
        ("%rd1", "%r1", "B's descriptor is a register of 64 bits"),
    ],
)
def test_operands_are_checked_before_a_launch(written: str, instead: str, message: str) -> None:
    assert written in WGMMA
    with pytest.raises((Unsupported, lw.LanewiseError), match=message):
        lw.load(module(WGMMA.replace(written, instead)))["k"][1, 128](np.zeros(4, np.float32), arch=ARCH)


def test_scale_d_as_a_predicate_and_its_negation() -> None:
    """What is added to: the accumulators where scale-d holds, else zero."""
    mma = lw.instruction(BF16.format(8))
    for scale, expected in (("%p0", 3.0), ("!%p0", 0.0), ("1", 3.0), ("0", 0.0)):
        body = f"""
        mov.b32 %f0, 0f40400000;
        setp.eq.u32 %p0, 0, 0;
        {statement(mma, scale_d=scale)}
        mad.wide.u32 %rd3, %r8, 4, %rd2;
        st.global.b32 [%rd3], %f0;
        """
        out = np.full(128, 7, np.float32)
        lw.load(module(body))["k"][1, 128](out, arch=ARCH)
        assert (out == expected).all(), scale


# a whole kernel ---------------------------------------------------------------------------------------------


def gemm_source() -> str:
    """The kernel of kernels/wgmma.cu with its instruction written out for 128 accumulators."""
    registers = ", ".join(f"%{number}" for number in range(128))
    results = ", ".join(f'"+f"(acc[{number}])' for number in range(128))
    text = f"{BF16.format(256)} {{{registers}}}, %128, %129, 1, 1, 1, 0, 0;"
    define = f'#define WGMMA(acc, a, b) asm volatile("{text}" : {results} : "l"(a), "l"(b))\n'
    return define + (Path(__file__).parent / "kernels" / "wgmma.cu").read_text()


def test_gemm_in_cuda_is_the_instruction_repeated() -> None:
    pytest.importorskip("cuda.bindings", reason="NVRTC is not installed")
    m, n, k = 128, 256, 192
    rng = np.random.default_rng(5)
    a, b = (rng.normal(size=shape).astype(ml_dtypes.bfloat16) for shape in ((m, k), (n, k)))
    d = np.zeros((m, n), np.float32)
    launched = lw.cuda(gemm_source(), arch=ARCH)["gemm"][(n // 256, m // 64), 128, 320 * 128]
    launched(a, b, d, n, k)
    expected = lw.instruction(BF16.format(256)).gemm(a, np.ascontiguousarray(b.T), arch=ARCH)
    assert np.array_equal(d.view(np.uint32), expected.view(np.uint32))
    again = np.zeros_like(d)
    report = lw.check(launched, a, b, again, n, k)
    assert np.array_equal(again, d)
    assert report.ok, str(report)
    assert report.counters["lanewise__tensor_flops.sum"] == 2 * m * n * k
    assert report.counters["smsp__inst_executed_pipe_tensor.sum"] == 4 * (m // 64) * (n // 256) * (k // 16)


def test_records_say_what_is_waited_for() -> None:
    parsed = parse(module(f"wgmma.fence.sync.aligned; {WGMMA}"))
    ops = resolve(parsed, parsed["k"].function).sites
    product = next(op for op in ops if op.record.multiplies)
    assert [access.proxy.name for access in product.record.memory] == ["ASYNC", "ASYNC"]
    assert replace(product.record, counter="x").level.name == "WARPGROUP"
