"""Divergence, waiting and calls: lanes, warps and blocks that wait for one another."""

import numpy as np
import pytest

import lanewise
import lanewise.ptx as ptx
from lanewise.errors import LanewiseError
from lanewise.launch import launch
from lanewise.machine import Deadlock, KernelFault, Unsupported

SOURCE = r"""
extern "C" {
__global__ void nested(const int* x, int* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, v = x[i], r = 0;
    if (v & 1) { if (v & 2) r = v * 3; else r = v - 7; for (int k = 0; k < (v & 15); k++) r += k * v; }
    else { while (v > 3) { v = v / 2 - 1; r++; if (r == 5) break; } }
    switch (x[i] & 7) { case 0: r += 1; break; case 1: r ^= 5; break; case 3: r *= 2; case 4: r -= 9; break; case 6: r = -r; }
    y[i] = r;
}
__device__ __noinline__ int triangle(int n) { int s = 0; for (int i = 0; i <= n; i++) s += i; return s; }
__device__ __noinline__ int twice(int n) { return triangle(n) + triangle(n + 1); }
__global__ void calls(const int* x, int* y) { int i = threadIdx.x; y[i] = (i % 3) ? twice(x[i]) : triangle(i); }
__global__ void lock(int* mutex, int* count) {
    for (bool done = false; !done;) {
        if (atomicCAS(mutex, 0, 1) == 0) { *(volatile int*)count += 1; __threadfence(); atomicExch(mutex, 0); done = true; }
    }
}
__global__ void hand_over(volatile int* flag, volatile int* data, int n) {
    int warp = threadIdx.x / 32;
    if (threadIdx.x % 32) return;
    for (int i = 0; i < n; i++) {
        if (warp == 0) { while (*flag != 2 * i); *data = i * i; __threadfence(); *flag = 2 * i + 1; }
        else { while (*flag != 2 * i + 1); data[1] += *data; __threadfence(); *flag = 2 * i + 2; }
    }
}
__global__ void relay(volatile int* turn) {
    if (threadIdx.x == 0) { int me = gridDim.x - 1 - blockIdx.x; while (*turn != me); __threadfence(); *turn = me + 1; }
}
__global__ void reduce(const float* x, float* y) {
    __shared__ float part[32];
    float v = x[blockIdx.x * blockDim.x + threadIdx.x];
    for (int k = 16; k; k >>= 1) v += __shfl_down_sync(~0u, v, k);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x < 32) {
        v = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0;
        for (int k = 16; k; k >>= 1) v += __shfl_xor_sync(~0u, v, k);
        if (threadIdx.x == 0) y[blockIdx.x] = v;
    }
}
__global__ void votes(const int* x, unsigned* y) {
    int v = x[threadIdx.x], i = threadIdx.x;
    y[i] = __ballot_sync(~0u, v > 3);
    y[32 + i] = __any_sync(~0u, v == 77) | __all_sync(~0u, v >= 0) << 1;
    y[64 + i] = __match_any_sync(~0u, v);
    y[96 + i] = __reduce_add_sync(~0u, (unsigned)v);
    y[128 + i] = __syncthreads_count(v & 1);
    if (i < 8) y[160 + i] = __shfl_sync(0xff, v, (i + 1) % 8); else y[160 + i] = __activemask();
}
__global__ void histogram(const unsigned char* x, unsigned* y, int n) {
    __shared__ unsigned h[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) h[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&h[x[i]], 1u);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&y[i], h[i]);
}
__global__ void stuck(int* x) { if (threadIdx.x < 32) __syncthreads(); else { asm volatile("bar.sync 1, 96;"); } x[0] = 1; }
__global__ void endless(volatile int* x) { while (*x == 0); }
__global__ void say(int n) { printf("%d:%5.2f %s|%x\n", n + (int)threadIdx.x, 1.5 * n, "word", 255); }
__global__ void hold(const int* x) { extern __shared__ int s[]; s[threadIdx.x] = x[threadIdx.x]; if (s[0] < 0) __trap(); }
}
"""  # noqa: E501  # CUDA C++ as it is written


@pytest.fixture(scope="module")
def module() -> ptx.Module:
    try:
        return ptx.cuda(SOURCE, arch="sm_80")
    except ptx.ToolMissing as error:
        pytest.skip(str(error))


