"""The device heap: malloc and free, what a check finds in it, and that it takes its time linearly."""

import itertools

import numpy as np
import pytest

import lanewise as lw
from everything import EVERYTHING
from growth import grows_in_proportion, stays_the_same
from lanewise.machine import KernelFault
from lanewise.machine.runtime.heap import HEAP_BYTES, Caller, Heap, heap_of

SOURCE = r"""
struct Node { Node* next; int value; };
__device__ Node* list;
extern "C" {
__global__ void take(int** out) { int i = blockIdx.x * blockDim.x + threadIdx.x; out[i] = new int(i); }
__global__ void give(int** out, int* v) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    v[i] = *out[i];
    delete out[i];
}
__global__ void look(int** out, int* v) { v[threadIdx.x] = *out[threadIdx.x]; }
__global__ void loop(int* v, int n) {
    int s = 0;
    for (int k = 0; k < n; k++) { int* p = new int[200]; p[k % 200] = k; s += p[k % 200]; delete[] p; }
    v[threadIdx.x] = s;
}
__global__ void after_free(int* v) { int* p = (int*)malloc(12); p[0] = 1; free(p); v[threadIdx.x] = p[0]; }
__global__ void write_after_free(int* v) { int* p = new int[3]; *v = p[0] = 1; delete[] p; p[2] = 7; }
__global__ void one_byte(char* v) { char* p = (char*)malloc(13); p[13] = v[0]; free(p); }
__global__ void before(int* v) { int* p = (int*)malloc(12); p[0] = v[0]; v[1] = p[-1]; free(p); }
__global__ void unwritten(int* v) { int* p = (int*)malloc(12); p[0] = 1; v[threadIdx.x] = p[0] + p[1]; free(p); }
__global__ void twice(int* v) { int* p = (int*)malloc(12); free(p); free(p); }
__global__ void inside(int* v) { int* p = (int*)malloc(12); free(p + 1); }
__global__ void not_of_heap(int* v) { free(v); }
__global__ void leak(int* v) { volatile int* p = (int*)malloc(12); p[0] = 1; }
__global__ void too_much(int* v) { int* p = (int*)malloc(1 << 20); *p = 1; v[threadIdx.x] = *p; free(p); }
__global__ void guarded(int* v) {
    char* p = (char*)malloc(1 << 20);
    v[threadIdx.x] = p != 0;
    __syncthreads();
    free(p);
}
__global__ void right(int* v) {
    struct { int a; char b; } *p = (decltype(p))malloc(8), copy;
    p->a = threadIdx.x; p->b = 1;
    copy = *p;
    v[threadIdx.x] = copy.a + copy.b;
    free(p); free(0);
}
__global__ void append(int n) { for (int k = 0; k < n; k++) list = new Node{list, k}; }
__global__ void clear(int* v) {
    int s = 0;
    for (Node* n = list; n;) { Node* next = n->next; s += n->value; delete n; n = next; }
    list = 0; *v = s;
}
__global__ void forget() { list = 0; }
}
"""  # noqa: E501  # CUDA C++ as it is written


@pytest.fixture(scope="module")
def text() -> str:
    try:
        return str(lw.cuda(SOURCE, arch="sm_80"))
    except lw.ptx.ToolMissing as error:
        pytest.skip(str(error))


@pytest.fixture
def module(text: str) -> lw.Module:
    """A module of its own for each test: its heap is empty."""
    return lw.load(text)


