"""Cluster launch control: running clusters take over others, each exactly once, and those never begin."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pytest

import lanewise as lw
from lanewise.errors import LanewiseError
from lanewise.jit import threads
from lanewise.machine import KernelFault, Unsupported

HEAD = ".version 8.6\n.target {target}\n.address_size 64\n"
CANCEL = "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes"
#: Registers: %r1 to %r3 the tile, %r6 the parity, %r13 the block's number + 1, %p0 unless it is thread 0.
PERSISTENT = """
.visible .entry k(.param .u64 out, .param .u64 starts, .param .u32 most) {{
    .reg .b64 %rd<6>; .reg .b32 %r<24>; .reg .pred %p<8>; .reg .b128 %q<2>;
    .shared .align 16 .b8 response[32]; .shared .align 8 .b64 bar;
    ld.param.u64 %rd0, [out]; ld.param.u64 %rd2, [starts]; ld.param.u32 %r14, [most];
    mov.u32 %r0, %tid.x;
    setp.ne.u32 %p0, %r0, 0;
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.y; mov.u32 %r3, %ctaid.z;
    mov.u32 %r4, %nctaid.x; mov.u32 %r5, %nctaid.y;
    mov.u32 %r17, %cluster_ctaid.x; mov.u32 %r18, %cluster_ctaid.y; mov.u32 %r19, %cluster_ctaid.z;
    mad.lo.u32 %r13, %r3, %r5, %r2; mad.lo.u32 %r13, %r13, %r4, %r1; add.u32 %r13, %r13, 1;
    mov.u32 %r6, 0; mov.u32 %r15, 0;
    mov.u32 %r16, %cluster_ctarank; setp.ne.or.u32 %p3, %r16, 0, %p0;
    @%p0 bra MEET;
    mbarrier.init.shared::cta.b64 [bar], 1;
    fence.mbarrier_init.release.cluster;
    mul.wide.u32 %rd3, %r13, 4; add.u64 %rd3, %rd3, %rd2;
    atom.global.add.u32 %r8, [%rd3+-4], 1;
MEET:
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
LOOP:
    mad.lo.u32 %r7, %r3, %r5, %r2; mad.lo.u32 %r7, %r7, %r4, %r1;
    mul.wide.u32 %rd1, %r7, 4; add.u64 %rd1, %rd1, %rd0;
    @!%p0 atom.global.add.u32 %r8, [%rd1], %r13;
    add.u32 %r15, %r15, 1;
    setp.ge.u32 %p5, %r15, %r14;
    @%p5 bra DONE;
    @!%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 16;
    {cancel}
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], %r6;
    @!%p1 bra WAIT;
    xor.b32 %r6, %r6, 1;
    ld.shared.b128 %q0, [response];
    clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p2, %q0;
    {query}
    add.u32 %r1, %r1, %r17; add.u32 %r2, %r2, %r18; add.u32 %r3, %r3, %r19;
    fence.proxy.async.shared::cta;
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    @%p2 bra LOOP;
DONE:
    ret;
}}
"""
QUERIES = (
    "@%p2 clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%r1, %r2, %r3, _}, %q0;",
    "\n".join(
        f"@%p2 clusterlaunchcontrol.query_cancel.get_first_ctaid::{axis}.b32.b128 %r{number}, %q0;"
        for number, axis in enumerate("xyz", 1)
    ),
)
ALONE = f"@!%p0 {CANCEL}.b128 [response], [bar];"
MULTICAST = f"@!%p3 {CANCEL}.multicast::cluster::all.b128 [response], [bar];"
FOR_EVER = 1 << 30

Grid = tuple[int, int, int]
Counts = npt.NDArray[np.uint32]


def kernel(cancel: str, query: str = QUERIES[0], target: str = "sm_100a") -> lw.Module:
    """A kernel whose clusters take over others, at most `most` - 1 each; it notes who did what."""
    return lw.load(HEAD.format(target=target) + PERSISTENT.format(cancel=cancel, query=query))


def run(
    module: lw.Module, grid: Grid, cluster: Grid | None, most: int = FOR_EVER, **how: object
) -> tuple[Counts, Counts]:
    """Return the number of the block that did each tile, and how often each block began."""
    tiles, starts = (np.zeros(grid[::-1], np.uint32) for _ in range(2))
    module["k"][grid, 64](tiles, starts, most, cluster=cluster, **how)
    return tiles, starts


def hold_laws(tiles: Counts, starts: Counts, cluster: Grid) -> None:
    """Every tile is done once, by a block that began; blocks that were taken over never begin.

    The blocks of a cluster are taken over by those of a cluster, each by the one of the same rank.
    """
    linear = np.arange(1, tiles.size + 1, dtype=np.uint32).reshape(tiles.shape)
    assert starts.max() == 1
    assert np.isin(tiles, linear[starts == 1]).all(), "a tile was done twice, never, or by who did not begin"
    own = tiles == linear
    assert (own == (starts == 1)).all(), "a block begins exactly if nobody took it over"
    x, y, z = cluster
    corner = tiles[::z, ::y, ::x]
    for dz, dy, dx in np.ndindex(z, y, x):
        shift = (dz * tiles.shape[1] + dy) * tiles.shape[2] + dx
        assert (tiles[dz::z, dy::y, dx::x] == corner + shift).all()


@pytest.mark.parametrize("schedule", (None, "late", 3, 2026))
@pytest.mark.parametrize("query", QUERIES, ids=("vector", "axes"))
def test_each_block_is_done_once(query: str, schedule: object) -> None:
    module = kernel(ALONE, query)
    tiles, starts = run(module, (7, 3, 2), None, schedule=schedule)
    hold_laws(tiles, starts, (1, 1, 1))
    assert starts.sum() < tiles.size


@pytest.mark.parametrize("schedule", (None, "late", 5))
@pytest.mark.parametrize("cluster", ((2, 1, 1), (1, 2, 2), (2, 3, 1)))
def test_clusters_take_over_clusters(cluster: Grid, schedule: object) -> None:
    tiles, starts = run(kernel(MULTICAST), (4, 6, 2), cluster, schedule=schedule)
    hold_laws(tiles, starts, cluster)


@pytest.mark.parametrize("most", (1, 2, 5))
@pytest.mark.parametrize("cluster", ((1, 1, 1), (2, 1, 1)))
def test_what_nobody_takes_over_begins(most: int, cluster: Grid) -> None:
    """Clusters that end early leave the rest of the grid to be begun as ever."""
    tiles, starts = run(kernel(MULTICAST), (10, 3, 1), cluster, most)
    hold_laws(tiles, starts, cluster)
    assert np.bincount(tiles.ravel()).max() <= most


@pytest.mark.parametrize("count", (1, 2, 3, 8))
def test_any_number_of_host_threads(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which block takes over which does not depend on how fast host threads are."""
    monkeypatch.setattr(threads, "processors", lambda: count)
    module = kernel(MULTICAST)
    first = run(module, (12, 2, 1), (2, 1, 1))
    hold_laws(*first, (2, 1, 1))
    assert np.count_nonzero(first[1]) == 2 * count
    for _ in range(3):
        assert (run(module, (12, 2, 1), (2, 1, 1))[0] == first[0]).all()


