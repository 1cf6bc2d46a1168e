"""Stores that GPUs have from sm_100 on: of 256 bits, st.bulk, masked bulk copies, asynchronous ones."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import lanewise as lw
from lanewise.machine import KernelFault, Unsupported

Words = npt.NDArray[np.uint32]

KERNEL = """
.version 9.0
.target {target}
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u32 n)
{{
    .reg .b64 %rd<12>; .reg .b32 %r<24>; .reg .pred %p<4>; .reg .b16 %h<4>;
    .shared .align 128 .b8 tile[4096];
    ld.param.u64 %rd0, [a]; ld.param.u64 %rd1, [b]; ld.param.u32 %r20, [n];
    mov.u32 %r0, %tid.x; mov.u32 %r21, tile;
    setp.ne.u32 %p0, %r0, 0;
    mul.wide.u32 %rd2, %r0, 32; add.u64 %rd3, %rd0, %rd2; add.u64 %rd4, %rd1, %rd2;
    cvt.u64.u32 %rd5, %r20;
    {body}
    ret;
}}
"""


def run(
    body: str, a: npt.NDArray[Any], b: npt.NDArray[Any], n: int = 0, threads: int = 32, **how: object
) -> None:
    lw.load(KERNEL.format(body=body, target=how.pop("target", "sm_100")))["k"][1, threads](a, b, n, **how)


def words(count: int, seed: int) -> Words:
    return np.random.default_rng(seed).integers(0, 1 << 32, count, dtype=np.uint32)


# 256 bits ---------------------------------------------------------------------------------------------------

EIGHT, FOUR = (
    ", ".join(f"%{letter}{first + number}" for number in range(count))
    for letter, first, count in (("r", 1, 8), ("rd", 6, 4))
)


@pytest.mark.parametrize(
    ("load", "store", "registers"),
    [
        ("ld.global.v8.b32", "st.global.v8.b32", EIGHT),
        ("ld.global.nc.L1::evict_last.L2::evict_first.v8.f32", "st.global.L2::evict_last.v8.f32", EIGHT),
        ("ld.relaxed.gpu.global.v8.u32", "st.release.gpu.global.v8.u32", EIGHT),
        ("ld.global.v4.b64", "st.global.v4.b64", FOUR),
        ("ld.volatile.global.v4.f64", "st.v4.f64", FOUR),
    ],
)
@pytest.mark.parametrize("threads", (1, 19, 32, 64))
def test_256_bits_are_moved(load: str, store: str, registers: str, threads: int) -> None:
    a, b = words(8 * 64, threads), np.zeros(8 * 64, np.uint32)
    body = f"{load} {{{registers}}}, [%rd3];\n{store} [%rd4], {{{registers}}};"
    run(body, a, b, threads=threads)
    assert np.array_equal(b[: 8 * threads], a[: 8 * threads]) and not b[8 * threads :].any()


def test_cache_policies_of_256_bits_change_nothing() -> None:
    a, b = words(8 * 32, 5), np.zeros(8 * 32, np.uint32)
    run(
        f"""createpolicy.fractional.L2::evict_last.b64 %rd11, 0.5;
    ld.global.L2::cache_hint.v8.b32 {{{EIGHT}}}, [%rd3], %rd11;
    st.global.L2::cache_hint.v8.b32 [%rd4], {{{EIGHT}}}, %rd11;""",
        a,
        b,
    )
    assert np.array_equal(a, b)


@pytest.mark.parametrize("kept", (0b00000001, 0b10110010, 0b01111111, 0b11111111))
def test_elements_that_are_left_out_are_neither_read_nor_written(kept: int) -> None:
    names = [f"%r{1 + number}" if kept >> number & 1 else "_" for number in range(8)]
    a, b = words(8 * 32, 6), words(8 * 32, 7)
    before = b.copy()
    run(
        f"ld.global.v8.b32 {{{', '.join(names)}}}, [%rd3];\nst.global.v8.b32 [%rd4], {{{', '.join(names)}}};",
        a,
        b,
    )
    chosen = np.tile([bool(kept >> number & 1) for number in range(8)], 32)
    assert np.array_equal(b, np.where(chosen, a, before))


def test_256_bits_are_aligned() -> None:
    with pytest.raises(KernelFault, match="misaligned"):
        run(f"ld.global.v8.b32 {{{EIGHT}}}, [%rd3+16];", words(520, 1), words(8, 2))
    with pytest.raises(Unsupported, match="needs sm_100; this PTX is for sm_90a"):
        run(f"ld.global.v8.b32 {{{EIGHT}}}, [%rd3];", words(256, 1), words(8, 2), target="sm_90a")
    with pytest.raises(Unsupported, match="only stores of 256 bits"):
        run("st.global.v4.b32 [%rd3], {%r1, _, %r2, %r3};", words(256, 1), words(8, 2))


# st.bulk ----------------------------------------------------------------------------------------------------

FILL = """
    @%p0 bra END;
    mov.u32 %r1, 0;
