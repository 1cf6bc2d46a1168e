"""What `lw.matmul` refuses, in sentences: nothing is computed, and nothing is written."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lanewise as lw
from everything import sampled

E4M3 = ml_dtypes.float8_e4m3fn
HALF, SINGLE = np.ones((4, 8), np.float16), np.ones((8, 6), np.float32)
OTHER = np.ones((8, 6), np.float16)
SQUARE = np.ones((8, 8), np.float16)
SMALL = np.ones((4, 256), E4M3), np.ones((256, 8), E4M3)
INT8 = np.ones((4, 32), np.int8), np.ones((32, 8), np.int8)


def scales(*shape: int) -> Any:
    """Scales of a shape."""
    return np.ones(shape, np.float32)


class Unreadable:
    """An array in host memory whose library does not give it away."""

    def __dlpack__(self, **_: object) -> object:
        raise RuntimeError("it is busy")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


WRONG: dict[str, tuple[tuple[Any, Any], dict[str, Any], str]] = {
    "K differs": ((HALF, OTHER[:7]), {}, "8 elements and the last but one of b 7"),
    "a batch does not broadcast": (
        (np.ones((2, 4, 8), "f2"), np.ones((3, 8, 4), "f2")), {}, "do not broadcast"),
    "types differ": ((HALF, SINGLE), {}, "a is float16 and b is float32"),
    "uint8 factors": ((HALF.astype("u1"), OTHER), {}, "uint8; .*, int8, float4_e2m1fn: convert it first$"),
    "uint8 out": ((HALF, OTHER), {"out": np.ones((4, 6), "u1")}, "uint8; it must have .*, int32$"),
    "uint8 bias": ((HALF, OTHER), {"bias": np.ones(6, "u1")}, "must have .*, float64: convert it first$"),
    "no such type": ((HALF.astype(complex), OTHER), {}, "complex128"),
    "int32 factors": ((HALF.astype("i4"), OTHER.astype("i4")), {}, "int32 cannot be multiplied; .*, float4"),
    "a list": (([[1.0]], OTHER), {}, "a must be an array"),
    "no axes": ((np.float16(1), OTHER), {}, "a has no axes"),
    "masked": ((np.ma.masked_array(HALF), OTHER), {}, "masked"),
    "misaligned": (
        (np.frombuffer(b"x" * 65, np.uint8)[1:].view(np.float16).reshape(4, 8), OTHER), {}, "address"),
    "a misaligned out": (
        (HALF, OTHER), {"out": np.frombuffer(bytearray(49), np.uint8)[1:].view(np.float16).reshape(4, 6)},
        "pass an array that numpy.empty made"),
    "more axes than 32": ((HALF.reshape(*(1,) * 33, 4, 8), OTHER), {}, "a has 35 axes .* at most 32"),
    "an operand as a bias": (
        (HALF, OTHER), {"bias": lw.quantize(SINGLE, "nvfp4")}, "an operand of lw.matmul"),
    "out's shape": ((HALF, OTHER), {"out": np.ones((4, 5), "f2")}, r"out has shape \(4, 5\)"),
    "out's type": ((HALF, OTHER), {"out": np.ones((4, 6), "f8")}, "not float64"),
    "out is an operand": ((SQUARE, SQUARE), {"out": SQUARE}, "out overlaps a"),
    "out overlaps": ((SQUARE, SQUARE[:, :4].copy()), {"out": SQUARE[:, 2:6]}, "out overlaps a"),
    "out is repeated": ((SQUARE, OTHER), {"out": np.broadcast_to(np.ones(6, "f2"), (8, 6))}, "out"),
    "two types of results": (
        (HALF, OTHER), {"out": np.ones((4, 6), "f2"), "out_dtype": "f32"}, "out_dtype is"),
    "no such result": ((HALF, OTHER), {"out_dtype": "s32"}, "give float16"),
    "no such sums": ((HALF, OTHER), {"accumulate": "f64"}, "summed in f32 or f16"),
    "precision of f16": ((HALF, OTHER), {"precision": "tf32"}, "for f32 arrays"),
    "no such precision": ((SINGLE.T, SINGLE), {"precision": "f16"}, "'f32' or 'tf32'"),
    "bias's shape": ((HALF, OTHER), {"bias": scales(5)}, r"must be \(6,\), .* or \(4, 1\)"),
    "bias's type": ((HALF, OTHER), {"bias": np.ones(6, np.int8)}, "bias has elements of type int8"),
    "residual's shape": ((HALF, OTHER), {"residual": scales(6)}, "residual has shape"),
    "beta alone": ((HALF, OTHER), {"beta": 2.0}, "pass it as residual="),
    "alpha": ((HALF, OTHER), {"alpha": "2"}, "alpha must be a number, not str$"),
    "several alphas": ((HALF, OTHER), {"alpha": scales(3)}, r"alpha must be a number.*: pass float\(alpha\)"),
    "too large an alpha": ((HALF, OTHER), {"alpha": 10**400}, "at most 1.8e308"),
    "an alpha that f32 lacks": ((HALF, OTHER), {"alpha": 1e300}, r"alpha .* is 1e\+300, and epilogues"),
    "a factor that f32 lacks": ((HALF, OTHER), {"scale_out": 1e39}, r"scale_out is 1e\+39, and epilogues"),
    "activation": ((HALF, OTHER), {"activation": "tanh"}, "relu, gelu"),
    "epilogue": ((HALF, OTHER), {"epilogue": lambda x: x}, "@lw.epilogue"),
    "scales of f16": ((HALF, OTHER), {"scale_a": 2.0}, "scaled by alpha="),
    "scales' shape": (SMALL, {"scale_a": scales(3)}, r"\(4, 1\) for the rows of a"),
    "scales' type": (SMALL, {"scale_a": np.ones((4, 1))}, "must be float32, or float8_e8m0fnu"),
    "blocks of a alone": (SMALL, {"scale_a": scales(4, 2)}, "must be given for both a and b"),
    "blocks of int8": (
        (np.ones((4, 256), "i1"), np.ones((256, 8), "i1")), {"scale_a": scales(4, 2)}, "scale_a has shape"),
    "int8 with scales": (INT8, {"scale_a": 0.5}, "say which with out_dtype="),
    "int32 with a bias": (INT8, {"bias": scales(8)}, "stored as they are"),
    "arch": ((HALF, OTHER), {"arch": "sm_70"}, "planned for sm_75"),
    "no instruction": (
        SMALL, {"arch": "sm_80"},
        "sm_80 has no mma.sync that multiplies e4m3 .* take float16, bfloat16, float32, float64, int8$",
    ),
    "an array that cannot be read": (
        (Unreadable(), OTHER), {}, "a is a Unreadable that cannot be read as an array: .*it is busy"
    ),
    "plan": ((HALF, OTHER), {"plan": "fast"}, "what lw.plan returns"),
    "a stream of the CPU": ((HALF, OTHER), {"stream": 3}, "stream= is for arrays on a GPU"),
    "a result without end": (
        (np.ones((4 << 20, 1), "f2"), np.ones((1, 4 << 20), "f2")), {},
        r"\(4194304, 4194304\) and type float16 takes 32 TiB \(35,184,372,088,832 bytes\), and this machine"),
    "float64 and gelu": (
        (SINGLE.T.astype("f8"), SINGLE.astype("f8")), {"activation": "gelu"}, "float64 take"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_calls_are_refused(case: str) -> None:
    (a, b), keywords, said = WRONG[case]
    with pytest.raises(lw.LanewiseError, match=said):
        lw.matmul(a, b, **keywords)


def test_plans_that_do_not_fit_are_refused() -> None:
    found = lw.plan(HALF, OTHER)
    by_wgmma = {"family": "warpgroup", "schedule": "cooperative", "tile": (64, 64, 64), "stages": 2}
    with pytest.raises(lw.LanewiseError, match="not enough for"):
        found.with_(**by_wgmma, split=4)
    for fields, said in (
        ({"tile": (64, 64)}, "three integers"),
        ({"tile": (64, 64, 0)}, "three integers"),
        ({"cluster": 2}, "two integers"),
        ({"stages": 0}, "stages=0"),
        ({"split": "all"}, "split='all'"),
        ({"family": "fast"}, "'warpgroup', 'sparse', 'warp'"),
        ({"schedule": "fast"}, "'cooperative', 'pingpong'"),
    ):
        with pytest.raises(lw.LanewiseError, match=said):
            found.with_(**fields)
    with pytest.raises(lw.LanewiseError, match="a plan has no speed"):
        found.with_(speed=2)
    with pytest.raises(lw.LanewiseError, match="the plan is for sm_90a"):
        lw.matmul(HALF, OTHER, plan=found, arch="sm_80")
    with pytest.raises(lw.LanewiseError, match="takes no stream="):
        lw.plan(HALF, OTHER, stream=1)


def test_forced_plans_without_a_kernel_are_refused() -> None:
    """On the CPU as on a GPU, with the reason; a plan of another type is one of them."""
    a, b = np.ones((512, 512), np.float16), np.ones((512, 512), np.float16)
    found = lw.plan(a, b)
    warp = {"family": "warp", "split": 1, "groups": 1, "stages": 3}
    for fields, said in (
        ({"tile": (7, 7, 7)}, "7 rows are not a multiple of 64"),
        ({"tile": (320, 64, 64)}, "320 rows take 5 warpgroups; a block has 3 at most"),
        ({"stages": 100}, "100 stages take .* bytes of shared memory"),
        ({"l2": "q"}, "must be two letters"),
        ({"family": "sparse"}, r"a b of lw\.sparsify"),
        ({**warp, "tile": (7, 7, 7)}, "7 × 7 cannot be divided among warps"),
        ({**warp, "tile": (64, 64, 24)}, "24 elements of K are not a multiple of 16"),
        ({**warp, "tile": (64, 64, 32), "stages": 100}, "bytes of shared memory; sm_90a has"),
        ({**warp, "tile": (512, 512, 16)}, "a block has at most 1024"),
        ({**warp, "tile": (64, 64, 48)}, "cannot share the copies of a evenly"),
        ({**warp, "tile": (64, 64, 32), "groups": 3}, "groups=3 is not possible"),
    ):
        with pytest.raises(lw.LanewiseError, match=said):
            lw.matmul(a, b, plan=found.with_(**fields))
    single = a.astype(np.float32), b.astype(np.float32)
    with pytest.raises(lw.LanewiseError, match="must have 32 elements of K"):
        lw.matmul(*single, precision="tf32", plan=found)
    large = np.ones((2048, 512), np.float32), np.ones((512, 2048), np.float32)  # by wgmma
    chosen = lw.plan(*large, precision="tf32")
    assert not chosen.plan.copy_b and chosen.with_(swap=False).plan.copy_b
    with pytest.raises(lw.LanewiseError, match="the plan does not copy it"):
        lw.matmul(*large, precision="tf32", plan=chosen.with_(a_in_registers=False))
    usable = lw.matmul(a, b, plan=found.with_(**{**warp, "tile": (64, 64, 32)}))
    assert (usable == 512).all()


@sampled(3)
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_89", "sm_90a", "sm_120"])
@pytest.mark.parametrize("kind", ["f16", "tf32", "f32", "f64", "e4m3", "promoted", "int8"])
def test_plans_of_the_planner_can_be_forced(arch: str, kind: str) -> None:
    keywords: dict[str, Any] = {"arch": arch}
    if kind in ("tf32", "f32"):
        keywords["precision"] = kind
    if kind == "promoted":
        keywords["accumulate"] = "f32"
    types = {"f16": "f2", "f64": "f8", "e4m3": E4M3, "promoted": E4M3, "int8": "i1"}
    a, b = (np.ones(shape, types.get(kind, "f4")) for shape in ((30, 200), (200, 48)))
    try:
        found = lw.plan(a, b, **keywords)
    except lw.LanewiseError as error:
        assert "has no" in str(error)
        return
    assert (lw.matmul(a, b, plan=found, **keywords).astype("f8") == 200).all()


def test_a_plan_changed_by_hand_has_stages_that_fit() -> None:
    a, b = np.ones((256, 512), np.float16), np.ones((512, 256), np.float16)
    found = lw.plan(a, b).with_(tile=(128, 64, 64), stages=16, groups=1)
    parts = found.with_(split=4)
    assert parts.plan.stages < found.plan.stages
    assert (lw.matmul(a, b, plan=parts) == 512).all()


@pytest.mark.parametrize(
    ("keyword", "instead"),
    [
        ("dtype", "out_dtype= is the type"),
        ("transpose_b", r"pass b\.T"),
        ("transA", r"pass a\.T"),
        ("biases", "did you mean bias="),
        ("speed", "it takes out, bias, "),
    ],
)
def test_a_keyword_of_another_library_is_told_what_serves_here(keyword: str, instead: str) -> None:
    functions: tuple[Callable[..., object], ...] = (lw.matmul, lw.plan)
    for function in functions:
        with pytest.raises(lw.LanewiseError, match=f"has no keyword {keyword}: {instead}"):
            function(HALF, HALF.T, **{keyword: True})


def test_grouped_products_refuse_unknown_keywords() -> None:
    with pytest.raises(lw.LanewiseError, match="no keyword speed"):
        lw.grouped_matmul(HALF, np.ones((2, 8, 6), np.float16), [2, 4], speed=2)


def integer_of(value: Any, row: Any, column: Any) -> Any:
    """An epilogue that returns another type than it gets."""
    return row


def test_epilogues_that_are_none_are_refused() -> None:
    """The error names the user's function and its line, not lanewise's own."""
    with pytest.raises(lw.LanewiseError, match=r"three arguments, <lambda>\(value, row, column\), not on"):
        lw.epilogue(lambda value: value)
    with pytest.raises(lw.LanewiseError, match=r"f\(value, row, column\), not on <built-in"):
        lw.epilogue(max)
    with pytest.raises(lw.KernelError, match="integer_of returns") as caught:
        lw.matmul(HALF, OTHER, epilogue=lw.epilogue(integer_of))
    assert caught.value.file == __file__
    with pytest.raises(lw.LanewiseError, match=r"marked by @lw.epilogue; activation='gelu' is the function"):
        lw.matmul(HALF, OTHER, epilogue="gelu")  # type: ignore[arg-type]  # what a newcomer tries


def divides_by_zero(value: Any, row: Any, column: Any) -> Any:
    """An epilogue in which Python raises."""
    return value * (1 / 0)


def reads_too_early(value: Any, row: Any, column: Any) -> Any:
    """An epilogue that reads a variable before it has a value."""
    scaled = value * factor  # type: ignore[has-type, used-before-def]  # noqa: F821 - what the test is about
    factor = 2
    return scaled * factor


def test_errors_in_an_epilogue_name_its_line() -> None:
    """Python's own errors, too: the message begins with the user's file and line."""
    for function, said in (
        (divides_by_zero, "ZeroDivisionError: division by zero\n"),
        (reads_too_early, "factor has no value yet"),
    ):
        with pytest.raises(lw.KernelError, match=said) as caught:
            lw.matmul(HALF, OTHER, epilogue=lw.epilogue(function))
        below_docstring = function.__code__.co_firstlineno + 2
        assert (caught.value.file, caught.value.line) == (__file__, below_docstring)


def test_an_epilogue_may_return_a_number() -> None:
    @lw.epilogue
    def constant(value: Any, row: Any, column: Any) -> Any:
        return 2.5

    assert (lw.matmul(HALF, OTHER, epilogue=constant) == 2.5).all()


def test_groups_that_do_not_fit_are_refused() -> None:
    experts = np.ones((2, 8, 6), np.float16)
    for offsets, said in (
        ([4], "has 1 numbers"),
        ([3, 2], "ascend"),
        ([2, 9], "at most 4, the rows"),
        ("ab", "integers"),
    ):
        with pytest.raises(lw.LanewiseError, match=said):
            lw.grouped_matmul(HALF, experts, offsets)
    with pytest.raises(lw.LanewiseError, match="counts"):
        lw.grouped_matmul(HALF, experts, [2, 4], counts=[3, 0])
    with pytest.raises(lw.LanewiseError, match="is a multiple of 4"):
        lw.sparsify(np.ones((6, 4), np.float16))


def test_views_side_by_side_do_not_overlap() -> None:
    both = np.ones((8, 16), np.float16)
    lw.matmul(both[:, :8], both[:, :8].copy(), out=both[:, 8:])
    assert (both[:, 8:] == 8).all()


def test_tuning_needs_a_gpu() -> None:
    with pytest.raises(lw.LanewiseError, match="measures on a GPU"):
        lw.tune(HALF, OTHER)
