"""Layouts that a check proposes are put into the kernel: it gives the same bits without the conflict."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import sampled
from lanewise.machine.checker.report import Inefficiency, Proposal, Report
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


@sampled(9)
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


# CUDA C++ ---------------------------------------------------------------------------------------------

TRANSPOSE = """
constexpr int ROWS = {rows};
__global__ void k(const {type}* x, {type}* y) {{
    __shared__ {type} tile[ROWS][{columns}];
    #define AT(i, j) tile[i][j]
    for (int e = threadIdx.x; e < ROWS * {columns}; e += blockDim.x) {{
        int r = e / {columns}, c = e % {columns};
        AT(r, c) = x[e];
    }}
    __syncthreads();
    for (int e = threadIdx.x; e < ROWS * {columns}; e += blockDim.x) {{
        int r = e % ROWS, c = e / ROWS;
        y[e] = AT(r, c);
    }}
}}
"""


def changed(source: str, text: str) -> str:
    """Put a proposal for CUDA C++, as it is written, into a source: a declaration, or an index."""
    declaration = re.fullmatch(r"(\w[\w ]*) tile((?:\[\d+\])+)", text)
    if declaration:
        return re.sub(r"tile\[ROWS\]\[\d+\];", f"tile{declaration[2]};", source, count=1)
    assert re.fullmatch(r"tile\[i\]\[.*\]", text), text
    return source.replace("#define AT(i, j) tile[i][j]", f"#define AT(i, j) {text}")


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
        after, out = checked(changed(source, each.text))
        assert np.array_equal(out, expected), each
        holds(before, after, each)


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
