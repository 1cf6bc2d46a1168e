"""Numbers of one type as another: rounded once, clamped with `saturate`, NaN that is kept, constants."""

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


def constant(dtype: Format, value: Any) -> float:
    """A Python number as a constant of a type, as f32."""

    @lw.kernel
    def stored(out: lw.Ptr[lw.f32]):
        out[0] = dtype(value).to(lw.f32)

    out = np.zeros(1, np.float32)
    stored[1, 1](out, arch="sm_100a")
    return float(out[0])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("e4m3", 127), ("e4m3", 1000), ("e4m3", 1000.0), ("e5m2", 70000), ("ue8m0", 0), ("ue8m0", 3),
        ("e2m1", 5), ("e2m1", 100.0), ("e2m1", 2**1024), ("f16", 2049), ("f16", 65520.0), ("f32", 2**1024),
        ("bf16", 3.4e38),
    ],
)  # fmt: skip
def test_constants_that_a_type_does_not_hold_are_refused(name: str, value: Any) -> None:
    with pytest.raises(lw.KernelError, match="representable in"):
        constant(getattr(lw, name), value)


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("e4m3", 128, 128), ("e4m3", 0.3, 0.3125), ("e4m3", -448.0, -448), ("e5m2", np.inf, np.inf),
        ("ue8m0", 4, 4), ("e2m1", 6, 6), ("f16", 65519.0, 65504), ("f16", -np.inf, -np.inf),
        ("f32", 3.4028235e38, 3.4028234663852886e38),
    ],
)  # fmt: skip
def test_constants_are_rounded_to_nearest(name: str, value: Any, wanted: float) -> None:
    assert constant(getattr(lw, name), value) == wanted


def test_shifts_by_any_count_and_of_python_numbers() -> None:
    @lw.kernel
    def shifted(x: lw.Ptr[lw.u32], out: lw.Ptr[lw.u32]):
        out[0] = x[0] << (1 << 32)
        out[1] = x[0] >> (2**64 + 3)
        out[2] = lw.where((1 << x[1]) > 0, 1, 0).to(lw.u32)  # a u32, as the amount

    out = np.full(3, 7, np.uint32)
    shifted[1, 1](np.array([5, 31], np.uint32), out)
    assert out.tolist() == [0, 0, 1]


def test_what_has_no_instruction_is_refused_while_tracing() -> None:
    @lw.kernel
    def rounded_down(x: lw.Ptr[lw.f32], y: lw.Ptr[lw.tf32]):
        y[0] = x[0].to(lw.tf32, rounding="rm")

    @lw.kernel
    def counted(out: lw.Ptr[lw.i32], n: lw.i8):
        for _ in lw.range(n):
            out[0] += 1

    for kernel, message in ((rounded_down, "to tf32 PTX rounds"), (counted, "counts in 16 bits or more")):
        with pytest.raises(lw.KernelError, match=message):
            kernel.ptx("sm_90")
