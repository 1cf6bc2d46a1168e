"""The mends of planted mistakes: what orders blocks of a cluster, warps with tasks, arrivals."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from lanewise.machine.checker.report import Finding

HEAD = r"""
#define BUG(n) (WRONG == n)
typedef unsigned long long u64;
__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ unsigned rank() { unsigned r; asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
__device__ unsigned of(unsigned a, unsigned r) { unsigned p; asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(p) : "r"(a), "r"(r)); return p; }
__device__ void init(u64* b, int n) { asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(at(b)), "r"(n) : "memory"); }
__device__ void init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ void arrive(u64* b) { asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(at(b)) : "memory"); }
__device__ void arrive_at(u64* b, unsigned r) { asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" :: "r"(of(at(b), r)) : "memory"); }
__device__ void expect(u64* b, int n) { asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(at(b)), "r"(n) : "memory"); }
__device__ void wait(u64* b, int parity) { asm volatile("{ .reg .pred p; AGAIN: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1; @!p bra AGAIN; }" :: "r"(at(b)), "r"(parity) : "memory"); }
__device__ void bulk(void* d, const void* s, int n, u64* b) { asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" :: "r"(at(d)), "l"(s), "r"(n), "r"(at(b)) : "memory"); }
__device__ void cluster_sync() { asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory"); }
__device__ void relaxed_sync() { asm volatile("barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;" ::: "memory"); }
__device__ float read_at(float* p, unsigned r) { float v; asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(of(at(p), r)) : "memory"); return v; }
__device__ void some_sync(int id, int n) { asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(n) : "memory"); }
"""  # noqa: E501  # CUDA C++ as it is written


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the header of all kernels."""
    made = tmp_path_factory.mktemp("mends")
    (made / "words.h").write_text(HEAD)
    return made


Checked = Callable[..., list[Finding]]


Compiled = Callable[[str, int, str], Any]


@pytest.fixture
def compiled(folder: Path) -> Compiled:
    """What compiles the kernel `k` of a source with one of its mistakes; its first line is empty."""

    def kernel(source: str, wrong: int, arch: str) -> Any:
        (folder / "k.cu").write_text('#include "words.h"' + source)
        try:
            module = lw.cuda(folder / "k.cu", arch=arch, options=[f"-DWRONG={wrong}", f"-I{folder}"])
        except lw.ptx.ToolMissing as error:
            pytest.skip(str(error))
        return module["k"]

    return kernel


@pytest.fixture
def checked(compiled: Compiled) -> Checked:
    """What checks the kernel `k` of a source with one of its mistakes."""

    def findings(
        source: str, wrong: int, grid: int, block: int, *arrays: object, arch: str = "sm_90a"
    ) -> list[Finding]:
        return list(lw.check(compiled(source, wrong, arch)[grid, block], *arrays).findings)

    return findings


def mends(findings: Sequence[Finding]) -> list[str]:
    return [finding.mend for finding in findings]


# clusters ---------------------------------------------------------------------------------------------------

SUM = r"""
extern "C" __global__ __cluster_dims__(4, 1, 1) void k(const float* x, float* y) {
  __shared__ float part[32];
  part[threadIdx.x] = x[blockIdx.x * 32 + threadIdx.x];
  if (BUG(1)) __syncthreads();
  else if (BUG(2)) relaxed_sync();
  else cluster_sync();
  float v = read_at(part + threadIdx.x, rank() ^ 1);
  y[blockIdx.x * 32 + threadIdx.x] = v;
  cluster_sync();
}"""


def test_blocks_of_a_cluster_are_ordered_by_its_barrier(checked: Checked) -> None:
    """Also where the second access is of another block than the cluster's first."""
    for schedule_of_blocks in (8, 4):
        arrays = [np.zeros(32 * schedule_of_blocks, np.float32) for _ in range(2)]
        assert mends(checked(SUM, 1, schedule_of_blocks, 32, *arrays)) == [
            "`cluster.sync()` between line 4 and line 8"
        ]
        assert mends(checked(SUM, 2, schedule_of_blocks, 32, *arrays)) == [
            "arrive with `.release` in place of `.relaxed` at the cluster's barrier (line 6)"
        ]
        assert checked(SUM, 0, schedule_of_blocks, 32, *arrays) == []