def test_blocks_of_an_executor() -> None:
    module = kernel(ALONE)
    tiles, starts = (np.zeros(24, np.uint32) for _ in range(2))
    with ThreadPoolExecutor(2) as pool, pytest.raises(LanewiseError, match="atomics"):
        module["k"][24, 64](tiles, starts, FOR_EVER, executor=pool)  # the notes of the test are atomics


WAITS_FOR_LAST = """
.visible .entry k(.param .u64 flags, .param .u64 out) {{
    .reg .b64 %rd<6>; .reg .b32 %r<12>; .reg .pred %p<4>; .reg .b128 %q<2>;
    .shared .align 16 .b8 response[16]; .shared .align 8 .b64 bar;
    ld.param.u64 %rd0, [flags]; ld.param.u64 %rd1, [out];
    mov.u32 %r0, %ctaid.x; mov.u32 %r1, %nctaid.x;
    mul.wide.u32 %rd2, %r0, 4; add.u64 %rd3, %rd2, %rd0; add.u64 %rd4, %rd2, %rd1;
    st.release.gpu.global.u32 [%rd3], 1;
    setp.ne.u32 %p0, %r0, 0;
    @%p0 bra CANCEL;
    add.u32 %r2, %r1, -1; mul.wide.u32 %rd2, %r2, 4; add.u64 %rd2, %rd2, %rd0;
SPIN:
    ld.acquire.gpu.global.u32 %r3, [%rd2];
    setp.eq.u32 %p1, %r3, 0;
    @%p1 bra SPIN;
CANCEL:
    mbarrier.init.shared::cta.b64 [bar], 1;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 16;
    {cancel}.b128 [response], [bar];
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0;
    @!%p1 bra WAIT;
    ld.shared.b128 %q0, [response];
    clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p2, %q0;
    selp.u32 %r4, 2, 1, %p2;
    st.global.u32 [%rd4], %r4;
    ret;
}}
"""


