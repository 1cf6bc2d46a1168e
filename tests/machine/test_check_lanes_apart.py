"""Lanes of a warp that wait apart from each other: what each of them knows is its own.

Blocks of one kernel are the cases of mbarriers. In most of them the first lane of warp 1 is late: it waits
for something else first, while the other lanes wait for what warp 0 has written, read it, and exit.
"""

import numpy as np
import pytest

import lanewise as lw

SOURCE = """
#define LANE (threadIdx.x % 32)
#define WARP (threadIdx.x / 32)
typedef unsigned long long u64;
#define DEVICE __device__ __forceinline__
DEVICE unsigned at(const void* p) { return __cvta_generic_to_shared(p); }
DEVICE void init(u64& bar) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at(&bar)) : "memory");
}
DEVICE void arrive(u64& bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at(&bar)) : "memory");
}
DEVICE void wait(u64& bar) {
    asm volatile("{ .reg .pred p; L: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0;"
                 "@p bra D; bra L; D: }" ::"r"(at(&bar)) : "memory");
}
extern "C" __global__ void cases(const int* in, int* out) {
    __shared__ u64 full, later, used;
    __shared__ int first, second;
    bool is_late = LANE == 0;
    if (threadIdx.x == 0) init(full), init(later), init(used);
    __syncthreads();
    if (WARP == 0) {
        first = in[0];
        __syncwarp();
        if (LANE == 0) arrive(full);
        second = in[1];
        __syncwarp();
        if (LANE == 0) arrive(later);
        return;
    }
    if (WARP == 2) {  // what the late lane waits for
        if (blockIdx.x < 3) wait(full);
        if (is_late) arrive(used);
        return;
    }
    switch (blockIdx.x) {
    case 0:  // the late lane waits for the mbarrier itself
        if (is_late) wait(used);
        wait(full);
        out[32 * blockIdx.x + LANE] = first;
        break;
    case 1:  // it knows by warp 2, which has waited for the mbarrier
        if (is_late) wait(used); else wait(full);
        out[32 * blockIdx.x + LANE] = first;
        break;
    case 2:  // the others know of a later phase, which does not concern it
        wait(full);
        if (is_late) wait(used), out[32 * blockIdx.x + LANE] = first;
        else wait(later), out[32 * blockIdx.x + LANE] = first + second;
        break;
    case 3:  // a mistake: what it waits for says nothing of the data
        if (is_late) wait(used); else wait(full);
        out[32 * blockIdx.x + LANE] = first;
        break;
    case 4:  // a mistake: it knows of the first phase, and reads what comes with the later one
        wait(full);
        if (is_late) wait(used), out[32 * blockIdx.x + LANE] = second;
        else wait(later), out[32 * blockIdx.x + LANE] = second;
        break;
    }
}
"""
RIGHT, WRONG = {0, 1, 2}, {3, 4}


@pytest.mark.parametrize("schedule", ["in order", "late", 1])
def test_a_late_lane_knows_what_it_has_waited_for(schedule: str | int) -> None:
    launch = lw.cuda(SOURCE, arch="sm_90a")["cases"][len(RIGHT | WRONG), 96]
    numbers, out = np.arange(2, dtype=np.int32), np.zeros((len(RIGHT | WRONG), 32), np.int32)
    report = lw.check(launch, numbers, out, schedule=schedule)
    accused = {each.block[0] for each in report.findings if each.block is not None}
    assert accused == WRONG, [str(each) for each in report.findings]


# lanes that meet at a shuffle or a vote, whose mask names some of them --------------------------------------