REMOTE = r"""
extern "C" __global__ __cluster_dims__(2, 1, 1) void k(int* y) {
  __shared__ u64 ready;
  if (threadIdx.x == 0) { init(&ready, 32); init_fence(); }
  if (BUG(1)) __syncthreads(); else cluster_sync();
  arrive_at(&ready, rank() ^ 1);
  wait(&ready, 0);
  y[blockIdx.x * 32 + threadIdx.x] = 1;
  cluster_sync();
}"""


def test_an_mbarrier_of_another_block_is_initialised_first(
    checked: Checked,
) -> None:
    (finding,) = checked(REMOTE, 1, 2, 32, np.zeros(64, np.int32))
    assert finding.message.startswith("mbarrier: no mbarrier was initialised here")
    assert finding.mend == (
        "let one thread of each block initialise it first (mbarrier.init, then `fence.mbarrier_init`), then "
        "all threads of the cluster meet: `cluster.sync()`"
    )


# warps with different tasks ---------------------------------------------------------------------------------

STAGED = r"""
extern "C" __global__ void k(const float* x, float* y, int n) {
  __shared__ __align__(128) float tile[2][128];
  int warp = threadIdx.x / 32, t = threadIdx.x % 128;
  if (warp < 4) {
    for (int i = 0; i < n; i++) {
      if (t == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
      some_sync(1, 128);
      tile[0][t] = x[i * 128 + t];
      asm volatile("fence.proxy.async;" ::: "memory");
      if (!BUG(1)) some_sync(1, 128);
      if (t == 0)
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 512; cp.async.bulk.commit_group;" :: "l"(y + i * 128), "r"(at(tile[0])) : "memory");
    }
    if (t == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
}"""  # noqa: E501, an instruction of PTX is one line


def test_some_warps_of_a_block_get_a_named_barrier(checked: Checked) -> None:
    x, y = np.ones((4, 128), np.float32), np.zeros((4, 128), np.float32)
    assert checked(STAGED, 0, 1, 160, x, y, 4) == []
    race, *_ = checked(STAGED, 1, 1, 160, x, y, 4)
    assert race.mend == (
        "`bar.sync id, threads` of the threads that come by between line 9 and line 13, as there is one at "
        "line 8"
    )


RELEASED = r"""
extern "C" __global__ void k(const float* x, float* y, int n) {
  __shared__ __align__(128) float tile[128];
  __shared__ u64 full, empty;
  int t = threadIdx.x;
  if (t == 0) { init(&full, 1); init(&empty, 4); init_fence(); }
  __syncthreads();
  if (t == 128) {
    for (int i = 0; i < n; i++) {
      wait(&empty, i & 1 ^ 1);
      expect(&full, 512);
      bulk(tile, x + i * 128, 512, &full);
    }
  } else if (t < 128) {
    float sum = 0;
    for (int i = 0; i < n; i++) {
      wait(&full, i & 1);
      if (BUG(2) && t % 32 == 0) arrive(&empty);
      sum += tile[t];
      if (!BUG(1)) __syncwarp();
      if (!BUG(2) && t % 32 == 0) arrive(&empty);
    }
    y[t] = sum;
  }
}"""


def test_a_lane_that_arrives_for_its_warp_waits_for_it(checked: Checked) -> None:
    x, y = np.ones((4, 128), np.float32), np.zeros(128, np.float32)
    assert checked(RELEASED, 0, 1, 160, x, y, 4) == [] and (y == 4).all()
    race, *_ = checked(RELEASED, 1, 1, 160, x, y, 4)
    assert race.mend == "`__syncwarp()` between line 19 and line 21, where one lane arrives for the others"
    races = [finding for finding in checked(RELEASED, 2, 1, 160, x, y, 4) if finding.kind == "race"]
    assert mends(races) == [
        "let the threads of line 19 arrive at an mbarrier after it (one lane for a warp: `__syncwarp()` "
        "first), and wait for that phase before line 12"
    ]