FILL:
    add.u32 %r2, %r21, %r1; st.shared.u32 [%r2], 0xABABABAB;
    add.u32 %r1, %r1, 4; setp.lt.u32 %p1, %r1, 4096; @%p1 bra FILL;
    {zero}
    mov.u32 %r1, 0;
DUMP:
    add.u32 %r2, %r21, %r1; ld.shared.u32 %r3, [%r2];
    cvt.u64.u32 %rd6, %r1; add.u64 %rd6, %rd6, %rd0; st.global.u32 [%rd6], %r3;
    add.u32 %r1, %r1, 4; setp.lt.u32 %p1, %r1, 4096; @%p1 bra DUMP;
END:"""


@pytest.mark.parametrize(
    "zero",
    [
        "st.bulk.weak.shared::cta [%r21+24], %rd5, 0;",
        "st.bulk.shared::cta [tile+24], %r20, 0;",
        "cvta.shared.u64 %rd7, tile; st.bulk [%rd7+24], %rd5, 0;",
    ],
)
@pytest.mark.parametrize("size", (0, 8, 64, 4072))
def test_st_bulk_writes_zeros(zero: str, size: int) -> None:
    seen = np.zeros(1024, np.uint32)
    run(FILL.format(zero=zero), seen, seen[:1], size)
    wanted = np.full(4096, 0xAB, np.uint8)
    wanted[24 : 24 + size] = 0
    assert np.array_equal(seen.view(np.uint8), wanted)


@pytest.mark.parametrize(
    ("zero", "size", "says"),
    [
        ("st.bulk.weak.shared::cta [%r21], %rd5, 0;", 12, "st.bulk of 12 bytes: a multiple of 8"),
        ("st.bulk.weak.shared::cta [%r21+4], %rd5, 0;", 8, "is not a multiple of 8"),
        ("st.bulk.weak.shared::cta [%r21+8], %rd5, 0;", 4096, "out of bounds"),
        ("st.bulk.weak.shared::cta [%r21], %rd5, 0;", (1 << 24) + 8, "16777216 at most"),
        ("st.bulk [%rd0], %rd5, 0;", 8, "out of bounds"),
    ],
)
def test_wrong_st_bulk_is_a_fault(zero: str, size: int, says: str) -> None:
    with pytest.raises(KernelFault, match=says):
        run(FILL.format(zero=zero), np.zeros(1024, np.uint32), np.zeros(1, np.uint32), size)


def test_st_bulk_writes_nothing_but_zeros() -> None:
    with pytest.raises(Unsupported, match="its value must be 0"):
        run("st.bulk.weak.shared::cta [%r21], 8, 1;", words(4, 0), words(4, 0))


@pytest.mark.parametrize("size", ("4096", "%rd5"))
def test_a_check_takes_what_st_bulk_wrote_for_written(size: str) -> None:
    body = f"@!%p0 st.bulk.weak.shared::cta [tile], {size}, 0;\nbar.sync 0;\n" + (
        "mad.lo.u32 %r1, %r0, 4, %r21; ld.shared.u32 %r2, [%r1]; st.global.u32 [%rd4], %r2;"
    )
    configured = lw.load(KERNEL.format(body=body, target="sm_100"))["k"][1, 32]
    assert lw.check(configured, words(8, 0), words(256, 0), 4096).ok


@pytest.mark.parametrize("first", (0, 1024))
def test_a_check_finds_what_st_bulk_did_not_write(first: int) -> None:
    body = f"@!%p0 st.bulk.weak.shared::cta [tile+{first}], 1024, 0;\nbar.sync 0;\n" + (
        "mad.lo.u32 %r1, %r0, 4, %r21; ld.shared.u32 %r2, [%r1]; st.global.u32 [%rd4], %r2;"
    )
    configured = lw.load(KERNEL.format(body=body, target="sm_100"))["k"][1, 32]
    kinds = [each.kind for each in lw.check(configured, words(8, 0), words(256, 0), 0).findings]
    assert ("uninitialised" in kinds) == (first > 0)


def test_a_check_finds_a_race_with_st_bulk() -> None:
    body = "@!%p0 st.bulk.weak.shared::cta [tile], 4096, 0;\n" + (
        "mad.lo.u32 %r1, %r0, 4, %r21; st.shared.u32 [%r1], %r0;"
    )
    configured = lw.load(KERNEL.format(body=body, target="sm_100"))["k"][1, 64]
    assert any("race" in each.kind for each in lw.check(configured, words(8, 0), words(256, 0), 0).findings)


# masked bulk copies -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("hint", ("", ".L2::cache_hint"))
@pytest.mark.parametrize("schedule", ("early", "late", 4))
@pytest.mark.parametrize("mask", (0, 0xFFFF, 0x8001, 0x5A3C))
def test_bytes_of_a_mask_are_copied(mask: int, schedule: object, hint: str) -> None:
    a, b = words(64, mask), words(64, mask + 1)
    source, target = a.view(np.uint8).copy(), b.view(np.uint8).copy()
    policy = "%rd11, " if hint else ""
    body = f"""@%p0 bra END;
    mov.u64 %rd11, 0; mov.u32 %r1, 0;
