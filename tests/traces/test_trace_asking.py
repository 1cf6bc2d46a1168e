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


# bytes ----------------------------------------------------------------------------------------------------

#: Instructions that compute %d from %a, %b and %n; of those that move bits, every byte is followed exactly.
MOVES = (
    *(f"shr.{kind}32 %d, %a, {count};" for kind in "us" for count in (0, 5, 8, 16, 27, 40)),
    *(f"shl.b32 %d, %a, {count};" for count in (3, 8, 24)),
    *(f"shf.{side}.{mode}.b32 %d, %a, %b, 11;" for side in "lr" for mode in ("wrap", "clamp")),
    *(f"prmt.b32 %d, %a, %b, {selector};" for selector in ("0x5410", "0x7632", "0x0d4a", "0x3210")),
    "bfe.u32 %d, %a, 8, 8;", "bfe.s32 %d, %a, 12, 6;", "bfe.s32 %d, %a, 28, 9;", "bfe.u32 %d, %a, 4, 0;",
    "bfi.b32 %d, %a, %b, 8, 16;", "bfi.b32 %d, %a, %b, 28, 8;", "and.b32 %d, %a, 0x00ff0300;",
    "xor.b32 %d, %a, %b;", "lop3.b32 %d, %a, %b, %n, 0x96;", "mov.b32 %d, {%h, %l};",
    "mov.b32 {%l2, %h2}, %b; cvt.u32.u16 %d, %h2;", "cvt.s32.s16 %d, %h;", "cvt.s32.s8 %d, %a;",
)  # fmt: skip
#: %n says what is moved, so it is a source as well.
BY_VALUE = (
    "shr.u32 %d, %a, %n;", "shl.b32 %d, %a, %n;", "shr.s32 %d, %a, %n;",
    *(f"shf.{side}.{mode}.b32 %d, %a, %b, %n;" for side in "lr" for mode in ("wrap", "clamp")),
    *(f"prmt.b32{mode} %d, %a, %b, %n;" for mode in ("", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16")),
    "bfe.u32 %d, %a, %n, 8;", "bfi.b32 %d, %a, %b, %n, 8;",
)  # fmt: skip
#: A half comes from halves, or from one of two words.
HALVES = (
    "add.rn.f16x2 %d, %a, %b;", "fma.rn.f16x2 %d, %a, %b, %a;", "max.s16x2 %d, %a, %b;",
    "cvt.rn.f16x2.f32 %d, %fa, %fb;", "cvt.pack.sat.s16.s32 %d, %a, %b;",
)  # fmt: skip
BYTES = """
.version 8.6
.target sm_90
.address_size 64
.entry k(.param .u64 X, .param .u64 Y) {{
    .reg .b64 %x, %y;
    .reg .b32 %a, %b, %n, %d, %i, %o;
    .reg .f32 %fa, %fb;
    .reg .b16 %l, %h, %l2, %h2;
    ld.param.u64 %x, [X];
    ld.param.u64 %y, [Y];
    mov.u32 %i, %tid.x;
    mad.wide.u32 %x, %i, 12, %x;
    mad.wide.u32 %y, %i, {row}, %y;
    ld.global.b32 %a, [%x];
    ld.global.b32 %b, [%x+4];
    ld.global.b32 %n, [%x+8];
    mov.b32 %fa, %a;
    mov.b32 %fb, %b;
    mov.b32 {{%l, %h}}, %a;
    {body}
    ret;
}}"""


def sources_and_changes(instructions: tuple[str, ...], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return for each byte of each result the input bytes of its origin, and those whose change changes it.

    Thread 0 has the inputs, each other one has them with another bit flipped.
    """
    lines = [f"{text}\n    st.global.b32 [%y+{4 * number}], %d;" for number, text in enumerate(instructions)]
    row = 4 * len(instructions)
    rng = np.random.default_rng(seed)
    inputs = rng.integers(0, 256, 12, np.uint8)
    inputs[8:] = rng.integers(0, 32), 0, 0, 0
    x = np.repeat(inputs[None], 97, axis=0)
    for bit in range(96):
        x[1 + bit, bit // 8] ^= 1 << bit % 8
    y = np.zeros((97, row), np.uint8)
    module = lw.load(BYTES.format(body="\n    ".join(lines), row=row))
    run = lw.trace(module["k"][1, 97], x, y, warps=0)
    sources = np.zeros((row, 12), np.bool_)
    for byte in range(row):
        for source in run.origin(f"Y[0, {byte}]").inputs.get("X", ()):
            sources[byte, source[1]] = True
    changes = (y[1:] != y[0]).reshape(12, 8, row).any(axis=1).T
    return sources.reshape(-1, 4, 12), changes.reshape(-1, 4, 12)


@pytest.mark.parametrize("seed", range(3))
def test_each_byte_comes_from_the_bytes_that_change_it(seed: int) -> None:
    instructions = (*MOVES, *BY_VALUE, *HALVES)
    sources, changes = sources_and_changes(instructions, seed)
    for text, source, change in zip(instructions, sources, changes, strict=True):
        assert (source >= change).all(), text
        if text in MOVES:
            assert np.array_equal(source, change), text
        elif text in BY_VALUE:  # but of the selector, which is taken as a whole
            assert source[:, 8:].all() and source[:, :8].any(axis=1).sum() <= 4, text
            assert (source[:, :8].sum(axis=1) <= 2).all() or "shf" in text, text
        else:
            assert (source.sum(axis=1) <= 6).all() and not source.all(axis=0).any(), text


@pytest.mark.parametrize("dtype, count", [("f16", 2), ("f16", 8), ("i8", 4), ("i8", 16), ("f32", 4)])
def test_elements_of_a_vector_load_come_from_their_own_element(dtype: str, count: int) -> None:
    element = getattr(lw, dtype)

    @lw.kernel
    def reverse(x: lw.Ptr[element, 16], y: lw.Ptr[element]):
        v = x.load(count)
        for i in range(count):
            y[i] = v[count - 1 - i]

    x = (np.arange(count) - 3).astype(element.dtype)
    y = np.zeros_like(x)
    run = lw.trace(reverse[1, 1], x, y)
    for i in range(count):
        origin = run.origin(f"y[{i}]")
        assert origin.inputs == {"x": [(count - 1 - i,)]}
        shown = f"{float(x[count - 1 - i]):g}"
        assert origin.tree(12).rstrip().count(f" = {shown} ") >= 3, origin.tree(12)
    loaded = run.first(lambda step: step.text.startswith("ld.global"))
    assert loaded is not None
    whole = run.origin(next(iter(loaded.written)), lane=0)
    assert whole.inputs == {"x": [(i,) for i in range(4 // x.itemsize)]}


half_mma = lw.instruction("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16")


@lw.kernel
def half_product(A: lw.Ptr[lw.f16, 16], B: lw.Ptr[lw.f16, 16], D: lw.Ptr[lw.f16]):
    lane = lw.lane_id()
    As, Bs = lw.shared(lw.f16, (16, 16)), lw.shared(lw.f16, (16, 8))
    As.ptr(lane // 2, lane % 2 * 8).store((A + lane * 8).load(8))
    if lane < 16:
        Bs.ptr(lane, 0).store((B + lane * 8).load(8))
    lw.syncthreads()
    a = lw.ldmatrix(As.ptr(lane % 16, lane // 16 * 8), num=4)
    b = lw.ldmatrix(Bs.ptr(lane % 16, 0), num=2, trans=True)
    d = half_mma(a, b, half_mma.zeros())
    for i in range(len(d)):
        r, c = d.element(i)
        D[r * 8 + c] = d[i]


def test_halves_of_a_product_come_from_their_own_column() -> None:
    a, b, _ = matrices(16, 8, 16)
    d = np.zeros((16, 8), np.float16)
    run = lw.trace(half_product[1, 32], a, b, d)
    for row, col in ((0, 0), (3, 5), (9, 6), (15, 7)):
        inputs = {"A": [(row, k) for k in range(16)], "B": [(k, col) for k in range(16)]}
        assert run.origin(f"D[{row}, {col}]").inputs == inputs
        holder = half_mma.d.holder(row, col)
        assert run.origin(f"%d{holder.register}", lane=holder.lane).inputs["A"] == inputs["A"]
        # As in the kernel, d[1] is the second element, and not the second register.
        name = f"d[{2 * holder.register + holder.slot}]"
        element = run.writer(name, lane=holder.lane)
        assert element is not None and element.value == d[row, col] and element.inputs == inputs
        assert [each.value for each in run.history(name, lane=holder.lane)] == [d[row, col]]
    assert run.writer("d[-1]", lane=0).value == run.writer("d[3]", lane=0).value
    with pytest.raises(lw.LanewiseError, match=r"d has elements 0 to 3, not d\[4\]"):
        run.writer("d[4]", lane=0)
    assert run.origin("As[-1, -2]").inputs == {"A": [(15, 14)]} == run.origin("As[15, 14]").inputs
    with pytest.raises(lw.LanewiseError, match=r"no element \[-17, 0\]"):
        run.origin("As[-17, 0]")


def test_bytes_that_others_wrote_later_have_their_own_origin() -> None:
    body = """st.global.b32 [%y], %a;
    st.global.b8 [%y+2], %b;"""
    x, y = np.arange(12, dtype=np.uint8), np.zeros(1, np.uint32)
    run = lw.trace(lw.load(BYTES.format(body=body, row=4))["k"][1, 1], x, y)
    found = run.origin("Y[0]")
    assert found.value == y[0] == 0x03040100 and found.kind == "parts"
    assert [part.inputs for part in found.sources] == [{"X": [(0,), (1,)]}, {"X": [(4,)]}, {"X": [(3,)]}]
    assert [each.value for each in run.history("Y[0]")] == [0x03020100, 0x03040100]


# atomics --------------------------------------------------------------------------------------------------


def test_an_atomic_operation_comes_from_all_lanes_before_it() -> None:
    @lw.kernel
    def gathered(a: lw.Ptr[lw.i32], c: lw.Ptr[lw.i32], o: lw.Ptr[lw.i32]):
        i = lw.thread_idx.x
        sums = lw.shared(lw.i32, (2,))
        if i < 2:
            sums[i] = lw.i32(0)
        lw.syncthreads()
        lw.atomic_add(sums.ptr(i % 2), a[i])
        o[i] = lw.atomic_max(c, a[i])
        lw.syncthreads()
        if i < 2:
            c[1 + i] = sums[i]

    a, c, o = np.arange(64, dtype=np.int32) - 8, np.full(3, -9, np.int32), np.zeros(64, np.int32)
    run = lw.trace(gathered[1, 64], a, c, o)
    assert run.origin("c[0]").inputs == {"a": [(i,) for i in range(64)], "c": [(0,)]}
    assert run.origin("c[2]").inputs == {"a": [(i,) for i in range(1, 64, 2)]} and c[2] == a[1::2].sum()
    for lane in (0, 1, 31, 33):
        before = {"a": [(i,) for i in range(lane)]} if lane else {}
        assert run.origin(f"o[{lane}]").inputs == {**before, "c": [(0,)]}
    start = next(node for node in run.origin("c[0]").walk() if node.kind == "input" and node.what == "c[0]")
    assert start.value == -9


def test_an_exchange_comes_from_the_lane_before_it() -> None:
    @lw.kernel
    def exchanged(a: lw.Ptr[lw.i32], c: lw.Ptr[lw.i32], o: lw.Ptr[lw.i32]):
        i = lw.thread_idx.x
        o[i] = lw.atomic_exch(c, a[i])

    a, c, o = np.arange(5, dtype=np.int32), np.full(1, -9, np.int32), np.zeros(5, np.int32)
    run = lw.trace(exchanged[1, 5], a, c, o)
    assert run.origin("c[0]").inputs == {"a": [(4,)]} and c[0] == 4
    assert [run.origin(f"o[{i}]").inputs for i in range(3)] == [{"c": [(0,)]}, {"a": [(0,)]}, {"a": [(1,)]}]


# values ---------------------------------------------------------------------------------------------------


@lw.kernel
def in_place(x: lw.Ptr[lw.i32], y: lw.Ptr[lw.f32]):
    i = lw.thread_idx.x
    w = (x[i] - 5) * 2
    x[i] = w
    y[i] = y[i] + 1.0


def test_an_input_has_the_value_that_was_read() -> None:
    x, y = np.arange(32, dtype=np.int32), np.arange(32, dtype=np.float32)
    run = lw.trace(in_place[1, 32], x, y)
    for name, before, after in (("x[3]", 3, -4), ("y[3]", 3.0, 4.0)):
        origin = run.origin(name)
        (leaf,) = [node for node in origin.walk() if node.kind == "input"]
        assert leaf.value == before and origin.value == after
        assert f"{name} = 3  (input)" in origin.tree(12) and "(input)" not in origin.line
        assert run.origin(name, before=0).value == before


def test_an_input_that_another_block_changed_has_the_value_that_was_read() -> None:
    @lw.kernel
    def chained(x: lw.Ptr[lw.f32]):
        b = lw.block_idx.x
        x[b + 1] = x[b] * 2.0

    x = np.ones(3, np.float32)
    run = lw.trace(chained[2, 1], x, blocks=[(1, 0)])
    (leaf,) = [node for node in run.origin("x[2]").walk() if node.kind == "input"]
    assert (leaf.what, leaf.value, x[2]) == ("x[1]", 2.0, 4.0)
    assert run.origin("x[1]").value == 2.0 and run.origin("x[1]", before=0).value == 1.0


def test_signed_registers_are_shown_signed() -> None:
    run = lw.trace(in_place[1, 32], np.arange(32, dtype=np.int32), np.zeros(32, np.float32))
    assert run.at(-1).registers["w"][0] == -10
    assert [each.value for each in run.history("w", lane=0)] == [-10]
    assert run.writer("w", lane=1).value == -8 and "%w = -8  step" in run.origin("w", lane=1).tree()
    text = run.origin("x[0]").tree(12)
    assert "429496" not in text and "%w = -10  step" in text


def test_signed_integers_of_a_byte_are_shown_signed() -> None:
    @lw.kernel
    def narrow(x: lw.Ptr[lw.i8], y: lw.Ptr[lw.i8]):
        i = lw.thread_idx.x
        h = x[i].to(lw.i16) - lw.i16(7)
        w = h.to(lw.i8)
        y[i] = w

    x, y = np.arange(32).astype(np.int8), np.zeros(32, np.int8)
    run = lw.trace(narrow[1, 32], x, y)
    assert run.at(-1).registers["w"].tolist() == y.tolist() and run.writer("w", lane=2).value == -5
    text = run.origin("y[2]").tree(12)
    assert text.count(" = -5 ") == 3 and text.count(" = 2 ") == 3, text


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


def test_elements_that_no_step_has_written_are_told() -> None:
    @lw.kernel
    def forgetful(x: lw.Ptr[lw.f32], y: lw.Ptr[lw.f32]):
        i = lw.block_idx.x * 32 + lw.thread_idx.x
        if i % 32 < 16:
            y[i] = x[i]

    x, y = np.arange(64, dtype=np.float32), np.full(64, -1, np.float32)
    run = lw.trace(forgetful[2, 32], x, y, blocks="all")
    found = run.compare(x, of="y")
    assert found is not None and found.step is None and found.ours == [-1] and found.theirs == [16]
    assert str(found) == (
        "y[16] is not what was expected (32 elements are not): no step has written it; it holds -1.0, and "
        "16.0 was expected"
    )
    wrong = x.copy()
    wrong[3] = np.nan
    found = run.compare(wrong, of="y")
    assert found is not None and found.step is not None and found.lanes == (3,)
    assert found.what == "y[3] is not what was expected (33 elements are not, 32 of them no step has written)"
    assert run.compare(y.copy(), of="y") is None
    part = lw.trace(forgetful[2, 32], x, y)
    assert part.compare(y.copy(), of="y") is None and "no traced step" in str(part.compare(x, of="y"))
