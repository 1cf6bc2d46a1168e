"""`lanewise compute` returns what the instruction returns on the same arrays, and reads them rightly."""

import csv
import io
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from lanewise.cli.input.arrays import read_array
from lanewise.errors import LanewiseError
from lanewise.formats import FORMATS
from lanewise.isa import instruction

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
FP8 = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32"
INT8 = "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32"
SPARSE = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
SCALED = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0"


def random_array(text: str, name: str, seed: int = 0, shape: tuple[Any, ...] | None = None) -> np.ndarray:
    operand = instruction(text).operands[name]
    rng = np.random.default_rng([seed, ord(name[-1])])
    numbers = rng.standard_normal(shape or operand.shape) * 4
    fmt = operand.format
    return fmt.array(numbers if fmt.kind == "float" else np.abs(np.rint(numbers)), saturate=True)


def saved(folder: Path, **arrays: Any) -> list[Any]:
    paths = []
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
        paths.append(folder / f"{name}.npy")
    return paths


@pytest.mark.parametrize("text", [MMA, FP8, INT8])
def test_saved_result_is_the_instruction_s(lanewise: Callable[..., Any], tmp_path: Path, text: str) -> None:
    arrays = {name: random_array(text, name) for name in "abc"}
    out = tmp_path / "out.d"  # the very name, whatever its suffix
    assert lanewise("compute", text, *saved(tmp_path, **arrays), "--arch", "sm_89", "-o", out).code == 0
    expected = instruction(text)(*arrays.values(), arch="sm_89")
    found = np.load(out)
    assert found.dtype == expected.dtype and found.tobytes() == expected.tobytes()


def test_a_tcgen05_product(
    answered: Callable[..., str], lanewise: Callable[..., Any], tmp_path: Path
) -> None:
    name, text = "tcgen05 m64n8k16 f16", "tcgen05.mma.cta_group::1.kind::f16"
    arrays = {each: random_array(name, each) for each in "abc"}
    paths = saved(tmp_path, **arrays)
    expected = instruction(name)(*arrays.values(), arch="sm_100a")
    told = json.loads(answered("compute", name, *paths, "--arch", "B200", "--json"))
    assert [[int(word, 16) for word in row] for row in told["bits"]] == expected.view(np.uint32).tolist()
    bits = hex(instruction(name).descriptor.encode())  # type: ignore[attr-defined]  # tcgen05's have one
    same = json.loads(answered("compute", text, *paths, "--descriptor", bits, "--arch", "B200", "--json"))
    assert same["bits"] == told["bits"]
    said = lanewise("compute", "tcgen05.shift.cta_group::1.down", *paths, "--arch", "B200")
    assert said.code == 2 and "computes nothing" in said.err
    said = lanewise("compute", name, *paths, "--arch", "H100")
    assert said.code == 2 and "sm_90a does not have it" in said.err


def test_printed_result_is_the_saved_one(answered: Callable[..., str], tmp_path: Path) -> None:
    a, b = random_array(MMA, "a"), random_array(MMA, "b")
    paths = saved(tmp_path, a=a, b=b)
    expected = instruction(MMA)(a, b, arch="sm_80")
    told = json.loads(answered("compute", MMA, *paths, "--arch", "sm_80", "--json"))
    assert told["d"] == expected.astype(float).tolist()
    assert [[int(word, 16) for word in row] for row in told["bits"]] == expected.view(np.uint32).tolist()
    rows = list(csv.DictReader(io.StringIO(answered("compute", MMA, *paths, "--arch", "sm_80", "--csv"))))
    assert [int(row["bits"], 16) for row in rows] == expected.view(np.uint32).ravel().tolist()
    lines = answered("compute", MMA, *paths, "--arch", "sm_80").splitlines()
    assert [float(word) for word in lines[2].split()[1:]] == pytest.approx(expected[0].tolist())


@pytest.mark.parametrize("style", ["--json", "--csv"])
def test_nan_and_infinities_are_written_without_a_warning(
    answered: Callable[..., str], tmp_path: Path, style: str
) -> None:
    arrays = {name: random_array(MMA, name) for name in "ab"}
    arrays["a"][0, 0], arrays["a"][1, 0] = np.nan, np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        told = answered("compute", MMA, *saved(tmp_path, **arrays), "--arch", "sm_80", style)
    assert told.count("nan") == 8 and told.count("inf") == 8