# tcgen05 ----------------------------------------------------------------------------------------------------

COMMIT = r"""
extern "C" __global__ __cluster_dims__(2, 1, 1) void k(int* y) {
  __shared__ u64 done;
  if (threadIdx.x == 0) { init(&done, 1); init_fence(); }
  cluster_sync();
  if (threadIdx.x == 0)
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" :: "r"(at(&done)), "h"((short)5) : "memory");
  y[blockIdx.x * 32 + threadIdx.x] = 1;
  cluster_sync();
}"""  # noqa: E501, an instruction of PTX is one line


def test_a_commit_names_blocks_of_the_cluster(checked: Checked) -> None:
    (finding,) = checked(COMMIT, 0, 2, 32, np.zeros(64, np.int32), arch="sm_100a")
    assert finding.message == "the mask 0x5 names a block that is not in the cluster"
    assert finding.mend == "name blocks of the cluster alone in the mask: bits 0 to 1"


OPERANDS = r"""
extern "C" __global__ void k(float* y) {
  __shared__ __align__(1024) unsigned short tile[2][64 * 16];
  for (int i = threadIdx.x; i < 2 * 64 * 16; i += 128) tile[0][i] = 0;
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  u64 apart = BUG(1) ? 8192 : 256;
  u64 a = at(tile[0]) >> 4 | 8ull << 16 | (apart >> 4) << 32, b = at(tile[1]) >> 4 | 8ull << 16 | 16ull << 32;
  float d[4];
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 0, 1, 1, 0, 0;"
    : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3]) : "l"(a), "l"(b));
  asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
  y[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}"""


def test_a_descriptor_that_leads_out_of_shared_memory_is_corrected(checked: Checked) -> None:
    assert checked(OPERANDS, 0, 1, 128, np.zeros(128, np.float32)) == []
    first, *_ = checked(OPERANDS, 1, 1, 128, np.zeros(128, np.float32))
    assert first.kind == "out of bounds"
    assert first.mend.startswith(
        "correct the matrix descriptor of line 12: its start, its leading and stride"
    )


GROUPS = r"""
extern "C" __global__ __cluster_dims__(2, 1, 1) void k(int* y) {
  __shared__ u64 done;
  __shared__ unsigned place;
  asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], 32;" :: "r"(at(&place)) : "memory");
  asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, 32;" :: "r"(place) : "memory");
  asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%0];" :: "l"(&done) : "memory");
}"""  # noqa: E501, an instruction of PTX is one line


def test_instructions_of_one_block_and_of_a_pair_are_a_finding(checked: Checked) -> None:
    (finding,) = checked(GROUPS, 0, 2, 32, np.zeros(64, np.int32), arch="sm_100a")
    assert (finding.kind, (finding.source or "").rpartition("/")[2]) == ("launch", "k.cu:7")
    assert "is for a pair of blocks" in finding.message and "\n" not in finding.message
    assert finding.mend == "give all tcgen05 instructions of the kernel .cta_group::2, this one as well"


# deadlocks --------------------------------------------------------------------------------------------------

RING = r"""
extern "C" __global__ void k(const float* x, float* y, int n) {
  __shared__ __align__(128) float tile[2][128];
  __shared__ u64 full[2], empty[2], last;
  int t = threadIdx.x;
  if (t == 0) {
    for (int i = 0; i < 2; i++) { init(full + i, 1); init(empty + i, BUG(1) ? 4 : 128); }
    init(&last, 128);
    init_fence();
  }
  __syncthreads();
  if (t == 128) {
    for (int i = 0; i < n; i++) {
      wait(empty + i % 2, BUG(2) ? i / 2 & 1 : i / 2 & 1 ^ 1);
      expect(full + i % 2, BUG(3) ? 640 : 512);
      bulk(tile[i % 2], x + i * 128, 512, full + i % 2);
    }
    wait(&last, 0);
  } else if (t < 128) {
    float sum = 0;
    for (int i = 0; i < n; i++) {
      wait(full + i % 2, i / 2 & 1);
      sum += tile[i % 2][t];
      if (!BUG(4) || t % 32 == 0) arrive(empty + i % 2);
      some_sync(2, BUG(5) ? 160 : 128);
    }
    y[t] = sum;
    arrive(&last);
  }
}"""