def test_nested_branches_loops_and_switches(module: ptx.Module) -> None:
    x = np.random.default_rng(0).integers(0, 200, 128).astype(np.int32)
    y = np.zeros_like(x)
    launch(module["nested"], (2, 64))(x, y)

    def one(first: int) -> int:
        v, r = first, 0
        if v & 1:
            r = v * 3 if v & 2 else v - 7
            r += sum(k * v for k in range(v & 15))
        else:
            while v > 3:
                v = v // 2 - 1
                r += 1
                if r == 5:
                    break
        match first & 7:
            case 0:
                r += 1
            case 1:
                r ^= 5
            case 3:
                r = r * 2 - 9
            case 4:
                r -= 9
            case 6:
                r = -r
        return r

    assert y.tolist() == [one(int(v)) for v in x]


def test_device_functions_from_diverged_lanes(module: ptx.Module) -> None:
    x = np.random.default_rng(1).integers(0, 20, 64).astype(np.int32)
    y = np.zeros_like(x)
    launch(module["calls"], (1, 64))(x, y)

    def triangle(n: int) -> int:
        return n * (n + 1) // 2

    assert y.tolist() == [
        triangle(v) + triangle(v + 1) if i % 3 else triangle(i) for i, v in enumerate(x.tolist())
    ]


def test_lanes_of_a_warp_wait_for_each_other(module: ptx.Module) -> None:
    mutex, count = np.zeros(1, np.int32), np.zeros(1, np.int32)
    launch(module["lock"], (3, 96))(mutex, count)
    assert count[0] == 288


def test_warps_of_a_block_wait_for_each_other(module: ptx.Module) -> None:
    flag, data = np.zeros(1, np.int32), np.zeros(2, np.int32)
    launch(module["hand_over"], (1, 64))(flag, data, 10)
    assert data[1] == sum(i * i for i in range(10))


def test_blocks_of_a_grid_wait_for_each_other(module: ptx.Module) -> None:
    turn = np.zeros(1, np.int32)
    launch(module["relay"], (7, 32))(turn)
    assert turn[0] == 7


def test_reduction_with_shuffles(module: ptx.Module) -> None:
    x = np.random.default_rng(2).integers(0, 100, (4, 256)).astype(np.float32)
    y = np.zeros(4, np.float32)
    launch(module["reduce"], (4, 256))(x, y)
    assert (y == x.sum(axis=1)).all()


def test_votes_matches_and_masks(module: ptx.Module) -> None:
    x = np.random.default_rng(3).integers(0, 7, 32).astype(np.int32)
    y = np.zeros(192, np.uint32)
    launch(module["votes"], (1, 32))(x, y)
    assert (y[:32] == sum(1 << i for i, v in enumerate(x) if v > 3)).all()
    assert (y[32:64] == 2).all()
    assert y[64:96].tolist() == [sum(1 << j for j, w in enumerate(x) if w == v) for v in x]
    assert (y[96:128] == x.sum()).all()
    assert (y[128:160] == (x & 1).sum()).all()
    assert (y[160:168] == np.roll(x[:8], -1)).all()
    assert (y[168:] == 0xFFFFFF00).all()


def test_histogram_with_atomics(module: ptx.Module) -> None:
    x = np.random.default_rng(4).integers(0, 256, 5000).astype(np.uint8)
    y = np.zeros(256, np.uint32)
    launch(module["histogram"], (6, 128))(x, y, x.size)
    assert (y == np.bincount(x, minlength=256)).all()


def test_a_deadlock_is_found_at_once_and_names_the_barriers(module: ptx.Module) -> None:
    with pytest.raises(Deadlock, match=r"32 threads wait at barrier 0.*32 threads wait at barrier 1"):
        launch(module["stuck"], (1, 64))(np.zeros(1, np.int32))


def test_an_endless_loop_ends_with_the_steps_allowed(module: ptx.Module) -> None:
    with pytest.raises(KernelFault, match="steps"):
        launch(module["endless"], (2, 32))(np.zeros(1, np.int32), steps=100_000)


def test_printf(module: ptx.Module, capsys: pytest.CaptureFixture[str]) -> None:
    launch(module["say"], (1, 2))(3)
    assert capsys.readouterr().out == "3: 4.50 word|ff\n4: 4.50 word|ff\n"


