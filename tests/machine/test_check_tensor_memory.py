"""Checks of kernels with tcgen05: right ones are silent with the same bits, wrong ones have a mend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import EVERYTHING, only_with_everything, sampled
from lanewise.machine.checker.proxy_records import OPERATIONS_KEPT
from machine.mistakes.corpus import PAIRS, Pair
from machine.tensor_memory_kernels import dump, fill, kernel, registers
from shared_tests import blackwell

SCHEDULES = ("in order", "early", "late", 1, 2) if EVERYTHING else ("late",)
BLACKWELL = [pair for pair in PAIRS if pair.file.startswith("blackwell/")]


def checked_everywhere(launched: Any, arguments: tuple[Any, ...], out: np.ndarray) -> np.ndarray:
    """Check a kernel under every schedule: no finding, and the bits of a plain launch."""
    begin = out.copy()
    launched(*arguments)
    result = out.copy()
    for schedule in SCHEDULES:
        out[...] = begin
        report = lw.check(launched, *arguments, schedule=schedule)
        assert not [str(each) for each in report.findings], schedule
        assert out.tobytes() == result.tobytes(), schedule
    return result


@sampled(40)
@pytest.mark.parametrize("case", blackwell.SINGLE[:1] + blackwell.SINGLE[8:], ids=str)
def test_right_products_are_silent(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blackwell, "same_everywhere", checked_everywhere)
    monkeypatch.setattr(blackwell, "require_right", lambda *_: None)  # what the plain test looks at
    blackwell.test_gemm_of_single_blocks(case)


@only_with_everything
def test_right_attention_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores, weights and sums share tensor memory: loads, stores and products wait for each other."""
    monkeypatch.setattr(blackwell, "same_everywhere", checked_everywhere)
    blackwell.test_attention(True)


def moved(body: str) -> Any:
    """The findings about a kernel that fills tensor memory from x, runs a body, and writes it to y."""
    x = np.arange(128 * 256, dtype=np.uint32).reshape(128, 256)
    text = kernel(fill("x") + body + dump("y"), ("x", "y"))
    return lw.check(lw.load(text)["k"][1, 128], x, np.zeros_like(x)).findings


LOAD = "    tcgen05.ld.sync.aligned.32x32b.x32.b32 " + registers("d", 32) + ", [%taddr];\n"
STORE = "    tcgen05.st.sync.aligned.32x32b.x32.b32 [%taddr], " + registers("d", 32) + ";\n"
WAIT_LD, WAIT_ST = (f"    tcgen05.wait::{each}.sync.aligned;\n" for each in ("ld", "st"))


def test_registers_of_a_load_need_no_wait() -> None:
    """The PTX ISA keeps the order of instructions that use them."""
    assert not moved(LOAD + "    add.u32 %r1, %d3, 1;\n" + STORE + WAIT_ST)


def test_a_store_is_waited_for_before_it_is_loaded() -> None:
    assert not moved(LOAD + WAIT_LD + STORE + WAIT_ST + LOAD + WAIT_LD)
    (finding,) = moved(LOAD + WAIT_LD + STORE + LOAD + WAIT_LD + WAIT_ST)
    assert finding.kind == "tensor memory" and "tcgen05.wait::st" in finding.mend
    assert finding.text.startswith("tcgen05.ld") and finding.other.text.startswith("tcgen05.st")


@pytest.mark.parametrize("columns, severity", [(32, "error"), (16, "advice")])
def test_columns_without_a_value(columns: int, severity: str) -> None:
    """A load of columns of which none was written is wrong; of some, it may drop the others."""
    store = "    tcgen05.st.sync.aligned.32x32b.x16.b32 [%r1], " + registers("d", 16) + ";\n"
    values = "".join(f"    mov.u32 %d{number}, 1;\n" for number in range(16))
    begin = f"{values}    add.u32 %r1, %taddr, 64;\n" + store + WAIT_ST
    load = f"    add.u32 %r2, %taddr, {64 - columns};\n" + LOAD.replace("[%taddr]", "[%r2]")
    text = kernel(begin + load + WAIT_LD, columns=128)
    (finding,) = lw.check(lw.load(text)["k"][1, 128]).findings
    assert (finding.kind, finding.severity) == ("uninitialised", severity)