FILL:
    cvt.u64.u32 %rd6, %r1; add.u64 %rd6, %rd6, %rd0; ld.global.u32 %r3, [%rd6];
    add.u32 %r2, %r21, %r1; st.shared.u32 [%r2], %r3;
    add.u32 %r1, %r1, 4; setp.lt.u32 %p1, %r1, 256; @%p1 bra FILL;
    fence.proxy.async; cvt.u16.u32 %h0, %r20;
    cp.async.bulk.global.shared::cta.bulk_group{hint}.cp_mask [%rd1+16], [%r21], 192, {policy}%h0;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
END:"""
    run(body, a, b, mask, schedule=schedule)
    chosen = np.tile([bool(mask >> number & 1) for number in range(16)], 12)
    target[16:208] = np.where(chosen, source[:192], target[16:208])
    assert np.array_equal(b.view(np.uint8), target)


# asynchronous stores to global memory -----------------------------------------------------------------------


@pytest.mark.parametrize("schedule", ("early", "late", 1, 2))
@pytest.mark.parametrize(
    ("head", "register", "size"),
    [
        ("st.async.release.gpu.global.b16", "%h0", 2),
        ("st.async.release.sys.global.u32", "%r1", 4),
        ("st.async.mmio.release.sys.global.f32", "%r1", 4),
        ("st.async.release.gpu.b64", "%rd6", 8),
    ],
)
def test_asynchronous_stores_have_happened_at_the_end(
    head: str, register: str, size: int, schedule: object
) -> None:
    a, b = words(8 * 32, 9), np.zeros(8 * 32, np.uint32)
    body = f"""ld.global.u64 %rd6, [%rd3]; cvt.u32.u64 %r1, %rd6; cvt.u16.u32 %h0, %r1;
    {head} [%rd4], {register};"""
    run(body, a, b, schedule=schedule)
    wanted = np.zeros((32, 32), np.uint8)
    wanted[:, :size] = a.view(np.uint8).reshape(32, 32)[:, :size]
    assert np.array_equal(b.view(np.uint8).reshape(32, 32), wanted)


OPERATIONS = {
    "add.u32": lambda values: int(sum(map(int, values))) & 0xFFFFFFFF,
    "min.u32": lambda values: int(min(values)),
    "max.s32": lambda values: int(values.view(np.int32).max()) & 0xFFFFFFFF,
    "and.b32": lambda values: int(np.bitwise_and.reduce(values)),
    "or.b32": lambda values: int(np.bitwise_or.reduce(values)),
    "xor.b32": lambda values: int(np.bitwise_xor.reduce(values)),
}


@pytest.mark.parametrize("schedule", ("early", "late", 3))
@pytest.mark.parametrize("name", OPERATIONS)
def test_asynchronous_reductions(name: str, schedule: object) -> None:
    a, b = words(8 * 32, 11), words(1, 12)
    wanted = OPERATIONS[name](np.concatenate([b, a[::8]]))
    run(
        f"ld.global.u32 %r1, [%rd3];\nred.async.relaxed.gpu.global.{name} [%rd1], %r1;",
        a,
        b,
        schedule=schedule,
    )
    assert int(b[0]) == wanted


def test_a_misaligned_asynchronous_store_is_a_fault() -> None:
    with pytest.raises(KernelFault, match="misaligned"):
        run("st.async.release.gpu.global.b64 [%rd0+4], %rd5;", words(8, 0), words(8, 0), threads=1)
    with pytest.raises(KernelFault, match="out of bounds"):
        run("st.async.release.gpu.global.b64 [%rd0+32], %rd5;", words(8, 0), words(8, 0), threads=1)
