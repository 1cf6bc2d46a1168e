"""mbarrier: producers and consumers, tokens, transactions, waits that nobody ends, and misuse."""

import json
from pathlib import Path

import numpy as np
import pytest

import lanewise
from everything import only_with_everything, sampled
from lanewise.machine import Deadlock, KernelFault
from lanewise.ptx import Module, parse

HEADER = """
.version 8.7
.target sm_90
.address_size 64
"""


def kernel(body: str, registers: str = "") -> Module:
    return parse(
        f"""{HEADER}
.visible .entry k(.param .u64 out)
{{
    .shared .align 8 .b64 bar[4];
    .shared .align 16 .b8 data[4096];
    .reg .pred %p<6>; .reg .b32 %r<16>; .reg .b64 %rd<16>; {registers}
    ld.param.u64 %rd0, [out];
    mov.u32 %r0, %tid.x;
    mad.wide.u32 %rd1, %r0, 4, %rd0;
    setp.eq.u32 %p0, %r0, 0;
    {body}
    ret;
}}
"""
    )


def run(body: str, threads: int = 64, **options: object) -> np.ndarray:
    out = np.zeros(threads, np.uint32)
    kernel(body)["k"][1, threads](out, **options)
    return out


WAIT = """
{label}:
    mbarrier.{verb}.shared::cta.b64 %p1, [{where}], {what};
    @!%p1 bra {label};
"""


def wait(where: str, what: str, label: str, verb: str = "try_wait.parity") -> str:
    return WAIT.format(where=where, what=what, label=label, verb=verb)


@pytest.mark.parametrize("verb", ["try_wait", "test_wait"])
def test_all_threads_meet(verb: str) -> None:
    """What every thread wrote before it arrived is there after the wait, phase after phase."""
    body = f"""
    @%p0 mbarrier.init.shared.b64 [bar], 64;
    bar.sync 0;
    mov.u32 %r1, 0;
    mov.u32 %r6, 0;
LOOP:
    shl.b32 %r2, %r0, 2;
    mov.u32 %r3, data;
    add.u32 %r3, %r3, %r2;
    add.u32 %r4, %r0, %r1;
    st.shared.u32 [%r3], %r4;
    mbarrier.arrive.shared.b64 %rd2, [bar];
    {wait("bar", "%rd2", "W0", verb)}
    xor.b32 %r2, %r2, 252;
    mov.u32 %r3, data;
    add.u32 %r3, %r3, %r2;
    ld.shared.u32 %r5, [%r3];
    add.u32 %r6, %r6, %r5;
    mbarrier.arrive.shared.b64 %rd2, [bar];
    {wait("bar", "%rd2", "W1", verb)}
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p2, %r1, 10;
    @%p2 bra LOOP;
    st.global.u32 [%rd1], %r6;
    """
    expected = [sum(63 - tid + step for step in range(10)) for tid in range(64)]
    assert run(body).tolist() == expected


def test_one_warp_fills_another_empties() -> None:
    """A ring of two slots, full and empty barriers, waits by parity: a pipeline of specialised warps."""
    body = f"""
    @!%p0 bra START;
    mbarrier.init.shared.b64 [bar], 32;
    mbarrier.init.shared.b64 [bar+8], 32;
    mbarrier.init.shared.b64 [bar+16], 32;
    mbarrier.init.shared.b64 [bar+24], 32;
START:
    bar.sync 0;
    mov.u32 %r1, 0;
    mov.u32 %r9, 0;
    setp.ge.u32 %p3, %r0, 32;
    and.b32 %r10, %r0, 31;
STEP:
    and.b32 %r2, %r1, 1;
    shr.u32 %r3, %r1, 1;
    and.b32 %r3, %r3, 1;
    mov.u32 %r4, bar;
    mad.lo.u32 %r4, %r2, 8, %r4;
    mov.u32 %r5, data;
    mad.lo.u32 %r5, %r2, 128, %r5;
    mad.lo.u32 %r5, %r10, 4, %r5;
    @%p3 bra CONSUME;
    xor.b32 %r6, %r3, 1;
    {wait("%r4+16", "%r6", "EMPTY")}
    mad.lo.u32 %r7, %r1, 100, %r10;
    st.shared.u32 [%r5], %r7;
    mbarrier.arrive.shared.b64 _, [%r4];
    bra NEXT;
CONSUME:
    {wait("%r4", "%r3", "FULL")}
    ld.shared.u32 %r7, [%r5];
    mad.lo.u32 %r9, %r9, 3, %r7;
    mbarrier.arrive.shared.b64 _, [%r4+16];
NEXT:
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p2, %r1, 20;
    @%p2 bra STEP;
    st.global.u32 [%rd1], %r9;
    """
    expected = []
    for lane in range(32):
        total = 0
        for step in range(20):
            total = (total * 3 + step * 100 + lane) % (1 << 32)
        expected.append(total)
    assert run(body)[32:].tolist() == expected


