"""Tensor maps: the driver's bytes and refusals as an H200 gave them, rules in words, and back from bytes."""

import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lanewise as lw
from lanewise.errors import LanewiseError
from lanewise.isa.tensor_map import (
    TiledTensor,
    decode,
    field_values,
    nearest,
    noted_otherwise,
    unknown_bits,
)
from lanewise.isa.tensor_map_fields import ELEMENT_TYPES, FIELD, FIELDS, MAP_BYTES
from tensor_map_cases import Call, digest, random_tensor, unpacked

RECORD = Path(__file__).parents[2] / "benchmarks" / "results" / "h200_tensor_maps.json"


@pytest.fixture(scope="module")
def record() -> Any:
    return json.loads(RECORD.read_text())


# against the driver ---------------------------------------------------------------------------------------


def test_random_maps_have_the_drivers_bytes(record: Any) -> None:
    answers = unpacked(record["legal"])
    assert len(answers) >= 3000 and not any(answer.status for answer in answers)
    for call, _, mark in answers:
        assert digest(call.tensor.encode(call.address)) == mark, call


def test_what_the_driver_refuses_breaks_a_rule_and_nothing_else_does(record: Any) -> None:
    answers = unpacked(record["at_limits"])
    assert sum(answer.status != 0 for answer in answers) > 1000
    for call, status, mark in answers:
        broken = call.broken_rule
        assert (broken is None) == (status == 0), (call, broken)
        if broken is None:
            assert digest(call.tensor.encode(call.address)) == mark, call


def test_one_field_at_a_time(record: Any) -> None:
    arguments: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in record["base"].items()
    }
    base = Call(**arguments)
    assert len(record["one_field"]) > 200
    for title, answer in record["one_field"].items():
        call = base
        if title != "base":
            name, axis, value = re.fullmatch(r"(\w+)(?:\[(\d)\])? = (\d+)", title).groups()
            new: Any = int(value)
            if axis is not None:
                new = tuple(int(value) if n == int(axis) else x for n, x in enumerate(getattr(base, name)))
            call = base._replace(**{name: new})
        if answer.startswith("status"):
            assert call.broken_rule is not None, title
        else:
            raw = call.tensor.encode(call.address)
            assert raw.hex().rstrip("0") == answer, title


# laws -------------------------------------------------------------------------------------------------------


def test_no_two_fields_share_a_bit() -> None:
    seen = 0
    for field in FIELDS:
        assert not seen & field.mask, field
        seen |= field.mask


@settings(deadline=None)
@given(st.randoms(use_true_random=False))
def test_a_map_reads_back(chance: random.Random) -> None:
    tensor, address = random_tensor(chance)
    raw = tensor.encode(address)
    assert len(raw) == MAP_BYTES and decode(raw) == (address, tensor)
    assert not unknown_bits(raw) and not noted_otherwise(raw)


@settings(deadline=None)
@given(st.binary(min_size=MAP_BYTES, max_size=MAP_BYTES))
def test_any_bytes_are_a_map_or_a_sentence(raw: bytes) -> None:
    assert field_values(raw).keys() == FIELD.keys()
    try:
        address, tensor = decode(raw)
    except LanewiseError as error:
        assert str(error).startswith("this is")
    else:
        assert tensor.described() and address % 16 == 0


def test_what_is_no_tiled_map_of_sm_90() -> None:
    raw = int.from_bytes(TiledTensor("f32", (64,), (), (8,), (1,)).encode(0), "little")

    def changed(name: str, value: int) -> bytes:
        field = FIELD[name]
        return ((raw & ~field.mask) | field.put(value)).to_bytes(MAP_BYTES, "little")

    for name, value, words in (
        ("mode", 1, "im2col"),
        ("mode", 2, "its mode is 2"),
        ("rank", 6, "6 axes"),
        ("type", 15, "no type has the number 15"),
        ("atomicity", 1, "swizzle 0 has no atomicity 1"),
        ("interleave", 3, "no interleaved layout"),
    ):
        with pytest.raises(LanewiseError, match=words):
            decode(changed(name, value))
    with pytest.raises(LanewiseError, match="128 bytes; 127 were given"):
        decode(bytes(127))
    assert noted_otherwise(changed("box0", 16)) == ["box_bytes"]


@given(st.integers(-1000, 1000), st.sampled_from([1, 4, 16]), st.integers(1, 5), st.integers(6, 20))
def test_nearest_is_nearest(value: int, unit: int, low: int, high: int) -> None:
    allowed = range(low * unit, high * unit + 1, unit)
    assert nearest(value, unit, low * unit, high * unit) == min(allowed, key=lambda each: abs(each - value))


# rules in words ---------------------------------------------------------------------------------------------