MEETING = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry meeting(.param .u64 out)
{
    .reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %rd<3>;
    .shared .align 4 .b32 s[64];
    mov.u32 %r0, %tid.x;
    shl.b32 %r1, %r0, 2; mov.u32 %r2, s; add.u32 %r1, %r1, %r2;
    xor.b32 %r3, %r0, PARTNER; shl.b32 %r3, %r3, 2; add.u32 %r3, %r3, %r2;
    st.shared.u32 [%r1], %r0;
    bar.sync 0;
    setp.lt.u32 %p0, %r0, LANES;
    @!%p0 bra DONE;
    setp.lt.u32 %p1, %r0, 16;
    selp.b32 %r5, 0x0000ffff, 0xffff0000, %p1;
    FIRST
    MEET
    SECOND
DONE:
    bar.sync 0;
    ret;
}
"""
#: A read of the partner's word and then a write of the own one; a write and then a read; two writes.
EXCHANGES = {
    "read, write": ("ld.shared.u32 %r4, [%r3];", "st.shared.u32 [%r1], %r4;"),
    "write, read": ("st.shared.u32 [%r1], 7;", "ld.shared.u32 %r4, [%r3]; st.shared.u32 [%r1+128], %r4;"),
    "write, write": ("st.shared.u32 [%r1], 7;", "st.shared.u32 [%r3], 8;"),
}
#: Instructions at which lanes meet, with MASK for those that do.
MEETINGS = {
    "shfl": "shfl.sync.bfly.b32 %r6, %r0, 1, 31, MASK;",
    "ballot": "vote.sync.ballot.b32 %r6, 1, MASK;",
    "any": "setp.eq.u32 %p2, %r0, 3; vote.sync.any.pred %p3, %p2, MASK;",
    "match": "match.any.sync.b32 %r6, %r0, MASK;",
    "redux": "redux.sync.add.s32 %r6, %r0, MASK;",
    "activemask": "activemask.b32 %r7; shfl.sync.bfly.b32 %r6, %r0, 1, 31, %r7;",
}
BY_HALVES = "%r5"


def severities(lanes: int, partner: int, exchange: str, meet: str) -> set[str]:
    """Return the severities of the findings of lanes that exchange words with a meeting between."""
    first, second = EXCHANGES[exchange]
    text = MEETING.replace("LANES", str(lanes)).replace("PARTNER", str(partner))
    text = text.replace("FIRST", first).replace("SECOND", second).replace("MEET", meet)
    report = lw.check(lw.load(text)["meeting"][1, 32], np.zeros(64, np.int32))
    assert {finding.kind for finding in report.findings} <= {"race"}
    return {finding.severity for finding in report.findings}


@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize("meeting", MEETINGS)
@pytest.mark.parametrize(("lanes", "mask"), [(32, "0xffffffff"), (16, "0x0000ffff"), (32, BY_HALVES)])
def test_an_exchange_of_lanes_that_only_meet_is_advice(
    lanes: int, mask: str, meeting: str, exchange: str
) -> None:
    assert severities(lanes, 1, exchange, MEETINGS[meeting].replace("MASK", mask)) == {"advice"}


@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize("meeting", [name for name in MEETINGS if name != "activemask"])
def test_lanes_that_name_different_masks_do_not_meet(meeting: str, exchange: str) -> None:
    assert severities(32, 16, exchange, MEETINGS[meeting].replace("MASK", BY_HALVES)) == {"error"}


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_lanes_that_do_not_meet_at_all(exchange: str) -> None:
    for lanes in (16, 32):
        assert severities(lanes, 1, exchange, "") == {"error"}
        mask = hex((1 << lanes) - 1)
        assert severities(lanes, 1, exchange, f"bar.warp.sync {mask};") == set()


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_lanes_meet_by_way_of_others(exchange: str) -> None:
    """Partners are two lanes apart: in one group of four, and in different pairs."""
    meeting = "and.b32 %r8, %r0, {first}; mov.b32 %r9, {group}; shl.b32 %r8, %r9, %r8;"
    meeting += " vote.sync.ballot.b32 %r6, 1, %r8;"
    by_twos, by_fours = meeting.format(first=30, group=3), meeting.format(first=28, group=15)
    assert severities(16, 2, exchange, by_twos) == {"error"}
    assert severities(16, 2, exchange, by_twos + by_fours) == {"advice"}
    assert severities(16, 2, exchange, by_fours + by_twos) == {"advice"}


def test_a_reader_that_has_not_met_the_writer_is_not_hidden_by_those_that_have() -> None:
    """All lanes read a word, half of them meet, and one of these writes it."""
    text = MEETING.replace("LANES", "32").replace("PARTNER", "0").replace("FIRST", "ld.shared.u32 %r4, [s];")
    half = "@!%p1 bra DONE; vote.sync.ballot.b32 %r6, 1, 0x0000ffff;"
    second = "setp.eq.u32 %p2, %r0, 3; @%p2 st.shared.u32 [s], %r4;"
    reports = []
    for meet in (half, "vote.sync.ballot.b32 %r6, 1, -1;"):
        module = lw.load(text.replace("MEET", meet).replace("SECOND", second))
        reports.append(lw.check(module["meeting"][1, 32], np.zeros(64, np.int32)))
    some, all_lanes = reports
    assert not some.ok and all_lanes.ok and all_lanes.findings


def test_a_lane_that_has_met_the_one_that_waited() -> None:
    """One lane waits for a flag of another warp, and the others of its group have only met it since."""
    text = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{
    .reg .pred %p<4>; .reg .b32 %r<9>; .reg .b64 %rd<2>;
    .shared .align 4 .b32 flag; .shared .align 4 .b32 data;
    ld.param.u64 %rd0, [out];
    mov.u32 %r0, %tid.x;
    setp.eq.u32 %p0, %r0, 0; setp.eq.u32 %p1, %r0, 32; setp.lt.u32 %p2, %r0, 8;
    @%p0 st.shared.u32 [flag], 0;
    bar.sync 0;
    @!%p1 bra READERS;
    st.shared.u32 [data], 5;
    st.release.cta.shared.u32 [flag], 1;
    ret;
READERS:
    @!%p2 bra DONE;
    @!%p0 bra MET;
AGAIN:
    ld.acquire.cta.shared.u32 %r1, [flag];
    setp.ne.s32 %p3, %r1, 1;
    @%p3 bra AGAIN;
MET:
    vote.sync.ballot.b32 %r2, 1, 0x000000ff;
    setp.eq.u32 %p3, %r0, READER;
    @!%p3 bra DONE;
    ld.shared.u32 %r3, [data];
    st.global.u32 [%rd0], %r3;
DONE:
    ret;
}
"""
    for reader, expected in ((0, []), (3, ["advice"])):
        launch = lw.load(text.replace("READER;", f"{reader};"))["k"][1, 64]
        report = lw.check(launch, np.zeros(1, np.int32))
        assert [finding.severity for finding in report.findings] == expected
