"""Operations are found by CUTLASS's names, all of them and no others; wrong names are explained."""

import hashlib
from collections import Counter

import pytest

from lanewise.atoms import Copy_Atom, Major, MMA_Atom, MMA_Traits, ScaleIn, ScaleOut, SparseSel, atom, atoms
from lanewise.atoms.copy_names import copy_operations
from lanewise.atoms.names import operations, umma_names
from lanewise.errors import LanewiseError

NAMES = [operation.name for operation in operations()]
#: SHA-256 over the sorted names of the MMA structures in CUTLASS 4.2's headers for sm70 to sm90 and sm120,
#: specialisations by type with their arguments. 4.7 has one more.
HEADERS = "dbeb60655c141d4c3c2dc9e3da44af6162b258e9d1e665458abcef7196d4e81f"
SINCE = "SM75_16x8x8_F16F16F16F16_TN"


def test_names_are_those_of_the_headers() -> None:
    known = sorted(set(NAMES) - {SINCE})
    assert SINCE in NAMES and len(known) == 2355
    assert hashlib.sha256("\n".join(known).encode()).hexdigest() == HEADERS


def test_counts_by_family() -> None:
    scopes = (name.partition("<")[0].rpartition("::")[0] or name.partition("_")[0] for name in NAMES)
    assert Counter(scopes) == {
        "SM70": 8,
        "SM75": 3,
        "SM80": 65,
        "SM89": 8,
        "SM90": 6,
        "SM90::GMMA": 1056,
        "SM90::GMMA::SPARSE": 1056,
        "SM120": 50,
        "SM120::BLOCKSCALED": 27,
        "SM120::SPARSE": 50,
        "SM120::BLOCKSCALED::SPARSE": 27,
    }


def test_every_listed_name_resolves_to_its_own_atom() -> None:
    for name in (*NAMES, *umma_names()):
        found = atom(name)
        assert isinstance(found, MMA_Atom)
        assert found.operation.name == name
    for name in copy_operations():
        found = atom(name)
        assert isinstance(found, Copy_Atom)
        assert found.name == name


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("cute::SM80_16x8x16_F32F16F16F32_TN{}", "SM80_16x8x16_F32F16F16F32_TN"),
        ("SM90_64x64x16_F32F16F16_SS", "SM90::GMMA::MMA_64x64x16_F32F16F16_SS"),
        ("GMMA::MMA_64x64x16_F32F16F16_SS<>", "SM90::GMMA::MMA_64x64x16_F32F16F16_SS"),
        ("MMA_64x24x32_S32U8S8_RS_TN_SATURATE", "SM90::GMMA::MMA_64x24x32_S32U8S8_RS_TN_SATURATE"),
        ("SM90_16x8x4_F64F64F64F64_TN", "SM90::MMA_16x8x4_F64F64F64F64_TN"),
        ("SPARSE::GMMA_64x8x32_F32F16F16_SS", "SM90::GMMA::SPARSE::GMMA_64x8x32_F32F16F16_SS"),
        (
            "SM120_16x8x32_TN<cutlass::float_e4m3_t,float_e5m2_t,float>",
            "SM120_16x8x32_TN<float_e4m3_t, float_e5m2_t, float>",
        ),
        (
            "SM120::BLOCKSCALED::SM120_16x8x64_TN_VS<float_e2m1_t, float_e2m1_t, float, float_ue4m3_t, VS>",
            "SM120::BLOCKSCALED::SM120_16x8x64_TN_VS<float_e2m1_t, float_e2m1_t, float, float_ue4m3_t, 16>",
        ),
        (
            "SM120_SPARSE_16x8x64_TN_VS<float_e2m3_t, float_e3m2_t, float, float_ue8m0_t>",
            "SM120::BLOCKSCALED::SPARSE::SM120_SPARSE_16x8x64_TN_VS"
            "<float_e2m3_t, float_e3m2_t, float, float_ue8m0_t, 64>",
        ),
    ],
)
def test_other_spellings(written: str, name: str) -> None:
    found = atom(written)
    assert isinstance(found, MMA_Atom)
    assert found.operation.name == name


