"""One product on several generations; the public model; pruning; numbers beyond a format's range."""

import json
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lanewise as lw
from lanewise.cli import main
from lanewise.errors import LanewiseError

MMA = lw.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
RNG = np.random.default_rng(3)
A = RNG.standard_normal((32, 64)).astype(np.float16)
B = RNG.standard_normal((64, 16)).astype(np.float16)


def test_each_generation_computes_with_what_it_has() -> None:
    found = lw.compare(A, B, archs="all")
    assert found.archs == ("sm_70", "sm_75", "sm_80", "sm_89", "sm_90", "sm_100", "sm_120")
    shapes = {each.arch: each.instruction.shape for each in found.results}
    assert shapes["sm_70"] == (8, 8, 4) and shapes["sm_75"] == (16, 8, 8) and shapes["sm_90"] == (16, 8, 16)
    assert np.array_equal(found["sm_90"], MMA.gemm(A, B, arch="sm_90"))
    assert np.array_equal(found["A100"], MMA.gemm(A, B, arch="sm_80"))
    differ = found["sm_80"].view(np.uint32) != found["sm_90"].view(np.uint32)
    assert differ.any() and not (differ & ~found.differing).any()
    text = str(found)
    assert "sm_90 (H100)" in text and "25 fraction bits" in text and "arXiv" in text


def test_archs_that_lack_it_are_told() -> None:
    found = lw.compare(A.astype(ml_dtypes.bfloat16), B.astype(ml_dtypes.bfloat16))
    assert set(found.missing) == {"sm_70", "sm_75"} and "no mma of bf16" in found.missing["sm_75"]
    with pytest.raises(LanewiseError, match="sm_75: no mma of bf16"):
        found["T4"]
    with pytest.raises(LanewiseError, match="no mma of bf16"):
        lw.compare(A.astype(ml_dtypes.bfloat16), B.astype(ml_dtypes.bfloat16), archs="V100")


def test_integers_agree() -> None:
    a, b = (RNG.integers(-128, 128, size, np.int8) for size in ((16, 32), (32, 8)))
    found = lw.compare(a, b)
    assert not found.differing.any() and "all bits agree" in str(found)
    assert np.array_equal(found["sm_90"], a.astype(int) @ b.astype(int))


def test_the_model_is_public() -> None:
    model = MMA.model("H100")
    assert str(model).startswith("blocks of 16 products aligned to 25 fraction bits")
    assert model.fidelity == "confirmed on hardware" and "H200" in model.source
    with pytest.raises(LanewiseError):
        MMA.model("sm_70")


def test_the_shell_compares_with_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "a.npy", A)
    np.save(tmp_path / "b.npy", B)
    files = [str(tmp_path / "a.npy"), str(tmp_path / "b.npy")]
    assert main(["compute", MMA.text, *files, "--versus", "all"]) == 0
    assert "elements differ from sm_70" in capsys.readouterr().out
    assert main(["compute", MMA.text, *files, "--versus", "all", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["differ"] == int(lw.compare(A, B).differing.sum()) and len(said["archs"]) == 7


@pytest.mark.parametrize("dtype", [np.float16, np.float32, ml_dtypes.bfloat16, np.int8])
def test_pruning_keeps_the_two_largest_of_four(dtype: Any) -> None:
    dense = (RNG.standard_normal((16, 32)) * 20).astype(dtype)
    pruned = lw.prune_2_4(dense)
    assert pruned.dtype == dense.dtype
    groups, kept = (each.astype(float).reshape(-1, 4) for each in (dense, pruned))
    assert ((kept == groups) | (kept == 0)).all() and ((kept != 0).sum(axis=1) <= 2).all()
    magnitudes = np.sort(np.abs(groups), axis=1)[:, 2:].sum(axis=1)
    assert np.array_equal(np.abs(kept).sum(axis=1), magnitudes)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ([np.nan, np.inf, -np.inf, 1], [np.nan, np.inf, 0, 0]),
        ([np.inf, -np.inf, 1, np.nan], [np.inf, 0, 0, np.nan]),
        ([np.inf, 1, np.nan, np.nan], [0, 0, np.nan, np.nan]),
        ([np.nan, np.nan, np.nan, np.inf], [np.nan, np.nan, 0, 0]),
    ],
)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_pruning_keeps_nan_before_infinity(dtype: Any, given: list[float], kept: list[float]) -> None:
    """As the kernel that prunes on a GPU does: a NaN does not vanish unless two others come before it."""
    pruned = lw.prune_2_4(np.array([given], dtype))
    assert np.array_equal(pruned.astype(float), [kept], equal_nan=True)


def test_what_is_pruned_is_packed() -> None:
    sparse = lw.instruction("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32")
    pruned = lw.prune_2_4(RNG.standard_normal((16, 32)).astype(np.float16))
    packed, indices = sparse.metadata.compress(pruned)
    assert np.array_equal(sparse.metadata.expand(packed, indices), pruned)
    with pytest.raises(LanewiseError, match="a multiple of 4"):
        lw.prune_2_4(np.zeros((2, 6)))


def test_float32_is_told_how_to_ask_for_tf32() -> None:
    a, b = np.ones((4, 8), np.float32), np.ones((8, 4), np.float32)
    asked = "lw.instruction('mma m16n8k8 tf32').gemm(a, b, arch='A100')"
    with pytest.raises(LanewiseError, match=f"no mma of f32 and f32.*tf32: {re.escape(asked)}"):
        lw.compare(a, b)
    assert (lw.instruction("mma m16n8k8 tf32").gemm(a, b, arch="A100") == 8).all()


def test_a_number_never_becomes_nan_in_silence() -> None:
    with pytest.raises(LanewiseError, match=r"e4m3 holds numbers up to 448.*1000 is not.*saturate=True"):
        lw.e4m3.array([1.0, 1000.0])
    with pytest.raises(LanewiseError, match="e4m3"):
        lw.e4m3.array([np.inf])
    assert lw.e4m3.array([1000.0, -np.inf], saturate=True).astype(float).tolist() == [448, -448]
    assert np.isnan(lw.e4m3.array([np.nan]).astype(float)).all()
    assert lw.f16.array([1e9]).astype(float).tolist() == [np.inf]
