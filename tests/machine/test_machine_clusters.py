"""Clusters: registers, addresses and launches as an H200 has them, distributed shared memory, barriers."""

import json
from ast import literal_eval
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cluster_kernels as kernels
import lanewise as lw
from everything import sampled
from growth import grows_in_proportion
from lanewise.machine import Deadlock, KernelFault

#: What an H200 showed.
RECORD = json.loads((Path(__file__).parents[2] / "benchmarks" / "results" / "h200_clusters.json").read_text())


def words(text: str, grid: Any, cluster: Any = None, threads: int = 32) -> np.ndarray:
    """What a kernel of `cluster_kernels` leaves: 16 words of each block."""
    blocks = int(np.prod(grid))
    out = np.zeros((blocks, 16), np.uint32)
    lw.load(text)["k"][grid, threads](out, cluster=cluster)
    return out


def following(blocks: int, size: int) -> np.ndarray:
    """The next block of the cluster, for each block."""
    number = np.arange(blocks)
    return number // size * size + (number + 1) % size


@pytest.mark.parametrize("launch", RECORD["launches"])
def test_registers_are_those_of_an_h200(launch: str) -> None:
    grid, cluster = (literal_eval(each) for each in launch.removeprefix("grid ").split(" cluster "))
    assert RECORD["registers"][:-1] == list(kernels.REGISTERS)
    found = words(kernels.registers(), grid, cluster)
    np.testing.assert_array_equal(found[:, : len(RECORD["registers"])], RECORD["launches"][launch])


@pytest.mark.parametrize("rank", [0, 3, 31])
def test_addresses_are_those_of_an_h200(rank: int) -> None:
    """mapa puts the rank into bits 24 to 31, of a generic address too; the others read it there."""
    found = words(kernels.addresses(str(rank)), 4, 4)
    for block, seen in RECORD["addresses of a variable at 0x400"].items():
        own = int(block.removeprefix("block "))
        names = (
            "own shared::cta u32", f"mapa.shared::cluster.u32 rank {rank}", None,
            f"getctarank.shared::cluster.u32 rank {rank}", f"getctarank.u64 rank {rank}",
            "getctarank.shared::cluster.u32 of the shared::cta address",
            *(
                f"isspacep.{space} rank {rank}"
                for space in ("shared", "shared::cta", "shared::cluster", "global", "local")
            ),
        )  # fmt: skip
        expected = [int(seen[name], 16) if name else rank - own << 24 for name in names]
        assert found[own, : len(names)].tolist() == [each & 0xFFFFFFFF for each in expected]
        address = int(seen[f"mapa.shared::cluster.u32 rank {rank}"], 16)
        assert found[own, len(names) :].tolist()[:4] == [address, address, 0, 0x400]


@pytest.mark.parametrize("size", [2, 4, 16])
def test_words_go_round_a_ring_of_blocks(size: int) -> None:
    """Stores into the next block's memory, and arrivals at its mbarrier, phase after phase."""
    found = words(kernels.RING, 16, size)
    value = np.arange(16)[:, None] * 1000 + np.arange(16)
    for _ in range(5):
        sent = np.empty_like(value)
        sent[following(16, size)] = value
        value = 3 * sent + 1
    np.testing.assert_array_equal(found, value)
    assert not lw.check(lw.load(kernels.RING)["k"][16, 32], found, cluster=size).findings


