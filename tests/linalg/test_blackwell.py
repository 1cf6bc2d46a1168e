"""Products as a B200 has them: plans for sm_100a, and bits that the kernels give on the CPU machine."""

import math
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import EVERYTHING, only_with_everything, sampled
from lanewise.errors import LanewiseError
from lanewise.linalg.kernels.family import family_of
from lanewise.linalg.options import Options
from lanewise.linalg.plan import Plan
from lanewise.linalg.planning.planner import candidates, plan_of
from lanewise.linalg.rules import problem_of_sizes, request_of
from linalg.blackwell_calls import BF16, E4M3, draw
from linalg.kernels_on_cpu import _pointers, by_kernels

ARCH = "sm_100a"


def bits(array: Any) -> Any:
    return np.ascontiguousarray(array).view(np.uint8)


def normal(seed: int, *shapes: tuple[int, ...], dtype: Any = BF16) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype(dtype) for shape in shapes]


@sampled(120)
@pytest.mark.parametrize("seed", range(120))
def test_host_arrays_get_the_bits_of_the_kernels(seed: int) -> None:
    """What `lw.matmul` computes for sm_100a is what the planned kernels compute on the CPU machine.

    These products are small, and pairs of blocks are planned for large ones: some seeds force a pair.
    """
    call = draw(seed)
    plan = lw.plan(call.a, call.b, arch=ARCH, **call.keywords)
    if seed % 4 == 3 and plan.plan.family == "blackwell":
        plan = plan.with_(tile=(128, 128, plan.plan.tile[2]), cluster=(2, 1))
    expected = by_kernels(call.a, call.b, arch=ARCH, plan=plan.plan, **call.keywords)
    result = lw.matmul(call.a, call.b, plan=plan, **call.keywords)
    assert np.array_equal(bits(result), bits(expected)), str(call)


@sampled(24)
@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize(
    ("columns", "pair"), [(128, 2), (16, 1), (32, 1), (64, 1), (128, 1), (256, 1), (256, 2)]
)
def test_every_tile_has_the_bits_of_the_instruction(columns: int, pair: int, swap: bool) -> None:
    a, b = normal(columns, (200, 136), (136, 304))
    planned = lw.plan(a, b, arch=ARCH, out_dtype="f32")
    planned = planned.with_(tile=(128, columns, 64), swap=swap, cluster=(pair, 1))
    assert planned.plan.family == "blackwell"
    mma = lw.instruction("tcgen05.mma.cta_group::1.kind::f16", m=128, n=64, a="bf16", b="bf16", d="f32")
    result = by_kernels(a, b, arch=ARCH, plan=planned.plan, out_dtype="f32")
    assert np.array_equal(bits(result), bits(mma.gemm(a, b, arch=ARCH)))
    assert np.array_equal(bits(result), bits(lw.matmul(a, b, plan=planned, out_dtype="f32")))


@pytest.mark.parametrize(
    ("dtype", "pair"),
    [(BF16, 2), (BF16, 1), (np.float32, 1)],
)
@only_with_everything
def test_kernels_are_silent_under_check(dtype: Any, pair: int) -> None:
    """Blocks compute several tiles, and stages and accumulators are used again."""
    a, b = normal(3, (300, 336), (336, 136), dtype=dtype)
    columns = 128 if pair > 1 else 32
    plan = lw.plan(a, b, arch=ARCH).with_(tile=(128, columns, 64), stages=2, cluster=(pair, 1)).plan
    request = request_of(a, b, Options())
    assert request.problem is not None
    family = family_of("blackwell")
    pointers = _pointers(request, family.workspace_bytes(request.problem, plan))
    *before, (kernel, arguments, _) = family.launches(request.problem, plan, pointers, multiprocessors=2)
    for each in before:
        each()
    for schedule in ("in order", "late", 5) if EVERYTHING else ("late",):
        report = lw.check(kernel, *arguments, arch=ARCH, schedule=schedule)
        assert report.ok, report
    assert np.array_equal(bits(request.result), bits(lw.matmul(a, b, plan=plan)))


def test_plans_say_that_nobody_measured_them() -> None:
    a, b = np.zeros((4096, 4096), BF16), np.zeros((4096, 4096), BF16)
    planned = lw.plan(a, b, arch=ARCH)
    assert planned.plan.family == "blackwell" and planned.plan.arch == ARCH
    assert planned.plan.tile == (128, 256, 64) and planned.plan.split == 1
    assert math.isnan(planned.estimate.error) and planned.estimate.seconds > 2 * 4096**3 / 2.5e15
    said = str(planned)
    assert said.count("no B200 has confirmed") == 2 and planned.plan.cluster == (2, 1)
    assert "tcgen05.mma.cta_group::2.kind::f16, m256n256k16" in said
    assert planned.bound in planned.estimate.parts


