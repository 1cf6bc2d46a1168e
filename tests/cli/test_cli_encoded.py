"""`lanewise explain` and `draw` of a matrix descriptor (64 bits) and of a tensor map (128 bytes)."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import lanewise as lw
from cli.conftest import Said
from lanewise import draw
from lanewise.cli.input.encoded import read_encoded
from lanewise.isa.matrix_descriptor import MatrixDescriptor

DESCRIPTOR = 0x4000004000000040
MAP = lw.tensor_map(np.zeros((1000, 200), np.float16), (16, 64), swizzle="128B", fill="nan")
RAW = MAP.encode(0x7F1234567800)


@pytest.mark.parametrize("text", ["0x4000004000000040", "4000004000000040", str(DESCRIPTOR)])
def test_a_descriptor_in_every_spelling(text: str, answered: Callable[..., str]) -> None:
    assert read_encoded(text) == DESCRIPTOR
    said = answered("explain", text)
    assert "start_address        13–0   0x400" in said and "stride_byte_offset   45–32  1024" in said
    assert "swizzle              63–62  128B" in said and "the next 8 rows are 1024 bytes further" in said


def test_a_descriptor_without_swizzle_and_with_bits_of_no_field(answered: Callable[..., str]) -> None:
    said = answered("explain", hex(MatrixDescriptor(0, 128, 256).encode() | 1 << 15))
    assert "the next 8 rows are 256 bytes further, the next 16 bytes along K 128" in said
    assert "Bits that belong to no field are set: 0x8000" in said


def test_a_descriptor_as_json(answered: Callable[..., str]) -> None:
    data = json.loads(answered("explain", hex(DESCRIPTOR), "--json"))
    assert data["start_address"] == 1024 and data["swizzle"] == "128B" and data["kind"] == "matrix descriptor"


def spellings(folder: Path) -> dict[str, str]:
    words = np.frombuffer(RAW, np.uint64)
    (folder / "map.bin").write_bytes(RAW)
    (folder / "words.txt").write_text("{" + ", ".join(f"{word:#x}" for word in words) + "}\n")
    (folder / "bytes.txt").write_text(" ".join(f"{byte:02x}" for byte in RAW))
    return {
        "digits": RAW.hex(),
        "words": " ".join(f"{word:08x}" for word in np.frombuffer(RAW, np.uint32)),
        **{name: str(folder / name) for name in ("map.bin", "words.txt", "bytes.txt")},
    }


def test_a_tensor_map_in_every_spelling(tmp_path: Path, answered: Callable[..., str]) -> None:
    for name, text in spellings(tmp_path).items():
        assert read_encoded(text) == RAW, name
        said = answered("explain", text)
        assert "f16 (1000, 200), box (16, 64), swizzle 128B, fill nan" in said, name
        assert "at 0x7f1234567800, strides (400, 2) bytes" in said and "read as NaN" in said
        assert "stride1           127–96, 227–224  400" in said and "dim2" not in said


def test_a_tensor_map_as_json(answered: Callable[..., str]) -> None:
    data = json.loads(answered("explain", RAW.hex(), "--json"))
    assert data["shape"] == [1000, 200] and data["box"] == [16, 64] and data["box_bytes"] == 2048
    assert data["address"] == 0x7F1234567800 and data["fields"]["box0"] == 64


def test_bytes_that_are_no_legal_map(answered: Callable[..., str]) -> None:
    changed = bytearray(RAW)
    changed[55] = 4  # box0: 5 elements
    said = answered("explain", changed.hex())
    assert "The driver would not encode this: the innermost axis of a box is a multiple of 16 bytes" in said
    changed[55] = 31
    assert "box_bytes is not what the driver writes" in answered("explain", changed.hex())
    changed[127] = 1
    assert "Bits that belong to no field are set: 1016" in answered("explain", changed.hex())
    changed[8] |= 1
    assert "im2col" in answered("explain", changed.hex())
    assert json.loads(answered("explain", changed.hex(), "--json"))["problem"]


def test_pictures(tmp_path: Path, answered: Callable[..., str]) -> None:
    path = tmp_path / "picture.svg"
    answered("draw", "tensor-map", RAW.hex(), "-o", path)
    assert path.read_text() == draw.svg(MAP.tensor)
    answered("explain", RAW.hex(), "--svg", path)
    assert path.read_text() == draw.svg(MAP)
    answered("draw", "descriptor", hex(DESCRIPTOR), "--rows", 128, "--bits", 8, "-o", path)
    assert path.read_text() == draw.svg(draw.described_matrix(DESCRIPTOR, 128, 32, 8))
    answered("draw", "descriptor", hex(DESCRIPTOR), "--major", "mn", "-o", path)
    assert path.read_text() == draw.svg(draw.described_matrix(DESCRIPTOR, major="MN"))
    assert answered("draw", "descriptor", hex(DESCRIPTOR)).startswith("Matrix descriptor 0x4000004000000040")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("explain", "0x1" + "0" * 16), "more than 64 bits"),
        (("explain", "0x40", "--lane", "5"), "questions are about instructions"),
        (("explain", "0x40", "--arch", "sm_90a"), "questions are about instructions"),
        (("explain", "12"), "not a matrix instruction"),
        (("draw", "tensor-map", "0x40"), "a tensor map is 128 bytes"),
        (("draw", "tensor-map", "nothing.bin"), "a tensor map is 128 bytes"),
        (("draw", "descriptor", "mma"), "is no matrix descriptor"),
        (("draw", "descriptor", "0x40", "--bits", "12"), "elements of wgmma have 1, 8, 16, 32 bits"),
        (("draw", "descriptor", "0x40", "--bits", "8", "--major", "MN"), "MN-major"),
    ],
)
def test_refusals(arguments: tuple[str, ...], words: str, lanewise: Callable[..., Said]) -> None:
    said = lanewise(*arguments)
    assert said.code == 2 and words in said.err and said.err.count("\n") == 1


def test_a_file_of_something_else(tmp_path: Path, lanewise: Callable[..., Said]) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    assert "neither a matrix descriptor" in lanewise("explain", path).err