def test_memory_lasts_from_launch_to_launch(module: lw.Module) -> None:
    count = 4096
    pointers, values = np.zeros(count, np.uint64), np.zeros(count, np.int32)
    module["take"][count // 256, 256](pointers)
    assert len(np.unique(pointers)) == count and not (pointers % 16).any()
    module["look"][1, 32](pointers, values)  # a kernel that does not call malloc itself
    assert (values[:32] == np.arange(32)).all()
    assert lw.check(module["give"][count // 256, 256], pointers, values).ok
    assert (values == np.arange(count)).all()
    report = lw.check(module["look"][1, 32], pointers, values)
    assert [each.kind for each in report.findings] == ["heap"]


@pytest.mark.parametrize(
    ("kernel", "kind", "message"),
    [
        (
            "after_free",
            "heap",
            "global read of 4 bytes in heap memory that was freed: 12 bytes from",
        ),
        ("write_after_free", "heap", "global write of 4 bytes in heap memory that was freed: 12 bytes"),
        ("one_byte", "out of bounds", "did not return: just past the end of 13 bytes from malloc"),
        ("before", "out of bounds", "global read of 4 bytes in heap memory that malloc did not return"),
        ("unwritten", "uninitialised", "in heap memory that nothing was written to: 12 bytes from malloc"),
        ("twice", "heap", "which was freed before (12 bytes from malloc by thread (0, 0, 0) in block"),
        ("inside", "heap", "it is byte 4 of 12 bytes from malloc by thread (0, 0, 0) in block (0, 0, 0)"),
        ("not_of_heap", "heap", "which malloc did not return"),
        ("leak", "heap", "never freed, and no pointer to it is left (12 bytes)"),
    ],
)
def test_mistakes_with_the_heap(module: lw.Module, kernel: str, kind: str, message: str) -> None:
    report = lw.check(module[kernel][1, 1], np.zeros(8, np.int32))
    assert [each.kind for each in report.findings] == [kind]
    found = report.findings[0]
    assert found.severity == ("advice" if kernel == "leak" else "error")
    assert message in found.message and found.thread == (0, 0, 0) and found.line > 0 and found.source


def test_what_is_right_with_the_heap(module: lw.Module) -> None:
    values = np.zeros(64, np.int32)
    assert lw.check(module["right"][1, 64], values).ok
    assert (values == np.arange(64) + 1).all()
    assert lw.check(module["loop"][1, 2], values, 300).ok


def test_memory_that_a_pointer_leads_to_is_no_leak(module: lw.Module) -> None:
    total = np.zeros(1, np.int32)
    assert lw.check(module["append"][1, 1], 50).ok  # a variable has the first node, each node the next
    assert lw.check(module["clear"][1, 1], total).ok and total[0] == 49 * 25
    module["append"][1, 1](50)
    module["forget"][1, 1]()
    report = lw.check(module["append"][1, 1], 3)
    assert report.ok  # only what this launch has taken counts


def test_a_heap_that_is_full_gives_null(module: lw.Module) -> None:
    given = np.zeros(32, np.int32)
    module["guarded"][1, 32](given)
    assert given.sum() == 7  # of 8 MiB, with what lies between blocks
    with pytest.raises(KernelFault, match=r"null pointer.*malloc found no memory"):
        module["too_much"][1, 32](given)


def test_allocations_by_the_thousand_take_time_in_proportion(module: lw.Module) -> None:
    values = np.zeros(32, np.int32)
    assert grows_in_proportion(lambda count: module["loop"][1, 32](values, count), 500)
    # 16,000 allocations are more than the whole heap has
    assert (values == 500 * 499 // 2).all()


def test_freed_memory_is_given_again_last() -> None:
    heap, me = Heap(), Caller(0, (0, 0, 0), (0, 0, 0))
    first = heap.allocate(100, me)
    heap.free(first, me)
    half = HEAP_BYTES // 2
    assert heap.allocate(100, me) != first and heap.allocate(half, me) and heap.allocate(half, me) == 0
    small = [heap.allocate(1 << 16, me) for _ in range(100)]
    assert small.count(0) == 100 - 63 and first not in small
    assert heap.allocate(100, me) and heap.blocks
    for place in [*filter(None, small)]:
        assert heap.free(place, me) == ""
    wide = heap.allocate(1 << 21, me)  # of many neighbours that were freed
    assert wide and heap.free(small[1], me) != ""


def test_a_heap_that_is_nearly_full_is_not_searched_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """To free and to allocate takes as long with 200,000 blocks (by day 20,000) as with a quarter of them."""
    most = 200_000 if EVERYTHING else 20_000
    monkeypatch.setattr("lanewise.machine.runtime.heap.HEAP_BYTES", HEAP_BYTES * most // 200_000)
    me = Caller(0, (0, 0, 0), (0, 0, 0))
    full = {}
    for bytes_of_block in (16, 112):
        heap, places = Heap(), []
        while place := heap.allocate(bytes_of_block, me):
            places.append(place)
        full[len(places)] = (heap, iter(places), bytes_of_block)
    few, many = sorted(full)
    assert many > most and few == many // 4

    def free_and_allocate(blocks: int) -> None:
        heap, places, size = full[blocks]
        for number, place in enumerate(itertools.islice(places, 1500)):
            assert heap.free(place, me) == ""
            assert heap.allocate(size + 1, me) == 0 if number % 2 == 0 else heap.allocate(2 * size + 16, me)

    assert stays_the_same(free_and_allocate, many)


def test_blocks_never_overlap() -> None:
    heap, me, random = Heap(), Caller(0, (0, 0, 0), (0, 0, 0)), np.random.default_rng(5)
    held: list[int] = []
    for step in range(4000):
        if held and random.random() < 0.45:
            assert heap.free(held.pop(int(random.integers(len(held)))), me) == ""
        elif place := heap.allocate(int(random.integers(0, 1 << 16)), me):
            held.append(place)
        if step % 500 == 0:
            blocks = [heap.blocks[place] for place in sorted(held)]
            assert all(one.first + one.whole <= two.first for one, two in itertools.pairwise(blocks))


def test_schedules_begin_with_the_same_heap(module: lw.Module) -> None:
    total = np.zeros(1, np.int32)
    module["append"][1, 1](20)
    report = lw.check(module["clear"][1, 1], total, schedule=["in order", "reverse", 7])
    assert report.ok, report  # each run frees the same nodes
    assert total[0] == 190 and not heap_of(module).blocks