@pytest.mark.parametrize(
    ("wrong", "line", "cause", "mend"),
    [
        (
            2,
            14,
            "deadlock in block (0, 0, 0): the mbarrier at shared variable empty[0] lacks 128 of 128 arrivals",
            "wait for parity 1 of empty[0] in the first round, and then for 0, 1, 0, …: it waits for what "
            "comes after it, and the phase before the first one counts as complete",
        ),
        (
            3,
            22,
            "deadlock in block (0, 0, 0): the mbarrier at shared variable full[0] lacks 128 bytes (bytes",
            "issue the copies that bring the other 128 bytes (copies: {}:16), or announce what the copies "
            "bring: 128 bytes fewer in expect_tx of full[0]",
        ),
        (
            4,
            14,
            "deadlock in block (0, 0, 0): the mbarrier at shared variable empty[0] lacks 124 of 128 arrivals",
            "let 124 more arrive at empty[0] in each phase ({}:24), or initialise empty[0] with 4",
        ),
        (
            5,
            25,
            "deadlock in block (0, 0, 0): barrier 2 counts 160 threads, and no more than 128 come to it; ",
            "count the threads that come to barrier 2: 128 in place of 160; or let 32 more come to it",
        ),
    ],
)
def test_a_deadlock_is_mended_at_its_cause(
    checked: Checked, folder: Path, wrong: int, line: int, cause: str, mend: str
) -> None:
    x, y = np.ones((6, 128), np.float32), np.zeros(128, np.float32)
    assert checked(RING, 0, 1, 160, x, y, 6) == [] and (y == 6).all()
    last = checked(RING, wrong, 1, 160, x, y, 6)[-1]
    assert last.source == f"{folder}/k.cu:{line}"
    assert last.message.startswith(cause), last.message
    assert last.mend == mend.format(folder / "k.cu")


LEADER = r"""
extern "C" __global__ __cluster_dims__(2, 1, 1) void k(const float* x, float* y) {
  __shared__ __align__(128) float tile[32];
  __shared__ u64 full, ready;
  int t = threadIdx.x;
  if (t == 0) { init(&full, 1); init(&ready, 64); init_fence(); }
  cluster_sync();
  if (t == 0 && rank() == 0) expect(&full, 256);
  if (t == 0)
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 128, [%2];"
      :: "r"(of(at(tile), 0)), "l"(x), "r"(of(at(&full), BUG(1) ? rank() : 0)) : "memory");
  arrive_at(&ready, BUG(2) ? rank() : 0);
  if (rank() == 0) { wait(&ready, 0); wait(&full, 0); y[t] = tile[t]; }
  cluster_sync();
}"""


def test_arrivals_at_the_mbarrier_of_another_block_than_meant_are_named(checked: Checked) -> None:
    x, y = np.ones(32, np.float32), np.zeros(32, np.float32)
    stray = next(finding for finding in checked(LEADER, 2, 2, 32, x, y) if "deadlock" in finding.message)
    assert "shared variable ready of the block of rank 0 lacks 32 of 64 arrivals" in stray.message
    assert stray.mend.startswith(
        "let the threads of the block of rank 1 arrive at ready of the block of rank 0, by its address in "
        "that block (mapa): 32 arrivals came to their own mbarrier"
    )
    stray = next(finding for finding in checked(LEADER, 1, 2, 32, x, y) if "deadlock" in finding.message)
    assert "shared variable full of the block of rank 0 lacks 128 bytes" in stray.message
    assert stray.mend.startswith(
        "let the copies of the block of rank 1 tell full of the block of rank 0 of their bytes, by its "
        "address in that block (mapa): 128 bytes came to their own mbarrier"
    )