AHEAD = f"""
    @%p0 mbarrier.init.shared::cta.b64 [bar], 1;
    @%p0 mbarrier.init.shared::cta.b64 [bar+8], 1;
    bar.sync 0;
    mov.u32 %r1, 0;
    mov.u32 %r2, 0;
NEXT:
    @%p0 mbarrier.arrive.shared::cta.b64 _, [bar];
    {wait("bar", "%r2", "LOADED")}
    @%p0 mbarrier.arrive.shared::cta.b64 _, [bar+8];
    {wait("bar+8", "%r2", "MULTIPLIED")}
    xor.b32 %r2, %r2, 1;
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p2, %r1, 6;
    @%p2 bra NEXT;
    st.global.u32 [%rd1], %r1;
"""


def test_a_warp_that_completes_phases_lets_the_others_see_them() -> None:
    """As in CuTe's tutorials: only a GPU's latency keeps the first warp from being two phases ahead."""
    assert (run(AHEAD, 128) == 6).all()
    with pytest.raises(Deadlock):  # without any latency the others miss phases
        run(AHEAD, 128, schedule="early")


def test_waits_for_complete_phases_are_no_deadlock_however_many() -> None:
    """The loop's counter is in memory: registers are the same in each round."""
    body = f"""
    mbarrier.init.shared::cta.b64 [bar], 1;
    mbarrier.arrive.shared::cta.b64 _, [bar];
    st.shared.u32 [data], 0;
AGAIN:
    {wait("bar", "0", "DONE")}
    ld.shared.u32 %r1, [data];
    add.u32 %r1, %r1, 1;
    st.shared.u32 [data], %r1;
    setp.lt.u32 %p2, %r1, 10000;
    mov.u32 %r1, 0;
    @%p2 bra AGAIN;
    ld.shared.u32 %r1, [data];
    st.global.u32 [%rd1], %r1;
"""
    assert run(body, 1)[0] == 10_000


def test_tokens_count_what_is_pending() -> None:
    body = """
    @!%p0 bra END;
    mbarrier.init.shared.b64 [bar], 10;
    mbarrier.arrive.noComplete.shared.b64 %rd2, [bar], 3;
    mbarrier.arrive_drop.noComplete.shared.b64 %rd3, [bar], 2;
    mbarrier.arrive.shared.b64 %rd4, [bar], 5;
    mbarrier.arrive.shared.b64 %rd5, [bar];
    mbarrier.pending_count.b64 %r1, %rd2;
    mbarrier.pending_count.b64 %r2, %rd3;
    mbarrier.pending_count.b64 %r3, %rd4;
    mbarrier.pending_count.b64 %r4, %rd5;
    st.global.v4.u32 [%rd0], {%r1, %r2, %r3, %r4};
    mbarrier.test_wait.shared.b64 %p1, [bar], %rd2;
    selp.u32 %r5, 1, 0, %p1;
    mbarrier.test_wait.parity.shared.b64 %p1, [bar], 0;
    selp.u32 %r6, 1, 0, %p1;
    st.global.v2.u32 [%rd0+16], {%r5, %r6};
END:
    """
    assert run(body)[:6].tolist() == [10, 7, 5, 8, 1, 1]