@pytest.mark.parametrize("name", ["sums_never_waited_for", "columns_never_freed", "lanes_of_another_warp"])
def test_findings_name_thread_place_and_mend(name: str) -> None:
    (pair,) = [each for each in BLACKWELL if each.name == name]
    for finding in pair.check(wrong=True).findings:
        assert finding.kind == "tensor memory" and finding.thread and finding.mend and finding.source


@pytest.mark.parametrize(
    "name, wait", [("stores_waited_for_too_late", "st"), ("loads_waited_for_too_late", "ld")]
)
def test_a_wait_behind_the_barrier_is_told_as_a_missing_wait(name: str, wait: str) -> None:
    """The barrier is there: what is missing before it is the wait."""
    (pair,) = [each for each in BLACKWELL if each.name == name]
    for schedule in ("in order", "reverse", "late"):
        findings = pair.check(wrong=True, schedule=schedule).findings
        assert findings and all(f"tcgen05.wait::{wait}" in each.mend for each in findings)
        assert all("before the threads synchronised" in each.message for each in findings)


def test_columns_that_were_freed_are_told_as_freed() -> None:
    """A load or a product that comes after the free; the mend is an order, and not a larger allocation."""
    freed = {"columns_after_free": "in order", "columns_freed_before_another_product": "late"}
    for name, schedule in freed.items():
        (pair,) = [each for each in BLACKWELL if each.name == name]
        findings = pair.check(wrong=True, schedule=schedule).findings
        (finding,) = [each for each in findings if "freed by tcgen05.dealloc" in each.message]
        assert finding.mend.startswith("let all threads that use the columns synchronise")
    (pair,) = [each for each in BLACKWELL if each.name == "columns_beyond_allocation"]
    (finding,) = pair.check(wrong=True).findings
    assert "not all allocated" in finding.message and finding.mend.startswith("allocate")


def test_a_commit_that_tells_one_block_of_a_pair_is_named() -> None:
    """The second block waits for ever; what it waits for has come to the first block alone."""
    (pair,) = [each for each in BLACKWELL if each.name == "partner_not_told"]
    (finding,) = pair.check(wrong=True).findings
    assert finding.kind == "barrier" and finding.block == (1, 0, 0)
    assert finding.mend.startswith("let the commit tell both blocks of the pair: .multicast::cluster")


MMA = lw.instruction("tcgen05.mma.cta_group::1.kind::f16", m=128, n=32, a="f16", b="f16", d="f32")
NARROW = lw.instruction("tcgen05.mma.cta_group::1.kind::f16", m=128, n=16, a="bf16", b="bf16", d="f32")


@pytest.mark.parametrize("waits", [False, True])
def test_a_commit_that_nobody_waits_for_is_advice(waits: bool) -> None:
    """CUTLASS's attention releases a stage of shared memory that no thread fills again."""

    @lw.kernel
    def product(C: lw.Ptr[lw.f32]) -> None:
        tile = lw.shared(lw.f16, (128, 16), swizzle=lw.Swizzle(1, 3, 3), align=1024)
        thread, done, free = lw.thread_idx.x, lw.mbarrier(1)[0], lw.mbarrier(1)[0]
        if thread == 0:
            done.init(1)
            free.init(1)
            lw.fence_mbarrier_init()
        for k in range(16):
            tile[thread, k] = lw.f16(1)
        lw.fence_proxy_async()
        memory = lw.tmem.alloc(32)
        sums = memory.accumulator(MMA)
        lw.tcgen05.fence_before()
        lw.syncthreads()
        lw.tcgen05.fence_after()
        if thread == 0:
            whole = lw.make_umma_desc(tile)
            MMA(whole[0, 0], whole[0, 0], sums, accumulate=False)
            lw.tcgen05.commit(done)
            lw.tcgen05.commit(free)
        done.wait(0)
        if waits:
            free.wait(0)
        lw.tcgen05.fence_after()
        row = sums.load(0, 32)
        for n in range(32):
            C[thread * 32 + n] = row[n]
        memory.free()

    for schedule in ("in order", "reverse", "late"):
        c = np.zeros((128, 32), np.float32)
        report = lw.check(product[1, 128], c, arch="sm_100a", schedule=schedule)
        assert report.ok and (c == 16).all()
        kept = [] if waits or schedule != "late" else ["asynchronous copy"]
        assert [each.kind for each in report.findings] == kept


