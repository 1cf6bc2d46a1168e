"""Instructions, formats and GPUs under the names that people type."""

from __future__ import annotations

import pytest

from lanewise.errors import IllegalInstruction, LanewiseError
from lanewise.formats import format_of
from lanewise.isa import ARCHS, find_arch, instruction, instructions
from lanewise.isa.gpu_names import _GPUS

MMA = "mma.sync.aligned.m16n8k16.row.col."


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("m16n8k16 bf16", f"{MMA}f32.bf16.bf16.f32"),
        ("16x8x16 f32 fp16", f"{MMA}f32.f16.f16.f32"),
        ("mma.m16n8k16.f16.f16", f"{MMA}f16.f16.f16.f16"),
        ("HMMA.16816.F32", f"{MMA}f32.f16.f16.f32"),
        ("HMMA.16816.F16", f"{MMA}f16.f16.f16.f16"),
        ("HMMA.16816.F32.BF16", f"{MMA}f32.bf16.bf16.f32"),
        ("HMMA.1688.F32.TF32", "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"),
        ("IMMA.16832.S8.U8", "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32"),
        ("DMMA.884", "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"),
        ("QMMA.16832.F32.E4M3.E4M3", "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"),
        ("wmma 16x16x16 float half", "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32"),
        ("wgmma m64n128k16 bfloat16", "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16"),
        ("LDSM.x4", "ldmatrix.sync.aligned.m8n8.x4.shared.b16"),
        ("ldmatrix x2 trans", "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16"),
        ("movmatrix", "movmatrix.sync.aligned.m8n8.trans.b16"),
        ("mma.sp m16n8k32 bf16", "mma.sp.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32"),
    ],
)
def test_a_name_that_fits_one_form(name: str, text: str) -> None:
    assert instruction(name).text == text


def test_a_name_that_fits_several_lists_the_usual_first() -> None:
    with pytest.raises(IllegalInstruction) as caught:
        instruction("mma.m16n8k16.f16")
    assert str(caught.value).splitlines() == [
        "'mma.m16n8k16.f16' may mean one of",
        f"    {MMA}f32.f16.f16.f32",
        f"    {MMA}f16.f16.f16.f16",
    ]
    with pytest.raises(IllegalInstruction, match=r"(?s)m16n16k16.f32.f32\n.*m16n16k16.f16.f16"):
        instruction("wmma 16x16x16 half")


def test_a_name_means_what_an_arch_has() -> None:
    with pytest.raises(LanewiseError):
        instruction("m16n8k16 bf16", arch="T4")
    assert instruction("m16n8k16 bf16", arch="A100").archs[0] == "sm_80"


@pytest.mark.parametrize("name", ["mma", "m16n8k17 bf16", "mma m16n8k16 f17", "hello", "16816", ""])
def test_a_name_of_nothing_is_refused(name: str) -> None:
    with pytest.raises(IllegalInstruction):
        instruction(name)


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        ("H100", "sm_90a"), ("A100", "sm_80"), ("RTX 4090", "sm_89"), ("rtx4090", "sm_89"),
        ("B200", "sm_100a"),
        ("V100", "sm_70"), ("T4", "sm_75"), ("L40S", "sm_89"), ("Orin", "sm_87"),
        ("Jetson AGX Orin", "sm_87"),
        ("NVIDIA H100 80GB PCIe", "sm_90a"),
        ("GeForce RTX 3060 Laptop GPU", "sm_86"), ("Tesla V100-SXM2", "sm_70"),
    ],
)  # fmt: skip
def test_gpus_by_name(name: str, arch: str) -> None:
    assert find_arch(name) == arch


def test_every_gpu_has_a_target_of_the_catalogue() -> None:
    assert set(_GPUS) <= set(ARCHS)
    for arch, names in _GPUS.items():
        assert {find_arch(name) for name in names.split(", ")} == {arch}


@pytest.mark.parametrize(
    ("name", "format"),
    [("fp16", "f16"), ("half", "f16"), ("float16", "f16"), ("bfloat16", "bf16"), ("BF16", "bf16")],
)
def test_formats_by_their_names_elsewhere(name: str, format: str) -> None:
    assert format_of(name).name == format
    if name.islower():
        assert instructions(a=name, family="mma") == instructions(a=format, family="mma")
