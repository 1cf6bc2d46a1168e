"""No false alarm: the classic kernels and those of Triton, every launch checked while their own tests run."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import sampled
from lanewise.launch import Configured, watched
from lanewise.machine.checker.report import Report
from shared_tests import classics, products, triton

KERNELS: dict[str, Callable[[], None]] = {
    "reduction": classics.test_sum_by_shuffles_in_the_order_of_the_kernel,
    "last block": classics.test_the_last_block_adds_what_the_others_left,
    "groups": classics.test_cooperative_groups,
    "softmax": classics.test_softmax_within_the_error_of_its_exponentials,
    "histogram": classics.test_histogram_of_bytes,
    "transposes": classics.test_transposes,
    "flash attention": partial(classics.test_flash_attention, "half", np.float16, False, 2e-3),
    "wmma": products.test_wmma_product_with_alpha_and_beta,
    "naive HGEMM": partial(products.test_naive_hgemm, "sm_80"),
    "multi-stage HGEMM": partial(products.test_multistage_hgemm, 256),
    "int8": products.test_int8_product,
    "sparse": products.test_sparse_product_with_metadata,
    "Triton matmul": partial(triton.test_matmul_is_the_instruction_repeated, 100, 72, 80),
    "Triton softmax": triton.test_softmax,
    "Triton layer norm": triton.test_layer_norm,
    "Triton attention": triton.test_fused_attention,
}


@sampled(10)
@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_is_silent(name: str) -> None:
    reports: list[Report] = []

    def check(kernel: Configured, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        reports.append(lw.check(kernel, *arguments, **options))

    with watched(check):
        KERNELS[name]()  # which compares the results, too
    assert reports
    assert all(report.ok for report in reports), "\n".join(map(str, reports))


def test_a_displacement_of_sixty_four_bits_wraps_around() -> None:
    """As addresses do: it once overflowed the checker's own table."""
    text = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry far(.param .u64 x)
{
    .reg .b32 %r0; .reg .b64 %rd0;
    ld.param.u64 %rd0, [x];
    ld.global.u32 %r0, [%rd0+9223372036854775808];
    st.global.u32 [%rd0], %r0;
    ret;
}
"""
    report = lw.check(lw.load(text)["far"][1, 1], np.zeros(1, np.uint32))
    assert [finding.kind for finding in report.findings] == ["out of bounds"]


#: Forms of stmatrix: rows as they are, columns as rows, and columns of bytes.
STORED_ROWS = [
    "stmatrix.sync.aligned.m8n8.x1.shared.b16", "stmatrix.sync.aligned.m8n8.x4.shared.b16",
    "stmatrix.sync.aligned.m8n8.x2.trans.shared.b16", "stmatrix.sync.aligned.m16n8.x2.trans.shared.b8",
]  # fmt: skip


def rows_stored_by_two_warps(text: str) -> Configured:
    """Return a kernel in which two warps store rows at the same addresses, without an order."""
    registers = lw.instruction(text).a.registers
    names = [f"%v{number}" for number in range(registers)]
    loads = "\n".join(f"    ld.global.u32 {name}, [%rd0+{4 * place}];" for place, name in enumerate(names))
    ptx = f"""
.version 8.7
.target sm_100a
.address_size 64
.visible .entry store(.param .u64 x, .param .u32 pitch)
{{
    .reg .b32 %r<4>, %v<{registers}>; .reg .b64 %rd<2>;
    .shared .align 128 .b8 rows[512];
    ld.param.u64 %rd0, [x];
    ld.param.u32 %r1, [pitch];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd1, %r0, {4 * registers};
    add.u64 %rd0, %rd0, %rd1;
{loads}
    and.b32 %r0, %r0, 31;
    mov.u32 %r2, rows;
    mad.lo.u32 %r0, %r0, %r1, %r2;
    {text} [%r0], {{{", ".join(names)}}};
    ret;
}}
"""
    return lw.load(ptx)["store"][1, 64]


@pytest.mark.parametrize("text", STORED_ROWS)
def test_warps_may_store_equal_matrices(text: str) -> None:
    """As a plain store of what is there changes nothing, one of rows does not; other values race."""
    kernel, registers = rows_stored_by_two_warps(text), lw.instruction(text).a.registers
    rng = np.random.default_rng(registers)
    words = np.tile(rng.integers(0, 1 << 32, (1, 32, registers), dtype=np.uint32), (2, 1, 1))
    assert lw.check(kernel, words, 16).ok
    for _ in range(2):
        other = words.copy()
        other[1, rng.integers(32), rng.integers(registers)] ^= np.uint32(1 << rng.integers(32))
        report = lw.check(kernel, other, 16)
        assert [finding.kind for finding in report.findings] == ["race"]


@pytest.mark.parametrize("text", STORED_ROWS[1:])
def test_rows_of_one_instruction_may_be_equal(text: str) -> None:
    kernel, registers = rows_stored_by_two_warps(text), lw.instruction(text).a.registers
    words = np.full((2, 32, registers), 0x07070707, np.uint32)
    assert lw.check(kernel, words, 0).ok
    words[:, 5, 0] ^= 0x100
    (first, *_) = lw.check(kernel, words, 0).findings
    assert first.kind == "race" and "one instruction" in first.message


@pytest.mark.parametrize(("target", "use"), [("%r1", ""), ("_", ""), ("%r1", "add.u32 %r3, %r3, %r1;")])
def test_an_exchange_whose_old_value_is_dropped_is_a_write(target: str, use: str) -> None:
    """`atomicExch(&hit, 0)` gives a shared variable its first value, as a store would."""
    ptx = f"""
.version 7.1
.target sm_80
.address_size 64
.visible .entry exchange(.param .u64 out) {{
    .reg .b32 %r<4>; .reg .b64 %rd<2>; .shared .b32 hit;
    ld.param.u64 %rd0, [out];
    mov.u32 %r0, 7;
    mov.u32 %r2, hit;
    atom.shared.exch.b32 {target}, [%r2], %r0;
    bar.sync 0;
    ld.shared.u32 %r3, [%r2];
    {use}
    st.global.u32 [%rd0], %r3;
    ret;
}}
"""
    report = lw.check(lw.load(ptx)["exchange"][1, 32], np.zeros(1, np.uint32))
    assert [finding.kind for finding in report.findings if finding.kind != "race"] == [
        "uninitialised"
    ] * bool(use)