CROWD = r"""
extern "C" __global__ __cluster_dims__(2, 1, 1) void k(int* y) {
  __shared__ u64 full, empty;
  int t = threadIdx.x;
  if (t == 0) { init(&full, 1); init(&empty, BUG(1) ? 2 : 4); init_fence(); }
  cluster_sync();
  if (rank() == 0) {
    if (t == 0)
      for (int i = 0; i < 4; i++) {
        wait(&empty, i & 1 ^ 1);
        arrive_at(&full, 1);
      }
  } else {
    for (int i = 0; i < 4; i++) {
      wait(&full, i & 1);
      y[t] = i;
      if (t % 32 == 0)
        arrive_at(&empty, 0);
    }
  }
  cluster_sync();
}"""

COMMITS = r"""
extern "C" __global__ void k(int* y) {
  __shared__ u64 done;
  int t = threadIdx.x;
  if (t == 0) { init(&done, BUG(0) ? 2 : 1); init_fence(); }
  __syncthreads();
  if (BUG(2) ? t < 32 : t == 0)
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" :: "r"(at(&done)) : "memory");
  if (!BUG(2) && t == 32) arrive(&done);
  __syncwarp();
  wait(&done, 0);
  y[t] = t;
}"""  # noqa: E501, an instruction of PTX is one line
TOO_MANY = "more threads arrive than the {} that it was initialised for, or a wait is missing"


@pytest.mark.parametrize(
    ("source", "wrong", "arch", "expected", "mend"),
    [
        (
            CROWD,
            1,
            "sm_90a",
            2,
            "initialise empty of the block of rank 0 with the number of arrivals of a phase",
        ),
        (COMMITS, 1, "sm_100a", 1, "initialise done with the number of arrivals of a phase"),
        (COMMITS, 2, "sm_100a", 1, "initialise done with the number of arrivals of a phase"),
    ],
)
@pytest.mark.parametrize("schedule", ["in order", "late", "reverse", "run"])
def test_too_many_arrivals_of_other_blocks_and_of_commits_are_told(
    compiled: Compiled, source: str, wrong: int, arch: str, expected: int, mend: str, schedule: str
) -> None:
    grid, block, y = (2, 128, np.zeros(128, np.int32)) if source is CROWD else (1, 64, np.zeros(64, np.int32))
    assert lw.check(compiled(source, 0, arch)[grid, block], y).findings == []
    launch = compiled(source, wrong, arch)[grid, block]
    if schedule == "run":
        with pytest.raises(lw.LanewiseError, match=f"{TOO_MANY.format(expected)}[^$]*mend: {mend}"):
            launch(y)
    else:
        told = [each for each in lw.check(launch, y, schedule=schedule).findings if each.severity == "error"]
        assert TOO_MANY.format(expected) in told[-1].message
        assert told[-1].mend.startswith((mend, "initialise it with the number of threads that arrive"))


STAGES = r"""
extern "C" __global__ void k(const float* x, float* y, int n) {
  __shared__ __align__(128) float tile[2][128];
  __shared__ u64 full[2], empty[2];
  int t = threadIdx.x;
  if (t == 0) {
    for (int s = 0; s < 2; s++) { init(full + s, 1); init(empty + s, 128); }
    init_fence();
  }
  __syncthreads();
  if (t == 128) {
    for (int i = 0; i < (BUG(2) ? n - 1 : n); i++) {
      wait(empty + i % 2, i / 2 & 1 ^ 1);
      expect(full + i % 2, BUG(1) ? 384 : 512);
      bulk(tile[i % 2], x + i * 128, 384, full + i % 2);
      bulk(tile[i % 2] + 96, x + i * 128 + 96, 128, full + i % 2);
    }
  } else if (t < 128) {
    float sum = 0;
    for (int i = 0; i < n; i++) {
      wait(full + i % 2, BUG(3) ? (i + 1) / 2 & 1 : i / 2 & 1);
      sum += tile[i % 2][t];
      if (BUG(4)) { some_sync(2 + t / 64, 128); some_sync(3 - t / 64, 128); }
      arrive(empty + i % 2);
    }
    y[t] = sum;
  }
}"""