def test_a_block_that_waits_for_the_last_one_lets_it_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one host thread block 0 waits until the last block, which somebody must not take over, has run."""
    monkeypatch.setattr(threads, "processors", lambda: 1)
    text = HEAD.format(target="sm_100") + WAITS_FOR_LAST.format(cancel=CANCEL)
    flags, out = np.zeros(4, np.uint32), np.zeros(4, np.uint32)
    # Block 1 takes over block 2, so that the last one begins; block 0 finds nothing left.
    lw.load(text)["k"][4, 1](flags, out)
    assert flags.tolist() == [1, 1, 0, 1] and out.tolist() == [1, 2, 0, 1]


@pytest.mark.parametrize("schedule", ("early", "late", "reverse", 1, 99))
def test_a_checked_launch_takes_over_in_any_order(schedule: object) -> None:
    tiles, starts = (np.zeros((2, 4, 6), np.uint32) for _ in range(2))
    arguments = (tiles, starts, FOR_EVER)
    report = lw.check(kernel(MULTICAST)["k"][(6, 4, 2), 64], *arguments, cluster=(2, 2, 1), schedule=schedule)
    assert not [each for each in report.findings if each.severity == "error"], report
    hold_laws(tiles, starts, (2, 2, 1))


#: The block goes to registers of its own, and a branch depends on it before anybody asks if there is one.
COMPUTED_AHEAD = """
    @%p2 clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%r20, %r21, %r22, _}, %q0;
    setp.ge.u32 %p6, %r20, 3;
    @%p6 bra SMALL;
    add.u32 %r20, %r20, 0;
SMALL:
    mov.u32 %r1, %r20; mov.u32 %r2, %r21; mov.u32 %r3, %r22;
"""


def test_a_block_that_no_answer_names_may_be_computed_with() -> None:
    """CUTLASS's tile scheduler decodes under a predicate, computes ahead, and drops the result."""
    tiles, starts = (np.zeros(1, np.uint32) for _ in range(2))
    report = lw.check(kernel(ALONE, COMPUTED_AHEAD)["k"][1, 64], tiles, starts, FOR_EVER)
    assert report.ok, report


def test_a_cluster_that_begins_is_not_the_first_in_reverse_order() -> None:
    tiles, starts = (np.zeros((1, 1, 9), np.uint32) for _ in range(2))
    lw.check(kernel(ALONE)["k"][9, 64], tiles, starts, FOR_EVER, schedule="reverse")
    assert starts.ravel().tolist() == [0] * 8 + [1] and (tiles == 9).all()


def test_generic_addresses_are_taken() -> None:
    generic = """
    cvta.shared.u64 %rd4, response; cvta.shared.u64 %rd5, bar;
    @!%p0 clusterlaunchcontrol.try_cancel.async.mbarrier::complete_tx::bytes.b128 [%rd4], [%rd5];"""
    hold_laws(*run(kernel(generic), (5, 2, 1), None), (1, 1, 1))


@pytest.mark.parametrize(
    ("cancel", "words"),
    [
        (f"@!%p0 {CANCEL}.b128 [response+8], [bar];", "misaligned"),
        (f"@!%p0 {CANCEL}.b128 [response], [response+20];", "misaligned"),
        (f"mov.u32 %r9, 0x1000000;\n@!%p0 {CANCEL}.b128 [%r9], [bar];", "out of bounds"),
        (f"@!%p0 mbarrier.inval.shared::cta.b64 [bar];\n{ALONE}", "no mbarrier was initialised"),
    ],
)
def test_wrong_addresses_are_faults(cancel: str, words: str) -> None:
    with pytest.raises(KernelFault, match=words):
        run(kernel(cancel), (4, 1, 1), None)


def test_a_response_that_nobody_waits_for_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """A late schedule shows that the response is asynchronous: before the wait there are zeros."""
    monkeypatch.setattr(threads, "processors", lambda: 1)
    text = (
        (HEAD.format(target="sm_100") + WAITS_FOR_LAST.format(cancel=CANCEL))
        .replace("WAIT:\n", "bra READ;\nWAIT:\n", 1)
        .replace("ld.shared.b128", "READ:\nld.shared.b128", 1)
    )
    seen = {}
    for schedule in ("early", "late"):
        flags, out = np.ones(2, np.uint32), np.zeros(2, np.uint32)
        lw.load(text)["k"][2, 1](flags, out, schedule=schedule)
        seen[schedule] = int(out[0])
    assert seen == {"early": 2, "late": 1}


def test_gpus_before_sm_100_have_none() -> None:
    with pytest.raises(Unsupported, match="needs sm_100; this PTX is for sm_90a"):
        run(kernel(ALONE, target="sm_90a"), (2, 1, 1), None)
