"""CUTLASS's names of tcgen05.mma: each gives the instruction and the fields of its template arguments."""

from typing import Any

import pytest

import lanewise as lw

NAMES = [
    ("SM100_MMA_F16BF16_SS<half_t, half_t, float, 128, 256, UMMA::Major::K, UMMA::Major::MN>",
     "tcgen05.mma.cta_group::1.kind::f16", "m128n256k16", ("f32", "f16", "f16")),
    ("cute::SM100_MMA_F16BF16_2x1SM_TS<cutlass::bfloat16_t, cutlass::bfloat16_t, float, 256, 64, "
     "cute::UMMA::Major::K, cute::UMMA::Major::K, cute::UMMA::ScaleIn::Neg, cute::UMMA::ScaleIn::One>{}",
     "tcgen05.mma.cta_group::2.kind::f16", "m256n64k16", ("f32", "bf16", "bf16")),
    ("SM100_MMA_TF32_SS<tfloat32_t, tfloat32_t, float, 64, 8, UMMA::Major::K, UMMA::Major::K>",
     "tcgen05.mma.cta_group::1.kind::tf32", "m64n8k8", ("f32", "tf32", "tf32")),
    ("SM100_MMA_S8_SS<int8_t, uint8_t, int32_t, 128, 32, Major::K, Major::K, UMMA::Saturate::True>",
     "tcgen05.mma.cta_group::1.kind::i8", "m128n32k32", ("s32", "s8", "u8")),
    ("SM100_MMA_F8F6F4_SS_SPARSE<float_e4m3_t, float_e3m2_t, half_t, 128, 64, Major::K, Major::K>",
     "tcgen05.mma.sp.cta_group::1.kind::f8f6f4", "m128n64k64", ("f16", "e4m3", "e3m2")),
    ("SM100_MMA_MXF8F6F4_2x1SM_SS<float_e4m3_t, float_e2m1_t, float, float_ue8m0_t, 256, 128, "
     "Major::K, Major::K>",
     "tcgen05.mma.cta_group::2.kind::mxf8f6f4.block_scale.block32", "m256n128k32", ("f32", "e4m3", "e2m1")),
    ("SM100_MMA_MXF4_SS<float_e2m1_t, float_e2m1_t, float, float_ue4m3_t, 128, 64, 16, Major::K, Major::K>",
     "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16", "m128n64k64", ("f32", "e2m1", "e2m1")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "shape", "types"), NAMES)
def test_a_name_gives_the_instruction(name: str, text: str, shape: str, types: tuple[str, ...]) -> None:
    mma = lw.instruction(name)
    assert (mma.text, mma.shape_text, mma.types) == (text, shape, types)


def test_orders_signs_and_saturation_are_fields_of_the_descriptor() -> None:
    instructions: list[Any] = [lw.instruction(name) for name, *_ in NAMES]
    assert instructions[0].descriptor.b_major == "MN"
    assert instructions[1].descriptor.negate_a
    assert instructions[3].descriptor.saturate


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("SM100_MMA_F16BF16_SS", "takes template arguments <a, b, d, m, n"),
        (
            "SM100_MMA_F16BF16_SS<half_t, half_t, float, 96, 64, Major::K, Major::K>",
            "M is 96; tcgen05.mma with",
        ),
        ("SM100_MMA_F16BF16_SS<half_t, half_t, float, 128, N, Major::K, Major::K>", "N is a number, not N"),
        ("SM100_MMA_F16BF16_SS<half_t, half_t, float, 128, 64, Major::M, Major::K>", "UMMA::Major::K or"),
        ("SM100_MMA_F16BF16_SS<half, half_t, float, 128, 64, Major::K, Major::K>", "is no type of a matrix"),
        ("SM100_MMA_BF16_SS<half_t, half_t, float, 128, 64, Major::K, Major::K>", "are SM100_MMA_ with TF32"),
    ],
)
def test_wrong_names_say_what_is_allowed(name: str, message: str) -> None:
    with pytest.raises(lw.LanewiseError, match=message):
        lw.instruction(name)
