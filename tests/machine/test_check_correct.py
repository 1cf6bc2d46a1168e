"""No false alarm: the classic kernels and those of Triton, every launch checked while their own tests run."""

from __future__ import annotations

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