def test_a_histogram_and_its_sum_in_ptx() -> None:
    found = words(kernels.HISTOGRAM, 8, 4, threads=64)
    block, thread = np.divmod(np.arange(512), 64)
    numbers = (block * 37 + thread) ** 2 & 63
    for cluster in (0, 1):
        expected = np.bincount(numbers[block // 4 == cluster], minlength=64)
        np.testing.assert_array_equal(found[4 * cluster : 4 * cluster + 4].reshape(-1), expected)
    assert not lw.check(lw.load(kernels.HISTOGRAM)["k"][8, 64], found, cluster=4).findings


def test_atomics_in_another_block() -> None:
    """Subnormal sums and NaNs are those of shared memory (as an H200 showed), words are exchanged."""
    found = words(kernels.ATOMICS, 4, 4, threads=1)
    previous, following_ = (np.arange(4) + 3) % 4, (np.arange(4) + 1) % 4
    assert found[:, 0].tolist() == [19] * 4
    assert found[:, 1:3].tolist() == [[19, 19]] * 4
    assert found[:, 3].tolist() == [0x7FFFFFFF] * 4
    assert found[:, 4].tolist() == [101, 102, 0, 0]  # inc wraps around at 102
    np.testing.assert_array_equal(found[:, 5], previous + 100)
    np.testing.assert_array_equal(found[:, 6], previous + 100)
    np.testing.assert_array_equal(found[:, 8], following_ + 100)
    assert found[:, 9:11].tolist() == [[0, 0]] * 4


@pytest.fixture(scope="module")
def cuda() -> Any:
    return lw.cuda(kernels.CUDA, arch="sm_90a")


@pytest.mark.parametrize("size", [1, 2, 8, 16])
def test_a_histogram_in_distributed_shared_memory(cuda: Any, size: int) -> None:
    data = np.random.default_rng(size).integers(0, 1 << 32, 5000, dtype=np.uint32)
    bins, each = np.zeros(256, np.uint32), 256 // size
    launch = cuda["histogram"][16, 64, 4 * each]
    launch(data, data.size, bins, each, cluster=size)
    expected = np.bincount(data % 256, minlength=256)
    np.testing.assert_array_equal(bins, expected)
    bins[:] = 0
    assert not lw.check(launch, data, data.size, bins, each, cluster=size).findings
    np.testing.assert_array_equal(bins, expected)


def test_a_sum_over_clusters(cuda: Any) -> None:
    """`__cluster_dims__` says how large a cluster is, so that the launch need not."""
    data = np.random.default_rng(1).integers(0, 100, 5000).astype(np.float32)
    out = np.zeros(2, np.float32)
    cuda["sum"][8, 64](data, data.size, out)
    parts = [
        np.concatenate([data[64 * (8 * k + b) :][:64] for k in range(10) for b in range(4 * c, 4 * c + 4)])
        for c in (0, 1)
    ]
    assert out.tolist() == [part.sum() for part in parts]
    for schedule in ("in order", "reverse", 3):
        assert not lw.check(cuda["sum"][8, 64], data, data.size, out, schedule=schedule).findings
    with ThreadPoolExecutor(2) as executor:
        out[:] = 0
        cuda["sum"][8, 64](data, data.size, out, executor=executor)
    assert out.sum() == data.sum()


def test_many_clusters_take_time_in_proportion() -> None:
    launch = lw.load(kernels.registers())["k"]
    out = np.zeros((20_000, 16), np.uint32)
    assert grows_in_proportion(lambda blocks: launch[blocks, 32](out, cluster=2), 20_000)
    np.testing.assert_array_equal(out[:, 0], np.arange(20_000) // 2)


# what is refused ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grid", "cluster", "directives", "why"),
    [
        (8, 3, "", "not a multiple of"),
        (32, 32, "", "at most 16 blocks"),
        (8, "two", "", "an integer or up to three"),
        (8, 4, ".explicitcluster\n.reqnctapercluster 2, 1, 1", "contradicts"),
        ((2, 2), (1, 2), ".reqnctapercluster 2, 1, 1", "contradicts"),
        (8, 8, ".maxclusterrank 4", "maxclusterrank 4"),
        (8, None, ".explicitcluster", "give the blocks of a cluster"),
        (3, None, ".reqnctapercluster 2, 1, 1", "not a multiple of"),
        (3, None, ".reqntid 32\n.reqnctapercluster 1, 1, 1\n.blocksareclusters", "blocksareclusters"),
    ],
)
def test_launches_that_are_refused(grid: Any, cluster: Any, directives: str, why: str) -> None:
    launch = lw.load(kernels.kernel("", directives))["k"][grid, 32]
    with pytest.raises(lw.LanewiseError, match=why):
        launch(np.zeros(16, np.uint32), cluster=cluster)


@pytest.mark.parametrize(
    ("arch", "size", "why"),
    [("sm_80", 2, "clusters need sm_90"), ("sm_120", 16, "at most 8 blocks on sm_120")],
)
def test_archs_without_such_clusters(arch: str, size: int, why: str) -> None:
    text = f".version 8.7\n.target {arch}\n.address_size 64\n.visible .entry k() {{ ret; }}"
    launch = lw.load(text)["k"][16, 32]
    with pytest.raises(lw.LanewiseError, match=why):
        launch(cluster=size)
    assert [(each.kind, why in each.message) for each in lw.check(launch, cluster=size).findings] == [
        ("launch", True)
    ]


def test_a_kernel_that_says_its_cluster_takes_it() -> None:
    for directives in (".reqnctapercluster 2, 1, 1", ".explicitcluster\n.reqnctapercluster 2"):
        body = "mov.u32 %r4, %cluster_nctarank; st.global.u32 [%rd1], %r4;"
        assert words(kernels.kernel(body, directives), 4)[:, 0].tolist() == [2] * 4
        assert words(kernels.kernel(body, directives), 4, 2)[:, 0].tolist() == [2] * 4


# mistakes of kernels --------------------------------------------------------------------------------------

REMOTE = """
    mov.u32 %r4, %cluster_ctarank; mov.u32 %r5, data; mov.u64 %rd2, data; cvta.shared.u64 %rd2, %rd2;
    mapa.shared::cluster.u32 %r6, %r5, 1; mapa.u64 %rd3, %rd2, 1;
"""
#: Block 1 exits, and block 0 runs for so long that other blocks have their turns.
GONE = f"""{REMOTE} {kernels.SYNC} setp.eq.u32 %p1, %r4, 1; @%p1 exit;
    mov.u64 %rd4, %clock64;
AGAIN:
    mov.u64 %rd5, %clock64; sub.u64 %rd5, %rd5, %rd4; setp.lt.u64 %p2, %rd5, 10000000;
    @%p2 bra AGAIN;
"""


@sampled(6)
@pytest.mark.parametrize(
    ("body", "why"),
    [
        (f"{GONE} ld.shared::cluster.u32 %r7, [%r6];", "has exited"),
        (f"{GONE} ld.u32 %r7, [%rd3];", "has exited"),
        (f"{GONE} st.shared::cluster.u32 [%r6], 5;", "has exited"),
        (f"{GONE} mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r6];", "has exited"),
        (f"{REMOTE} ld.shared::cluster.u32 %r7, [%r6+0x1000000]; {kernels.SYNC}", "does not have"),
        (f"{REMOTE} mapa.u64 %rd3, %rd2, 7; ld.u32 %r7, [%rd3]; {kernels.SYNC}", "does not have"),
        (f"{REMOTE} ld.shared::cluster.u32 %r7, [%r6+1024]; {kernels.SYNC}", "out of bounds"),
        (
            f"{REMOTE} ld.shared::cta.u32 %r7, [%r6]; {kernels.SYNC}",
            "only an instruction with .shared::cluster can do that",
        ),
        (f"{REMOTE} ld.shared::cluster.u32 %r7, [%r6+2]; {kernels.SYNC}", "misaligned"),
    ],
)
def test_addresses_that_lead_nowhere(body: str, why: str) -> None:
    launch = lw.load(kernels.kernel(body))["k"][2, 32]
    with pytest.raises(KernelFault, match=why):
        launch(np.zeros((2, 16), np.uint32), cluster=2)
    findings = lw.check(launch, np.zeros((2, 16), np.uint32), cluster=2).findings
    assert any(why in each.message for each in findings)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("barrier.cluster.wait.aligned;", [1, 1]),
        (
            "barrier.cluster.arrive.aligned; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",
            [1, 1],
        ),
        ("setp.lt.u32 %p1, %r0, 16; @%p1 exit; barrier.cluster.arrive; barrier.cluster.wait;", [1, 1]),
        (
            "setp.eq.u32 %p1, %r1, 1; @%p1 exit; "
            "barrier.cluster.arrive.release; barrier.cluster.wait.acquire;",
            [1, 0],
        ),
        ("barrier.cluster.arrive.relaxed; bar.sync 0; barrier.cluster.wait;", [1, 1]),
    ],
)
def test_barriers_end_as_on_an_h200(body: str, expected: list[int]) -> None:
    """Threads that have exited are not waited for, and a wait without an arrival does not wait."""
    for size in (1, 2):
        text = kernels.kernel(f"{body} st.global.u32 [%rd1], 1;")
        assert words(text, 2, size, threads=64)[:, 0].tolist() == expected


