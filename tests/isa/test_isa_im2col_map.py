"""Tensor maps of the mode im2col: the driver's bytes and refusals, there and back again, rules in words."""

import random

import numpy as np
import pytest

import lanewise as lw
from im2col_map_cases import random_im2col, recorded
from lanewise.errors import LanewiseError
from lanewise.isa.tensor_map import Im2colTensor, decode, decode_im2col
from tensor_map_cases import digest


def test_the_driver_gives_these_bytes_and_refuses_the_rest() -> None:
    """Every call of the record: the same 128 bytes, or an error where the driver has one."""
    encoded = refused = 0
    for tensor, address, status, seen in recorded():
        try:
            raw = tensor.encode(address)
        except LanewiseError as error:
            assert status, (tensor, error)
            refused += 1
        else:
            assert not status and digest(raw) == seen, tensor
            assert decode_im2col(raw) == (address, tensor)
            encoded += 1
    assert encoded > 1000 and refused > 500


def test_random_maps_come_back() -> None:
    chance = random.Random(11)
    for _ in range(300):
        tensor, address = random_im2col(chance)
        if tensor.violation() is None:
            raw = tensor.encode(address)
            assert decode_im2col(raw) == (address, tensor)
            with pytest.raises(LanewiseError, match="of the mode im2col, not tiled"):
                decode(raw)


IMAGES = np.zeros((2, 9, 11, 32), np.float16)


@pytest.mark.parametrize(
    ("box", "im2col", "options", "says"),
    [
        ((16, 32), ((0,), (0,)), {}, "has 2 axes of pixels, so that the lower corner .* not 1"),
        ((16, 32), ((0, 0), (0, 0, 0)), {}, "the upper corner of its bounding box .* not 3"),
        (
            (16, 32),
            ((-129, 0), (0, 0)),
            {},
            "the lower corner of axis 1 is -129; -128 to 127 .* -128 is nearest",
        ),
        ((16, 32), ((0, 0), (0, 128)), {}, "the upper corner of axis 2 is 128"),
        ((16, 32), ((0, 5), (0, -6)), {}, "along axis 2 the bounding box begins at 5 and ends at 4"),
        ((1025, 32), ((0, 0), (0, 0)), {}, "1 to 1024 pixels, not 1025"),
        ((16, 257), ((0, 0), (0, 0)), {}, "1 to 256 channels of a pixel, not 257"),
        ((16, 12), ((0, 0), (0, 0)), {}, "multiple of 16 bytes, and 12 of f16 are 24: 8 are nearest"),
        ((16, 32), ((0, 0), (0, 0)), {"swizzle": "32B"}, "at most 32 bytes of a pixel, .*: 16 are nearest"),
        ((1024, 256), ((0, 0), (0, 0)), {}, "at most 233472 bytes .*: 456 would fit"),
        ((16,), ((0, 0), (0, 0)), {}, r"box is \(pixels, channels\)"),
        ((16, 32), 5, {}, r"im2col is \(lower, upper\)"),
        ((16, 32), ((0, 0), (0, 0.5)), {}, "the upper corner of im2col is an integer for each axis"),
        ((16, 32), ((0, 0), (0, 0)), {"fill": 3}, "fill is one of 'zeros', 'nan', not int 3"),
        ((16, 32), ((0, 0), (0, 0)), {"element_strides": (1, 9, 1, 1)}, "element stride of 9; 1 to 8"),
    ],
)
def test_rules_in_words(box: object, im2col: object, options: dict[str, object], says: str) -> None:
    with pytest.raises(LanewiseError, match=says):
        lw.tensor_map(IMAGES, box, im2col=im2col, **options)  # type: ignore[arg-type]  # wrong ones among them


def test_two_axes_have_no_pixels() -> None:
    with pytest.raises(LanewiseError, match="im2col takes a tensor of 3 to 5 axes"):
        lw.tensor_map(IMAGES[0, 0], (16, 32), im2col=((), ()))


def test_the_order_of_arrays_and_that_of_the_driver() -> None:
    of_array = lw.tensor_map(IMAGES, (16, 32), im2col=((-1, -2), (-3, -4)), element_strides=(1, 2, 3, 1))
    raw = lw.encode_im2col(
        "f16",
        0x1000,
        (32, 11, 9, 2),
        (64, 704, 6336),
        (-2, -1),
        (-4, -3),
        32,
        16,
        element_strides=(1, 3, 2, 1),
    )
    assert of_array.encode(0x1000) == raw
    assert isinstance(of_array.tensor, Im2colTensor) and "im2col of 16 pixels" in repr(of_array)