@lw.kernel
def long_after_the_copies(
    A: lw.TensorMap[lw.bf16, (128, 64), 128],
    B: lw.TensorMap[lw.bf16, (16, 64), 128],
    plain: lw.TensorMap[lw.bf16, (8, 64)],
    C: lw.Ptr[lw.f32],
    steps: lw.i32,
) -> None:
    """Multiply tiles that were copied many other copies ago, which have no swizzle."""
    sA = lw.shared(lw.bf16, (128, 64), swizzle=lw.Swizzle(3, 3, 3), align=1024)
    sB = lw.shared(lw.bf16, (16, 64), swizzle=lw.Swizzle(3, 3, 3), align=1024)
    other = lw.shared(lw.bf16, (8, 8, 64), align=1024)
    thread, bars = lw.thread_idx.x, lw.mbarrier(3)
    if thread == 0:
        bars.init(1)
        lw.fence_mbarrier_init()
    memory = lw.tmem.alloc(32)
    acc = memory.accumulator(NARROW)
    if thread == 0:
        bars[0].arrive(expect=A.nbytes + B.nbytes)
        lw.tma.load(sA, A, (0, 0), bars[0])
        lw.tma.load(sB, B, (0, 0), bars[0])
        bars[0].wait(0)
        for step in lw.range(steps):
            bars[1].arrive(expect=8 * plain.nbytes)
            for i in range(8):
                lw.tma.load(other[i, :, :], plain, (0, 0), bars[1])
            bars[1].wait(step % 2)
        a, b = lw.make_umma_desc(sA), lw.make_umma_desc(sB)
        for k in range(0, 64, 16):
            NARROW(a[0, k], b[0, k], acc, accumulate=k > 0)
        lw.tcgen05.commit(bars[2])
    bars[2].wait(0)
    lw.tcgen05.fence_after()
    row = acc.load(0, 16)
    for n in range(16):
        C[thread * 16 + n] = row[n]
    memory.free()


def test_a_copy_of_long_ago_is_not_taken_for_a_later_one() -> None:
    """The record of operations has an end, and then another copy, with another swizzle, is in its place."""
    rng = np.random.default_rng()
    a, b = (rng.normal(size=(rows, 64)).astype(lw.bf16.dtype) for rows in (128, 16))
    c = np.zeros((128, 16), np.float32)
    maps = lw.tensor_map(a, (128, 64), swizzle="128B"), lw.tensor_map(b, (16, 64), swizzle="128B")
    for steps in (1, 2 * OPERATIONS_KEPT):
        report = lw.check(
            long_after_the_copies[1, 128], *maps, lw.tensor_map(b, (8, 64)), c, steps, arch="sm_100a"
        )
        assert report.ok, str(report)
        assert np.array_equal(c, NARROW.gemm(a, b.T, arch="sm_100a"))


