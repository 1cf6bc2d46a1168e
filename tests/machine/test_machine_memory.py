"""Memory spaces, atomics and asynchronous copies."""

import numpy as np
import pytest

import lanewise.ptx as ptx
from lanewise.launch import launch
from lanewise.machine import KernelFault

SOURCE = r"""
#include <cuda_fp16.h>
struct Pair { int a; float b; };
__constant__ int table[4] = {10, 20, 30, 40};
__device__ int counter = 5;
__device__ float grid2[2][3] = {{1, 2, 3}, {4, 5, 6}};
extern "C" {
__global__ void spaces(int* out, struct Pair p) {
    extern __shared__ int dynamic[];
    __shared__ int fixed[32];
    int own[8], i = threadIdx.x;
    for (int k = 0; k < 8; k++) own[(k + i) % 8] = k * i;
    fixed[31 - i] = own[i % 8];
    dynamic[i] = table[i % 4] + p.a;
    __syncthreads();
    int* any = (i & 1) ? &fixed[i] : (i & 2) ? &dynamic[i] : (i & 4) ? &own[3] : out + 32 + i;
    out[i] = *any + (int)(p.b * 2) + (int)grid2[1][i % 3];
    if (i == 0) counter++;
    if (i == 1) out[64] = counter;
}
__global__ void atomics(int* s, unsigned* u, unsigned long long* l, float* f, double* d, __half2* h) {
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    atomicAdd(s, i); atomicMin(s + 1, 50 - i); atomicMax(s + 2, i - 20); atomicXor(s + 3, 1 << (i % 31));
    atomicAnd(s + 4, ~(1 << (i % 7))); atomicOr(s + 5, 1 << (i % 9)); atomicSub(s + 6, 2);
    atomicInc(u, 9); atomicDec(u + 1, 6); atomicMax(u + 2, 0x80000000u + i);
    atomicAdd(l, 1ull << 33); atomicAdd(f, 0.5f); atomicAdd(d, 0.25); atomicAdd(h, __halves2half2(1.0f, 2.0f));
    __shared__ float part; if (threadIdx.x == 0) part = 0; __syncthreads(); atomicAdd(&part, 1.0f); __syncthreads();
    if (threadIdx.x == 0) atomicAdd(f + 1, part);
}
__global__ void copies(const int4* x, int4* y, int n) {
    __shared__ int4 tile[2][32];
    int i = threadIdx.x;
    for (int k = 0; k < 2; k++) {
        unsigned to = (unsigned)__cvta_generic_to_shared(&tile[k][i]);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(to), "l"(x + k * 32 + i), "r"(k * 32 + i < n ? 16 : 0));
        asm volatile("cp.async.commit_group;");
    }
    asm volatile("cp.async.wait_group 0;"); __syncthreads();
    y[i] = tile[0][31 - i]; y[32 + i] = tile[1][31 - i];
}
}
"""  # noqa: E501  # CUDA C++ as it is written


@pytest.fixture(scope="module")
def module() -> ptx.Module:
    try:
        return ptx.cuda(SOURCE, arch="sm_80")
    except ptx.ToolMissing as error:
        pytest.skip(str(error))


def test_every_space_and_generic_addresses(module: ptx.Module) -> None:
    out = np.arange(100, dtype=np.int32)
    pair = np.array((7, 1.5), np.dtype([("a", "i4"), ("b", "f4")]))
    launch(module["spaces"], (1, 32, 128))(out, pair[()])

    def own(lane: int) -> list[int]:
        found = [0] * 8
        for k in range(8):
            found[(k + lane) % 8] = k * lane
        return found

    fixed = [own(31 - i)[(31 - i) % 8] for i in range(32)]
    dynamic = [[10, 20, 30, 40][i % 4] + 7 for i in range(32)]
    any_value = [
        fixed[i] if i & 1 else dynamic[i] if i & 2 else own(i)[3] if i & 4 else 32 + i for i in range(32)
    ]
    assert out[:32].tolist() == [any_value[i] + 3 + [4, 5, 6][i % 3] for i in range(32)]
    launch(module["spaces"], (1, 32, 128))(out, pair[()].tobytes())
    assert out[64] in (6, 7)  # module variables keep their values from launch to launch


def test_atomics(module: ptx.Module) -> None:
    s, u = np.zeros(8, np.int32), np.zeros(4, np.uint32)
    s[4] = -1
    wide, f, d, h = np.zeros(1, np.uint64), np.zeros(2, np.float32), np.zeros(1), np.zeros(2, np.float16)
    launch(module["atomics"], (3, 64))(s, u, wide, f, d, h)
    n = 192
    xor = 0
    for i in range(n):
        xor ^= 1 << (i % 31)
    expected = [n * (n - 1) // 2, 50 - (n - 1), n - 1 - 20, xor, ~0x7F, 0x1FF, -2 * n]
    assert s[:7].tolist() == expected
    assert u[:3].tolist() == [n % 10, (-n) % 7, 0x80000000 + n - 1]
    assert wide[0] == n << 33
    assert (f[0], f[1], d[0]) == (n / 2, n, n / 4)
    assert h.tolist() == [192.0, 384.0]


def test_asynchronous_copies_fill_with_zeros(module: ptx.Module) -> None:
    x = np.arange(256, dtype=np.int32).reshape(64, 4)
    y = np.full_like(x, -1)
    launch(module["copies"], (1, 32))(x[:50], y, 50)
    expected = np.where(np.arange(64)[:, None] < 50, x, 0).reshape(2, 32, 4)[:, ::-1].reshape(64, 4)
    assert (y == expected).all()
    with pytest.raises(KernelFault, match="out of bounds"):
        launch(module["copies"], (1, 32))(x[:50].copy(), y, 51)


def test_overlapping_arguments_keep_their_distance(module: ptx.Module) -> None:
    text = """.version 8.0
.target sm_80
.address_size 64
.entry k(.param .u64 p, .param .u64 q, .param .u64 r) { .reg .b64 %a, %b, %c;
ld.param.u64 %a, [p]; ld.param.u64 %b, [q]; ld.param.u64 %c, [r];
sub.u64 %a, %b, %a; st.global.u64 [%c], %a; }"""
    x, out = np.zeros(64, np.uint64), np.zeros(1, np.uint64)
    launch(ptx.parse(text)["k"], (1, 1))(x[:40], x[8:], out)
    assert out[0] == 64