def test_leading_dimensions(answered: Callable[..., str], tmp_path: Path) -> None:
    a, b = random_array(MMA, "a", shape=(3, 16, 16)), random_array(MMA, "b", shape=(3, 16, 8))
    out = tmp_path / "d.npy"
    answered("compute", MMA, *saved(tmp_path, a=a, b=b), "--arch", "sm_90", "-o", out)
    assert np.load(out).tobytes() == instruction(MMA)(a, b, arch="sm_90").tobytes()
    assert "3, 16, 8" in answered("compute", MMA, tmp_path / "a.npy", tmp_path / "b.npy", "--arch", "sm_90")


def test_no_products_are_not_too_many(answered: Callable[..., str], tmp_path: Path) -> None:
    a, b = random_array(MMA, "a", shape=(0, 16, 16)), random_array(MMA, "b")
    told = answered("compute", MMA, *saved(tmp_path, a=a, b=b), "--arch", "sm_90")
    assert "0, 16, 8" in told and "Nothing to print" in told


def test_gemm(answered: Callable[..., str], tmp_path: Path) -> None:
    a, b = random_array(MMA, "a", shape=(20, 50)), random_array(MMA, "b", shape=(50, 9))
    out = tmp_path / "d.npy"
    answered("compute", MMA, *saved(tmp_path, a=a, b=b), "--arch", "sm_90", "--gemm", "-o", out)
    assert np.load(out).tobytes() == instruction(MMA).gemm(a, b, arch="sm_90").tobytes()


def test_versus_lists_the_elements_that_differ(answered: Callable[..., str], tmp_path: Path) -> None:
    a, b, c = (random_array(MMA, name) for name in "abc")
    paths = saved(tmp_path, a=a, b=b, c=c)
    mine, other = (instruction(MMA)(a, b, c, arch=arch) for arch in ("sm_80", "sm_90"))
    told = json.loads(answered("compute", MMA, *paths, "--arch", "sm_80", "--versus", "sm_90", "--json"))
    places = np.argwhere(mine.view(np.uint32) != other.view(np.uint32)).tolist()
    assert len(places) > 0, "choose inputs on which the archs differ"
    assert told["differ"] == len(places) and told["elements"] == mine.size
    assert [each["index"] for each in told["differing"]] == places
    for each in told["differing"]:
        place = tuple(each["index"])
        assert each["values"] == [float(mine[place]), float(other[place])]
        assert [int(word, 16) for word in each["bits"]] == [
            int(mine.view(np.uint32)[place]),
            int(other.view(np.uint32)[place]),
        ]
    text = answered("compute", MMA, *paths, "--arch", "sm_80", "--versus", "sm_90")
    assert f"{len(places)} of {mine.size} elements differ between sm_80 and sm_90" in text


def test_versus_itself_differs_nowhere(answered: Callable[..., str], tmp_path: Path) -> None:
    paths = saved(tmp_path, a=random_array(MMA, "a"), b=random_array(MMA, "b"))
    text = answered("compute", MMA, *paths, "--arch", "sm_90", "--versus", "sm_90a")
    assert text.startswith("0 of 128 elements differ")


def test_sparse_takes_metadata(answered: Callable[..., str], tmp_path: Path) -> None:
    metadata = instruction(SPARSE).metadata
    indices = np.tile(np.array([1, 3], np.uint8), (16, metadata.cols))
    a, b = random_array(SPARSE, "a"), random_array(SPARSE, "b")
    out = tmp_path / "d.npy"
    path_a, path_b, path_e = saved(tmp_path, a=a, b=b, e=indices)
    answered("compute", SPARSE, path_a, path_b, "--metadata", path_e, "--arch", "sm_80", "-o", out)
    assert np.load(out).tobytes() == instruction(SPARSE)(a, b, metadata=indices, arch="sm_80").tobytes()


def test_block_scaled_takes_scales(lanewise: Callable[..., Any], tmp_path: Path) -> None:
    scaled = instruction(SCALED)
    a, b = random_array(SCALED, "a"), random_array(SCALED, "b")
    scales = {
        name: np.full(scaled.operands[name].shape, 2.0).astype(ml_dtypes.float8_e8m0fnu)
        for name in ("scale_a", "scale_b")
    }
    paths = saved(tmp_path, a=a, b=b, **scales)
    out = tmp_path / "d.npy"
    options = ("--scale-a", paths[2], "--scale-b", paths[3], "--arch", "sm_120a", "-o", out)
    assert lanewise("compute", SCALED, *paths[:2], *options).code == 0
    assert np.load(out).tobytes() == scaled(a, b, **scales, arch="sm_120a").tobytes()