def test_a_phase_waits_for_its_bytes() -> None:
    body = f"""
    @!%p0 bra OTHERS;
    mbarrier.init.shared.b64 [bar], 1;
    mbarrier.arrive.expect_tx.shared.b64 _, [bar], 96;
    mbarrier.test_wait.parity.shared.b64 %p1, [bar], 0;
    selp.u32 %r1, 1, 0, %p1;
    mbarrier.complete_tx.shared.b64 [bar], 64;
    mbarrier.test_wait.parity.shared.b64 %p1, [bar], 0;
    selp.u32 %r2, 1, 0, %p1;
    mbarrier.complete_tx.shared.b64 [bar], 32;
    mbarrier.test_wait.parity.shared.b64 %p1, [bar], 0;
    selp.u32 %r3, 1, 0, %p1;
    st.global.v2.u32 [%rd0], {{%r1, %r2}};
    st.global.u32 [%rd0+8], %r3;
OTHERS:
    bar.sync 0;
    {wait("bar", "0", "DONE")}
    """
    assert run(body)[:3].tolist() == [0, 0, 1]


def test_copies_arrive() -> None:
    body = f"""
    @%p0 mbarrier.init.shared.b64 [bar], 64;
    bar.sync 0;
    mov.u32 %r1, data;
    mad.lo.u32 %r1, %r0, 4, %r1;
    cp.async.ca.shared.global [%r1], [%rd1], 4;
    cp.async.mbarrier.arrive.noinc.shared.b64 [bar];
    {wait("bar", "0", "COPIED")}
    xor.b32 %r2, %r0, 63;
    mov.u32 %r1, data;
    mad.lo.u32 %r1, %r2, 4, %r1;
    ld.shared.u32 %r3, [%r1];
    bar.sync 0;
    cp.async.mbarrier.arrive.shared.b64 [bar];
    st.global.u32 [%rd1], %r3;
    """
    out = np.arange(64, dtype=np.uint32)
    kernel(body)["k"][1, 64](out)
    assert out.tolist() == list(range(64))[::-1]


RACE = """
    @%p0 mbarrier.init.shared.b64 [bar], 64;
    bar.sync 0;
    mov.u32 %r1, data;
    mad.lo.u32 %r1, %r0, 4, %r1;
    {write}
    {arrive}
    {wait}
    xor.b32 %r2, %r0, 63;
    mov.u32 %r1, data;
    mad.lo.u32 %r1, %r2, 4, %r1;
    ld.shared.u32 %r3, [%r1];
    st.global.u32 [%rd1], %r3;
"""
STORE = "st.shared.u32 [%r1], %r0;"
COPY = "cp.async.ca.shared.global [%r1], [%rd1], 4;"
ARRIVE = "mbarrier.arrive.shared.b64 _, [bar];"
COPIED = "cp.async.mbarrier.arrive.noinc.shared.b64 [bar];"


@pytest.mark.parametrize(
    ("write", "arrive", "waits", "kind"),
    [
        (STORE, ARRIVE, True, ""),
        (STORE, ARRIVE, False, "race"),
        (COPY, COPIED, True, ""),
        (COPY, ARRIVE, True, "asynchronous copy"),
    ],
    ids=["ordered", "nobody waits", "copies arrive", "copies do not arrive"],
)
def test_checks_know_the_order_that_phases_make(write: str, arrive: str, waits: bool, kind: str) -> None:
    body = RACE.format(write=write, arrive=arrive, wait=wait("bar", "0", "DONE") if waits else "")
    report = lanewise.check(kernel(body)["k"][1, 64], np.arange(64, dtype=np.uint32))
    assert {finding.kind for finding in report.findings} == ({kind} if kind else set()), report


