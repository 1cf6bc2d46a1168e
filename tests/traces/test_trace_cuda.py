"""Traces of CUDA C++: lines of the source, arrays by the names of parameters, calls and recursion."""

import numpy as np
import pytest

import lanewise as lw
from lanewise.machine.program.operands import Register, elements_of
from lanewise.ptx.tools.runtime_compiler import load

pytestmark = pytest.mark.skipif(load(13) is None, reason="NVRTC is not installed (extra `cuda`)")

SOURCE = r"""
__device__ __noinline__ float twice(float x, float y) { return x * 2.0f + y; }

__device__ __noinline__ int fibonacci(int n) {
    if (n < 2) return n;
    int before = fibonacci(n - 2);
    return fibonacci(n - 1) + before;
}

extern "C" __global__ void calls(const float* a, float* b, int* c) {
    __shared__ float tile[4][8];
    int i = threadIdx.x;
    tile[i / 8][i % 8] = twice(a[i], a[i + 32]);
    __syncthreads();
    b[i] = tile[3 - i / 8][i % 8];
    c[i] = fibonacci(i % 7) + i;
}
"""


Traced = tuple[lw.traces.Trace, np.ndarray, np.ndarray, np.ndarray]


@pytest.fixture(scope="module")
def traced() -> Traced:
    a, b, c = np.arange(64, dtype=np.float32), np.zeros(32, np.float32), np.zeros(32, np.int32)
    run = lw.trace(lw.cuda(SOURCE, arch="sm_80")["calls"][1, 32], a, b, c)
    return run, a, b, c


def test_results_and_lines(traced: Traced) -> None:
    run, a, b, c = traced
    assert np.array_equal(b.reshape(4, 8)[::-1].ravel(), a[:32] * 2 + a[32:])
    numbers = [0, 1, 1, 2, 3, 5, 8]
    assert c.tolist() == [numbers[i % 7] + i for i in range(32)] and not run.fault
    step = run.first(lambda step: step.op.opcode == "fma")
    assert step is not None and step.source == "kernel.cu:2"
    assert step.source_text.startswith("__device__ __noinline__ float twice")
    assert [each.name for each in run.arrays] == ["a", "b", "c"]


def test_origins_pass_through_calls(traced: Traced) -> None:
    run, _, b, _ = traced
    assert run.origin("b[3]").inputs == {"a": [(27,), (59,)]}
    assert run.origin("b[3]").value == b[3] == 27 * 2 + 59
    assert "passed by a call" in run.origin("b[3]").tree(depth=20)


def test_shared_memory_by_the_name_of_the_source(traced: Traced) -> None:
    run, _, b, _ = traced
    tile = run.at(-1).shared("tile", dtype=np.float32, shape=(4, 8))
    assert np.array_equal(tile, b.reshape(4, 8)[::-1])
    # The source says what it holds; PTX alone does not.
    assert np.array_equal(run.at(-1).shared("tile"), tile) and run.origin("tile[1, 3]").value == tile[1, 3]
    module = lw.load(lw.cuda(SOURCE, arch="sm_80").text)
    a, c = np.arange(64, dtype=np.float32), np.zeros(32, np.int32)
    alone = lw.trace(module["calls"][1, 32], a, b.copy(), c)
    with pytest.raises(lw.LanewiseError, match=r"does not say what tile holds \(128 bytes\): give dtype="):
        alone.at(-1).shared("tile")


@pytest.mark.parametrize(
    ("declared", "shape", "dtype"),
    [
        ("__shared__ float tile[32]", (32,), np.float32),
        ("__shared__ __align__(128) float tile[N][2 * 4]", (4, 8), np.float32),
        ("volatile __shared__ real tile[16 + 16]", (32,), np.float32),
        ("__shared__ float2 tile[16]", (16, 2), np.float32),
        ("__shared__ float other[4], tile[M * N]", (32,), np.float32),
    ],
)
def test_shared_arrays_as_cuda_declares_them(declared: str, shape: tuple[int, ...], dtype: type) -> None:
    from lanewise.machine.program.operands import Symbol
    from lanewise.traces.arrays import _declared_in

    source = f"#define N 4\nconstexpr int M = 8;\ntypedef float real;\n__global__ void k() {{ {declared}; }}"
    found = _declared_in(source, "tile", Symbol("tile", "shared", 64, 128))
    assert found is not None and (found.shape, found.offset) == (shape, 64) and found.dtype == dtype
    assert _declared_in(source, "tile", Symbol("tile", "shared", 64, 132)) is None  # another one of this name
    assert _declared_in(source, "other_tile", Symbol("other_tile", "shared", 64, 128)) is None


def test_stores_have_what_the_registers_held(traced: Traced) -> None:
    """Also after calls of a function that calls itself, where registers are saved and restored."""
    run = traced[0]
    compared = 0
    for step in run.steps:
        if not step.op.record.is_plain_store or step.op.space == "param":
            continue
        (access,) = step.memory
        elements = elements_of(step.op.operands[1])
        for number, element in enumerate(elements):
            if isinstance(element, Register):
                held = step.registers.bits([element])[access.rows]
                stored = np.ascontiguousarray(access.values).view(held.dtype).reshape(len(held), -1)
                assert np.array_equal(held, stored[:, number]), step
                compared += len(held)
    assert compared >= 96
    depth = [step for step in run.steps if step.op.opcode == "call"]
    assert len(depth) > 10


def test_variables_by_name_where_debug_information_tells_them() -> None:
    source = r"""
    __device__ __noinline__ float twice(float value) { float doubled = value * 2.0f; return doubled; }
    extern "C" __global__ void sums(const float* X, float* Y, int n) {
        int i = threadIdx.x, back = -i;
        long long wide = 1000000000000ll * back;
        float sum = 0;
        for (int j = 0; j < n; j++) sum += twice(X[i + j]);
        Y[i] = sum + (wide > 0 ? 1 : 0);
    }
    """
    x, y = np.arange(40, dtype=np.float32), np.zeros(32, np.float32)
    run = lw.trace(lw.cuda(source, arch="sm_80", options=["-G"])["sums"][1, 32], x, y, 5)
    last = run.at(-1).registers
    assert np.array_equal(last["sum"], y) and last["sum"].dtype == np.float32
    assert last["i"].tolist() == list(range(32)) and last["back"].tolist() == [-i for i in range(32)]
    assert last["wide"].tolist() == [-i * 10**12 for i in range(32)]
    assert last["j"].tolist() == [5] * 32 and last["n"].tolist() == [5] * 32
    assert np.array_equal(last["doubled"], 2 * x[4:36])  # of the last call
    assert run.origin("sum", lane=7).value == y[7]
    assert [each.value for each in run.history("j", lane=0) if each.step.op.opcode == "add"] == [
        1,
        2,
        3,
        4,
        5,
    ]
    plain = lw.trace(lw.cuda(source, arch="sm_80")["sums"][1, 32], x, y, 5)
    with pytest.raises(lw.LanewiseError, match="no register or variable sum"):
        plain.at(-1).registers["sum"]