@pytest.mark.parametrize(
    ("wrong", "cause", "mend"),
    [
        (
            1,
            "full[0] lacks an expect_tx for",
            "announce what the copies bring: 128 bytes more in expect_tx of full[0]",
        ),
        (
            2,
            "full[1] lacks 1 of 1 arrivals in its phase of parity 0",
            "let 1 arrive at full[1] once more ({}:14, where no thread that waits comes any more), or wait "
            "for it once less",
        ),
        (
            3,
            "full[1] lacks 1 of 1 arrivals in its phase of parity 1 (arrivals come from {}:14), and no "
            "thread has seen that its phase of parity 0 is complete",
            "wait for parity 0 of full[1], if the phase is meant that is complete: ",
        ),
        (
            4,
            "barrier 2 counts 128 threads, of which 64 have come; barrier 3 counts 128 threads, of which 64 "
            "have come; ",
            "let 64 threads arrive at barrier 2 first (bar.arrive), or all come to barriers 2 and 3 in one "
            "order: ",
        ),
    ],
)
def test_what_only_waits_for_others_is_not_the_cause(
    checked: Checked, folder: Path, wrong: int, cause: str, mend: str
) -> None:
    x, y = np.ones((6, 128), np.float32), np.zeros(128, np.float32)
    assert checked(STAGES, 0, 1, 160, x, y, 6) == [] and (y == 6).all()
    last = checked(STAGES, wrong, 1, 160, x, y, 6)[-1]
    assert cause.format(folder / "k.cu") in last.message.partition(" threads wait")[0], last.message
    assert last.mend.startswith(mend.format(folder / "k.cu")), last.mend


ROUNDS = r"""
extern "C" __global__ void k(const int* x, int* y) {
  __shared__ __align__(128) int tile[6][32];
  __shared__ u64 full;
  int t = threadIdx.x;
  if (t == 0) { init(&full, 1); init_fence(); }
  __syncthreads();
  for (int i = 0; i < 6; i++) {
    if (t == 0) { expect(&full, 128); bulk(tile[i], x + i * 32, 128, &full); }
    wait(&full, i & 1);
    y[i * 128 + t] = tile[i][t % 32];
    if (!BUG(1)) __syncthreads();
  }
}"""


def test_threads_that_miss_a_phase_need_a_barrier(checked: Checked) -> None:
    x, y = np.arange(192, dtype=np.int32), np.zeros(768, np.int32)
    assert checked(ROUNDS, 0, 1, 128, x, y) == []
    last = checked(ROUNDS, 1, 1, 128, x, y)[-1]
    assert last.mend.endswith(
        ", or wait for it once less; if these threads missed a phase while others went on, let all meet at a "
        "barrier in each round"
    )


CIRCLE = r"""
extern "C" __global__ void k(int* y) {
  __shared__ u64 a, b;
  if (threadIdx.x == 0) { init(&a, 32); init(&b, 32); }
  __syncthreads();
  if (threadIdx.x < 32) {
    if (BUG(1)) wait(&b, 0);
    arrive(&a);
    if (!BUG(1)) wait(&b, 0);
  } else {
    wait(&a, 0);
    arrive(&b);
  }
  y[threadIdx.x] = 1;
}"""


def test_of_a_circle_the_mend_says_who_releases_what(checked: Checked, folder: Path) -> None:
    assert checked(CIRCLE, 0, 1, 64, np.zeros(64, np.int32)) == []
    (finding,) = checked(CIRCLE, 1, 1, 64, np.zeros(64, np.int32))
    assert "64 threads" not in finding.message and "32 threads wait" in finding.message
    parts = (
        f"a is released at {folder}/k.cu:8, by threads that wait for b",
        f"b is released at {folder}/k.cu:12, by threads that wait for a",
    )
    start = "find out which of these must come first, and compare the stages and parities of these waits: "
    assert finding.mend in (start + "; ".join(parts), start + "; ".join(reversed(parts)))


