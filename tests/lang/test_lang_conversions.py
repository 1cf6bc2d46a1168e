"""Floats of one type as another: rounded once, clamped with `saturate`, and NaN that is kept."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lanewise as lw
import ptxas
from lanewise.formats import Format

DTYPES: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
SPECIAL = (-3, -0.0, 0, 1e-3, 0.3, 0.7501, 1 - 2.0**-20, 1, 1.5, 65504, np.inf, -np.inf, np.nan)


def kernel_of(source: Format, result: Format, saturate: bool) -> Any:
    """A kernel that converts each element."""

    @lw.kernel
    def converted(x: lw.Ptr[source], y: lw.Ptr[result]):
        i = lw.thread_idx.x
        y[i] = x[i].to(result, saturate=saturate)

    return converted


@pytest.mark.parametrize("saturate", [False, True], ids=["as they are", "clamped"])
@pytest.mark.parametrize("result", DTYPES)
@pytest.mark.parametrize("source", DTYPES)
def test_floats_are_rounded_once(source: str, result: str, saturate: bool) -> None:
    rng = np.random.default_rng(np.random.SeedSequence())
    kernel = kernel_of(getattr(lw, source), getattr(lw, result), saturate)
    numbers = np.concatenate([SPECIAL, rng.standard_normal(100), np.exp2(rng.uniform(-20, 14, 100))])
    x, y = numbers.astype(DTYPES[source]), np.zeros(len(numbers), DTYPES[result])
    if (source, result) == ("f64", "bf16"):
        with pytest.raises(lw.KernelError, match="f64 does not convert to bf16 at once"):
            kernel[1, len(x)](x, y)
        return
    kernel[1, len(x)](x, y)
    if ptxas.find_ptxas() is not None:
        assert ptxas.assemble(kernel.ptx("sm_80"), "sm_80") == []
    wanted = x.astype(np.float64)
    if saturate:
        wanted = np.where(np.isnan(wanted), 0, np.clip(wanted, 0, 1))
    with np.errstate(over="ignore"):  # f64 holds each number of the others, so that this rounds once
        wanted = (wanted.astype(np.float32) if result == "bf16" else wanted).astype(DTYPES[result])
    assert np.array_equal(y.astype(np.float64), wanted.astype(np.float64), equal_nan=True)


def test_integers_are_not_clamped_as_floats() -> None:
    @lw.kernel
    def converted(x: lw.Ptr[lw.i32], y: lw.Ptr[lw.f16]):
        y[0] = x[0].to(lw.f16, saturate=True)

    with pytest.raises(lw.KernelError, match="saturate=True clamps floats"):
        converted[1, 1](np.zeros(1, np.int32), np.zeros(1, np.float16))


@lw.kernel
def extremes(x: lw.Ptr[lw.f32], y: lw.Ptr[lw.f32], out: lw.Ptr[lw.f32]):
    i = lw.thread_idx.x
    out[2 * i] = lw.max(x[i], y[i], nan=True)
    out[2 * i + 1] = lw.min(x[i], 0.5, y[i], nan=True)


def test_nan_wins_on_turing_too() -> None:
    """max.NaN is an instruction of sm_80: earlier archs select the NaN."""
    special = np.array([0, -0.0, 1, -1, np.nan, -np.nan, np.inf, -np.inf], np.float32)
    x, y = (each.ravel() for each in np.meshgrid(special, special))
    found = []
    for arch in ("sm_75", "sm_80"):
        out = np.zeros(2 * len(x), np.float32)
        extremes[1, len(x)](x, y, out, arch=arch)
        assert (".NaN" in extremes.ptx(arch)) is (arch == "sm_80")
        found.append(out)
    assert found[0].tobytes() == found[1].tobytes()
    assert (np.isnan(found[0][::2]) == np.isnan(x) | np.isnan(y)).all()
