"""wgmma on the machine: the bits of `instruction(…)`, addresses of descriptors, waits, faults, counters."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import lanewise as lw
from everything import sampled
from gpu.address_probe import SHARED_BYTES, THREADS, Probe, random_descriptors
from gpu.execution import PLAIN, compare, multiply, name_of
from gpu.inputs import operands
from gpu.kernels import Warpgroup
from gpu.wgmma_choices import choices, negated
from lanewise.isa import Instruction
from lanewise.isa.matrix_descriptor import SWIZZLE_MODES, MatrixDescriptor
from lanewise.machine import KernelFault, Unsupported
from lanewise.machine.codegen.function_code import Kernel
from lanewise.machine.compile.kernel_writer import KernelWriter
from lanewise.machine.program.basic_blocks import split
from lanewise.machine.program.resolve import resolve
from lanewise.machine.runtime.resident_blocks import WHOLE
from lanewise.machine.tensor_core.wgmma import Statement, chained_products
from lanewise.ptx import parse
from machine.warpgroup import ARCH, Machine, by_types, module, statement
from machine.wgmma_gemms import BF16, BY_TMA, GEMM, KERNELS
from nvrtc import need_nvrtc

#: Few and many columns, whole strips and not, of those that all types have.
WIDTHS = (8, 24, 48, 64, 128, 256)


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


@sampled(28)
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


@sampled(28)
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


@sampled(8)
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


# products that follow one another ---------------------------------------------------------------------------


def chain_of(mma: Instruction, scales: str, between: str = "") -> tuple[NDArray[Any], NDArray[Any]]:
    """What a kernel of one product after the other gives, and what the instruction gives one by one.

    Product number i reads A and B at 32 · i bytes further along K; `scales` has its scale-d: 0 or 1.
    """
    copies = "\n".join(
        f"ld.global.b32 %r10, [%rd3+{512 * number}]; st.shared.b32 [%r11+{512 * number}], %r10;"
        for number in range(24)
    )
    products = f"\n{between}\n".join(
        f"add.u64 %rd4, %rd0, {2 * number}; add.u64 %rd5, %rd0, {512 + 2 * number};\n"
        + statement(mma, "%rd4", "%rd5", f"%p{scale}")
        for number, scale in enumerate(scales)
    )
    stores = "\n".join(f"st.global.b32 [%rd6+{4 * number}], %f{number};" for number in range(mma.d.registers))
    text = module(f"""
    mad.wide.u32 %rd3, %r8, 4, %rd2;
    mov.u32 %r11, tile; mad.lo.u32 %r11, %r8, 4, %r11;
    {copies}
    setp.ne.u32 %p0, 0, 0; setp.eq.u32 %p1, 0, 0;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    {products}
    mad.wide.u32 %rd6, %r8, {4 * mma.d.registers}, %rd2;
    add.u64 %rd6, %rd6, 12288;
    {stores}
    """)
    rng = np.random.default_rng(len(scales))
    data = np.zeros(3072 + 128 * mma.d.registers, np.uint32)
    tile = data[:3072].view(mma.a.format.dtype)
    tile[:] = rng.normal(size=tile.size).astype(tile.dtype)
    of_a, of_b = (MatrixDescriptor(start, 0, 1024, swizzle="128B") for start in (0, 8192))
    places = [
        [each.advanced(32 * step).element_addresses(rows, 16, 16) // 2 for step in range(len(scales))]
        for each, rows in ((of_a, 64), (of_b, mma.n))
    ]
    lw.load(text)["k"][1, 128](data, arch=ARCH)
    d = np.zeros((64, mma.n), mma.d.format.dtype)
    for scale, a, b in zip(scales, *places, strict=True):
        d = mma(tile[a], tile[b].T, d if scale == "1" else None, arch=ARCH)
    return mma.d.unpack(data[3072:].reshape(128, -1)), d


@sampled(3)
@pytest.mark.parametrize("scales", ["1", "0111", "1011", "1110"])
@pytest.mark.parametrize("types", ["f32.bf16.bf16", "f16.f16.f16"])
def test_products_that_follow_one_another(scales: str, types: str) -> None:
    """They are computed together where nothing comes between them; a scale-d that is 0 begins anew."""
    mma = lw.instruction(f"wgmma.mma_async.sync.aligned.m64n24k16.{types}")
    found, expected = chain_of(mma, scales)
    assert np.array_equal(found, expected)
    apart, _ = chain_of(mma, scales, "mov.b32 %r12, %f0;")
    assert np.array_equal(apart, expected)


def test_which_products_are_computed_together() -> None:
    """Only where registers cannot be seen in between: no label, no branch, no reader, no guard."""

    def chained(*lines: str) -> int:
        parsed = parse(module("\n".join(lines)))
        return len(chained_products(resolve(parsed, parsed["k"].function)))

    other = statement(lw.instruction(BF16.format(16)))
    assert chained(WGMMA, WGMMA, WGMMA) == 2
    assert chained(WGMMA, "wgmma.commit_group.sync.aligned;", "add.u64 %rd0, %rd0, 2;", WGMMA) == 1
    for between in ("L:", "@%p0 bra L; L:", "mov.b32 %r0, %f3;", "mov.b32 %f0, 0;", "bar.sync 0;", other):
        assert chained(WGMMA, between, WGMMA) == 0, between
    assert chained(f"@%p0 {WGMMA}", WGMMA) == chained(WGMMA, f"@%p0 {WGMMA}") == 0
    from_registers = next(
        each for each in by_types("wgmma", 8) if each.types[1] == "bf16" and each.a_source == "registers"
    )
    assert chained(statement(from_registers), statement(from_registers)) == 1
    overlapping = statement(from_registers).replace("{%r0, %r1, %r2, %r3}", "{%f0, %r1, %r2, %r3}")
    assert chained(overlapping, overlapping) == 0


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


def sums_of_warps_apart(spins: str) -> str:
    """A kernel that multiplies 24 times and stores each sum at once, with no barrier: they are 1, 2, …, 24.

    `spins` writes into %r14 how often a warp (%r12) spins before product %r15.
    """
    zeros = "\n".join(
        f"st.shared.v4.b32 [%r11+{16 * number}], {{%r13, %r13, %r13, %r13}};" for number in range(8)
    )
    return module(
        f"""
        // Column 0 of A and of B is ones, all others are zeros: a product adds 1 to each sum.
        mov.u32 %r10, tile;
        mad.lo.u32 %r11, %r8, 128, %r10;
        mov.b32 %r13, 0;
        {zeros}
        shl.b32 %r12, %r8, 4; and.b32 %r12, %r12, 0x70;
        add.u32 %r11, %r11, %r12;
        mov.b32 %r13, 0x00003f80;
        st.shared.b32 [%r11], %r13;
        fence.proxy.async.shared::cta;
        bar.sync 0;
        add.u64 %rd1, %rd0, 0;
        shr.u32 %r12, %r8, 5;
        mov.u32 %r15, %ctaid.x;
        mad.lo.u32 %r15, %r15, 3072, %r8;
        mad.wide.u32 %rd3, %r15, 4, %rd2;
        mov.u32 %r15, 0;
    NEXT:
        {spins}
    SPIN:
        sub.u32 %r14, %r14, 1;
        setp.ne.u32 %p0, %r14, 0;
        @%p0 bra SPIN;
        setp.ne.u32 %p1, %r15, 0;
        wgmma.fence.sync.aligned;
        {statement(lw.instruction(BF16.format(8)), scale_d="%p1")}
        wgmma.commit_group.sync.aligned;
        wgmma.wait_group.sync.aligned 0;
        st.global.b32 [%rd3], %f0;
        add.u64 %rd3, %rd3, 512;
        add.u32 %r15, %r15, 1;
        setp.lt.u32 %p0, %r15, 24;
        @%p0 bra NEXT;
        """
    )


def test_no_warp_goes_on_before_the_product() -> None:
    """A schedule may interrupt the last warp to arrive before it multiplies: the others have their sums."""
    kernel = lw.load(sums_of_warps_apart("add.u32 %r14, %r12, 3;"))["k"][32, 128]
    for seed in (1, 2, 3):
        out = np.zeros((32, 24, 128), np.float32)
        report = lw.check(kernel, out, arch=ARCH, schedule=seed)
        assert report.ok, report
        assert (out == np.arange(1, 25)[:, None]).all(), seed


def test_no_warp_goes_on_before_the_product_where_a_slice_ends() -> None:
    """The same in a plain run: the last warp spins for a whole slice, less and less before the product."""
    spins = f"bar.sync 0; mov.u32 %r14, 1; setp.eq.u32 %p0, %r12, 3; @%p0 sub.u32 %r14, {WHOLE.slice}, %r15;"
    out = np.zeros((24, 128), np.float32)
    lw.load(sums_of_warps_apart(spins))["k"][1, 128](out, arch=ARCH)
    assert (out == np.arange(1, 25)[:, None]).all()


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
        (64, WGMMA, "the block does not have four warps for this warpgroup"),
        (160, f"setp.lt.u32 %p0, %r8, 128; @%p0 bra L; {WGMMA} L:", "does not have four warps"),
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
        (
            128,
            f"mov.b32 %r4, 0; mov.b32 %r0, 0x3f803f80; {statement(SPARSE)}",
            "does not take this sparsity selector or this metadata",
        ),
    ],
)
def test_mistakes_are_faults(threads: int, body: str, message: str) -> None:
    with pytest.raises(KernelFault, match=message) as caught:
        lw.load(module(body))["k"][1, threads](np.zeros(4, np.float32), arch=ARCH)
    assert "wgmma.mma_async" in str(caught.value)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_matrix_out_of_bounds_is_in_the_block_s_own_memory(rank: int) -> None:
    body = f"""
    mov.u32 %r9, %cluster_ctarank;
    setp.ne.u32 %p0, %r9, {rank};
    @%p0 ret;
    mov.b64 %rd1, 0x4000004000003e00; {WGMMA}
    """
    message = rf"(?s)shared read of 16 bytes out of bounds.*in the block of rank {rank}"
    with pytest.raises(KernelFault, match=message):
        lw.load(module(body))["k"][2, 128](np.zeros(4, np.float32), arch=ARCH, cluster=2)


@pytest.mark.parametrize(
    ("written", "instead", "message"),
    [
        (", 1, 1, 1, 0, 0;", ", 1, 0, 1, 0, 0;", "an imm-scale is the constant 1 or -1"),
        (", 1, 1, 1, 0, 0;", ", 1, 1, 1, 0, 2;", "an imm-trans is the constant 0 or 1"),
        (", 1, 1, 1, 0, 0;", ", %r0, 1, 1, 0, 0;", "scale-d is a predicate, 0 or 1"),
        ("%rd1", "%r1", "B's descriptor is a register of 64 bits"),
        (", 1, 1, 1, 0, 0;", ", 1, 1, 1, 0;", "takes 8 operands"),
        ("%f3}", "%rd3}", "D is 4 registers of 32 bits"),
    ],
)
def test_operands_are_checked_before_a_launch(written: str, instead: str, message: str) -> None:
    assert written in WGMMA
    with pytest.raises((Unsupported, lw.LanewiseError), match=message):
        lw.load(module(WGMMA.replace(written, instead)))["k"][1, 128](np.zeros(4, np.float32), arch=ARCH)


def test_descriptors_may_be_constants() -> None:
    """One with its highest bit set (64B), which names the zeros that shared memory begins with."""
    mma = lw.instruction(BF16.format(8))
    constant = hex(MatrixDescriptor(0x400, 0, 512, swizzle="64B").encode())
    body = f"""
    mov.b32 %f0, 0f40400000;
    {statement(mma, a=constant, b=constant)}
    mad.wide.u32 %rd3, %r8, 4, %rd2;
    st.global.b32 [%rd3], %f0;
    """
    out = np.zeros(128, np.float32)
    lw.load(module(body))["k"][1, 128](out, arch=ARCH)
    assert (out == 3).all()


def test_matrices_in_shared_memory_are_told() -> None:
    """For those who look at accesses: which matrices an instruction reads, and how they lie."""
    every = by_types("wgmma.sp", 16)
    sparse = next(each for each in every if each.types[1:] == ("u8", "u8") and each.a_source == "descriptor")
    parsed = parse(module(statement(sparse)))
    op = next(op for op in resolve(parsed, parsed["k"].function).sites if op.record.multiplies)
    a, b = Statement(op, op.source.instruction().on(ARCH)).matrices()
    assert (a.name, a.rows, a.k, a.bits, a.major) == ("a", 64, 32, 8, "K")
    assert (b.name, b.rows, b.k, b.bits, b.major) == ("b", 16, 64, 8, "K")
    assert a.register and b.register and a.register != b.register


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


@sampled(2)
@pytest.mark.parametrize("name", KERNELS)
def test_gemm_in_cuda_is_the_instruction_repeated(name: str) -> None:
    """One warpgroup that loads and multiplies; three, of which one loads and two multiply."""
    need_nvrtc()
    m, n, k = 128, 256, 320
    rng = np.random.default_rng(5)
    a, b = (rng.normal(size=shape).astype(ml_dtypes.bfloat16) for shape in ((m, k), (n, k)))
    d = np.zeros((m, n), np.float32)
    threads, rows, shared = KERNELS[name]
    launched = lw.cuda(GEMM, arch=ARCH)[name][(n // 256, m // rows), threads, shared]
    launched(a, b, d, n, k)
    expected = lw.instruction(BF16.format(256)).gemm(a, np.ascontiguousarray(b.T), arch=ARCH)
    assert np.array_equal(d.view(np.uint32), expected.view(np.uint32))
    again = np.zeros_like(d)
    report = lw.check(launched, a, b, again, n, k)
    assert np.array_equal(again, d)
    assert report.ok, str(report)
    assert report.counters["lanewise__tensor_flops.sum"] == 2 * m * n * k
    assert report.counters["smsp__inst_executed_pipe_tensor.sum"] == 4 * (m // 64) * (n // 256) * (k // 16)


def test_gemm_by_tma_is_the_instruction_repeated() -> None:
    """One thread loads by TMA, two warpgroups multiply; under every schedule of the copies."""
    need_nvrtc()
    m, n, k = 128, 256, 320
    rng = np.random.default_rng(6)
    a, b = (rng.normal(size=shape).astype(ml_dtypes.bfloat16) for shape in ((m, k), (n, k)))
    expected = lw.instruction(BF16.format(256)).gemm(a, np.ascontiguousarray(b.T), arch=ARCH)
    maps = [lw.tensor_map(each, (rows, 64), swizzle="128B") for each, rows in ((a, 128), (b, 256))]
    launched = lw.cuda(BY_TMA, arch=ARCH)["gemm"][(n // 256, m // 128), 384, 3 * 384 * 128]
    for schedule in ("early", "late", 1):
        d = np.zeros((m, n), np.float32)
        launched(*maps, d, n, k, schedule=schedule)
        assert np.array_equal(d.view(np.uint32), expected.view(np.uint32)), schedule


def test_records_say_what_is_waited_for() -> None:
    parsed = parse(module(f"wgmma.fence.sync.aligned; {WGMMA}"))
    ops = resolve(parsed, parsed["k"].function).sites
    product = next(op for op in ops if op.record.multiplies)
    assert [access.proxy.name for access in product.record.memory] == ["ASYNC", "ASYNC"]
    assert product.record.level.name == product.record.waits.name == "WARPGROUP"
    assert {op.record.orders.name for op in ops if op.opcode == "wgmma"} == {"NOTHING", "WARPGROUP_FENCE"}