PAIR = r"""
extern "C" __global__ __cluster_dims__(2, 1, 1) void k(int* y, int n) {
  __shared__ u64 full;
  if (threadIdx.x == 0) { init(&full, 1); init_fence(); }
  cluster_sync();
  if (threadIdx.x == 0 && (BUG(1) || rank() == 0))
    for (int i = 0; i < 2; i++) {
      if (rank() == 0) arrive(&full);
      wait(&full, i);
      if (n > 2)
        asm volatile("{ .reg .pred p; setp.ne.u32 p, %3, 0;"
          "tcgen05.mma.cta_group::2.kind::f16 [%0], %1, %1, %2, p; }"
          :: "r"(n), "l"((u64)n), "r"(n), "r"(i) : "memory");
    }
  cluster_sync();
  y[threadIdx.x] = 1;
}"""


def test_the_first_block_of_a_pair_alone_waits_also_after_an_even_number_of_phases(
    checked: Checked, folder: Path
) -> None:
    assert checked(PAIR, 0, 2, 32, np.zeros(32, np.int32), 1, arch="sm_100a") == []
    last = checked(PAIR, 1, 2, 32, np.zeros(32, np.int32), 1, arch="sm_100a")[-1]
    assert last.mend == (
        "let the first block of the pair (even rank) alone wait for its full and issue "
        f"what follows ({folder}/k.cu:13): the mbarrier of that block counts what arrives and what the "
        "copies bring"
    )


CROSSED = r"""
extern "C" __global__ void k(int* y) {
  if (threadIdx.x < 64) asm volatile("bar.sync 0;" ::: "memory");
  else asm volatile("bar.sync 1;" ::: "memory");
  y[threadIdx.x] = 1;
}"""


def test_threads_that_never_come_to_a_barrier_are_named(checked: Checked) -> None:
    (finding,) = checked(CROSSED, 0, 1, 96, np.zeros(96, np.int32))
    assert finding.message.endswith(
        "; threads 64 to 95 never come to barrier 0; threads 0 to 63 never come to barrier 1"
    )


# lines ------------------------------------------------------------------------------------------------------

PUT = r"""
#include "put.h"
extern "C" __global__ void k(float* y) {
  __shared__ float tile[64];
  put(at(tile + threadIdx.x), 1.f);
  y[threadIdx.x] = tile[threadIdx.x ^ 33];
}"""


@pytest.mark.parametrize(
    "statement",
    [
        'asm volatile("st.shared.f32 [%0], %1;" :: "r"(a), "f"(v) : "memory");',
        'asm volatile("st.shared.f32 [%0], %1;"\n    :: "r"(a), "f"(v)\n    : "memory");',
        'asm volatile(  // ")" ends no\n"{  // (\\n"\n"st.shared.f32 [%0], %1;"\n"}" :: "r"(a), "f"(v));',
    ],
)
def test_an_asm_statement_of_several_lines_is_its_callers(
    checked: Checked, folder: Path, statement: str
) -> None:
    head = "static __device__ __forceinline__ void put(unsigned a, float v) {\n  "
    (folder / "put.h").write_text(f"{head}{statement}\n}}\n")
    linecache.clearcache()
    (race,) = checked(PUT, 0, 1, 64, np.zeros(64, np.float32))
    assert race.mend == "`__syncthreads()` between line 5 and line 6"


COPIED_BY_EACH_WARP = r"""
extern "C" __global__ void k(float* y) {
    __shared__ __align__(128) float s[4][32];
    int w = threadIdx.x / 32, l = threadIdx.x % 32;
    if (w < 3) {
        s[w][l] = threadIdx.x;
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        if (!BUG(1)) __syncwarp();
        if (l == 0) {
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 128;" :: "l"(y + 32 * w), "r"(at(s[w])) : "memory");
            asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;" ::: "memory");
        }
    }
}
"""  # noqa: E501  # CUDA C++ as it is written


def test_lanes_of_a_warp_in_a_branch_of_warps_meet_at_a_barrier_of_the_warp(checked: Checked) -> None:
    y = np.zeros(96, np.float32)
    assert not checked(COPIED_BY_EACH_WARP, 0, 1, 128, y)
    (finding,) = checked(COPIED_BY_EACH_WARP, 1, 1, 128, y)
    assert finding.mend.startswith("`__syncwarp()` between line 6 and line 10")


