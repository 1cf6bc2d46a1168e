"""Names: mangled ones as C++ writes them, held against c++filt, and the kernel that a name means."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from lanewise import LanewiseError
from lanewise.ptx import Module, demangle, parse
from lanewise.ptx.model import names as names_module
from lanewise.ptx.model.names import plain_name

SAMPLES = sorted((Path(__file__).parent.parent / "data" / "ptx").glob("*.ptx"))
FURTHER = [
    "_ZN7cutlass6KernelINS_4gemm6kernel4GemmINS1_9GemmShapeILi128ELi128ELi8EEEEEEEvNT_6ParamsE",
    "_Z2mmI6__halfS0_fEvPKT_PKT0_PT1_iii",
    "_Z1kILi64EEvPf",
    "_Z1fILb1ELj5ELc97EEvv",
    "_Z1fIJifdEEvDpT_",
    "_ZN12_GLOBAL__N_11kEPf",
    "_Z1fPFivE",
    "_Z1fRA10_Kf",
    "_ZNK5Shape4areaEv",
    "_ZN4deep5inner5scaleIfLi4EEEvPT_S2_",
]


def mangled_in(path: Path) -> set[str]:
    module = parse(path.read_text())
    return {name for name in (*module.entries, *module.functions) if name.startswith("_Z")}


MANGLED = sorted({*FURTHER, *(name for path in SAMPLES for name in mangled_in(path))})


def kernels(*names: str) -> Module:
    text = "\n".join(f".visible .entry {name}() {{ ret; }}" for name in names)
    return parse(f".version 9.0\n.target sm_80\n.address_size 64\n{text}\n")


@pytest.mark.skipif(not shutil.which("c++filt"), reason="c++filt is not installed")
def test_demangled_as_cppfilt_does() -> None:
    done = subprocess.run(["c++filt", *MANGLED], capture_output=True, text=True, check=True)
    assert [demangle(name) for name in MANGLED] == done.stdout.splitlines()


def test_plain_names_agree_with_demangled_ones() -> None:
    for name in MANGLED:
        head = re.sub(r"\(anonymous namespace\)::", "", demangle(name))
        while (shorter := re.sub(r"<[^<>]*>|\([^()]*\)", "", head)) != head:
            head = shorter
        last = re.sub(r" const$", "", head).split(" ")[-1].split("::")[-1]
        if f"{last}::{last}" not in demangle(
            re.sub("I.*?E", "", name)
        ):  # constructors have no name of their own
            assert plain_name(name) == last or re.search(r"C[12]E", name), name


@pytest.mark.parametrize(
    "name", ["k", "_Z", "_Zx", "_ZN", "_Z" + "1" * 50, "_Z9999k", "_ZNE", "", "_Z1f" * 3000, "_Z5ab$"]
)
def test_names_that_are_not_mangled_stay(name: str) -> None:
    assert isinstance(plain_name(name), str)
    assert demangle(name) == name or name.startswith("_Z1f")


@pytest.mark.parametrize(
    "name",
    [
        "_ZN4deep5inner5scaleIfLi4EEEvPT_S2_",
        "scale<float, 4>",
        "scale<float,4>",
        "inner::scale<float, 4>",
        "deep::inner::scale< float , 4 >",
        "scale<float, 4>(float*, float)",
        "void deep::inner::scale<float, 4>(float*, float)",
        "deep::inner::scale<float, 4>(float *, float)",
    ],
)
def test_every_spelling_finds_the_kernel(name: str) -> None:
    module = kernels("_ZN4deep5inner5scaleIfLi4EEEvPT_S2_", "_ZN4deep5inner5scaleIdLi2EEEvPT_S2_", "copy")
    assert module[name].name == "_ZN4deep5inner5scaleIfLi4EEEvPT_S2_"
    assert module["copy"].name == "copy"


def test_other_names_of_types() -> None:
    module = kernels("_Z2mmI6__halfjLj8EEvPKT_PT0_", "_Z2mmI13__nv_bfloat16iLj8EEvPKT_PT0_")
    assert module["mm<half, unsigned, 8>"].name == module["mm<__half, uint32_t, 8u>"].name
    assert module["mm<half, unsigned int, 8>(const half*, unsigned int*)"].name.startswith("_Z2mmI6__half")
    assert module["mm<nv_bfloat16, int, 8>"].name.startswith("_Z2mmI13")


def test_plain_name_is_enough_where_there_is_one() -> None:
    module = kernels("_Z5hgemmPK6__halfS1_PS_iii", "_ZN12_GLOBAL__N_11kEPf")
    assert module["hgemm"].demangled == "hgemm(__half const*, __half const*, __half*, int, int, int)"
    assert module["k"].name == "_ZN12_GLOBAL__N_11kEPf"
    assert repr(module["k"]) == "<entry (anonymous namespace)::k(float*)>"


def test_an_ambiguous_name_lists_the_candidates() -> None:
    module = kernels("_Z4copyPf", "_Z4copyPd")
    with pytest.raises(LanewiseError, match="may be any of") as caught:
        module["copy"]
    assert "copy(float*)  (_Z4copyPf)" in str(caught.value)
    assert "copy(double*)  (_Z4copyPd)" in str(caught.value)
    assert module["copy(double*)"].name == "_Z4copyPd"


def test_a_name_that_is_not_there() -> None:
    module = kernels("_Z5hgemmPf")
    with pytest.raises(LanewiseError, match="did you mean 'hgemm'"):
        module["hgem"]
    with pytest.raises(LanewiseError, match="entries are"):
        module["zzz"]
    with pytest.raises(LanewiseError, match=r"\(none\)"):
        parse(".version 9.0\n.target sm_80")["k"]
    with pytest.raises(LanewiseError, match="by name"):
        module[0]  # type: ignore[index]  # wrong on purpose
    functions = parse(".version 9.0\n.target sm_80\n.func _Z1fv() { ret; } .entry k() { ret; }")
    with pytest.raises(LanewiseError, match="'f' is a device function"):
        functions["f"]


def test_without_a_cpp_runtime_plain_names_still_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names_module, "_runtime", lambda: None)
    names_module.demangle.cache_clear()
    names_module._spellings.cache_clear()
    try:
        module = kernels("_ZN4deep5inner5scaleIfLi4EEEvPT_S2_", "_Z4copyPf")
        assert module["scale"].name.startswith("_ZN4deep")
        assert module["copy"].name == "_Z4copyPf"
    finally:
        names_module.demangle.cache_clear()
        names_module._spellings.cache_clear()