def test_checks_follow_a_pipeline_of_specialised_warps(monkeypatch: pytest.MonkeyPatch) -> None:
    reports = []

    def checked(body: str, threads: int = 64) -> np.ndarray:
        out = np.zeros(threads, np.uint32)
        reports.append(lanewise.check(kernel(body)["k"][1, threads], out))
        return out

    monkeypatch.setitem(globals(), "run", checked)
    test_one_warp_fills_another_empties()
    test_all_threads_meet("try_wait")
    assert len(reports) == 2 and all(reports), reports


@pytest.mark.parametrize("verb", ["try_wait.parity", "test_wait.parity"])
def test_a_phase_that_nobody_completes_is_a_deadlock(verb: str) -> None:
    body = f"""
    @%p0 mbarrier.init.shared.b64 [bar], 65;
    bar.sync 0;
    mbarrier.arrive.shared.b64 _, [bar];
    {wait("bar", "0", "NEVER", verb)}
    """
    with pytest.raises(Deadlock, match="64 threads wait for a phase of an mbarrier"):
        run(body)


def test_who_waits_for_a_phase_and_who_at_a_barrier() -> None:
    body = f"""
    @%p0 mbarrier.init.shared.b64 [bar], 1;
    bar.sync 0;
    @%p0 bra ALONE;
    {wait("bar", "0", "NEVER")}
    mbarrier.arrive.shared.b64 _, [bar];
ALONE:
    bar.sync 0;
    """
    with pytest.raises(Deadlock, match="1 thread waits at barrier 0"):
        run(body)


def test_a_wait_that_gives_up_goes_on() -> None:
    """try_wait may return before the phase is over: a loop with a limit ends."""
    body = """
    @%p0 mbarrier.init.shared.b64 [bar], 2;
    bar.sync 0;
    mov.u32 %r1, 0;
AGAIN:
    mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0, 1000;
    add.u32 %r1, %r1, 1;
    setp.lt.and.u32 %p2, %r1, 100, !%p1;
    @%p2 bra AGAIN;
    st.global.u32 [%rd1], %r1;
    """
    assert run(body).tolist() == [100] * 64


def test_a_thread_that_spins_on_memory_lets_the_waiting_ones_go_on() -> None:
    """Thread 0 asks for a phase in vain, then sets the flag that thread 32 spins on, which then arrives."""
    body = f"""
    @!%p0 bra GO;
    mbarrier.init.shared.b64 [bar], 1;
    st.shared.u32 [data], 0;
GO:
    bar.sync 0;
    setp.eq.u32 %p3, %r0, 32;
    @%p0 bra FIRST;
    @%p3 bra SPIN;
    ret;
FIRST:
    mbarrier.test_wait.parity.shared.b64 %p1, [bar], 0;
    st.volatile.shared.u32 [data], 1;
    {wait("bar", "0", "THEN")}
    st.global.u32 [%rd0], 7;
    ret;
SPIN:
    ld.volatile.shared.u32 %r2, [data];
    setp.eq.u32 %p2, %r2, 0;
    @%p2 bra SPIN;
    mbarrier.arrive.shared.b64 _, [bar];
    """
    assert run(body)[0] == 7


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("mbarrier.arrive.shared.b64 _, [bar];", "no mbarrier was initialised"),
        ("mbarrier.test_wait.parity.shared.b64 %p1, [bar], 0;", "no mbarrier was initialised"),
        ("mbarrier.init.shared.b64 [bar], 0;", "1 to 1048575"),
        ("mbarrier.init.shared.b64 [bar], 2; mbarrier.arrive.shared.b64 _, [bar], 3;", "more arrivals"),
        (
            "mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.noComplete.shared.b64 %rd2, [bar], 1;",
            "would complete the phase",
        ),
        (
            "mbarrier.init.shared.b64 [bar], 1; mbarrier.inval.shared.b64 [bar]; "
            "mbarrier.arrive.shared.b64 _, [bar];",
            "no mbarrier was initialised",
        ),
        ("mov.u32 %r1, 1048576; mbarrier.init.shared.b64 [bar], 9; "
         "mbarrier.expect_tx.relaxed.cta.shared.b64 [bar], %r1;", "more bytes"),
    ],
)  # fmt: skip
def test_misuse_is_named(body: str, what: str) -> None:
    with pytest.raises(KernelFault, match=what) as raised:
        run(body, threads=1)
    assert raised.value.kind == "mbarrier" and raised.value.line > 0