def test_a_deadlock_names_who_waits_where() -> None:
    body = """
    setp.eq.u32 %p1, %r1, 1;
    @%p1 bra OTHER;
    barrier.cluster.arrive;
    barrier.cluster.wait;
    ret;
OTHER:
    bar.sync 0, 64;
    """
    launch = lw.load(kernels.kernel(body))["k"][2, 32]
    out = np.zeros((2, 16), np.uint32)
    with pytest.raises(Deadlock, match=r"blocks \(0, 0, 0\), \(1, 0, 0\): barrier 0 counts 64 .*") as caught:
        launch(out, cluster=2)
    assert "at the barrier of the cluster" in str(caught.value) and "at barrier 0" in str(caught.value)
    assert [each.kind for each in lw.check(launch, out, cluster=2).findings] == ["barrier"]


def test_a_block_waits_for_a_flag_in_another() -> None:
    """A loop that reads another block's memory gives way to that block."""
    body = f"""
    mov.u32 %r4, %cluster_ctarank; mov.u32 %r5, data; mapa.shared::cluster.u32 %r6, %r5, 0;
    setp.eq.u32 %p1, %r4, 0;
    @%p1 st.shared.u32 [data], 0;
    {kernels.SYNC}
    @!%p1 bra OTHERS;
WAIT:
    ld.acquire.cluster.shared::cta.u32 %r7, [data];
    setp.ne.u32 %p2, %r7, 3;
    @%p2 bra WAIT;
    st.global.u32 [%rd1], %r7;
    bra DONE;
OTHERS:
    setp.eq.u32 %p3, %r0, 0;
    @%p3 atom.release.cluster.shared::cluster.add.u32 %r8, [%r6], 1;
DONE:
    {kernels.SYNC}
    """
    assert words(kernels.kernel(body), 4, 4)[:, 0].tolist() == [3, 0, 0, 0]


