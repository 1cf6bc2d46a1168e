"""Matrix descriptors: fields and errors, CuTe's canonical layouts, and what an H200 read."""

import json
import zlib
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.address_probe import probes
from lanewise.errors import LanewiseError
from lanewise.isa.matrix_descriptor import (
    FIELDS,
    SWIZZLE_MODES,
    Major,
    MatrixDescriptor,
    reserved_bits,
    swizzle_mode,
)
from lanewise.layout import ComposedLayout, Layout

RECORD = Path(__file__).parents[2] / "benchmarks" / "results" / "h200_wgmma_addresses.json"
SIXTEENTHS = st.integers(0, (1 << 14) - 1).map(lambda number: 16 * number)
DESCRIPTORS = st.builds(
    MatrixDescriptor,
    SIXTEENTHS,
    SIXTEENTHS,
    SIXTEENTHS,
    st.integers(0, 7),
    st.sampled_from([mode.name for mode in SWIZZLE_MODES]),
)


@given(DESCRIPTORS)
def test_decode_undoes_encode(descriptor: MatrixDescriptor) -> None:
    bits = descriptor.encode()
    assert 0 <= bits < 1 << 64 and not reserved_bits(bits)
    assert MatrixDescriptor.decode(bits) == descriptor
    signed = bits - (1 << 64) if bits >> 63 else bits
    assert MatrixDescriptor.decode(signed) == descriptor


@given(st.integers(0, (1 << 64) - 1))
def test_bits_of_no_field_are_ignored(bits: int) -> None:
    assert MatrixDescriptor.decode(bits).encode() == bits & ~reserved_bits(bits)


def test_fields_do_not_overlap() -> None:
    masks = [field.mask for field in FIELDS]
    assert sum(masks) == np.bitwise_or.reduce(np.array(masks, np.uint64))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"start_address": 8}, "start_address .* is 0 to 262128 in steps of 16 bytes, not 8"),
        ({"stride_byte_offset": 1 << 18}, "stride_byte_offset .* is 0 to 262128"),
        ({"leading_byte_offset": -16}, "leading_byte_offset .* not -16"),
        ({"base_offset": 8}, "base_offset .* is 0 to 7, not 8"),
        ({"start_address": 1.5}, "start_address of a matrix descriptor is an integer, not 1.5"),
        ({"swizzle": "256B"}, 'a swizzle is "none", "32B", "64B" or "128B"'),
    ],
)
def test_values_that_do_not_fit_are_errors(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(LanewiseError, match=message):
        MatrixDescriptor(**wrong)


def test_what_has_no_layout_is_an_error() -> None:
    with pytest.raises(LanewiseError, match="64 bits"):
        MatrixDescriptor.decode(1 << 64)
    with pytest.raises(LanewiseError, match="only matrices of 16-bit elements may be MN-major"):
        MatrixDescriptor().element_addresses(64, 8, 32, "MN")
    with pytest.raises(LanewiseError, match='"K"-major or "MN"-major'):
        MatrixDescriptor().element_addresses(64, 16, 16, "N")  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("mode", SWIZZLE_MODES, ids=lambda mode: mode.name)
@pytest.mark.parametrize("major", get_args(Major))
@pytest.mark.parametrize("bits", [8, 16, 32])
def test_addresses_are_cutes_canonical_layouts(mode: Any, major: Major, bits: int) -> None:
    """In pieces of 16 bytes (T elements), as CUTLASS states them for each mode."""
    if major == "MN" and bits != 16:
        return
    t, w = 128 // bits, mode.row_pieces
    rows, k, leading, stride = 64, 2 * t, 4096, 2048
    lbo, sbo = leading * 8 // bits, stride * 8 // bits
    if major == "K":
        canonical = Layout(((8, rows // 8), (t, 2)), ((w * t, sbo), (1, lbo if w == 1 else t)))
    elif w == 1:
        canonical = Layout(((t, rows // t), (8, k // 8)), ((1, sbo), (t, lbo)))
    else:
        canonical = Layout(((t, w, rows // t // w), (8, k // 8)), ((1, t, lbo), (w * t, sbo)))
    descriptor = MatrixDescriptor(0x2000, leading, stride, swizzle=mode.name)
    swizzled = ComposedLayout(swizzle_mode(mode.name).swizzle, 0x2000, Layout(1))
    found = descriptor.element_addresses(rows, k, bits, major)
    for row in range(rows):
        for column in range(k):
            linear = 0x2000 + canonical(row, column) * bits // 8
            assert found[row, column] == swizzled.layoutB(linear)


def test_addresses_are_those_of_an_h200() -> None:
    """Each element that wgmma read through random descriptors, by a checksum for each descriptor."""
    record = json.loads(RECORD.read_text())
    assert record["made"]["device"] == "NVIDIA H200" and record["made"]["driver"] and record["made"]["date"]
    assert record["compared"]["differing"] == 0
    held = 0
    for probe in probes():
        for text, checksum in record["addresses"][str(probe)].items():
            addresses = probe.expected(MatrixDescriptor.decode(int(text, 16)))[:: 4 if probe.n == 256 else 1]
            found = zlib.crc32(np.ascontiguousarray(addresses, "<i4").tobytes())
            assert f"{found:08x}" == checksum, (str(probe), text)
            held += 1
    assert held == sum(map(len, record["addresses"].values())) > 1500
