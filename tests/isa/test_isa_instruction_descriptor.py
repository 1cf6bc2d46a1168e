"""The instruction descriptor of tcgen05.mma: CUTLASS' bits, the PTX ISA's shapes, and laws of its code."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everything import examples
from lanewise.errors import LanewiseError
from lanewise.isa.asynchronous import async_instructions
from lanewise.isa.asynchronous.descriptor import (
    BLOCK_SCALED,
    DENSE,
    KINDS,
    InstructionDescriptor,
    legal_shapes,
    product_of,
    reserved_bits,
)

RECORD = json.loads(
    (Path(__file__).parents[1] / "data" / "tcgen05" / "instruction_descriptors.json").read_text()
)
WORDS = st.integers(0, (1 << 32) - 1)


def test_the_bits_are_those_of_cutlass() -> None:
    kinds = set()
    for row in RECORD["descriptors"]:
        fields = dict(row)
        bits = int(fields.pop("bits"), 16)
        descriptor = InstructionDescriptor(**fields)
        assert descriptor.encode() == bits, row
        assert InstructionDescriptor.decode(bits, fields["kind"]) == descriptor
        kinds.add(fields["kind"])
    assert kinds == set(KINDS) and len(RECORD["descriptors"]) == 100


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(150), deadline=None)
@given(word=WORDS, zeros=WORDS)
def test_any_bits_are_refused_or_say_the_same_again(kind: str, word: int, zeros: int) -> None:
    """Of any 32 bits, also of few that are set: an error, or fields that encode to the same bits."""
    for bits in (word, word & zeros, word & zeros & word >> 7):
        try:
            descriptor = InstructionDescriptor.decode(bits, kind)
        except LanewiseError:
            continue
        assert descriptor.encode() == bits
        assert reserved_bits(bits, kind) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_every_bit_is_a_field_s_or_reserved(kind: str) -> None:
    tile = InstructionDescriptor(kind, 128, 64)
    fields = BLOCK_SCALED if KINDS[kind].block_scaled else DENSE
    assert [field.attribute for field in tile.fields] == [field.attribute for field in fields]
    known = sum(field.mask for field in fields)
    for bit in range(32):
        if not known >> bit & 1:
            with pytest.raises(LanewiseError, match=rf"kind::{kind} reserves: {bit}$"):
                InstructionDescriptor.decode(tile.encode() ^ 1 << bit, kind)


#: The PTX ISA's table of shapes, as it is written there: words, M, N, K dense and sparse.
EIGHTS, SIXTEENS = list(range(8, 257, 8)), list(range(16, 257, 16))
PTX_ISA = [
    *((kind, "1", (64, 128), EIGHTS, EIGHTS) for kind in ("f16", "tf32", "f8f6f4")),
    *((kind, "2", (128, 256), SIXTEENS, SIXTEENS) for kind in ("f16", "tf32", "f8f6f4")),
    *((kind, "ws", (32, 64, 128), [64, 128, 256], [64, 128]) for kind in ("f16", "tf32", "f8f6f4", "i8")),
    ("i8", "1", (64, 128), *([[8, 16, 24, 32, *range(48, 257, 16)]] * 2)),
    ("i8", "2", (128, 256), *([list(range(32, 257, 32))] * 2)),
    *((kind, "1", (128,), EIGHTS, EIGHTS) for kind in ("mxf8f6f4", "mxf4", "mxf4nvf4")),
    *((kind, "2", (128, 256), SIXTEENS, SIXTEENS) for kind in ("mxf8f6f4", "mxf4", "mxf4nvf4")),
]
K = {"f16": 16, "tf32": 8, "f8f6f4": 32, "i8": 32, "mxf8f6f4": 32, "mxf4": 64, "mxf4nvf4": 64}


@pytest.mark.parametrize(("kind", "where", "rows", "dense", "sparse"), PTX_ISA)
def test_shapes_are_those_of_the_ptx_isa(
    kind: str, where: str, rows: tuple[int, ...], dense: list[int], sparse: list[int]
) -> None:
    group = "cta_group::1" if where == "ws" else f"cta_group::{where}"
    for sp, columns in (("", dense), (".sp", sparse)):
        text = f"tcgen05.mma{'.ws' if where == 'ws' else ''}{sp}.{group}.kind::{kind}"
        legal = set(rows) if not (sp and where == "2" and kind.startswith("mx")) else {256}
        for m in (16, 32, 64, 96, 128, 192, 256):
            for n in range(8, 257, 8):
                expected = m in legal and n in columns
                try:
                    tile = InstructionDescriptor(kind, m, n, sparse=bool(sp))
                    assert tile.k == K[kind] * (2 if sp else 1)
                    tile.require(text)
                except LanewiseError:
                    assert not expected, (text, m, n)
                else:
                    assert expected, (text, m, n)


def test_every_form_has_shapes_that_its_descriptor_can_say() -> None:
    for form in async_instructions():
        if form.multiplies:
            product = product_of(form.text)
            legal = legal_shapes(product)
            for m, n, k in ((legal.m[0], legal.n[0], legal.k[0]), (legal.m[-1], legal.n[-1], legal.k[-1])):
                tile = InstructionDescriptor(product.kind.name, m, n, k=k, sparse=product.sparse)
                assert InstructionDescriptor.decode(tile.encode(), tile.kind).require(form.text) == tile


REFUSED = [
    ({"kind": "f17"}, "no kind 'f17'; kinds are f16, tf32"),
    ({"m": 100}, "m of an instruction descriptor of kind::f16 is 32, 64, 128 or 256, not 100"),
    ({"n": 4}, "8 to 256 by 8, not 4"),
    ({"n": 264}, "8 to 256 by 8, not 264"),
    ({"m": "128"}, "m of an instruction descriptor is an integer, not '128'"),
    ({"a": "e4m3"}, "a of an instruction descriptor of kind::f16 is f16 or bf16, not 'e4m3'"),
    ({"b": "bf16", "d": "f16"}, "d .* is f32, not 'f16' for these formats of A and B"),
    ({"kind": "tf32", "d": "f16"}, "is f32, not 'f16'"),
    ({"kind": "i8", "negate_a": True}, "negate_a .* is False, not True"),
    ({"saturate": True}, "saturate .* is False, not True"),
    ({"kind": "f8f6f4", "b": "e2m3", "b_major": "MN"}, "narrower than 8 bits are K-major"),
    ({"a_major": "M"}, "a_major .* is K or MN, not 'M'"),
    ({"sparsity_selector": 1}, "sparsity_selector .* is 0, not 1"),
    ({"kind": "f8f6f4", "sparse": True, "sparsity_selector": 1}, "is 0, not 1"),
    ({"max_shift": 4}, "max_shift .* is 0, 8, 16 or 32, not 4"),
    ({"kind": "mxf4", "scale": "ue4m3"}, "scale .* is ue8m0, not 'ue4m3'"),
    ({"kind": "mxf4", "scale_b_id": 1}, "scale_b_id .* is 0 or 2, not 1"),
    ({"kind": "mxf8f6f4", "m": 64}, "m .* is 128 or 256, not 64"),
    ({"kind": "mxf8f6f4", "k": 96}, "k .* is 32, not 96"),
    ({"kind": "mxf4", "sparse": True, "k": 96}, "k .* is 128, not 96"),
    ({"sparse": 2}, "sparse of an instruction descriptor is True or False, not 2"),
]


@pytest.mark.parametrize(("fields", "says"), REFUSED, ids=lambda value: str(value)[:40])
def test_fields_that_a_kind_does_not_have_are_refused(fields: dict[str, object], says: str) -> None:
    with pytest.raises(LanewiseError, match=says):
        InstructionDescriptor(**{"kind": "f16", "m": 128, "n": 64, **fields})  # type: ignore[arg-type]  # of any type


F16 = "tcgen05.mma.cta_group::1.kind::f16"
FP8 = "tcgen05.mma.cta_group::1.kind::f8f6f4"
NVFP4 = "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale"
UNFIT = [
    (F16, {"m": 256}, "M is 256; tcgen05.mma with kind::f16, cta_group::1 has M 64 or 128"),
    (F16.replace("::1", "::2"), {"n": 24}, "has N 16 to 256 by 16"),
    (F16, {"sparse": True}, "sparse.* is 1, and the instruction is not sparse"),
    (F16, {"max_shift": 8}, "only tcgen05.mma.ws shifts B"),
    (F16.replace("f16", "tf32"), {}, "one of kind::f16, the instruction has kind::tf32"),
    (f"{NVFP4}.block32", {"kind": "mxf4nvf4", "scale": "ue4m3"}, "ue4m3 scales go with blocks of 16"),
    (f"{NVFP4}.block16", {"kind": "mxf4nvf4", "scale_a_id": 2}, "are 2 and 0; .* K = 64 both are 0"),
    (f"{NVFP4}.block16", {"kind": "mxf4nvf4", "k": 96, "scale_b_id": 1}, "K = 96 both are 0 or 2"),
    (FP8, {"kind": "f8f6f4", "n": 24, "b_major": "MN"}, "N is 24; N-major B .* 16 to 256 by 16"),
    (FP8.replace("::1", "::2"), {"kind": "f8f6f4", "n": 48, "b_major": "MN"}, "32 to 256 by 32"),
]


@pytest.mark.parametrize(("text", "fields", "says"), UNFIT, ids=lambda value: str(value)[:40])
def test_descriptors_that_a_form_does_not_take_are_refused(
    text: str, fields: dict[str, object], says: str
) -> None:
    tile = InstructionDescriptor(**{"kind": "f16", "m": 128, "n": 64, **fields})  # type: ignore[arg-type]  # of any type
    with pytest.raises(LanewiseError, match=says):
        tile.require(text)


def test_the_long_k_is_that_of_one_arch() -> None:
    tile = InstructionDescriptor("mxf4", 128, 64, k=96)
    assert tile.encode() >> 31 == 1 and InstructionDescriptor.decode(tile.encode(), "mxf4") == tile
    assert InstructionDescriptor("mxf4", 128, 64, k=96, scale_a_id=3).scale_a_id == 3
    text = "tcgen05.mma.cta_group::1.kind::mxf4.block_scale"
    assert tile.require(text, "sm_103a") is tile
    with pytest.raises(LanewiseError, match="only sm_103a has that, sm_100a has 64"):
        tile.require(text, "sm_100a")


def test_numbers_of_numpy_are_numbers_and_too_many_bits_are_none() -> None:
    tile = InstructionDescriptor("f16", np.int64(64), np.uint8(8))  # type: ignore[arg-type]  # NumPy's integers are taken, too
    assert tile == InstructionDescriptor("kind::f16", 64, 8) and type(tile.m) is int
    assert InstructionDescriptor.decode(np.uint32(tile.encode()), "f16") == tile  # type: ignore[arg-type]  # NumPy's integers are taken, too
    high = replace(tile, max_shift=32).encode()
    assert InstructionDescriptor.decode(high - (1 << 32), "f16").max_shift == 32  # a register read as signed
    with pytest.raises(LanewiseError, match="has 32 bits; 0x100000000 has more"):
        InstructionDescriptor.decode(1 << 32, "f16")
    assert "kind='f16', m=64, n=8, a='f16'" in str(tile) and "negate" not in str(tile)