GROUPS_IN_THE_TAIL = r"""
extern "C" __global__ void k(const float* x, float* y, int n) {
    __shared__ __align__(128) float s[3][128];
    int t = threadIdx.x;
    auto load = [&](int i) {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(at(&s[i % 3][t])), "l"(x + 128 * i + t) : "memory");
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    load(0), load(1);
    for (int i = 0; i < n; i++) {
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        if (t == 0) {
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 512;" :: "l"(y + 128 * i), "r"(at(s[i % 3])) : "memory");
            asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;" ::: "memory");
        }
        if (i + 2 < n) load(i + 2);
        else if (!BUG(1)) asm volatile("cp.async.commit_group;" ::: "memory");
    }
}
"""  # noqa: E501  # CUDA C++ as it is written


def test_too_few_groups_are_waited_for_and_no_barrier_is_missing(checked: Checked) -> None:
    arrays = np.arange(768, dtype=np.float32), np.zeros(768, np.float32), np.int32(6)
    assert not checked(GROUPS_IN_THE_TAIL, 0, 1, 128, *arrays)
    (finding,) = checked(GROUPS_IN_THE_TAIL, 1, 1, 128, *arrays)
    assert finding.mend.startswith("`cp.async.wait_all` before line 15, in the thread that copies")


SENT_TWICE = r"""
extern "C" __global__ void __cluster_dims__(2) k(const float* x, float* y) {
    __shared__ __align__(128) float from[32], to[32];
    __shared__ u64 full, empty;
    int t = threadIdx.x;
    if (t == 0) init(&full, 1), init(&empty, 32), init_fence();
    from[t] = x[t];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    cluster_sync();
    for (int i = 0; i < 2; i++) {
        if (rank() == 1) {
            if (i > 0 && !BUG(1)) wait(&empty, 0);
            if (t == 0) asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], 128, [%2];" :: "r"(of(at(to), 0)), "r"(at(from)), "r"(of(at(&full), 0)) : "memory");
            __syncwarp();
        } else {
            if (t == 0) expect(&full, 128);
            wait(&full, i);
            y[32 * i + t] = to[t];
            arrive_at(&empty, 1);
        }
    }
    cluster_sync();
}
"""  # noqa: E501  # CUDA C++ as it is written


def test_a_copy_into_another_block_waits_for_an_arrival_of_that_block(checked: Checked) -> None:
    arrays = np.arange(32, dtype=np.float32), np.zeros(64, np.float32)
    assert not checked(SENT_TWICE, 0, 2, 32, *arrays)
    first, *_ = checked(SENT_TWICE, 1, 2, 32, *arrays)
    assert first.mend.startswith(
        "before line 13, wait for an mbarrier of this block at which the other one arrives"
    )


TRIES = """
static __device__ __forceinline__ bool tried(u64* b, int p) {
  int ok;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
    : "=r"(ok) : "r"(at(b)), "r"(p) : "memory");
  return ok;
}
static __device__ __forceinline__ void until(u64* b, int p) {
"""
UNTIL = r"""
#include "until.h"
extern "C" __global__ void k(int* y) {
  __shared__ u64 a, b;
  if (threadIdx.x == 0) { init(&a, 32); init(&b, 33); }
  __syncwarp();
  arrive(&a);
  until(&a, 0);
  arrive(&b);
  until(&b, 0);
  y[threadIdx.x] = 1;
}"""


@pytest.mark.parametrize(
    "loop",
    [
        "while (!tried(b, p));",
        "while (!tried(b, p)) { }",
        "do {\n} while (!tried(b, p));",
        "for (;;) {\n  if (tried(b, p)) break;\n}",
        "bool ok = false;\nwhile (!ok) {\n  ok = tried(b, p);\n}",
    ],
)
def test_a_loop_around_an_asm_statement_is_its_callers(checked: Checked, folder: Path, loop: str) -> None:
    (folder / "until.h").write_text(f"{TRIES}{loop}\n}}\n")
    linecache.clearcache()
    (finding,) = checked(UNTIL, 0, 1, 32, np.zeros(32, np.int32))
    assert finding.source == f"{folder}/k.cu:10"
    assert f"32 threads wait for a phase of an mbarrier, {folder}/k.cu:10; " in f"{finding.message}; "