@pytest.mark.parametrize(
    ("sizes", "dtype", "family"),
    [((64, 64, 64), "bf16", "warp"), ((65, 8, 64), "bf16", "blackwell"), ((500, 500, 500), "f64", "warp"),
     ((1, 4096, 4096), "s8", "blackwell"), ((8, 8, 8), "e4m3", "blackwell"), ((8, 8, 8), "f32", "blackwell")],
)  # fmt: skip
def test_who_multiplies(sizes: tuple[int, int, int], dtype: str, family: str) -> None:
    assert plan_of(problem_of_sizes(*sizes, dtype), ARCH).family == family


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "e4m3", "s8"])
def test_every_candidate_has_a_kernel_and_fits(dtype: str) -> None:
    rng = np.random.default_rng(7)
    for _ in range(6):
        m, n, k = (int(2 ** rng.uniform(0, 13)) + 64 for _ in range(3))
        layout = str(rng.choice(["nn", "nt", "tn", "tt"]))
        problem = problem_of_sizes(m, n, k, dtype, layout=layout)
        plans = candidates(problem, ARCH)
        assert plan_of(problem, ARCH).tile in [plan.tile for plan in plans]
        for plan in plans:
            family_of("blackwell").require_kernel(problem, plan)


def test_rows_do_not_depend_on_their_batch() -> None:
    a, b = normal(4, (200, 96), (96, 40), dtype=np.float16)
    alone = lw.matmul(a[:1], b, arch=ARCH, batch_invariant=True)
    beside = lw.matmul(a, b, arch=ARCH, batch_invariant=True)
    assert lw.plan(a[:1], b, arch=ARCH, batch_invariant=True).plan.family == "blackwell"
    assert np.array_equal(bits(alone), bits(beside[:1]))


def test_groups_are_chains_of_tcgen05() -> None:
    a, b = normal(5, (90, 64), (3, 64, 24), dtype=np.float16)
    result = lw.grouped_matmul(a, b, [10, 20, 90], arch=ARCH)
    mma = lw.instruction("tcgen05.mma.cta_group::1.kind::f16", m=128, n=8, a="f16", b="f16", d="f32")
    for group, (first, last) in enumerate(((0, 10), (10, 20), (20, 90))):
        sums = mma.gemm(a[first:last], b[group], arch=ARCH).astype(np.float16)
        assert np.array_equal(bits(result[first:last]), bits(sums))


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"tile": (64, 128, 64)}, "tiles have 128 rows, not 64"), ({"tile": (128, 48, 64)}, "columns, not 48"),
     ({"tile": (128, 128, 32)}, "must have 64 elements of K"), ({"split": 2}, "do not split K"),
     ({"cluster": (1, 2)}, "no clusters but pairs"), ({"cluster": (2, 1)}, "128, 256 columns, not"),
     ({"stages": 9}, "2 to 8 stages"), ({"direct": True}, "have direct=False, not True"),
     ({"tile": (128, 256, 64), "stages": 5, "cluster": (1, 1)}, "bytes of shared memory")],
)  # fmt: skip
def test_plans_without_a_kernel_are_refused(changes: dict[str, Any], message: str) -> None:
    a, b = normal(6, (256, 512), (512, 256))
    with pytest.raises(LanewiseError, match=message):
        lw.matmul(a, b, plan=lw.plan(a, b, arch=ARCH).with_(**changes))


def test_what_has_no_kernel_yet_is_refused_in_a_sentence() -> None:
    a, b = normal(7, (16, 128), (128, 64), dtype=np.float16)
    with pytest.raises(LanewiseError, match="planned for sm_90a"):
        lw.matmul(a, lw.sparsify(b), arch=ARCH)
    with pytest.raises(LanewiseError, match="for sm_90a, not for sm_100a"):
        lw.matmul(a, lw.quantize(b), arch=ARCH)
    with pytest.raises(LanewiseError, match="sm_90a has no tcgen05"):
        lw.matmul(a, b, plan=Plan("blackwell", "sm_90a", (128, 64, 64), 4))


def test_other_archs_keep_their_own_bits() -> None:
    """FP8 sums have 25 fraction bits on a B200, and 13 on an H200."""
    rng = np.random.default_rng(8)
    a, b = (rng.normal(size=shape).astype(E4M3) for shape in ((128, 512), (512, 128)))
    hopper, blackwell = (lw.matmul(a, b, arch=arch, out_dtype="f32") for arch in ("sm_90a", ARCH))
    exact = a.astype(float) @ b.astype(float)
    assert abs(blackwell - exact).max() < abs(hopper - exact).max() / 100
    assert np.array_equal(blackwell, lw.matmul(a, b, arch="B200", out_dtype="f32"))