def test_misaligned_objects_are_named() -> None:
    with pytest.raises(KernelFault, match="misaligned"):
        run("mov.u32 %r1, bar; mbarrier.init.shared.b64 [%r1+4], 1;", threads=1)


def test_generic_addresses_reach_shared_memory() -> None:
    body = """
    mov.u64 %rd2, bar;
    cvta.shared.u64 %rd2, %rd2;
    mbarrier.init.b64 [%rd2], 1;
    mbarrier.arrive.b64 %rd3, [%rd2];
    mbarrier.test_wait.b64 %p1, [%rd2], %rd3;
    selp.u32 %r1, 1, 0, %p1;
    st.global.u32 [%rd0], %r1;
    """
    assert run(body, threads=1)[0] == 1


#: What an H200 did at the edges of the counts.
EDGES = json.loads((Path(__file__).parents[2] / "benchmarks" / "results" / "h200_clusters.json").read_text())[
    "mbarriers"
]
#: What the PTX ISA leaves undefined: an H200 goes on, and the machine names the mistake.
STRICTER = {
    "init 0": "1 to 1048575",
    "arrive 0": "1 to 1048575",
    "noComplete that completes": "noComplete would complete",
    "test on zeros": "no mbarrier",
    "inval on zeros": "no mbarrier",
    "expect on zeros": "no mbarrier",
}


@sampled(12)
@pytest.mark.parametrize("name", EDGES)
def test_counts_are_those_of_an_h200(name: str) -> None:
    """Predicates of waits and pending counts of tokens; what stops a GPU stops the machine."""
    edge = EDGES[name]
    body = ""
    for place, instruction in enumerate(edge["instructions"]):
        body += instruction
        if "wait" in instruction:
            body += "selp.u32 %r12, 1, 0, %p1;"
        else:
            body += "mbarrier.pending_count.b64 %r12, %rd4;"
        body += f"st.global.u32 [%rd0+{4 * place}], %r12;\n"
    out = np.zeros(16, np.uint32)
    launch = kernel(f"mov.u64 %rd4, 0; {body}")["k"][1, 1]
    if "fails" in edge or name in STRICTER:
        with pytest.raises(KernelFault, match=STRICTER.get(name, "mbarrier")):
            launch(out)
        return
    launch(out)
    for told, found in zip(edge["tells"], out.tolist(), strict=False):
        assert told is None or found == told


NEVER = "@%p0 mbarrier.init.shared.b64 [bar], 64; bar.sync 0; mov.u32 %r1, 0;"


@pytest.mark.parametrize("verb", ["test_wait.parity", "try_wait.parity"])
def test_a_test_in_vain_is_false(verb: str) -> None:
    """Whoever does not heed it goes on; here the threads then complete the phase themselves."""
    limit = ", 1000000" if verb.startswith("try") else ""
    body = f"""{NEVER}
    mbarrier.{verb}.shared.b64 %p1, [bar], 0{limit};
    selp.u32 %r2, 10, 0, %p1;
    bar.sync 0;
    mbarrier.arrive.shared.b64 %rd2, [bar];
    bar.sync 0;
    mbarrier.{verb}.shared.b64 %p1, [bar], 0{limit};
    selp.u32 %r3, 1, 0, %p1;
    add.u32 %r2, %r2, %r3;
    st.global.u32 [%rd1], %r2;
    """
    assert run(body).tolist() == [1] * 64


@pytest.mark.parametrize("tests", [100, 10_000])
def test_loops_that_count_their_tests_end(tests: int) -> None:
    body = f"""{NEVER}
AGAIN:
    mbarrier.test_wait.parity.shared.b64 %p1, [bar], 0;
    add.u32 %r1, %r1, 1;
    setp.lt.and.u32 %p2, %r1, {tests}, !%p1;
    @%p2 bra AGAIN;
    st.global.u32 [%rd1], %r1;
    """
    assert run(body).tolist() == [tests] * 64


