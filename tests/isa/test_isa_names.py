"""Instructions, formats and GPUs under the names that people type."""

import pytest

from lanewise.atoms import atom, make_tiled_mma
from lanewise.cli import main
from lanewise.errors import IllegalInstruction, LanewiseError
from lanewise.formats import format_of
from lanewise.isa import ARCHS, find_arch, instruction, instructions
from lanewise.isa.gpu_models import _GPUS

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
        ("wmma 16x16x16 half float", "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32"),
        ("mma_m16n8k16_row_col_f32_f16_f16_f32", f"{MMA}f32.f16.f16.f32"),
        ("LDSM.16.MT88.2", "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16"),
        ("STSM.16.M88.4", "stmatrix.sync.aligned.m8n8.x4.shared.b16"),
        ("BMMA.168256.AND.POPC", "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc"),
        ("HGMMA.64x128x16.F32", "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16"),
        ("m16n8k64 int4", "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32"),
        (
            "mxfp4",
            "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0",
        ),
        (
            "nvfp4",
            "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3",
        ),
        ("SM80_16x8x16_F32F16F16F32_TN", f"{MMA}f32.f16.f16.f32"),
        ("cute::MMA_Atom<SM80_16x8x16_F32F16F16F32_TN>", f"{MMA}f32.f16.f16.f32"),
        ("Copy_Atom<SM75_U32x4_LDSM_N, half_t>", "ldmatrix.sync.aligned.m8n8.x4.shared.b16"),
        (
            "SM90_64x128x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>",
            "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16",
        ),
    ],
)
def test_a_name_that_fits_one_form(name: str, text: str) -> None:
    assert instruction(name).text == text


def test_a_name_that_fits_several_lists_the_usual_first() -> None:
    with pytest.raises(IllegalInstruction) as caught:
        instruction("mma.m16n8k16.f16")
    assert str(caught.value).splitlines() == [
        "'mma.m16n8k16.f16' may mean one of these; ask again with the one you mean:",
        f"    {MMA}f32.f16.f16.f32",
        f"    {MMA}f16.f16.f16.f16",
    ]
    with pytest.raises(IllegalInstruction, match=r"(?s)m16n16k16.f32.f32\n.*m16n16k16.f16.f16"):
        instruction("wmma 16x16x16 half")


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("mma", f"{MMA}f32.f16.f16.f32"),
        ("mma.sync", f"{MMA}f32.f16.f16.f32"),
        ("m16n8k16", f"{MMA}f32.f16.f16.f32"),
        ("16816", f"{MMA}f32.f16.f16.f32"),
        ("mma half", f"{MMA}f32.f16.f16.f32"),
        ("mma bfloat16", f"{MMA}f32.bf16.bf16.f32"),
        ("mma int8", "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"),
        ("m16n8k32 fp8", "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"),
        ("nvcuda::wmma::mma_sync", "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32"),
        ("tf32", "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"),
        ("ldmatrix", "ldmatrix.sync.aligned.m8n8.x4.shared.b16"),
    ],
)
def test_a_name_that_says_little_lists_the_most_common_form_first(name: str, first: str) -> None:
    with pytest.raises(IllegalInstruction) as caught:
        instruction(name)
    lines = str(caught.value).splitlines()
    assert lines[0].startswith(f"{name!r} may mean one of these") and lines[1].strip() == first
    assert len(lines) <= 6


@pytest.mark.parametrize("shape", ["m16n8k24", "m16n8k15", "m17n8k16", "m8n8k8"])
@pytest.mark.parametrize("kind", ["f16", "bf16", "e4m3", "s8", "tf32", "f64"])
def test_a_near_miss_gets_forms_of_the_same_types(shape: str, kind: str) -> None:
    with pytest.raises(IllegalInstruction) as caught:
        instruction(f"{shape} {kind}")
    first, *lines = str(caught.value).splitlines()
    assert first.endswith(f"has the shape {shape}; the nearest are")
    forms = [instruction(line.strip()) for line in lines if " more: " not in line]
    assert forms and {form.types[1] for form in forms} == {kind}