def in_the_language(mistake: str) -> Any:
    """Return a kernel of the language that multiplies once, with a mistake."""

    @lw.kernel
    def product(A: lw.Ptr[lw.f16], C: lw.Ptr[lw.f32]) -> None:
        tile = lw.shared(lw.f16, (128, 16), swizzle=lw.Swizzle(1, 3, 3), align=1024)
        thread, done = lw.thread_idx.x, lw.mbarrier(1)[0]
        if thread == 0:
            done.init(1)
            lw.fence_mbarrier_init()
        for k in range(16):
            tile[thread, k] = A[thread * 16 + k]
        lw.fence_proxy_async()
        memory = lw.tmem.alloc(32)
        sums = memory.accumulator(MMA)
        sums.store(0, [lw.f32(1)] * 32, wait=mistake != "wait_store")
        if mistake != "fence_before":
            lw.tcgen05.fence_before()
        lw.syncthreads()
        lw.tcgen05.fence_after()
        if thread == 0:
            whole = lw.make_umma_desc(tile)
            MMA(whole[0, 0], whole[0, 0], sums, accumulate=True)
            lw.tcgen05.commit(done)
        if mistake != "commit":
            done.wait(0)
        if mistake != "fence_after":
            lw.tcgen05.fence_after()
        row = sums.load(0, 32)
        for i in range(32):
            C[thread * 32 + i] = row[i]
        done.wait(0)
        if mistake != "free":
            memory.free()
        if mistake == "twice":
            memory.free()

    return product


@pytest.mark.parametrize(
    "mistake, mend",
    [
        ("", ""),
        ("commit", "`lw.tcgen05.commit`"),
        ("wait_store", "`lw.tcgen05.wait_store()`"),
        ("free", "`memory.free()` before the kernel ends, in all threads"),
        ("twice", "call `memory.free()` once"),
        ("fence_before", "`lw.tcgen05.fence_before()` after line"),
        ("fence_after", "`lw.tcgen05.fence_after()` before line"),
    ],
)
def test_mends_have_the_words_of_the_language(mistake: str, mend: str) -> None:
    a, c = np.ones((128, 16), np.float16), np.zeros((128, 32), np.float32)
    report = lw.check(in_the_language(mistake)[1, 128], a, c, arch="sm_100a")
    findings = report.findings
    assert report.ok == (not mistake or mistake.startswith("fence"))
    assert [mend in each.mend for each in findings] == [True] * bool(mistake)
    assert not any("tcgen05." in each.mend.replace("lw.tcgen05.", "") for each in findings)


@sampled(120)
@pytest.mark.parametrize("pair", BLACKWELL, ids=lambda pair: pair.name)
def test_planted_mistakes_under_other_schedules(pair: Pair) -> None:
    for schedule in ("late", 3):
        if pair.kinds:
            assert pair.found(pair.check(wrong=True, schedule=schedule)), schedule
        report = pair.check(wrong=False, schedule=schedule)
        # This twin overwrites the sums of its first product unread, and is advised of it.
        is_advised = pair.name == "metadata_overwritten_in_use"
        assert report.ok if is_advised else not report.findings, schedule


def test_a_constant_is_decoded_as_an_answer() -> None:
    """No request wrote it: there is nothing to look at."""
    text = """.version 8.6
.target sm_100a
.address_size 64
.visible .entry k()
{
    .reg .pred %p<2>;
    clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p1, 16;
    ret;
}
"""
    assert not lw.check(lw.load(text)["k"][1, 32]).findings


#: Formats that tcgen05 multiplies beside formats of 8 bits: bytes of a piece of 16 that hold its elements.
HELD = [("e2m1", 8), ("e3m2", 12), ("e4m3", 16)]


def product_of_bytes(element: str, written: int) -> Any:
    """The findings about a product whose A has so many bytes of each piece of 16 written."""
    mma = lw.instruction("tcgen05.mma.cta_group::1.kind::f8f6f4", m=128, n=16, a=element, b="e4m3", d="f32")

    @lw.kernel
    def k(out: lw.Ptr[lw.f32]) -> None:
        a = lw.shared(lw.u8, lw.Layout((128, 32), (128, 1)), swizzle=lw.Swizzle(3, 4, 3), align=1024)
        b = lw.shared(lw.u8, lw.Layout((16, 32), (128, 1)), swizzle=lw.Swizzle(3, 4, 3), align=1024)
        done, t = lw.mbarrier(1), lw.thread_idx.x
        if t == 0:
            done.init(1)
            lw.fence_mbarrier_init()
        for piece in range(2):
            for byte in range(written):
                a[t, 16 * piece + byte] = lw.u8(0)
        if t < 16:
            for byte in range(32):
                b[t, byte] = lw.u8(0)
        lw.fence_proxy_async()
        memory = lw.tmem.alloc(32)
        acc = memory.accumulator(mma)
        if t == 0:
            of_a, of_b = (lw.make_umma_desc(each)[0, 0].bits for each in (a, b))
            mma(of_a, of_b, acc, accumulate=False)
            lw.tcgen05.commit(done[0])
        done[0].wait(0)
        lw.tcgen05.fence_after()
        out[t] = acc.load(0, 16)[0]
        lw.tcgen05.fence_before()
        memory.free()

    return lw.check(k[1, 128], np.zeros(128, np.float32), arch="sm_100a").findings


