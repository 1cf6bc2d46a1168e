"""`executor=`: blocks on other processes give the same bits; kernels that cannot be spread say why."""

from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

import lanewise as lw
from everything import only_with_everything
from lanewise.machine import KernelFault
from lanewise.machine.runtime.distributed import CannotSpread
from machine.classics import classic, compiled

SOURCE = r"""
#include <cstdio>
extern "C" {
__device__ int last_row[64];
__constant__ float factor = 3;
__global__ void rows(const float* x, float* y, int n) {
    int row = blockIdx.x, i = threadIdx.x;
    y[row * n + i] = x[row * n + i] * factor + row;
    if (i == 0) last_row[row] = row * row;
    if (i == 0 && row % 8 == 5) printf("row %d\n", row);
}
__global__ void squares(int* out) { out[threadIdx.x] = last_row[threadIdx.x]; }
__global__ void shift(float* x, int n) {  // y is x one further: the arrays overlap
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && i % 2 == 0) x[i + 1] = x[i];
}
__global__ void clash(int* x) { x[threadIdx.x] = blockIdx.x + 1; }
__global__ void agree(int* x) { x[threadIdx.x] = threadIdx.x + 1; }
__global__ void beyond(float* x, int n) { x[blockIdx.x * n + threadIdx.x] = 1; }
__global__ void spin(volatile int* flag) { while (flag[0] < (int)blockIdx.x); flag[0] = blockIdx.x + 1; }
__global__ void heap(int* x) { int* own = (int*)malloc(8); own[0] = 1; x[blockIdx.x] = own[0]; free(own); }
__global__ void count(int* total) { atomicAdd(total, 1); }
__global__ void count_within(int* totals) {
    __shared__ int own;
    if (threadIdx.x == 0) own = 0;
    __syncthreads();
    atomicAdd(&own, threadIdx.x);
    __syncthreads();
    totals[blockIdx.x] = own;
}
}
"""


@pytest.fixture(scope="module")
def processes() -> Iterator[Executor]:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        yield pool


@pytest.fixture(scope="module")
def threads() -> Iterator[Executor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


@pytest.fixture(scope="module")
def module() -> lw.Module:
    return compiled(SOURCE)


def test_blocks_on_processes_give_the_same_bits(processes: Executor) -> None:
    m, n, k = 128, 64, 64
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
    c, alone = np.zeros((m, n), np.float16), np.zeros((m, n), np.float16)
    kernel = classic("hgemm_naive")["hgemm_naive"][(n // 8, m // 16), 32]
    turned = np.ascontiguousarray(b.T)
    turned.flags.writeable = False
    seen: list[tuple[int, int]] = []
    kernel(a, turned, c, m, n, k, executor=processes, progress=lambda done, total: seen.append((done, total)))
    kernel(a, turned, alone, m, n, k)
    assert alone.any() and c.tobytes() == alone.tobytes()
    assert seen[-1] == (64, 64) and seen == sorted(seen)


@pytest.mark.parametrize("pool", ["processes", "threads"])
def test_variables_and_what_is_printed_come_back(
    pool: str, module: lw.Module, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    executor = request.getfixturevalue(pool)
    x = np.random.default_rng(2).standard_normal((50, 96)).astype(np.float32)
    y, squares = np.zeros_like(x), np.zeros(64, np.int32)
    module["rows"][50, 96](x, y, 96, executor=executor)
    rows = np.arange(50, dtype=np.float64)
    assert (y == (x.astype(np.float64) * 3 + rows[:, None]).astype(np.float32)).all()
    assert capsys.readouterr().out == "".join(f"row {row}\n" for row in range(50) if row % 8 == 5)
    module["squares"][1, 64](squares)
    assert (squares[:50] == np.arange(50) ** 2).all()


def test_arrays_within_a_larger_one(module: lw.Module, threads: Executor) -> None:
    whole = np.arange(1000, dtype=np.float32)
    module["shift"][4, 64](whole[100:400], 300, executor=threads)
    expected = np.arange(1000, dtype=np.float32)
    expected[101:357:2] = expected[100:356:2]
    assert (whole == expected).all()


def test_blocks_that_write_to_one_place(module: lw.Module, threads: Executor) -> None:
    x = np.zeros(32, np.int32)
    with pytest.raises(CannotSpread, match=r"argument 0.*blocks 0 to 0 and blocks 1 to 1 wrote different"):
        module["clash"][8, 32](x, executor=threads)
    assert not x.any()
    module["agree"][8, 32](x, executor=threads)
    assert (x == np.arange(32) + 1).all()


@pytest.mark.parametrize(("name", "why"), [("count", "atomics"), ("spin", "wait for one another")])
def test_what_cannot_be_spread_is_refused_with_its_line(
    name: str, why: str, module: lw.Module, threads: Executor
) -> None:
    with pytest.raises(CannotSpread, match=why) as caught:
        module[name][8, 32](np.zeros(8, np.int32), executor=threads)
    line = module.text.splitlines()[caught.value.line - 1]
    assert ("atom" in line or "red." in line) if name == "count" else "ld.volatile" in line


def test_a_heap_cannot_be_spread(module: lw.Module, threads: Executor) -> None:
    with pytest.raises(CannotSpread, match="malloc"):
        module["heap"][8, 32](np.zeros(8, np.int32), executor=threads)


def test_atomics_within_a_block_may_be_spread(module: lw.Module, threads: Executor) -> None:
    totals = np.zeros(9, np.int32)
    module["count_within"][9, 64](totals, executor=threads)
    assert (totals == 64 * 63 // 2).all()


def test_a_fault_on_another_process_is_raised_here(module: lw.Module, processes: Executor) -> None:
    x = np.zeros(1000, np.float32)
    with pytest.raises(KernelFault, match="out of bounds") as caught:
        module["beyond"][11, 100](x, 100, executor=processes)
    assert caught.value.kind == "out of bounds" and caught.value.line > 0
    assert not x.any()


def test_an_executor_is_asked_for(module: lw.Module) -> None:
    with pytest.raises(lw.LanewiseError, match="submit"):
        module["agree"][8, 32](np.zeros(32, np.int32), executor=7)


@only_with_everything
def test_a_dask_cluster() -> None:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None, memory_limit=0
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        m, n, k = 64, 64, 64
        rng = np.random.default_rng(3)
        a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
        c = np.zeros((m, n), np.float16)
        kernel = classic("hgemm_naive")["hgemm_naive"][(n // 8, m // 16), 32]
        kernel(a, np.ascontiguousarray(b.T), c, m, n, k, executor=client.get_executor())
    mma = lw.instruction("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16")
    assert c.tobytes() == mma.gemm(a, b, arch="sm_80").tobytes()