def test_trap_names_the_thread(module: ptx.Module) -> None:
    with pytest.raises(KernelFault, match=r"trap(.|\n)*thread \(0, 0, 0\) in block \(0, 0, 0\)"):
        launch(module["hold"], (1, 32, 128))(np.full(32, -1, np.int32))


@pytest.mark.parametrize(
    ("shared", "size", "words"),
    [(64, 32, "shared write of 4 bytes out of bounds"), (128, 20, "global read of 4 bytes out of bounds")],
)
def test_out_of_bounds(module: ptx.Module, shared: int, size: int, words: str) -> None:
    with pytest.raises(KernelFault, match=words) as caught:
        launch(module["hold"], (1, 32, shared))(np.zeros(size, np.int32))
    where = 16 if shared == 64 else 20
    assert f"thread ({where}, 0, 0)" in str(caught.value)
    lines = str(module).split("\n") if not module.text else module.text.split("\n")
    assert ("st.shared" if shared == 64 else "ld.global") in lines[caught.value.line - 1]


def _ptx(body: str, parameters: str = ".param .u64 p") -> ptx.Entry:
    head = ".version 8.7\n.target sm_90\n.address_size 64\n.visible .entry k("
    return ptx.parse(f"{head}{parameters}) {{\n{body}\n}}")["k"]


def test_misaligned_and_read_only() -> None:
    body = ".reg .b64 %a; .reg .b32 %r;\nld.param.u64 %a, [p];\nld.global.u32 %r, [%a+2];\nret;"
    with pytest.raises(KernelFault, match="misaligned global read of 4 bytes") as caught:
        launch(_ptx(body), (1, 1))(np.zeros(4, np.uint32))
    assert caught.value.line == 7
    fixed = np.zeros(4, np.uint32)
    fixed.setflags(write=False)
    store = ".reg .b64 %a; .reg .b32 %r;\nld.param.u64 %a, [p];\nst.global.u32 [%a], 5;\nret;"
    with pytest.raises(KernelFault, match="read-only"):
        launch(_ptx(store), (1, 1))(fixed)


def test_what_is_not_supported_is_named_before_anything_runs() -> None:
    body = ".reg .b64 %a; .reg .b32 %r;\nld.param.u64 %a, [p];\nst.global.u32 [%a], 5;\n"
    body += "frobnicate.u32 %r, %r;\nret;"
    out = np.zeros(1, np.uint32)
    with pytest.raises(Unsupported, match=r"line 8.*frobnicate"):
        launch(_ptx(body), (1, 1))(out)
    assert out[0] == 0


def test_arguments_are_checked() -> None:
    entry = _ptx("ret;", ".param .u64 p, .param .u32 n, .param .f32 x")
    run = launch(entry, (1, 1))
    run(np.zeros(1), 3, 1.5)
    for wrong in (
        (np.zeros(1),),
        (np.zeros((4, 4))[:, 1], 1, 1.0),
        (np.zeros(1), 2**40, 1.0),
        (np.zeros(1), 1.5, 1.0),
        (1.5, 1, 1.0),
        (np.zeros(1), 1, "x"),
    ):
        with pytest.raises(ValueError, match=r"argument|takes"):
            run(*wrong)


def test_a_device_functions_parameters_are_named() -> None:
    text = """
.version 8.0
.target sm_80
.address_size 64
.func (.param .b32 out) pick(.param .align 4 .b8 table[16])
{
    .reg .b64 %a; .reg .b32 %r;
    mov.u64 %a, table;
    ld.param.u32 %r, [%a+4];
    st.param.b32 [out], %r;
    ret;
}
.visible .entry k()
{
    .reg .b32 %r;
    { .param .align 4 .b8 t[16]; .param .b32 o; call (o), pick, (t); ld.param.b32 %r, [o]; }
    ret;
}
"""
    with pytest.raises(Unsupported, match=r"line 9.*by name"):
        launch(ptx.parse(text)["k"], (1, 32))()