@sampled(3)
@pytest.mark.parametrize(("element", "held"), HELD)
def test_gaps_behind_packed_elements_need_no_values(element: str, held: int) -> None:
    """TMA leaves them as they are where it loads elements of 4 and 6 bits for a product with 8-bit ones."""
    assert not product_of_bytes(element, held)
    (finding,) = product_of_bytes(element, held - 1)
    assert finding.kind == "uninitialised"


@pytest.mark.parametrize(("packing", "words"), [("b4x16_p64", 2), ("b6x16_p32", 3)])
def test_gaps_in_rows_of_ldmatrix_need_no_values(packing: str, words: int) -> None:
    def findings(count: int) -> Any:
        stores = "".join(f"    st.shared.b32 [%a+{4 * word}], 0;\n" for word in range(count))
        text = f"""
.version 8.8
.target sm_120a
.address_size 64
.visible .entry k()
{{
    .reg .b32 %a, %r, %s;
    .shared .align 16 .b8 rows[512];
    mov.u32 %r, %tid.x;
    mov.u32 %s, rows;
    mad.lo.u32 %a, %r, 16, %s;
{stores}    bar.warp.sync 0xffffffff;
    ldmatrix.sync.aligned.m8n16.x4.shared.b8x16.{packing} {{%r, %r, %r, %r}}, [%a];
    ret;
}}
"""
        return lw.check(lw.load(text)["k"][1, 32]).findings

    assert not findings(words)
    assert [each.kind for each in findings(words - 1)] == ["uninitialised"]


#: How the source of a copy to tensor memory is packed, and the words of a piece that then hold elements.
PACKINGS = [("", 4), (".b8x16.b4x16_p64", 2), (".b8x16.b6x16_p32", 3)]


@pytest.mark.parametrize(("packing", "held"), PACKINGS)
def test_gaps_in_sources_of_tensor_copies_need_no_values(packing: str, held: int) -> None:
    """tcgen05.cp reads the packed elements of a piece alone: the gap may be unset, or overwritten."""

    def kinds(words: range, overwritten: range = range(0)) -> Any:
        stores, later = (
            "".join(f"    st.shared.b32 [%r1+{4 * word}], 0;\n" for word in chosen)
            for chosen in (words, overwritten)
        )
        body = f"""
    mov.u32 %r2, rows;
    mad.lo.u32 %r1, %tid0, 16, %r2;
{stores}    setp.eq.u32 %p2, %tid0, 0;
    @%p2 mbarrier.init.shared::cta.b64 [bars], 1;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    shr.u32 %r2, %r2, 4;
    cvt.u64.u32 %rd2, %r2;
    or.b64 %rd2, %rd2, {1 << 16 | 8 << 32 | 1 << 46};
    @%p2 tcgen05.cp.cta_group::1.128x128b{packing} [%taddr], %rd2;
    @%p2 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bars];
{later}WAITING:
    mbarrier.try_wait.parity.shared::cta.b64 %p3, [bars], 0;
    @!%p3 bra WAITING;
"""
        text = kernel(body, shared=".shared .align 128 .b8 rows[2048];")
        return {each.kind for each in lw.check(lw.load(text)["k"][1, 128]).findings}

    assert not kinds(range(held), overwritten=range(held, 4))
    assert kinds(range(held - 1)) == {"uninitialised"}
    assert kinds(range(held), overwritten=range(held - 1, held)) == {"asynchronous copy"}
