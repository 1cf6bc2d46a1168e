"""Questions to a trace, forwards and backwards, held against NumPy and against what must be so."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import lanewise as lw
from traces.traced import hgemm_trace, matrices, mma, reduction


@pytest.fixture(scope="module")
def arrays() -> list[np.ndarray]:
    return matrices(16, 8, 48, seed=3)


@pytest.fixture(scope="module")
def product(arrays: list[np.ndarray]) -> lw.traces.Trace:
    return hgemm_trace(arrays, arch="sm_90")


def products(run: lw.traces.Trace) -> list[lw.traces.Step]:
    return [step for step in run.steps if step.op.record.multiplies]


# forwards -------------------------------------------------------------------------------------------------


def test_fragments_are_the_matrices_that_the_lanes_hold(
    product: lw.traces.Trace, arrays: list[np.ndarray]
) -> None:
    a, b, _ = arrays
    acc = np.zeros((16, 8), np.float32)
    for number, step in enumerate(products(product)):
        k = slice(16 * number, 16 * number + 16)
        assert np.array_equal(step.fragment("c"), acc)
        acc = mma(a[:, k], b[k], acc, arch="sm_90")
        for name, expected in (("d", acc), ("acc", acc), ("a", a[:, k]), ("b", b[k]), ("%a1", a[:, k])):
            assert np.array_equal(step.fragment(name), expected), (number, name)
        assert step.registers["acc"].shape == (32, 4)
        assert np.array_equal(mma.d.unpack(step.registers["acc"].view(np.uint32)), acc)


def test_a_fragment_of_ldmatrix_is_what_lies_in_memory(
    product: lw.traces.Trace, arrays: list[np.ndarray]
) -> None:
    with pytest.raises(lw.LanewiseError, match="a condition is a function"):
        product.first("ldmatrix")
    step = product.first(lambda step: step.op.opcode == "ldmatrix")
    found = step.fragment("d").view(np.uint16)  # four matrices of 8×8, one below the other
    whole = arrays[0][:16, :16].view(np.uint16)
    expected = np.concatenate([whole[:8, :8], whole[8:, :8], whole[:8, 8:], whole[8:, 8:]])
    assert np.array_equal(found, expected)


def test_shared_arrays_have_their_swizzle_undone(product: lw.traces.Trace, arrays: list[np.ndarray]) -> None:
    a, b, _ = arrays
    for number, step in enumerate(products(product)):
        k = slice(16 * number, 16 * number + 16)
        assert np.array_equal(step.shared("As"), a[:, k]) and np.array_equal(step.shared("Bs"), b[k])
    raw = step.shared("As", dtype=lw.u8)
    assert raw.shape == (512,) and raw.tobytes() != np.ascontiguousarray(a[:, k]).tobytes()
    assert not product.at(0).shared("As").any()


def test_variables_have_their_python_types(product: lw.traces.Trace) -> None:
    step = products(product)[1]
    assert step.registers["k"].tolist() == [16] * 32 and step.registers["k"].dtype == np.int32
    assert step.registers["lane"].tolist() == list(range(32)) and step.registers["N"][0] == 8
    assert step.registers["%p1"].tolist() == [True] * 16 + [False] * 16
    assert "acc" in step.registers and "%acc0" in step.registers and "nothing" not in step.registers


def test_warps_wait_at_a_barrier_until_the_last_arrives() -> None:
    x, y = np.ones(256, np.float32), np.zeros(1, np.float32)
    run = lw.trace(reduction[1, 128], x, y, 256)
    arrivals = [step for step in run.steps if step.op.opcode in ("bar", "barrier")]
    assert [step.warp for step in arrivals] == [0, 1, 2, 3]
    assert [each.warp for each in arrivals[2].waiting] == [0, 1, 2]
    assert [each.since for each in arrivals[2].waiting] == [step.number for step in arrivals[:3]]
    for number, step in enumerate(arrivals[:3]):
        assert str(step.waiting[0]) == (
            f"warp 0 waits at barrier 0 since step {arrivals[0].number}: "
            f"{32 * number + 32} of 128 threads have arrived"
        )
    after = next(step for step in run.steps[arrivals[3].number + 1 :])
    assert after.waiting == [] and y[0] == 512


def test_only_the_chosen_warps_are_steps_and_shared_memory_is_whole() -> None:
    x, y = np.ones(256, np.float32), np.zeros(1, np.float32)
    whole = lw.trace(reduction[1, 128], x, y, 256)
    run = lw.trace(reduction[1, 128], x, y, 256, warps=0)
    assert {step.warp for step in run.steps} == {0} and len(run) < len(whole)
    assert run.at(-1).shared("parts").tolist() == [128.0] * 4 == whole.at(-1).shared("parts").tolist()
    # The sum of warp 3 was made by a warp that is not traced.
    other = run.writer("parts[3]")
    assert other is not None and other.step is None and other.warp == 3 and "not traced" in str(other)


def test_copies_go_from_issue_to_completion() -> None:
    @lw.kernel
    def staged(X: lw.Ptr[lw.f32, 16], Y: lw.Ptr[lw.f32, 16]):
        i = lw.thread_idx.x
        buffer = lw.shared(lw.f32, (2, 128))
        for stage in range(2):
            lw.cp_async(buffer.ptr(stage, i * 4), X + (stage * 128 + i * 4), 16)
            lw.cp_async_commit()
        lw.cp_async_wait(1)
        lw.syncwarp()
        Y[i] = buffer[0, i]
        lw.cp_async_wait(0)
        lw.syncwarp()
        Y[i + 32] = buffer[1, i]

    x, y = np.arange(256, dtype=np.float32), np.zeros(64, np.float32)
    run = lw.trace(staged[1, 32], x, y)
    first, second = run.copies
    order = [
        first.issued,
        first.committed,
        second.issued,
        second.committed,
        first.completed,
        second.completed,
    ]
    assert all(isinstance(each, int) for each in order)
    assert all(a < b for a, b in pairwise(order))
    assert run.at(first.issued).memory[0].asynchronous
    assert run.origin("Y[33]").inputs == {"X": [(129,)]}


# backwards ------------------------------------------------------------------------------------------------


def test_the_writer_of_an_element_is_the_store_with_its_value(
    product: lw.traces.Trace, arrays: list[np.ndarray]
) -> None:
    c = arrays[2]
    for row, col in ((0, 0), (3, 5), (15, 7)):
        found = product.writer(f"C[{row}, {col}]")
        assert found is not None and found.step is not None and found.step.op.opcode == "st"
        assert found.value == c[row, col] == product.writer((c, (row, col))).value
        holder = mma.d.holder(row, col)
        assert found.lane == holder.lane
        assert product.writer(f"acc[{holder.register}]", lane=holder.lane).value == c[row, col]
    assert product.writer("A[0, 0]") is None
    assert product.writer("C[3, 5]", before=found.step) is not None
    assert product.writer("C[3, 5]", before=0) is None


def test_the_history_of_a_place_is_every_value_it_had(
    product: lw.traces.Trace, arrays: list[np.ndarray]
) -> None:
    a = arrays[0]
    values = [each.value for each in product.history("As[2, 9]")]
    assert values == [a[2, 9], a[2, 25], a[2, 41]]
    steps = [each.step.number for each in product.history("k", lane=7)]
    assert steps == sorted(steps) and [each.value for each in product.history("k", lane=7)] == [0, 16, 32, 48]


def test_an_element_comes_from_its_row_and_column(product: lw.traces.Trace) -> None:
    found = product.origin("C[3, 5]")
    assert found.inputs == {"A": [(3, k) for k in range(48)], "B": [(k, 5) for k in range(48)]}
    text = str(found)
    assert text.startswith("C[3, 5] = ") and "mma.sync" in text and "more" in text
    assert "(input)" in found.tree(depth=12) and len(text.splitlines()) < 60


def test_origins_have_the_values_of_the_inputs(product: lw.traces.Trace, arrays: list[np.ndarray]) -> None:
    arguments = dict(zip("ABC", arrays, strict=True))
    seen = 0
    for node in product.origin("C[7, 2]").walk():
        if node.kind == "input" and node.what[0] in "AB":
            index = tuple(int(each) for each in node.what[2:-1].split(","))
            assert node.value == arguments[node.what[0]][index], node.what
            seen += 1
    assert seen == 96


def test_origins_pass_through_shuffles_and_branches() -> None:
    x, y = np.linspace(-1, 1, 128, dtype=np.float32), np.zeros(1, np.float32)
    run = lw.trace(reduction[1, 128], x, y, 128)
    assert run.origin("Y[0]").inputs == {"X": [(each,) for each in range(128)]}
    first = run.first(lambda step: step.op.opcode == "shfl")
    assert first is not None
    lane_3 = run.origin(next(iter(first.written)), lane=3, before=first.number + 1)
    assert lane_3.inputs == {"X": [(19,)]}


def test_origins_pass_through_wmma_stores_atomics_and_halves() -> None:
    wmma = lw.wmma

    @lw.kernel
    def product(A: lw.Ptr[lw.f16, 32], B: lw.Ptr[lw.f16, 32], C: lw.Ptr[lw.f32, 32], D: lw.Ptr[lw.f32]):
        a = wmma.fragment(wmma.matrix_a, 16, 16, 16, lw.f16, wmma.row_major)
        b = wmma.fragment(wmma.matrix_b, 16, 16, 16, lw.f16, wmma.row_major)
        c = wmma.fragment(wmma.accumulator, 16, 16, 16, lw.f32)
        wmma.fill_fragment(c, 0.0)
        wmma.load_matrix_sync(a, A, 16)
        wmma.load_matrix_sync(b, B, 16)
        wmma.mma_sync(c, a, b, c)
        wmma.store_matrix_sync(C, c, 16, wmma.mem_row_major)
        if lw.thread_idx.x == 0:
            lw.atomic_add(D, C[17])

    a, b, _ = matrices(16, 16, 16)
    c, d = np.zeros((16, 16), np.float32), np.ones(1, np.float32)
    run = lw.trace(product[1, 32], a, b, c, d, arch="sm_80")
    row, column = [(1, k) for k in range(16)], [(k, 1) for k in range(16)]
    assert run.origin("C[1, 1]").inputs == {"A": row, "B": column}
    assert run.origin("C[1, 1]").value == c[1, 1]
    assert run.origin("D[0]").inputs == {"A": row, "B": column, "D": [(0,)]}
    step = run.first(lambda step: step.op.record.multiplies)
    assert step is not None and np.array_equal(step.fragment("c"), np.zeros((16, 16)))
    assert np.array_equal(step.fragment("d"), c) and np.array_equal(step.fragment("a"), a)


# comparison -----------------------------------------------------------------------------------------------


def test_a_trace_is_like_itself_and_like_another_schedule() -> None:
    x = np.linspace(-1, 1, 200, dtype=np.float32)
    runs = [
        lw.trace(reduction[1, 128], x, np.zeros(1, np.float32), 200, schedule=schedule)
        for schedule in (None, "reverse", 3)
    ]
    assert runs[0].compare(runs[0]) is None
    assert runs[0].compare(runs[1]) is None and runs[2].compare(runs[0]) is None
    assert runs[1].at(0).warp == 3


def test_two_runs_part_at_the_first_load_of_another_value(arrays: list[np.ndarray]) -> None:
    a, b, _ = arrays
    changed = a.copy()
    changed[5, 20] += 1
    runs = [hgemm_trace([each, b, np.zeros((16, 8), np.float32)]) for each in (a, changed)]
    found = runs[0].compare(runs[1])
    assert found is not None and found.step is not None and found.other is not None
    assert found.step.op.opcode == "ld" and found.step.number == found.other.number
    assert "A[5, 16]" in "".join(found.step.memory[0].elements) and found.lanes == (10,)
    assert "gets another value" in str(found)


def test_two_archs_part_at_the_product_that_they_compute_otherwise() -> None:
    a, b, c = matrices(16, 8, 16)
    a *= np.float16(2) ** np.arange(-8, 8, dtype=np.float16)
    assert (mma(a, b, c, arch="sm_80") != mma(a, b, c, arch="sm_90")).any()
    runs = [hgemm_trace([a, b, c.copy()], arch=arch) for arch in ("sm_80", "sm_90")]
    found = runs[0].compare(runs[1])
    assert found is not None and found.step is not None and found.step.op.opcode == "mma"


def test_a_run_is_compared_with_what_is_expected(product: lw.traces.Trace, arrays: list[np.ndarray]) -> None:
    c = arrays[2]
    assert product.compare(c, of="C") is None
    wrong = c.copy()
    wrong[9, 6] += 1
    found = product.compare(wrong, of="C")
    assert found is not None and found.step is not None and found.what.startswith("C[9, 6] is not")
    assert found.step.number == product.writer("C[9, 6]").step.number
    with pytest.raises(lw.LanewiseError, match="no array X: its arrays are A, B, C"):
        product.compare(c, of="X")
    with pytest.raises(lw.LanewiseError, match=r'of="C"'):
        product.compare(c)