def test_the_kernel_is_launched_by_subscript() -> None:
    import lanewise as lw

    kernel = lw.load(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry one(.param .u64 x) {\n"
        ".reg .b64 %a; ld.param.u64 %a, [x]; st.global.u32 [%a], 1; ret; }"
    )["one"]
    x = np.zeros(1, np.uint32)
    kernel[1, 1](x)
    assert x[0] == 1


@pytest.mark.parametrize(
    "line", ["add.u32 %r, %r;", "shfl.sync.idx.b32 %r, %r;", "cvt.u32.wild %r, %r;", "add.q7 %r, %r, %r;"]
)
def test_a_form_nobody_knows_is_named_with_its_own_line(line: str) -> None:
    text = (
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() {\n.reg .b32 %r;\n"
        f"{line}\nbar.sync 0;\nret;\n}}"
    )
    with pytest.raises(Unsupported, match="line 6"):
        launch(ptx.parse(text)["k"], (1, 32))()


#: As cooperative groups do it: %envreg1 and %envreg2 lead to the grid's barrier, a size and a count.
GRID = """.version 8.0
.target sm_80
.address_size 64
.visible .entry turned(.param .u64 x, .param .u64 y)
{
    .reg .b32 %r<8>; .reg .b64 %d<8>; .reg .pred %p;
    mov.u32 %r0, %envreg1; mov.u32 %r1, %envreg2; mov.b64 %d0, {%r1, %r0};
    ld.param.u64 %d1, [x]; ld.param.u64 %d2, [y];
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %nctaid.x;
    mul.wide.u32 %d3, %r2, 4; add.u64 %d3, %d1, %d3; st.global.u32 [%d3], %r2;
    atom.add.release.gpu.u32 %r4, [%d0+4], 1;
WAIT:
    ld.acquire.gpu.u32 %r4, [%d0+4]; setp.lt.u32 %p, %r4, %r3; @%p bra WAIT;
    sub.u32 %r5, %r3, %r2; sub.u32 %r5, %r5, 1;
    mul.wide.u32 %d3, %r5, 4; add.u64 %d3, %d1, %d3; ld.global.u32 %r6, [%d3];
    mul.wide.u32 %d3, %r2, 4; add.u64 %d3, %d2, %d3; st.global.u32 [%d3], %r6;
    ret;
}"""


def test_blocks_of_a_grid_wait_for_each_other_at_its_own_barrier() -> None:
    kernel = lanewise.load(GRID)["turned"]
    for _ in range(2):  # a launch begins with a barrier where nobody has come
        x, y = np.zeros((2, 50), np.uint32)
        kernel[50, 1](x, y)
        assert y.tolist() == list(range(50))[::-1]
    x, y = np.zeros((2, 50), np.uint32)
    assert lanewise.check(kernel[50, 1], x, y).ok
    many = np.zeros(1 << 20, np.uint32)
    with pytest.raises(LanewiseError, match="of them can be under way at a time, not 1048576"):
        kernel[1 << 20, 1](many, many)


@pytest.mark.parametrize("limit", [0, 1, 16, 31, 32])
@pytest.mark.parametrize("negated", [False, True])
def test_a_branch_over_loads_and_stores(limit: int, negated: bool) -> None:
    """The lanes that a branch sends past a load and a store keep their registers and their memory."""
    guard, sense = ("@!%p", "lt") if negated else ("@%p", "ge")
    entry = ptx.parse(f"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 p, .param .u32 limit) {{
.reg .b64 %from; .reg .b32 %lane, %limit, %value, %shared; .reg .pred %p; .shared .align 4 .b8 words[128];
ld.param.u64 %from, [p]; ld.param.u32 %limit, [limit]; mov.u32 %lane, %tid.x;
mad.wide.u32 %from, %lane, 4, %from; mov.u32 %value, 7;
mov.u32 %shared, words; mad.lo.u32 %shared, %lane, 4, %shared;
setp.{sense}.u32 %p, %lane, %limit;
{guard} bra past;
ld.global.u32 %value, [%from];
st.shared.u32 [%shared], %value;
past:
bar.sync 0;
ld.shared.u32 %shared, [%shared];
mad.lo.u32 %value, %shared, 100, %value;
st.global.u32 [%from], %value;
ret;
}}""")["k"]
    numbers = np.arange(1, 33, dtype=np.uint32)
    expected = np.where(np.arange(32) < limit, numbers * 101, 7)
    launch(entry, (1, 32))(numbers, limit)
    assert (numbers == expected).all()
