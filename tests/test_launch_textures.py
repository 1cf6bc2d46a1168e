"""Textures and surfaces as arguments of a launch: of NumPy arrays, and of arrays on a (pretended) GPU."""

from typing import Any

import numpy as np
import pytest

import lanewise as lw
from fake_gpu import FakeArray, FakeDriver, fake
from lanewise.errors import LanewiseError
from lanewise.ptx import parse

__all__ = ["fake"]  # the fixture

KERNEL = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 image, .param .u64 out) {{
    .reg .b64 %rd<4>; .reg .f32 %f<8>; .reg .b32 %r<4>;
    ld.param.u64 %rd0, [image]; ld.param.u64 %rd1, [out];
    {line}
    st.global.f32 [%rd1], %f0;
    ret;
}}
"""
TEX = KERNEL.format(line="tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd0, {%f4, %f4}];")
SULD = KERNEL.format(line="suld.b.2d.b32.trap {%f0}, [%rd0, {%r0, %r0}];")
FETCH = KERNEL.format(line="tex.1d.v4.f32.s32 {%f0, %f1, %f2, %f3}, [%rd0, {%r0}];")


def called(driver: FakeDriver) -> list[str]:
    """The calls that concern textures, in order."""
    names = [call[0] for call in driver.calls]
    return [name for name in names if "Array" in name or "Memcpy" in name or "Object" in name]


def launched(text: str, driver: FakeDriver, *arguments: Any) -> None:
    driver.sizes = (8, 8)
    parse(text)["k"][1, 1](*arguments)


def test_a_texture_is_copied_into_a_cuda_array_once_made(fake: FakeDriver) -> None:
    image = lw.texture(FakeArray(), filter="linear", address="border", border=2.0)
    for _ in range(2):
        launched(TEX, fake, image, FakeArray(8192))
    assert called(fake) == [
        "cuArray3DCreate_v2", "cuTexObjectCreate", "cuMemcpy3DAsync_v2", "cuMemcpy3DAsync_v2"
    ]  # fmt: skip
    made = next(call for call in fake.calls if call[0] == "cuArray3DCreate_v2")[1]
    assert np.frombuffer(made.raw[:24], np.uint64).tolist() == [8, 4, 0]
    assert len(fake.launches) == 2
    del image
    assert called(fake)[-2:] == ["cuTexObjectDestroy", "cuArrayDestroy"]


def test_a_surface_is_copied_back(fake: FakeDriver) -> None:
    image = lw.surface(FakeArray())
    launched(SULD, fake, image, FakeArray(8192))
    create, copy = ["cuArray3DCreate_v2", "cuSurfObjectCreate"], "cuMemcpy3DAsync_v2"
    assert called(fake) == [*create, copy, copy]
    there, back = (call[1].raw for call in fake.calls if call[0] == copy)
    assert there[:88] == back[88:176] and there[88:176] == back[:88]


def test_tex1dfetch_reads_the_memory_itself(fake: FakeDriver) -> None:
    image = lw.texture(FakeArray(shape=(32,)))
    launched(FETCH, fake, image, FakeArray(8192))
    assert called(fake) == ["cuTexObjectCreate"]
    with pytest.raises(LanewiseError, match="tex1Dfetch takes a texture with plain coordinates"):
        launched(FETCH, fake, lw.texture(FakeArray(shape=(32,)), normalized=True), FakeArray(8192))


def test_all_lie_in_one_place(fake: FakeDriver) -> None:
    picture = np.zeros((4, 8), np.float32)
    with pytest.raises(LanewiseError, match="all its arrays on one GPU, or all as NumPy arrays"):
        launched(TEX, fake, lw.texture(picture), FakeArray())
    with pytest.raises(LanewiseError, match="all its arrays on one GPU, or all as NumPy arrays"):
        launched(TEX, fake, lw.texture(FakeArray()), picture)
    out = np.zeros(1, np.float32)
    parse(TEX)["k"][1, 1](lw.texture(picture + 3), out)
    assert out[0] == 3 and not fake.launches


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"filter": "cubic"}, "filter='cubic' is not one of 'point', 'linear'"),
        ({"address": "repeat"}, "address='repeat' is not one of 'wrap'"),
        ({"address": ("wrap",) * 4}, r"one for each of 2 dimensions; 4 given"),
        ({"read": "float"}, "read='float' is not one of"),
        ({"read": "normalized_float"}, "for integers of 8 and 16 bits; the array is float32"),
        ({"channels": 3}, "1, 2 or 4 channels, not 3"),
        ({"channels": 4}, r"the last dimension of the array \(4, 8\) is not 4"),
        ({"border": (1, 2, 3)}, "up to four channels"),
        ({"address": "border", "border": "red"}, "up to four channels"),
    ],
)
def test_wrong_settings_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(LanewiseError, match=message):
        lw.texture(np.zeros((4, 8), np.float32), **change)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((4, 8)), r"and not float64; pass array.view\(numpy.int32\) with channels=2"),
        (np.zeros((4, 8), ">f4"), r"not float32 \(big-endian\)"),
        (np.zeros((4, 8), bool), "not bool; convert the array"),
        (np.zeros((4, 8), np.float32)[:, ::2], "in one piece, in C's order"),
        (np.zeros((0, 8), np.float32), r"at least one texel; the array has shape \(0, 8\)"),
        (np.zeros((2, 2, 2, 2), np.float32), "has 1 to 3 dimensions; the array has 4"),
        ([1.0, 2.0], "made of a NumPy array or an array on a GPU, not of list"),
    ],
)
def test_wrong_arrays_are_refused(array: Any, message: str) -> None:
    for make in (lw.texture, lw.surface):
        with pytest.raises(LanewiseError, match=message):
            make(array)


def test_what_a_texture_or_surface_cannot_be_passed_for() -> None:
    picture = np.zeros((4, 8), np.float32)
    numbers = lw.load(TEX.replace(".param .u64 image", ".param .u32 image").replace("u64 %rd0", "u32 %r0"))
    with pytest.raises(
        LanewiseError, match=r"argument 0 \(image\) is .u32; a texture is passed for a 64-bit"
    ):
        numbers["k"][1, 1](lw.texture(picture), np.zeros(1, np.float32))
    with pytest.raises(LanewiseError, match=r"linear.*blends floats; the array is uint8: pass read="):
        lw.texture(np.zeros(8, np.uint8), filter="linear")
    with pytest.raises(LanewiseError, match="the array is read-only"):
        picture.flags.writeable = False
        lw.surface(picture)
