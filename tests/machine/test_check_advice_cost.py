"""A million occurrences of one advice cost what one does: work is counted, not timed."""

from typing import Any

import numpy as np
import pytest

import lanewise as lw
from lanewise.machine.analysis import pointer_provenance, value_uses
from lanewise.machine.checker import access_descriptions, triage
from nvrtc import need_nvrtc

SOURCE = """
extern "C" __global__ void weak(float* x, int n) {  // lanes meet, and do not synchronise
    __shared__ float t[1024];
    int i = threadIdx.x;
    float a = x[i];
    #pragma unroll 1
    for (int k = 0; k < n; k++) {
        t[i] = a;
        a = __shfl_xor_sync(~0u, a, 1);
        a += t[i ^ 1];
        a = __shfl_xor_sync(~0u, a, 1);
    }
    x[i] = a;
}
struct S { int a; char b; };
extern "C" __global__ void padding(S* x, int n) {  // the padding of a structure is copied
    __shared__ S t[1024];
    int i = threadIdx.x;
    #pragma unroll 1
    for (int k = 0; k < n; k++) {
        t[i].a = k; t[i].b = 1;
        __syncwarp();
        *(long long*)&x[i] = *(long long*)&t[i];
        __syncwarp();
    }
}
extern "C" __global__ void early(float* x, int n) {  // lanes and warps exit before a barrier
    int i = threadIdx.x;
    if (i >= 100) return;
    #pragma unroll 1
    for (int k = 0; k < n; k++) { x[i] += 1; __syncthreads(); }
}
extern "C" __global__ void member(float* x, int n) {  // a mask names lanes that have exited
    int i = threadIdx.x;
    if (i % 32 >= 20) return;
    float a = x[i];
    #pragma unroll 1
    for (int k = 0; k < n; k++) a += __shfl_xor_sync(~0u, a, 1);
    x[i] = a;
}
extern "C" __global__ void conflicts(float* x, int n) {
    __shared__ float t[32][32];
    int r = threadIdx.x / 32, c = threadIdx.x % 32;
    t[r][c] = x[threadIdx.x];
    __syncthreads();
    float a = 0;
    #pragma unroll 1
    for (int k = 0; k < n; k++) a += t[c][(r + k) % 32];
    x[threadIdx.x] = a;
}
"""
#: Calls into Python, whatever the launch: each instruction may tell some advice more than once.
MOST_CALLS = 4 * (triage.ADVICE_AGAIN + 1)


@pytest.fixture(scope="module")
def module() -> Any:
    need_nvrtc()
    return lw.cuda(SOURCE)


class Counted:
    """How often functions were called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *functions: tuple[Any, str]) -> None:
        self.calls = dict.fromkeys((name for _, name in functions), 0)
        for owner, name in functions:
            monkeypatch.setattr(owner, name, self._counting(name, getattr(owner, name)))

    def _counting(self, name: str, function: Any) -> Any:
        def counting(*arguments: Any, **options: Any) -> Any:
            self.calls[name] += 1
            return function(*arguments, **options)

        return counting


@pytest.mark.parametrize("name", ["weak", "padding", "early", "member", "conflicts"])
def test_occurrences_cost_nothing(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> None:
    counted = Counted(
        monkeypatch,
        (triage.Triage, "consider"),
        (access_descriptions, "shared_name"),
        (pointer_provenance, "_named_variables"),
        (value_uses.ValueUses, "_follow"),
    )
    given = np.zeros(2048, np.float32)
    reports = [lw.check(module[name][1, 1024], given, times) for times in (2, 400)]
    kinds = [[(each.kind, each.severity) for each in report.findings] for report in reports]
    assert kinds[0] == kinds[1]
    assert [each.kind for each in reports[0].performance] == [
        each.kind for each in reports[1].performance
    ] or (name != "conflicts")
    counts = [sum(each.count for each in report.findings) for report in reports]
    if name in ("weak", "padding", "member"):
        assert counts[1] > 100 * counts[0]  # they are counted all the same
    assert counted.calls["consider"] <= MOST_CALLS, counted.calls
    assert counted.calls["shared_name"] <= MOST_CALLS, counted.calls
    assert counted.calls["_named_variables"] <= 1, counted.calls
    assert counted.calls["_follow"] <= 4, counted.calls


def test_an_error_after_much_advice_is_found(module: Any) -> None:
    """Bytes that may be padding are copied often, and then bytes that matter at the same instruction."""
    source = """
struct S { int a; char b; };
extern "C" __global__ void k(S* x, int n) {
    __shared__ S t[1024];
    int i = threadIdx.x;
    #pragma unroll 1
    for (int k = 0; k <= n; k++) {
        S* s = k < n ? &t[i] : &t[512 + i];
        if (k < n) { s->a = k; s->b = 1; }
        __syncwarp();
        *(long long*)&x[i] = *(long long*)s;
        __syncwarp();
    }
}"""
    report = lw.check(lw.cuda(source)["k"][1, 512], np.zeros(8192, np.uint8), 100)
    assert [(each.kind, each.severity) for each in report.findings] == [("uninitialised", "error")]
