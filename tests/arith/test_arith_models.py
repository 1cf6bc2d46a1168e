"""The table of models: every legal instruction has one on every arch, and it says what the facts say."""

import pytest

from lanewise.arith import fidelity, model_of
from lanewise.arith.models import EVIDENCE, ROWS, FmaChain, FusedSum, IntegerSum, PopcountSum
from lanewise.errors import IllegalInstruction, LanewiseError
from lanewise.isa import instruction, instructions

FAMILIES = ("mma", "mma.sp", "mma.sp::ordered_metadata", "wmma.mma", "wgmma", "wgmma.sp")
F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"


@pytest.mark.parametrize("family", FAMILIES)
def test_every_legal_instruction_has_a_model_on_every_arch(family: str) -> None:
    for each in instructions(family=family):
        for arch in each.archs:
            assert model_of(each, arch) is not None, (each, arch)


def test_every_row_and_every_piece_of_evidence_is_used() -> None:
    forms = [each for family in FAMILIES for each in instructions(family=family, withdrawn=True)]
    pairs = [(each, int(arch.strip("sm_af"))) for each in forms for arch in each.archs]
    for table in (ROWS, EVIDENCE):
        used = {next(row for row in table if row.matches(each, arch)) for each, arch in pairs}
        assert used == {row for row in table if set(row.families) & set(FAMILIES)}  # the rest: tcgen05.mma


# L, F, rounding and e_zero as the facts list them for mma.
@pytest.mark.parametrize(
    ("text", "arch", "length", "fraction", "rounding", "e_zero"),
    [
        ("m8n8k4.row.col.f32.f16.f16.f32", "sm_70", 4, 23, "RZ-FP32", -131),
        ("m16n8k8.row.col.f32.f16.f16.f32", "sm_75", 8, 24, "RZ-FP32", -132),
        ("m8n8k4.row.col.f32.f16.f16.f32", "sm_75", 4, 23, "RZ-FP32", -131),
        ("m16n8k8.row.col.f32.tf32.tf32.f32", "sm_80", 4, 24, "RZ-FP32", -132),
        ("m16n8k16.row.col.f32.bf16.bf16.f32", "sm_86", 8, 24, "RZ-FP32", -132),
        ("m16n8k32.row.col.f32.e4m3.e5m2.f32", "sm_89", 16, 13, "RZ-E8M13", -132),
        ("m16n8k8.row.col.f32.tf32.tf32.f32", "sm_90", 8, 25, "RZ-FP32", -133),
        ("m16n8k16.row.col.f32.f16.f16.f32", "sm_90a", 16, 25, "RZ-FP32", -133),
        ("m16n8k16.row.col.f32.f16.f16.f32", "sm_100", 16, 25, "RZ-FP32", -133),
        ("m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_120", 32, 25, "RZ-FP32", -133),
    ],
)
def test_rows_of_the_facts(
    text: str, arch: str, length: int, fraction: int, rounding: str, e_zero: int
) -> None:
    model = model_of(instruction(f"mma.sync.aligned.{text}"), arch)
    assert model is not None and isinstance(model.scheme, FusedSum)
    scheme = model.scheme
    assert (scheme.length, scheme.fraction, scheme.rounding, scheme.e_zero) == (
        length,
        fraction,
        rounding,
        e_zero,
    )


def test_a_block_is_no_longer_than_k() -> None:
    for k, block in ((8, 8), (16, 16)):
        model = model_of(instruction(f"mma.sync.aligned.m16n8k{k}.row.col.f32.f16.f16.f32"), "sm_90")
        assert model is not None and model.block == block


def test_fp8_blocks_do_not_cross_the_halves() -> None:
    for k in (16, 32):
        model = model_of(instruction(f"mma.sync.aligned.m16n8k{k}.row.col.f32.e4m3.e4m3.f32"), "sm_90")
        assert model is not None and model.block == k // 2


@pytest.mark.parametrize(
    ("text", "scheme"),
    [
        ("mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32", IntegerSum),
        ("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc", PopcountSum),
        ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", FmaChain),
        ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", FmaChain),
    ],
)
def test_schemes_that_are_no_fused_sums(text: str, scheme: type) -> None:
    model = model_of(instruction(text), "sm_90")
    assert model is not None and isinstance(model.scheme, scheme)


def test_sm_90_and_sm_90a_are_one_chip() -> None:
    for each in instructions(arch="sm_90", family="mma"):
        assert model_of(each, "sm_90") == model_of(each, "sm_90a")


def test_the_accumulator_is_f32_if_c_or_d_is() -> None:
    for d, c in (("f16", "f32"), ("f32", "f16"), ("f32", "f32")):
        model = model_of(instruction(f"wmma.mma.sync.aligned.row.col.m16n16k16.{d}.{c}"), "sm_90")
        assert model is not None and model.accumulator == "f32"
        assert isinstance(model.scheme, FusedSum) and model.scheme.rounding == "RZ-FP32"


def test_fidelity_speaks_of_the_arch() -> None:
    mma = instruction(F16)
    assert fidelity(mma, "sm_90") == "confirmed on hardware"
    assert fidelity(mma, "sm_80") == "from published models"
    assert fidelity(mma, "sm_88") == "inferred"


def test_fidelity_of_an_illegal_arch_is_an_error() -> None:
    with pytest.raises(IllegalInstruction, match="sm_80"):
        fidelity(instruction(F16), "sm_75")


def test_loads_compute_nothing() -> None:
    with pytest.raises(LanewiseError, match="computes nothing"):
        model_of(instruction("ldmatrix.sync.aligned.m8n8.x4.shared.b16"), "sm_80")