@pytest.mark.parametrize("clock", ["%globaltimer", "%clock64"])
def test_loops_that_look_at_a_clock_end(clock: str) -> None:
    """Time passes while threads wait: a limit of a second is reached."""
    body = f"""{NEVER}
    mov.u64 %rd3, {clock};
AGAIN:
    mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0;
    mov.u64 %rd4, {clock};
    sub.u64 %rd4, %rd4, %rd3;
    setp.lt.and.u64 %p2, %rd4, 1000000000, !%p1;
    @%p2 bra AGAIN;
    selp.u32 %r2, 1, 2, %p1;
    st.global.u32 [%rd1], %r2;
    """
    assert run(body).tolist() == [2] * 64


def test_loops_that_only_test_are_deadlocks() -> None:
    for count in ("", "add.u32 %r1, %r1, 1; "):
        with pytest.raises(Deadlock, match="64 threads wait for a phase of an mbarrier"):
            run(f"{NEVER} {count} AGAIN: {count} mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0; "
                "@!%p1 bra AGAIN; st.global.u32 [%rd1], %r1;")  # fmt: skip


def test_bytes_and_arrivals_from_other_blocks() -> None:
    """Each block of a cluster lets the next one expect bytes, arrives there, and completes them there."""
    body = f"""
    mov.u32 %r1, %cluster_ctarank; add.u32 %r1, %r1, 1; mov.u32 %r2, %cluster_nctarank; rem.u32 %r1, %r1, %r2;
    mov.u32 %r3, bar; mapa.shared::cluster.u32 %r4, %r3, %r1;
    @%p0 mbarrier.init.shared.b64 [bar], 3;
    @%p0 fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive.release; barrier.cluster.wait.acquire;
    @!%p0 bra LOOK;
    mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%r4], 48;
    mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r4], 1;
    mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64 [%r4], 16;
    mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%r4], 64;
    mbarrier.arrive_drop.release.cluster.shared::cluster.b64 _, [%r4];
LOOK:
    {wait("bar", "0", "FIRST")}
    barrier.cluster.arrive; barrier.cluster.wait;
    @%p0 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r4], 2;
    {wait("bar", "1", "SECOND")}
    barrier.cluster.arrive; barrier.cluster.wait;
    mov.u32 %r5, %ctaid.x; mad.wide.u32 %rd2, %r5, 4, %rd0;
    @%p0 st.global.u32 [%rd2], 7;
    """
    out = np.zeros(8, np.uint32)
    kernel(body)["k"][8, 64](out, cluster=4)
    assert out.tolist() == [7] * 8
    assert not lanewise.check(kernel(body)["k"][8, 64], out, cluster=4).findings


@only_with_everything
@pytest.mark.slow
def test_barriers_of_the_standard_library() -> None:
    """cuda::barrier, as NVRTC compiles it."""
    source = """
#include <cuda/barrier>
extern "C" __global__ void k(unsigned *out) {
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    __shared__ unsigned data[128];
    if (threadIdx.x == 0) init(&bar, blockDim.x);
    __syncthreads();
    unsigned total = 0;
    for (unsigned step = 0; step < 5; step++) {
        data[threadIdx.x] = threadIdx.x * step;
        bar.arrive_and_wait();
        total += data[(threadIdx.x + 33) % 128];
        bar.arrive_and_wait();
    }
    out[threadIdx.x] = total;
}
"""
    try:
        module = lanewise.cuda(source, arch="sm_90")
    except lanewise.LanewiseError as error:
        pytest.skip(f"no cuda::barrier here: {str(error).splitlines()[0]}")
    out = np.zeros(128, np.uint32)
    module["k"][1, 128](out)
    assert out.tolist() == [(tid + 33) % 128 * 10 for tid in range(128)]