def test_satfinite_is_passed_on(answered: Callable[..., str], tmp_path: Path) -> None:
    text = "wmma.mma.sync.aligned.row.col.m16n16k16.f16.f16"
    a, b = np.full((16, 16), 300, np.float16), np.full((16, 16), 300, np.float16)
    a[0, 0] = np.nan
    out = tmp_path / "d.npy"
    answered("compute", text, *saved(tmp_path, a=a, b=b), "--arch", "sm_90", "--satfinite", "-o", out)
    found = np.load(out)
    assert found.tobytes() == instruction(text)(a, b, arch="sm_90", satfinite=True).tobytes()
    assert np.isfinite(found).all()


# reading files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
def test_what_numpy_saves_reads_back(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    """np.save writes ml_dtypes as raw bytes; the operand's format says what they mean."""
    fmt = FORMATS[name]
    words = np.arange(min(1 << fmt.bits, 1 << 16)).astype(fmt.word_dtype)
    array = fmt.from_bits(words)
    (path,) = saved(tmp_path, x=array)
    found = read_array(path, "A", fmt)
    assert found.dtype == fmt.dtype and np.array_equal(fmt.to_bits(found), words)
    # e5m2 is the one of ml_dtypes' formats that NumPy saves under a name of its own
    assert ("raw bytes" in capsys.readouterr().err) == (fmt.dtype.kind == "V")


@pytest.mark.parametrize("name", ["f16", "bf16", "e4m3", "e2m1", "s8", "s4", "f32", "f64"])
def test_raw_words_are_bits_and_said_to_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    fmt = FORMATS[name]
    words = np.arange(min(1 << fmt.bits, 300)).astype(fmt.word_dtype)
    found = read_array(saved(tmp_path, x=words)[0], "A", fmt)
    assert np.array_equal(fmt.to_bits(found), words)
    assert "raw bits" in capsys.readouterr().err


def test_convert_rounds_and_says_how_many(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    numbers = np.array([1.0, 1.0 + 2.0**-12, 3.0, np.nan, np.inf, 1e6])
    found = read_array(saved(tmp_path, x=numbers)[0], "A", FORMATS["f16"], convert=True)
    assert np.array_equal(found[:5], numbers[:5].astype(np.float16), equal_nan=True) and found[5] == np.inf
    assert "2 of 6 values were rounded" in capsys.readouterr().err


def test_convert_rounds_large_integers_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    numbers = np.array([2**62 + 2**38 + 1, 2**62 + 1, 2**62])
    found = read_array(saved(tmp_path, x=numbers)[0], "A", FORMATS["f32"], convert=True)
    assert found.tolist() == [2.0**62 + 2**39, 2.0**62, 2.0**62]
    assert "2 of 3 values were rounded to f32" in capsys.readouterr().err


def test_convert_of_exact_numbers_says_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = read_array(saved(tmp_path, x=np.arange(16))[0], "A", FORMATS["bf16"], convert=True)
    assert found.astype(int).tolist() == list(range(16)) and capsys.readouterr().err == ""


def test_convert_reads_words_as_numbers(tmp_path: Path) -> None:
    found = read_array(saved(tmp_path, x=np.array([7, 120], np.uint8))[0], "A", FORMATS["s8"], convert=True)
    assert found.tolist() == [7, 120]


def test_other_byte_order(tmp_path: Path) -> None:
    found = read_array(saved(tmp_path, x=np.array([1.5, -2.0], ">f2"))[0], "A", FORMATS["f16"])
    assert found.dtype == np.float16 and found.tolist() == [1.5, -2.0]


REFUSED = [
    (np.zeros(3, ml_dtypes.bfloat16), False, ["V2", "float16"]),
    (np.zeros(3, ml_dtypes.bfloat16), True, ["V2", "float16"]),
    (np.zeros(3, ml_dtypes.float8_e5m2), False, ["float8_e5m2", "--convert"]),
    (np.zeros(3, np.float32), False, ["float32", "float16", "--convert"]),
    (np.zeros(3, np.int16), False, ["int16", "--convert"]),
    (np.zeros(3, complex), True, ["complex128"]),
    (np.zeros(3, [("x", "f4")]), True, ["x"]),
    (np.array(["a"]), True, ["<U1"]),
    (np.zeros(3, "M8[s]"), True, ["datetime64"]),
]


@pytest.mark.parametrize(("array", "convert", "named"), REFUSED, ids=lambda value: str(value)[:20])
def test_wrong_dtypes_are_named(tmp_path: Path, array: np.ndarray, convert: bool, named: list[Any]) -> None:
    with pytest.raises(LanewiseError) as complaint:
        read_array(saved(tmp_path, x=array)[0], "A", FORMATS["f16"], convert=convert)
    for words in (str(tmp_path / "x.npy"), *named):
        assert words in str(complaint.value)


def test_words_too_large_for_the_format(tmp_path: Path) -> None:
    with pytest.raises(LanewiseError, match="e2m1"):
        read_array(saved(tmp_path, x=np.array([16], np.uint8))[0], "A", FORMATS["e2m1"])


def test_numbers_that_an_integer_cannot_hold(tmp_path: Path) -> None:
    for numbers in ([0.5], [200.0], [np.nan]):
        with pytest.raises(LanewiseError, match="s8"):
            read_array(saved(tmp_path, x=np.array(numbers))[0], "A", FORMATS["s8"], convert=True)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello",
        b"\x93NUMPY",
        b"\x93NUMPY\x01\x00\x10\x00{'descr': 'what'}\n",
        b"PK\x03\x04zip",
        b"\x80\x04K\x01.",
    ],
)
def test_files_that_hold_no_array(lanewise: Callable[..., Any], tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.npy").write_bytes(content)
    said = lanewise("compute", MMA, tmp_path / "a.npy", tmp_path / "a.npy", "--arch", "sm_80")
    assert said.code == 2 and said.err.count("\n") == 1 and "a.npy" in said.err and "defect" not in said.err


def test_pickles_are_not_opened(lanewise: Callable[..., Any], tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{}], dtype=object), allow_pickle=True)
    said = lanewise("compute", MMA, tmp_path / "a.npy", tmp_path / "a.npy", "--arch", "sm_80")
    assert said.code == 2 and said.err.count("\n") == 1


