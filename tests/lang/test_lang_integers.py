"""Integers at the edges of their types: bytes in wide registers, numbers that wrap, bf16 of large ones."""

from fractions import Fraction
from math import ceil, floor
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lanewise as lw


@lw.kernel
def compared_bytes(x: lw.Ptr[lw.u8], y: lw.Ptr[lw.i8], out: lw.Ptr[lw.i32]):
    i = lw.thread_idx.x
    out[8 * i] = lw.where(~x[i] > 99, 1, 0)
    out[8 * i + 1] = lw.where(x[i].to(lw.i8) < 0, 1, 0)
    out[8 * i + 2] = lw.where(lw.bitcast(y[i], lw.u8) == 253, 1, 0)
    out[8 * i + 3] = lw.where(lw.bitcast(lw.bitcast(y[i], lw.e4m3), lw.i8) < 0, 1, 0)
    out[8 * i + 4] = lw.where(~y[i] > 2, 1, 0)
    out[8 * i + 5] = 0
    if ~x[i]:
        out[8 * i + 5] = 1
    out[8 * i + 6] = (~x[i]).to(lw.i32)
    out[8 * i + 7] = y[i].to(lw.u8).to(lw.i32)


def test_bytes_are_compared_by_their_own_bits() -> None:
    x, y, out = np.arange(256).astype(np.uint8), np.arange(256).astype(np.int8), np.zeros((256, 8), np.int32)
    compared_bytes[1, 256](x, y, out)
    words = y.view(np.uint8)
    wanted = [~x > 99, x.view(np.int8) < 0, words == 253, y < 0, ~y > 2, ~x != 0, ~x, words]
    assert (out == np.stack([each.astype(np.int32) for each in wanted], axis=1)).all()


@lw.kernel
def to_bf16(
    x: lw.Ptr[lw.i32], y: lw.Ptr[lw.u32], z: lw.Ptr[lw.i64], out: lw.Ptr[lw.bf16], rounding: lw.Constexpr
):
    i = lw.thread_idx.x
    out[3 * i] = x[i].to(lw.bf16, rounding=rounding)
    out[3 * i + 1] = y[i].to(lw.bf16, rounding=rounding)
    out[3 * i + 2] = z[i].to(lw.bf16, rounding=rounding)


def as_bf16(number: int, rounding: str) -> float:
    """An integer as bf16, rounded once."""
    unit = 1 << max(abs(number).bit_length() - 8, 0)
    quotient = Fraction(number, unit)
    rounded = {"": round, "rn": round, "rz": int, "rm": floor, "rp": ceil}[rounding](quotient)
    return float(rounded * unit)


@pytest.mark.parametrize("rounding", ["", "rn", "rz", "rm", "rp"])
def test_large_integers_are_rounded_to_bf16_once(rounding: str) -> None:
    rng = np.random.default_rng(np.random.SeedSequence())
    columns = []
    for dtype in (np.int32, np.uint32, np.int64):
        least, most = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        numbers = [least, most, 0, 1, most // 2 + 1]
        while len(numbers) < 256:  # near the middle between two neighbours, and anywhere
            bits = int(rng.integers(2, most.bit_length() + 1))
            middle = (2 * int(rng.integers(128, 256)) + 1) << max(bits - 9, 0)
            number = int(rng.choice([middle + int(rng.integers(-1, 2)), int(rng.integers(0, 1 << bits - 1))]))
            numbers.append(max(least, min(most, -number if rng.random() < 0.5 else number)))
        columns.append(np.array(numbers, dtype))
    out = np.zeros((256, 3), ml_dtypes.bfloat16)
    to_bf16[1, 256](*columns, out, rounding=rounding)
    wanted = [[as_bf16(int(number), rounding) for number in row] for row in zip(*columns, strict=True)]
    assert (out.astype(float) == np.array(wanted)).all()


@lw.kernel
def divided(a: lw.Ptr[lw.i32], b: lw.Ptr[lw.i32], out: lw.Ptr[lw.i32]):
    i = lw.thread_idx.x
    scattered = i * 1103515245 + 12345
    x = i + 1
    x = x ^ x << 13
    x = x ^ x >> 17
    x = x ^ x << 5
    values = (
        lw.cdiv(a[i], b[i]), scattered % 7, scattered // 5, (i << 30) // 3, lw.abs(a[i]) % 7, x % 1000,
        lw.cdiv(a[i] // 2, 7),
    )  # fmt: skip
    for n in range(7):
        out[7 * i + n] = values[n]


def test_numbers_that_wrap_are_divided_as_they_are() -> None:
    def wrapped(number: int) -> int:
        return (number + 2**31) % 2**32 - 2**31

    rng = np.random.default_rng(np.random.SeedSequence())
    a = rng.integers(-50, 50, 64).astype(np.int32)
    b = rng.choice([-7, -5, -4, -2, -1, 1, 2, 3, 9], 64).astype(np.int32)
    a[:2], b[:2] = (-(2**31), 2**31 - 1), 1
    out = np.zeros((64, 7), np.int32)
    divided[1, 64](a, b, out)
    for i in range(64):
        x = i + 1
        x = wrapped(x ^ wrapped(x << 13))
        x = x ^ x >> 17
        x = wrapped(x ^ wrapped(x << 5))
        scattered, first = wrapped(i * 1103515245 + 12345), int(a[i])
        wanted = [
            -(-first // int(b[i])), scattered % 7, scattered // 5, wrapped(i << 30) // 3,
            wrapped(abs(first)) % 7, x % 1000, -(-(first // 2) // 7),
        ]  # fmt: skip
        assert out[i].tolist() == wanted, i


@lw.kernel
def of_numbers(out: lw.Ptr[lw.i32], short: lw.Ptr[lw.i16], n: lw.Constexpr):
    values = lw.div(n, 2), lw.rem(n, 4), lw.max(3, n), lw.mulhi(n, 5), lw.min(n, 2)
    for i in range(5):
        out[i] = values[i]
    short[1] = short[0] << 15
    short[2] = short[0] << 16


def test_functions_take_plain_numbers_and_words_are_shifted_out() -> None:
    out, short = np.zeros(5, np.int32), np.array([3, 0, 1], np.int16)
    of_numbers[1, 1](out, short, n=7)
    assert out.tolist() == [3, 3, 7, 0, 2] and short.tolist() == [3, -32768, 0]


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (lambda x: lw.max(3, x), "lw.max` takes a number or a traced value, not a pointer"),
        (lambda x: lw.rem(3, "4"), "takes a number or a traced value"),
        (lambda x: x[0].to(lw.f16, rounding="rna"), "'rna' is for tf32"),
        (lambda x: x[0].to(lw.i32).to(lw.f32, rounding="rna"), "'rna' is for tf32"),
    ],
)
def test_what_is_no_number_is_refused(what: Any, message: str) -> None:
    @lw.kernel
    def refused(x: lw.Ptr[lw.f32]):
        what(x)

    with pytest.raises(lw.LanewiseError, match=message):
        refused[1, 1](np.zeros(2, np.float32))