def test_template_arguments_of_gmma() -> None:
    plain = MMA_Traits("SM90::GMMA::MMA_64x8x16_F32F16F16_SS")
    assert (plain.tnspA, plain.tnspB, plain.scaleA, plain.scaleB) == (
        Major.K,
        Major.K,
        ScaleIn.One,
        ScaleIn.One,
    )
    chosen = MMA_Traits(
        "SM90::GMMA::MMA_64x8x16_F32F16F16_SS<GMMA::Major::MN, GMMA::Major::K, GMMA::ScaleIn::Neg>"
    )
    assert (chosen.tnspA, chosen.tnspB, chosen.scaleA, chosen.scaleB) == (
        Major.MN,
        Major.K,
        ScaleIn.Neg,
        ScaleIn.One,
    )
    assert str(chosen.FrgTypeA) == "GMMA::smem_desc<GMMA::Major::MN>"
    assert MMA_Traits(chosen.name) == chosen != plain
    sparse = MMA_Traits("SM90::GMMA::SPARSE::GMMA_64x8x64_S32S8S8_RS_TN<GMMA::SparseSel::One>")
    assert sparse.spsel is SparseSel.One


def test_accumulate_can_be_set() -> None:
    mma = atom("SM90::GMMA::MMA_64x8x16_F32F16F16_SS")
    assert isinstance(mma, MMA_Atom)
    assert mma.accumulate_ is ScaleOut.One
    assert mma.with_(ScaleOut.Zero).accumulate_ is ScaleOut.Zero
    assert mma.with_(ScaleOut.Zero) != mma


@pytest.mark.parametrize(
    ("written", "explained"),
    [
        ("SM80_16x8x16_F32F16F16F32_NT", "nearest are SM80_16x8x16_F32F16F16F32_TN"),
        ("sm75_u32x4_ldsm_n", "nearest are SM75_U32x4_LDSM_N"),
        ("SM90::FOO::MMA_64x8x16_F32F16F16_RS", "no operation is named"),
        ("FOO", "no operation is named 'FOO'; `lanewise atoms`"),
        ("SM80_16x8x16_F32F16F16F32_TN<2>", "takes no template arguments"),
        (
            "SM90_64x8x16_F32F16F16_RS<GMMA::Major::MN, GMMA::Major::K>",
            "use SM90::GMMA::MMA_64x8x16_F32F16F16_SS",
        ),
        (
            "SM90_64x8x16_F32F16F16_RS<GMMA::Major::L>",
            "GMMA::Major::K or GMMA::Major::MN, not GMMA::Major::L",
        ),
        ("SM90_64x8x8_F32TF32TF32_SS_TN<One, One, One>", "at most <scaleA, scaleB>"),
        ("SM90_64x8x32_S32S8S8_SS_TN<GMMA::ScaleIn::One>", "takes no template arguments"),
        ("SM120_16x8x32_TN", "<a_type, b_type, c_type>; none are given"),
        (
            "SM120_16x8x32_TN<half_t, half_t, float>",
            "no instruction has SM120_16x8x32_TN<half_t, half_t, float>",
        ),
        ("SM120_16x8x32_TN<float_e4m3_t, float", "not closed"),
        ("SM120_16x8x32_TN<float_e4m3_t,,float>", "empty"),
        ("UniversalCopy<uint256_t>", "128 bits (uint128_t); uint256_t was given"),
        ("SM80_CP_ASYNC_CACHEGLOBAL<uint64_t>", "moves 128 bits"),
        ("UniversalCopy<float, double>", "values of one type"),
        ("SM75_U32x4_LDSM_N<half_t>", "takes no template arguments"),
        ("SM90_TMA_LOAD<100>", "multiple of 128 bits"),
        ("two words", "is not the name of an operation"),
        ("", "is not the name of an operation"),
        (None, "named by text"),
    ],
)
def test_wrong_names_are_explained(written: str, explained: str) -> None:
    with pytest.raises(LanewiseError) as caught:
        atom(written)
    assert explained in str(caught.value)


def test_a_type_of_values_is_for_copies() -> None:
    with pytest.raises(LanewiseError, match="for copy atoms only"):
        atom("SM80_16x8x16_F32F16F16F32_TN", "half_t")
    with pytest.raises(LanewiseError, match="no MMA operation is named"):
        MMA_Atom("SM75_U32x4_LDSM_N")
    with pytest.raises(LanewiseError, match="unknown value type"):
        atom("SM75_U32x4_LDSM_N", "long double")


def test_names_can_be_listed() -> None:
    assert len(atoms()) == len(NAMES) + len([*umma_names()]) + len(copy_operations())
    assert atoms("SM89*E4M3E5M2*") == ["SM89_16x8x32_F16E4M3E5M2F16_TN", "SM89_16x8x32_F32E4M3E5M2F32_TN"]
    assert atoms("nothing of the kind") == []
    with pytest.raises(LanewiseError, match="a pattern is text"):
        atoms(80)  # type: ignore[arg-type]  # wrong on purpose
