"""Mangled names read in Python, as systems without a C++ runtime need it, held against the C++ runtime."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lanewise as lw
from everything import examples
from lanewise.ptx.model import names
from lanewise.ptx.model.demangling import demangled

DATA = Path(__file__).parents[1] / "data" / "ptx"
#: Kernels whose names have what NVRTC writes: namespaces, packs, enumerations, arrays, functions.
ZOO = """
enum class Kind { A, B };
namespace deep { namespace inner {
struct Pair { float a; int b; };
template <class T> struct Box { T value; struct In { T x; }; };
template <class T, int N> __global__ void scale(T* x, const T* __restrict__ y, Box<T> b, Box<Box<T>> c) {}
template <class... T> __global__ void many(T*... x) {}
template <class... T> __global__ void boxes(Box<T>... x) {}
template <Kind K, bool B, unsigned U, long long L, char C, short S> __global__ void values(int n) {}
template <int N> struct Tile {};
template <int M, int N> __global__ void tiles(Tile<M> a, Tile<N> b, Tile<M>* c) {}
template <class F> __global__ void call(F f, void (*g)(float, int), float (&x)[4], float (*y)[2][3]) {}
template <template <class> class Q> __global__ void wrapped(Q<int>* q, typename Q<float>::In* in) {}
__global__ void plain(volatile int* a, const volatile char* const* b, unsigned char c, Pair p, Pair* q) {}
__global__ void variadic(int (Pair::*m), const float* const __restrict__ x, unsigned long long n) {}
} }
namespace { __global__ void hidden(float* x) {} }
struct Functor { __device__ float operator()(float x) const { return x; } };
__device__ float table[4];
namespace nn { __constant__ float weights[8]; }
extern "C" __global__ void unmangled(float* x) {}
"""
INSTANCES = [
    "deep::inner::scale<float, 4>", "deep::inner::scale<deep::inner::Box<double>, -1>",
    "deep::inner::many<float, int, deep::inner::Pair>", "deep::inner::many<>",
    "deep::inner::boxes<float, int>", "deep::inner::values<Kind::B, true, 7u, -9ll, 'x', (short)3>",
    "deep::inner::tiles<3, 4>", "deep::inner::call<Functor>", "deep::inner::call<float (*)(float)>",
    "deep::inner::wrapped<deep::inner::Box>",
]  # fmt: skip


def _in_published_ptx() -> list[str]:
    texts = [path.read_text(errors="replace") for path in sorted(DATA.glob("*.ptx"))]
    return sorted({name for text in texts for name in re.findall(r"\b_Z\w+", text)})


def test_names_of_nvrtc_read_as_the_runtime_reads_them() -> None:
    module = lw.cuda(ZOO)
    entries = [*module.entries, *(module[each].name for each in INSTANCES), *module.variables]
    assert len({each for each in entries if each.startswith("_Z")}) >= len(INSTANCES) + 4
    for name in entries:
        assert (demangled(name) or name) == names.demangle(name)


def test_names_in_published_ptx_read_as_the_runtime_reads_them() -> None:
    found = _in_published_ptx()
    assert len(found) > 100
    assert [name for name in found if (demangled(name) or name) != names.demangle(name)] == []


@pytest.mark.parametrize(
    ("mangled", "text"),
    [
        ("_Z4copyPKfPfi", "copy(float const*, float*, int)"),
        ("_Z1kv", "k()"),
        ("_ZN2nn7weightsE", "nn::weights"),
        ("_ZZ1kPfE5count", "k(float*)::count"),
        ("_ZN12_GLOBAL__N_16hiddenEPf", "(anonymous namespace)::hidden(float*)"),
        ("_Z1fPFviERA4_f", "f(void (*)(int), float (&) [4])"),
        ("_ZN3foo3barIJfiEEEvDpT_", "void foo::bar<float, int>(float, int)"),
        (
            "_ZNK2at10TensorBase14const_data_ptrIKN3c106quint8EEEPKT_v",
            "c10::quint8 const* at::TensorBase::const_data_ptr<c10::quint8 const>() const",
        ),
        (  # numbers of template parameters are decimal
            "_Z4manyIfdijlmxyhstcEvT10_T9_T_",
            "void many<float, double, int, unsigned int, long, unsigned long, long long, unsigned long long, "
            "unsigned char, short, unsigned short, char>(char, unsigned short, float)",
        ),
        ("_ZN1SC1Ei", "S::S(int)"),
        ("_ZN1SD2Ev", "S::~S()"),
        ("_ZNK1SclEf", "S::operator()(float) const"),
        ("_ZN1SpLERKS_", "S::operator+=(S const&)"),
        ("_Z1kDF16_DF16b", "k(_Float16, std::bfloat16_t)"),
        ("_ZZN1k1fEvENKUlfE_clEf", "k::f()::{lambda(float)#1}::operator()(float) const"),
        ("_ZTV6Square", "vtable for Square"),
    ],
)
def test_names_by_hand(mangled: str, text: str) -> None:
    assert demangled(mangled) == text == names.demangle(mangled)


def test_a_kernel_is_found_by_its_name_without_a_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "_runtime", lambda: None)
    names.demangle.cache_clear()
    names._spellings.cache_clear()
    try:
        entries = ["_ZN4deep5scaleI6__halfLi4EEEvPT_i", "_Z5otherf"]
        for spelling in ("scale", "deep::scale<half, 4>", "scale<__half, 4>(__half*, int)"):
            assert names.matching(spelling, entries) == entries[:1]
    finally:
        names.demangle.cache_clear()
        names._spellings.cache_clear()


@pytest.mark.parametrize(
    "name",
    ["", "_Z", "k", "_Z999x", "_ZN", "_ZN1a", "_Z1kS9_", "_Z1kT_", "_Z1kIXplT_Li1EEEvv", "_Z1k" + "P" * 5000],
)
def test_what_is_no_name_is_none(name: str) -> None:
    assert demangled(name) is None


@given(st.text("_ZNKPRSTIJELXDFAMcvifdjlb0123456789_aBGU", max_size=40), st.sampled_from(_in_published_ptx()))
@settings(max_examples=examples(300), deadline=None)
def test_garbage_is_read_or_left(text: str, name: str) -> None:
    for garbage in (f"_Z{text}", name[: len(name) // 2] + text, name[:6] + text + name[6:]):
        found = demangled(garbage)
        assert found is None or isinstance(found, str)