LEGAL = TiledTensor("f16", (256, 128, 64), (512, 65536), (64, 8, 4), (1, 1, 1), swizzle="128B")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"box": (60, 8, 4)}, "60 elements of f16 are 120: 56 elements are nearest"),
        ({"box": (128, 8, 4)}, "at most 128 bytes, and 128 elements of f16 are 256: 64 elements are nearest"),
        ({"box": (64, 0, 4)}, "axis 1 of the box has 0 elements; 1 to 256 are legal: 1 is nearest"),
        ({"box": (64, 8, 257)}, "axis 0 of the box has 257 elements; 1 to 256 are legal: 256 is nearest"),
        ({"box": (64, 256, 16)}, "at most 233472 bytes .228 KB., and this one has 524288: 7 along axis 0"),
        ({"dims": (0, 128, 64)}, "axis 2, the innermost, of the tensor has 0 elements"),
        ({"dims": (256, (1 << 32) + 1, 64)}, "1 to 4294967296 are legal: 4294967296 is nearest"),
        ({"strides": (520, 65536)}, "axis 1 has a stride of 520 bytes; strides are multiples of 16"),
        ({"strides": (512, 1 << 40)}, "below 2..40: 1099511627760 is nearest"),
        ({"strides": (528, 65536), "interleave": "32B"}, "multiples of 32 bytes with interleave 32B"),
        ({"element_strides": (1, 9, 1)}, "an element stride of 9; 1 to 8 are legal: 8 is nearest"),
        ({"type": "u16", "fill": "nan"}, 'fill "nan" is for floats'),
        ({"type": "b4x16"}, "needs sm_100"),
        ({"type": "f8"}, "the type of a tensor is one of 'u8'"),
        ({"swizzle": "128B_ATOM_32B"}, "needs sm_100"),
        ({"swizzle": "16B"}, "swizzle is one of 'none', '32B', '64B', '128B', not '16B'"),
        ({"l2_promotion": "32B"}, "l2_promotion is one of"),
        ({"strides": (512,)}, "a tensor of 3 axes has 2 strides, not 1"),
        (
            {"dims": (8, 8), "strides": (16,), "box": (8, 8), "element_strides": (1, 1), "interleave": "16B"},
            "interleave 16B takes a tensor of 3 to 5 axes, not 2",
        ),
    ],
)
def test_a_refusal_names_the_rule_and_what_is_legal(change: dict[str, Any], words: str) -> None:
    tensor = TiledTensor(**{**LEGAL.__dict__, **change})
    with pytest.raises(LanewiseError, match=words):
        tensor.encode(0)


def test_what_is_said_to_be_nearest_is_legal() -> None:
    """Every number in "… is nearest" is put in place of the wrong one, and the next rule asked."""
    wrong = TiledTensor("f32", (64, 1 << 33), (1000,), (300, 0), (1, 12), swizzle="64B")
    fixed: list[dict[str, Any]] = [
        {"dims": (64, 1 << 32)},
        {"box": (256, 0)},
        {"box": (256, 1)},
        {"element_strides": (1, 8)},
        {"strides": (992,)},
        {"box": (16, 1)},
    ]
    for change in fixed:
        said = wrong.violation()
        assert said is not None
        (new,) = (
            value
            for name, value in change.items()
            for old in (getattr(wrong, name),)
            for value in value
            if value not in old
        )
        assert re.search(rf"\b{new}\b.* nearest", said), said
        wrong = replace(wrong, **change)
    assert wrong.violation() is None


@pytest.mark.parametrize(
    ("address", "interleave", "words"),
    [
        (8, "none", "a multiple of 16 bytes; 0x8 is 8 past one: 0x0 is nearest"),
        (0x1010, "32B", "a multiple of 32 bytes with interleave 32B"),
        (1 << 57, "none", "is below 0x200000000000000"),
        (-16, "none", "is below"),
    ],
)
def test_addresses(address: int, interleave: str, words: str) -> None:
    tensor = TiledTensor(**{**LEGAL.__dict__, "interleave": interleave})
    with pytest.raises(LanewiseError, match=words):
        tensor.encode(address)


# of arrays ------------------------------------------------------------------------------------------------


def test_a_view_has_its_own_shape_and_strides() -> None:
    whole = np.zeros((8, 64, 128), np.float16)
    tensor = lw.tensor_map(whole[::2, 8:40, 16:112], (1, 8, 64), swizzle="128B").tensor
    assert (tensor.dims, tensor.strides) == ((96, 32, 4), (256, 2 * 64 * 256))
    assert tensor.box == (64, 8, 1)