# under check ----------------------------------------------------------------------------------------------

EXCHANGE = """
    mov.u32 %r4, %cluster_ctarank; xor.b32 %r5, %r4, 1;
    mov.u32 %r6, data; mad.lo.u32 %r6, %r0, 4, %r6; mapa.shared::cluster.u32 %r7, %r6, %r5;
    st.shared.u32 [%r6], %r1;
    {first}
    ld.shared::cluster.u32 %r8, [%r7];
    mul.wide.u32 %rd2, %r0, 2; add.u64 %rd2, %rd1, %rd2;
    {second}
    st.global.u16 [%rd2], %r8;
"""


@pytest.mark.parametrize("schedule", ["in order", "reverse", 1])
def test_missing_barriers_are_found(schedule: Any) -> None:
    def findings(first: str, second: str) -> set[str]:
        launch = lw.load(kernels.kernel(EXCHANGE.format(first=first, second=second)))["k"][4, 32]
        report = lw.check(launch, np.zeros((4, 16), np.uint32), cluster=2, schedule=schedule)
        return {each.kind for each in report.findings}

    assert findings(kernels.SYNC, kernels.SYNC) == set()
    assert findings("", kernels.SYNC) & {"race", "uninitialised"}
    assert findings("bar.sync 0;", kernels.SYNC) & {"race", "uninitialised"}
    assert findings(kernels.SYNC, "") <= {"cluster"}


def test_the_cluster_orders_global_memory() -> None:
    """What a block wrote to global memory before the barrier of the cluster, others may read after it."""
    body = """
    st.global.u32 [%rd1], %r1;
    {}
    xor.b32 %r4, %r1, 1; mul.wide.u32 %rd2, %r4, 64; add.u64 %rd2, %rd0, %rd2;
    ld.global.u32 %r5, [%rd2]; st.global.u32 [%rd1+4], %r5;
    """
    for sync, kinds in ((kernels.SYNC, []), ("", ["race"])):
        launch = lw.load(kernels.kernel(body.format(sync)))["k"][4, 1]
        out = np.zeros((4, 16), np.uint32)
        report = lw.check(launch, out, cluster=2)
        assert sorted({each.kind for each in report.findings}) == kinds
    assert words(kernels.kernel(body.format(kernels.SYNC)), 4, 2, 1)[:, 1].tolist() == [1, 0, 3, 2]


# other instructions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mask", "elected"), RECORD["elect.sync"].items())
def test_elect_chooses_the_lane_that_an_h200_does(mask: str, elected: list[int]) -> None:
    body = f"""
    mov.u32 %r4, 1; shl.b32 %r4, %r4, %r0; and.b32 %r4, %r4, {mask}; setp.eq.u32 %p1, %r4, 0;
    @%p1 exit;
    elect.sync %r5|%p2, {mask};
    @%p2 st.global.u32 [%rd1], %r0;
    @%p2 st.global.u32 [%rd1+4], %r5;
    """
    assert words(kernels.kernel(body), 1)[0, :2].tolist() == elected * 2
