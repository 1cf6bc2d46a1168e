"""What `lw.matmul` refuses, in sentences: nothing is computed, and nothing is written."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lanewise as lw

E4M3 = ml_dtypes.float8_e4m3fn
HALF, SINGLE = np.ones((4, 8), np.float16), np.ones((8, 6), np.float32)
OTHER = np.ones((8, 6), np.float16)
SQUARE = np.ones((8, 8), np.float16)
SMALL = np.ones((4, 256), E4M3), np.ones((256, 8), E4M3)
INT8 = np.ones((4, 32), np.int8), np.ones((32, 8), np.int8)


def scales(*shape: int) -> Any:
    """Scales of a shape."""
    return np.ones(shape, np.float32)


WRONG: dict[str, tuple[tuple[Any, Any], dict[str, Any], str]] = {
    "K differs": ((HALF, OTHER[:7]), {}, "8 elements and the last but one of b 7"),
    "a batch does not broadcast": (
        (np.ones((2, 4, 8), "f2"), np.ones((3, 8, 4), "f2")), {}, "do not broadcast"),
    "types differ": ((HALF, SINGLE), {}, "a is float16 and b is float32"),
    "no such type": ((HALF.astype(complex), OTHER), {}, "complex128"),
    "int32 factors": ((HALF.astype("i4"), OTHER.astype("i4")), {}, "int32 cannot be multiplied"),
    "a list": (([[1.0]], OTHER), {}, "a must be an array"),
    "no axes": ((np.float16(1), OTHER), {}, "a has no axes"),
    "masked": ((np.ma.masked_array(HALF), OTHER), {}, "masked"),
    "misaligned": (
        (np.frombuffer(b"x" * 65, np.uint8)[1:].view(np.float16).reshape(4, 8), OTHER), {}, "address"),
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
    "alpha": ((HALF, OTHER), {"alpha": "2"}, "alpha must be a number"),
    "several alphas": ((HALF, OTHER), {"alpha": scales(3)}, "alpha must be a number"),
    "too large an alpha": ((HALF, OTHER), {"alpha": 10**400}, "at most 1.8e308"),
    "activation": ((HALF, OTHER), {"activation": "tanh"}, "relu, gelu"),
    "epilogue": ((HALF, OTHER), {"epilogue": lambda x: x}, "@lw.epilogue"),
    "scales of f16": ((HALF, OTHER), {"scale_a": 2.0}, "scaled by alpha="),
    "scales' shape": (SMALL, {"scale_a": scales(3)}, r"\(4, 1\) for the rows of a"),
    "scales' type": (SMALL, {"scale_a": np.ones((4, 1))}, "scales must be float32"),
    "blocks of a alone": (SMALL, {"scale_a": scales(4, 2)}, "must be given for both a and b"),
    "blocks of int8": (
        (np.ones((4, 256), "i1"), np.ones((256, 8), "i1")), {"scale_a": scales(4, 2)}, "scale_a has shape"),
    "int8 with scales": (INT8, {"scale_a": 0.5}, "say which with out_dtype="),
    "int32 with a bias": (INT8, {"bias": scales(8)}, "stored as they are"),
    "arch": ((HALF, OTHER), {"arch": "sm_70"}, "planned for sm_75"),
    "no instruction": (SMALL, {"arch": "sm_80"}, "sm_80 has no mma.sync that multiplies e4m3"),
    "plan": ((HALF, OTHER), {"plan": "fast"}, "what lw.plan returns"),
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
    with pytest.raises(lw.LanewiseError, match="not enough for"):
        found.with_(split=4)
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
    with pytest.raises(lw.LanewiseError, match=r"keywords of lw\.matmul"):
        lw.plan(HALF, OTHER, stream=1)


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