@pytest.mark.parametrize(
    ("dtype", "asked", "expected"),
    [
        ("float32", None, "f32"), ("float32", "tf32", "tf32"), ("float32", "f32.ftz", "f32.ftz"),
        ("int8", None, "u8"), ("bool", None, "u8"), ("int16", None, "u16"), ("uint16", None, "u16"),
        ("int32", None, "s32"), ("uint32", None, "u32"), ("int64", None, "s64"), ("uint64", None, "u64"),
        ("float64", None, "f64"), ("bfloat16", None, "bf16"), ("float8_e4m3fn", None, "u8"),
        ("uint16", "bf16", "bf16"),
    ],
)  # fmt: skip
def test_types(dtype: str, asked: str | None, expected: str) -> None:
    import ml_dtypes

    array = np.zeros((16, 64), getattr(ml_dtypes, dtype, dtype))
    tensor = lw.tensor_map(array, (2, 16), dtype=asked).tensor
    assert tensor.type == expected and tensor.element.bytes == array.itemsize


def test_every_type_has_a_name_of_its_own_in_a_map() -> None:
    assert len({(each.code, each.tf32) for each in ELEMENT_TYPES.values()}) == len(ELEMENT_TYPES)
    assert sorted(each.driver_code for each in ELEMENT_TYPES.values()) == list(range(len(ELEMENT_TYPES)))


@pytest.mark.parametrize(
    ("array", "box", "options", "words"),
    [
        (
            np.zeros((64, 64), np.float32).T,
            (8, 8),
            {},
            r"stride is 4 bytes.*is 256; array.T is such an array",
        ),
        (np.zeros((64, 64), np.float32)[:, ::2], (8, 8), {}, "copy the array"),
        (np.zeros((64, 64), np.float32)[::-1], (8, 8), {}, "axis 0 of the array runs backwards, by -256"),
        (np.zeros((64, 0), np.float32), (8, 8), {}, "at least one element along each axis"),
        (np.zeros((), np.float32), (), {}, "the array has none"),
        (np.zeros((64, 64), np.complex64), (8, 8), {}, "complex numbers"),
        (np.zeros((64, 64), ">f4"), (8, 8), {}, "big-endian"),
        (np.zeros((64, 64), np.float32), (8,), {}, "box .8,. has 1 sizes; the array has 2 axes"),
        (np.zeros((64, 64), np.float32), (8, 8.5), {}, "box is an integer for each axis"),
        (np.zeros((64, 64), np.float32), (8, 8), {"dtype": "f16"}, "takes elements of 2 bytes"),
        (np.zeros((64, 64), np.float32), (8, 8), {"dtype": "b6x16_p32"}, "needs sm_100"),
        (np.zeros((64, 64), np.float32), (8, 8), {"dtype": "f7"}, "the type of a tensor is one of"),
        (np.zeros((64, 66), np.float32), (8, 8), {}, "axis 0 has a stride of 264 bytes; .* 256 is nearest"),
        (
            [[1.0, 2.0]],
            (1, 2),
            {},
            "takes a NumPy array, a tensor in host memory or an array on a GPU first, not list",
        ),
    ],
)
def test_arrays_that_no_map_can_be_of(array: Any, box: Any, options: Any, words: str) -> None:
    with pytest.raises(LanewiseError, match=words):
        lw.tensor_map(array, box, **options)


def test_a_map_says_itself_on_one_line() -> None:
    array = np.zeros((4096, 1024), np.float16)
    tensor_map = lw.tensor_map(array, (64, 64), swizzle="128B", l2_promotion="256B", fill="nan")
    assert repr(tensor_map) == (
        "<tensor map of f16 (4096, 1024), box (64, 64), swizzle 128B, L2 promotion 256B, fill nan>"
    )
    assert tensor_map.shape == (4096, 1024) and tensor_map.box == (64, 64)
    assert tensor_map.box_bytes == 64 * 64 * 2 and tensor_map.element_strides == (1, 1)


def test_what_a_copy_takes_of_a_box() -> None:
    """As an H200 does: no element stride along the innermost axis, and the others rounded up."""
    tensor = TiledTensor("f32", (64, 64, 64), (256, 16384), (16, 9, 8), (5, 2, 1))
    assert tensor.copied == (16, 5, 8) and tensor.box_bytes == 16 * 5 * 8 * 4
    assert field_values(tensor.encode(0))["box_bytes"] == 16 // 5 * 4 * 8 * 4  # as the driver notes it


def test_a_box_in_shared_memory_has_the_width_of_its_swizzle() -> None:
    """As an H200 lays out a box of 4 rows of 32 bytes under swizzle 128B, at byte 896 of shared memory."""
    tensor = TiledTensor("s32", (64, 64), (256,), (8, 4), (1, 1), swizzle="128B")
    assert (tensor.row_bytes, tensor.row_pitch, tensor.rows, tensor.shared_bytes) == (32, 128, 4, 512)
    assert [tensor.swizzled(896 + row * 128) for row in range(4)] == [1008, 1024, 1168, 1312]
