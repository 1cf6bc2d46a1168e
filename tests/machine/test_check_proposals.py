"""Layouts that a check proposes are put into the kernel: it gives the same bits without the conflict."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import only_with_everything, sampled
from lanewise.machine.checker.report import Inefficiency, Proposal, Report
from machine.cuda_layouts import NotIndexed, applied
from machine.mistakes.corpus import PAIRS, STEPS, Pair, arch_of, options_of, version, with_kernels
from machine.shared_layout_kernels import KINDS, TYPES, draw, run
from nvrtc import need_nvrtc

#: What a sample of requests may miss of the conflicts that a layout leaves, as a part of all of them.
TOLERANCE = 0.01


def conflicts(report: Report) -> list[Inefficiency]:
    return [each for each in report.performance if each.kind == "bank conflict"]


def wasted(report: Report) -> int:
    return sum(each.wasted for each in conflicts(report))


def proposed(report: Report) -> list[Proposal]:
    return list(dict.fromkeys(one for each in conflicts(report) for one in each.proposals))


def holds(before: Report, after: Report, proposal: Proposal) -> None:
    """A proposal keeps its word: the conflicts that it leaves are as many as it says, and nothing is new."""
    assert not after.findings, (proposal, after.findings)
    assert wasted(after) <= (proposal.left + TOLERANCE * (proposal.left > 0)) * wasted(before), proposal
    if proposal.left == 0:
        assert not conflicts(after), proposal


# the language -----------------------------------------------------------------------------------------


@sampled(36)
@pytest.mark.parametrize("element", TYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_proposals_keep_their_word(kind: str, element: str) -> None:
    case = draw(kind, element, seed=26)
    before, bits = run(case, case.layout)
    assert not before.findings
    for each in proposed(before):
        swizzle = lw.Swizzle(*each.swizzle) if each.swizzle else None
        layout = case.layout if swizzle is not None else lw.Layout(each.shape, each.stride)
        after, same = run(case, layout, swizzle)
        assert np.array_equal(bits, same), (case.name, each)
        holds(before, after, each)


def test_bytes_are_proposed_in_bytes() -> None:
    """The array has elements of one byte, and ldmatrix counts in pairs: a swizzle of pairs would break it."""
    case = draw("rows of matrices", "u8", seed=3)
    report, _ = run(case, case.layout)
    (swizzle,) = [each for each in proposed(report) if each.swizzle]
    assert swizzle.element_bytes == 1 and swizzle.swizzle is not None and swizzle.swizzle[1] == 4
    assert {each.text for each in proposed(report)} <= set(
        re.split(", or |, removes it", conflicts(report)[0].remedy)
    )


def two_arrays(swizzle: Any, other: bool) -> Any:
    """A kernel with two arrays in dynamic shared memory, or with another name for the memory of the first."""

    @lw.kernel
    def k(x: lw.Ptr[lw.f32], y: lw.Ptr[lw.f32]) -> None:
        a = lw.dynamic_shared(lw.f32, (32, 32), swizzle=swizzle)
        b = lw.tensor(a, (1024,)) if other else lw.dynamic_shared(lw.f32, 1024, offset=4096)
        i = lw.thread_idx.x
        for n in lw.range(8):
            e = n * 128 + i
            a[e // 32, e % 32] = x[e]
            b[e] = x[e]
        lw.syncthreads()
        for n in lw.range(8):
            e = n * 128 + i
            y[e] = a[e % 32, e // 32]

    return k


def test_arrays_in_dynamic_shared_memory() -> None:
    given, results = np.arange(1024, dtype=np.float32), []
    swizzle, reports = None, []
    for _ in range(2):
        out = np.zeros_like(given)
        reports.append(lw.check(two_arrays(swizzle, False)[1, 128], given, out))
        results.append(out)
        (numbers,) = [each.swizzle for each in proposed(reports[0])]  # it may not grow into the other one
        swizzle = lw.Swizzle(*numbers)
    assert np.array_equal(results[0], results[1]) and conflicts(reports[0]) and not conflicts(reports[1])


def test_nothing_is_proposed_for_memory_with_two_names() -> None:
    given = np.arange(1024, dtype=np.float32)
    report = lw.check(two_arrays(None, True)[1, 128], given, given.copy())
    assert conflicts(report) and not proposed(report)


#: Reads of an array `s` of 32 rows of 32, by row and column, that would not follow another layout of `s`.
BY_POINTERS: dict[str, Any] = {
    "linear index": lambda s, row, column: s.ptr(0, 0)[row * 32 + column],
    "first pointer": lambda s, row, column: s.ptr()[row * 32 + column],
    "pointer of the array": lambda s, row, column: s.pointer[row * 32 + column],
    "row": lambda s, row, column: s.ptr(row, 0)[column],
    "sum": lambda s, row, column: (s.ptr(row, 0) + column).load(),
    "difference": lambda s, row, column: (s.ptr(31, 31) - (1023 - row * 32 - column)).load(),
    "other type": lambda s, row, column: lw.bitcast((s.ptr(row, 0).to(lw.u32) + column).load(), lw.f32),
    "address": lambda s, row, column: lw.pointer(
        s.ptr(row, 0).address + (column * 4).to(lw.u32), lw.f32, "shared"
    ).load(),
    "inline PTX": lambda s, row, column: lw.asm(
        "ld.shared.f32 {d}, [{p}+4];", d=lw.f32, p=s.ptr(row, column - column % 2)
    ),
    "tensor": lambda s, row, column: lw.tensor(s, (32, 32))[row, column],
    "tensor by strides": lambda s, row, column: lw.make_tensor(s, (32, 32), (32, 1))[row, column],
    "tensor of a pointer": lambda s, row, column: lw.tensor(s.ptr(0, 0), 1024)[row * 32 + column],
    "groups": lambda s, row, column: lw.vectorized(s, 1)[row * 32 + column][0],
    "many neighbours": lambda s, row, column: s.ptr(row - row % 2, 0).load(64)[5],
    "slice": lambda s, row, column: s[row, None].ptr(0)[column],
}
#: Reads that follow the layout.
BY_INDICES: dict[str, Any] = {
    "element": lambda s, row, column: s[row, column],
    "pointer to it": lambda s, row, column: s.ptr(row, column).load(),
    "nothing added": lambda s, row, column: s.ptr(row, column)[0],
    "slice": lambda s, row, column: s[row, None][column],
    "pointer into a slice": lambda s, row, column: s[None, column].ptr(row).load(),
    "two neighbours": lambda s, row, column: s.ptr(row, column - column % 2).load(2)[1],
    "other type": lambda s, row, column: lw.bitcast(s.ptr(row, column).to(lw.u32).load(), lw.f32),
}


def reading(read: Any, layout: Any = (32, 32), swizzle: Any = None) -> Any:
    """A kernel that reads the columns of an array, with a conflict; another array, `t`, is read likewise."""

    @lw.kernel
    def k(x: lw.Ptr[lw.f32], y: lw.Ptr[lw.f32]) -> None:
        i = lw.thread_idx.x
        s = lw.shared(lw.f32, layout, swizzle=swizzle)
        t = lw.shared(lw.f32, (32, 32))
        for n in lw.range(32):
            s[n, i] = x[n * 32 + i]
            t[n, i] = x[n * 32 + i]
        lw.syncthreads()
        for n in lw.range(32):
            y[n * 32 + i] = read(s, i, n)
        for n in lw.range(32):
            y[n * 32 + i] += t[i, n]

    return k


def checked_reading(*given: Any) -> tuple[Report, Any]:
    x, y = np.arange(1024, dtype=np.float32), np.zeros(1024, np.float32)
    report = lw.check(reading(*given)[1, 32], x, y)
    assert not report.findings, report
    return report, y


@sampled(6)
@pytest.mark.parametrize("name", BY_POINTERS)
def test_nothing_is_proposed_where_the_kernel_computes_with_pointers(name: str) -> None:
    """A layout of `s` would leave the pointers where they are; `t` is not concerned."""
    report, _ = checked_reading(BY_POINTERS[name])
    assert any(
        "no layout is proposed for s: the kernel computes with pointers" in each.remedy
        for each in conflicts(report)
    ), report
    assert {each.array for each in proposed(report)} == {"t"}


@sampled(6)
@pytest.mark.parametrize("name", BY_INDICES)
def test_pointers_to_elements_follow_a_layout(name: str) -> None:
    report, bits = checked_reading(BY_INDICES[name])
    found = [each for each in proposed(report) if each.array == "s"]
    assert len(found) == 2, report
    for each in found:
        swizzle = lw.Swizzle(*each.swizzle) if each.swizzle else None
        layout = (32, 32) if swizzle is not None else lw.Layout(each.shape, each.stride)
        after, same = checked_reading(BY_INDICES[name], layout, swizzle)
        assert np.array_equal(bits, same), each
        assert {one.array for one in proposed(after)} == {"t"}


def test_nothing_is_proposed_for_a_pointer_that_a_loop_or_a_branch_chooses() -> None:
    """Which array it leads into, the running kernel knows: it may be any."""

    @lw.kernel
    def walks(x: lw.Ptr[lw.f32], y: lw.Ptr[lw.f32]) -> None:
        i = lw.thread_idx.x
        s = lw.shared(lw.f32, (32, 32))
        for n in lw.range(32):
            s[n, i] = x[n * 32 + i]
        lw.syncthreads()
        p = s.ptr(i, 0)
        for n in lw.range(32):
            y[n * 32 + i] = p.load()
            p += 1

    @lw.kernel
    def chooses(x: lw.Ptr[lw.f32], y: lw.Ptr[lw.f32]) -> None:
        i = lw.thread_idx.x
        s = lw.shared(lw.f32, (32, 32))
        t = lw.shared(lw.f32, (32, 32))
        for n in lw.range(32):
            s[n, i] = x[n * 32 + i]
            t[n, i] = x[n * 32 + i]
        lw.syncthreads()
        p = s.ptr(i, 0)
        if lw.block_idx.x > 0:
            p = t.ptr(i, 0)
        for row in range(32):
            y[row * 32 + i] = p[row]

    for kernel in (walks, chooses):
        report = lw.check(kernel[1, 32], *(np.zeros(1024, np.float32) for _ in "xy"))
        assert conflicts(report) and not proposed(report), report


def test_no_rows_are_proposed_that_the_ldm_of_wmma_does_not_know() -> None:
    @lw.kernel
    def k(x: lw.Ptr[lw.f16, 32], y: lw.Ptr[lw.f32, 32]) -> None:
        i = lw.thread_idx.x
        s = lw.shared(lw.f16, (16, 64))
        for n in lw.range(32):
            s[n // 2, n % 2 * 32 + i] = x[n * 32 + i]
        lw.syncthreads()
        a = lw.wmma.fragment(lw.wmma.matrix_a, 16, 16, 16, lw.f16, lw.wmma.row_major)
        b = lw.wmma.fragment(lw.wmma.matrix_b, 16, 16, 16, lw.f16, lw.wmma.col_major)
        c = lw.wmma.fragment(lw.wmma.accumulator, 16, 16, 16, lw.f32)
        lw.wmma.fill_fragment(c, 0.0)
        lw.wmma.load_matrix_sync(a, s.ptr(0, 0), 64)
        lw.wmma.load_matrix_sync(b, s.ptr(0, 16), 64)
        lw.wmma.mma_sync(c, a, b, c)
        lw.wmma.store_matrix_sync(y, c, 16, lw.wmma.mem_row_major)

    report = lw.check(k[1, 32], np.ones(1024, np.float16), np.zeros(256, np.float32))
    assert conflicts(report) and not proposed(report), report


# CUDA C++ ---------------------------------------------------------------------------------------------

TRANSPOSE = """
constexpr int ROWS = {rows};
__global__ void k(const {type}* x, {type}* y) {{
    __shared__ {type} tile[ROWS][{columns}];
    for (int e = threadIdx.x; e < ROWS * {columns}; e += blockDim.x) {{
        int r = e / {columns}, c = e % {columns};
        tile[r][c] = x[e];
    }}
    __syncthreads();
    for (int e = threadIdx.x; e < ROWS * {columns}; e += blockDim.x) {{
        int r = e % ROWS, c = e / ROWS;
        y[e] = tile[r][c];
    }}
}}
"""


@sampled(4)
@pytest.mark.parametrize(
    ("type", "rows", "columns"),
    [("float", 32, 32), ("unsigned char", 64, 64), ("double", 32, 16), ("short", 32, 128), ("float", 32, 40)],
)
def test_proposals_for_cuda(type: str, rows: int, columns: int) -> None:
    need_nvrtc()
    source = TRANSPOSE.format(type=type, rows=rows, columns=columns)
    dtype = {"float": np.float32, "unsigned char": np.uint8, "double": np.float64, "short": np.int16}[type]
    given = (np.arange(rows * columns) % 101).astype(dtype)

    def checked(text: str) -> tuple[Report, Any]:
        out = np.zeros_like(given)
        return lw.check(lw.cuda(text)["k"][1, 128], given, out), out

    before, expected = checked(source)
    assert conflicts(before) and (proposed(before) or columns & (columns - 1))
    for each in proposed(before):
        after, out = checked(applied(source, each))
        assert np.array_equal(out, expected), each
        holds(before, after, each)


def test_an_array_of_one_dimension() -> None:
    """Its padding and its swizzle are index expressions."""
    need_nvrtc()
    source = """__global__ void k(const float* x, float* y) {
        __shared__ float s[1024];
        for (int e = threadIdx.x; e < 1024; e += blockDim.x) s[e] = x[e];
        __syncthreads();
        for (int e = threadIdx.x; e < 1024; e += blockDim.x) y[e] = s[e % 32 * 32 + e / 32];
    }"""
    given = np.arange(1024, dtype=np.float32)
    reports, texts = [], [source]
    for text in texts:
        out = np.zeros_like(given)
        reports.append(lw.check(lw.cuda(text)["k"][1, 128], given, out))
        assert np.array_equal(out, given.reshape(32, 32).T.ravel()) and not reports[-1].findings
        if text is source:
            texts += [applied(source, each) for each in proposed(reports[0])]
    assert [each.text for each in proposed(reports[0])] == [
        "s[i + i / 32] of float s[1056]",
        "s[i ^ (i >> 5 & 31)]",
    ]
    assert conflicts(reports[0]) and not any(map(conflicts, reports[1:]))


def test_nothing_is_proposed_for_arrays_that_nobody_declares() -> None:
    need_nvrtc()
    source = """extern __shared__ float s[];
    __global__ void k(float* y) {
        float* tile = s + 8;
        tile[threadIdx.x * 32] = threadIdx.x;
        __syncthreads();
        y[threadIdx.x] = tile[threadIdx.x * 32];
    }"""
    report = lw.check(lw.cuda(source)["k"][1, 32, 8192], np.zeros(32, np.float32))
    assert conflicts(report) and not proposed(report)
    assert {each.remedy for each in conflicts(report)} == {""}


# the corpus -------------------------------------------------------------------------------------------

IN_SHARED_MEMORY = [
    pair
    for pair in PAIRS
    if pair.file.endswith(".cu")
    and "__shared__" in version(pair.file, False)
    and not pair.file.startswith("hopper/")
]


@only_with_everything
@pytest.mark.parametrize("file", sorted({pair.file for pair in IN_SHARED_MEMORY}))
def test_proposals_in_the_corpus(file: str) -> None:
    """Every layout that is proposed for a right kernel of the corpus is put into its source and checked."""
    need_nvrtc()
    for pair in IN_SHARED_MEMORY:
        if pair.file == file:
            in_the_corpus(pair)


def in_the_corpus(pair: Pair) -> None:
    source = with_kernels(version(pair.file, False), frozenset([pair.name]))

    def checked(text: str) -> tuple[Report, list[Any]]:
        launch: Any = (pair.grid, pair.block, pair.shared) if pair.shared else (pair.grid, pair.block)
        arguments = pair.make_arguments()
        module = lw.cuda(text, arch=arch_of(pair.file), options=options_of(pair.file))
        kernel = module[pair.name][launch]
        return lw.check(kernel, *arguments, steps=STEPS), arguments

    before, expected = checked(source)
    for each in proposed(before):
        try:
            text = applied(source, each)
        except NotIndexed:
            continue
        after, out = checked(text)
        for one, other in zip(expected, out, strict=True):
            assert np.array_equal(one, other) or not isinstance(one, np.ndarray), (pair.name, each)
        assert len(after.findings) <= len(before.findings), (pair.name, each, after.findings)
        assert of_array(after, each) <= (each.left + TOLERANCE) * of_array(before, each), (pair.name, each)


def of_array(report: Report, proposal: Proposal) -> int:
    """The wavefronts that conflicts waste in the array of a proposal."""
    found = [each for each in conflicts(report) if each.subject.split("[")[0] == proposal.array]
    return sum(each.wasted for each in found)