BAD = [
    ([MMA, "a.npy", "b.npy"], ["--arch"]),
    ([MMA, "a.npy"], ["B"]),
    ([MMA, "none.npy", "b.npy", "--arch", "sm_80"], ["none.npy", "no such file"]),
    ([MMA, ".", "b.npy", "--arch", "sm_80"], ["directory"]),
    ([MMA, "a.npy", "b.npy", "--arch", "sm_75"], ["sm_75", "sm_80"]),
    ([MMA, "a.npy", "b.npy", "--arch", "sm_80", "--versus", "sm_75"], ["sm_75", "sm_80"]),
    ([MMA, "b.npy", "a.npy", "--arch", "sm_80"], ["(16, 8)"]),
    ([MMA, "a.npy", "b.npy", "--arch", "sm_80", "--metadata", "a.npy"], ["metadata"]),
    ([MMA, "a.npy", "b.npy", "--arch", "sm_80", "--scale-a", "a.npy"], ["--scale-a"]),
    ([SPARSE, "a.npy", "b.npy", "--arch", "sm_80"], ["--metadata"]),
    ([MMA, "a.npy", "b.npy", "--arch", "sm_80", "-o", "/no/such/folder/d.npy"], ["/no/such/folder/d.npy"]),
    (["ldmatrix.sync.aligned.m8n8.x1.shared.b16", "a.npy", "b.npy", "--arch", "sm_80"], ["computes nothing"]),
]


@pytest.mark.parametrize(("arguments", "named"), BAD, ids=lambda value: " ".join(value)[-40:])
def test_complaint(
    lanewise: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[Any],
    named: list[Any],
) -> None:
    monkeypatch.chdir(tmp_path)
    saved(tmp_path, a=random_array(MMA, "a"), b=random_array(MMA, "b"))
    said = lanewise("compute", *arguments)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("lanewise: ") and said.err.count("\n") == 1
    for words in named:
        assert words in said.err


def test_a_large_result_shows_its_corner(lanewise: Callable[..., Any], tmp_path: Path) -> None:
    wide = tmp_path / "wide.npy"
    np.save(wide, np.ones((70, 70), np.float16))
    said = lanewise("compute", "HMMA.16816.F32", wide, wide, "--arch", "sm_90", "--gemm")
    assert said.code == 0 and "The first 64 × 16 of 70 × 70 elements are shown" in said.out
    refused = lanewise("compute", "HMMA.16816.F32", wide, wide, "--arch", "sm_90")
    assert refused.code == 2 and "--gemm" in refused.err