def test_the_list_that_a_message_names_has_the_forms(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(IllegalInstruction) as caught:
        instruction("mma fp16")
    command = str(caught.value).partition("more: lanewise ")[2]
    assert main(command.split()) == 0
    assert f"{MMA}f32.f16.f16.f32" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("mma m16n8k16 hallf", "the word 'hallf' is not known here; did you mean 'half'?"),
        ("m16n8k16 bf16 sparce", "did you mean 'sparse'?"),
        ("UMMA", "tcgen05.mma"),
        ("TMA", "cp.async.bulk.tensor"),
        ("cp.async", "lw.cp_async"),
        ("UniversalCopy<float>", "plain copy"),
        ("SM80_16x8x16_F32F16F16F32", "nearest are SM80_16x8x16_F32F16F16F32_TN"),
        ("tcgen05.mma", "tcgen05.mma.cta_group::1.kind::f16"),
    ],
)
def test_a_name_of_something_else_says_what_it_is(name: str, says: str) -> None:
    with pytest.raises(LanewiseError) as caught:
        instruction(name)
    assert says in str(caught.value)


def test_a_name_that_another_arch_has() -> None:
    with pytest.raises(IllegalInstruction, match="which sm_75 does not have; legal on sm_80 and later"):
        instruction("m16n8k16 bf16", arch="T4")


def test_an_atom_by_the_name_of_its_instruction() -> None:
    assert atom("HMMA.16816.F32") == atom("SM80_16x8x16_F32F16F16F32_TN")
    assert atom("ldmatrix.x4") == atom("SM75_U32x4_LDSM_N")
    assert atom("DefaultCopy") == atom("UniversalCopy<uint8_t>")
    by_name = make_tiled_mma("SM80_16x8x16_F32F16F16F32_TN", (2, 2, 1))
    assert make_tiled_mma("HMMA.16816.F32", (2, 2, 1)) == by_name
    assert make_tiled_mma(instruction("HMMA.16816.F32"), (2, 2, 1)) == by_name


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
        ("NVIDIA H100 80GB HBM3", "sm_90a"), ("NVIDIA A100-SXM4-80GB", "sm_80"), ("A6000", "sm_86"),
        ("Hopper", "sm_90a"), ("ada", "sm_89"), ("sm90", "sm_90"), ("9.0", "sm_90"), ("cc 8.6", "sm_86"),
        ("12.0a", "sm_120a"), ("sm_100a", "sm_100a"),
    ],
)  # fmt: skip
def test_gpus_by_name(name: str, arch: str) -> None:
    assert find_arch(name) == arch


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("h1000", "did you mean H100?"),
        ("Ampere", "sm_80 (A100), sm_86 (A40) and sm_87 (Orin); name one of them"),
        ("GTX 1080", "has no Tensor Cores"),
        ("P100", "has no Tensor Cores"),
        ("sm_99", "known are sm_70"),
        ("MI300X", "known are sm_70"),
    ],
)
def test_what_is_said_of_a_gpu_that_is_not_known(name: str, says: str) -> None:
    with pytest.raises(LanewiseError) as caught:
        find_arch(name)
    assert says in str(caught.value)


def test_every_gpu_has_a_target_of_the_catalogue() -> None:
    assert set(_GPUS) <= set(ARCHS)
    for arch, names in _GPUS.items():
        assert {find_arch(name) for name in names.split(", ")} == {arch}


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("fp16", "f16"),
        ("half", "f16"),
        ("float16", "f16"),
        ("bfloat16", "bf16"),
        ("BF16", "bf16"),
        ("fp4", "e2m1"),
        ("float_e4m3_t", "e4m3"),
        ("__nv_fp8_e5m2", "e5m2"),
        ("int8_t", "s8"),
        ("tensorfloat32", "tf32"),
    ],
)
def test_formats_by_their_names_elsewhere(name: str, format: str) -> None:
    assert format_of(name).name == format
    if name.islower():
        assert instructions(a=name, family="mma") == instructions(a=format, family="mma")


def test_a_name_of_two_formats() -> None:
    with pytest.raises(LanewiseError, match="'fp8' may mean e4m3 or e5m2"):
        format_of("fp8")


@pytest.mark.parametrize(
    ("name", "says"),
    [("UTCHMMA", "tcgen05.mma"), ("UTMALDG.2D", "cp.async.bulk.tensor"), ("LDGSTS", "lw.cp_async")],
)
def test_a_machine_instruction_of_the_other_catalogue_is_named(name: str, says: str) -> None:
    with pytest.raises(IllegalInstruction, match=says):
        instruction(name)
