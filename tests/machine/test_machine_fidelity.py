"""What a GPU may compute otherwise: marks held against ptxas's own code, approximations to their errors."""

import re
from functools import cache

import ml_dtypes
import numpy as np
import pytest

from lanewise.machine import fidelity
from lanewise.ptx import Module, ToolMissing, parse, ptxas
from lanewise.ptx.tools.assembler import sass_of
from machine.kernels import Case, run_cases

LOADS = {
    "f32": ("ld.global.b32", "r"),
    "f64": ("ld.global.b64", "d"),
    "f16": ("ld.global.b16", "h"),
    "f16x2": ("ld.global.b32", "r"),
}
#: A product in register 4 and what is done with it; the sum of it and others goes to register 5.
PAIRS = {
    "plain": ("mul.{f} $4, $1, $2;", "add.{f} $5, $4, $3;"),
    "c - ab": ("mul.{f} $4, $1, $2;", "sub.{f} $5, $3, $4;"),
    "mul rounds": ("mul.rn.{f} $4, $1, $2;", "add.{f} $5, $4, $3;"),
    "add rounds": ("mul.{f} $4, $1, $2;", "add.rn.{f} $5, $4, $3;"),
    "twice the product": ("mul.{f} $4, $1, $2;", "add.{f} $5, $4, $4;"),
    "no product": ("add.{f} $4, $1, $2;", "add.{f} $5, $4, $3;"),
}
SINGLE = {
    "both flush": ("mul.ftz.f32 $4, $1, $2;", "add.ftz.f32 $5, $4, $3;"),
    "mul flushes": ("mul.ftz.f32 $4, $1, $2;", "add.f32 $5, $4, $3;"),
    "add flushes": ("mul.f32 $4, $1, $2;", "add.ftz.f32 $5, $4, $3;"),
    "mul saturates": ("mul.sat.f32 $4, $1, $2;", "add.f32 $5, $4, $3;"),
    "add saturates": ("mul.f32 $4, $1, $2;", "add.sat.f32 $5, $4, $3;"),
    "moved": ("mul.f32 $4, $1, $2; mov.b32 $6, $4;", "add.f32 $5, $6, $3;"),
    "negated": ("mul.f32 $4, $1, $2; neg.f32 $6, $4;", "add.f32 $5, $6, $3;"),
    "a barrier between": ("mul.f32 $4, $1, $2; bar.sync 0;", "add.f32 $5, $4, $3;"),
    "overwritten": ("mul.f32 $4, $1, $2; ld.global.b32 $4, [%a+40];", "add.f32 $5, $4, $3;"),
    "a branch between": (
        "mul.f32 $4, $1, $2; setp.lt.u32 %p, %t, 5; @%p bra A; st.global.u32 [%a+80], %t; A:",
        "add.f32 $5, $4, $3;",
    ),
    "add under a guard": (
        "mul.f32 $4, $1, $2; ld.global.b32 $5, [%a+40]; setp.lt.u32 %p, %t, 5;",
        "@%p add.f32 $5, $4, $3;",
    ),
}


def kernel(name: str, fmt: str, first: str, second: str) -> str:
    load, letter = LOADS[fmt]
    body = "\n".join(f"{load} ${place}, [%a+{8 * place}];" for place in (1, 2, 3))
    store = load.replace("ld", "st")
    body += f"\n{first.format(f=fmt)}\n{second.format(f=fmt)}\n{store} [%a+64], $5;"
    return f"""
.visible .entry {name}(.param .u64 x)
{{
    .reg .b16 %h<8>; .reg .b32 %r<8>; .reg .b64 %d<8>; .reg .b64 %a; .reg .b32 %t; .reg .pred %p;
    ld.param.u64 %a, [x];
    mov.u32 %t, %tid.x;
    {body.replace("$", f"%{letter}")}
    ret;
}}
"""


CASES = [(name, fmt, *pair) for fmt in LOADS for name, pair in PAIRS.items()]
CASES += [(name, "f32", *pair) for name, pair in SINGLE.items()]


@cache
def kernels() -> tuple[Module, str]:
    """A kernel for every case, and the code that ptxas makes of them."""
    header = ".version 8.0\n.target sm_80\n.address_size 64\n"
    text = header + "".join(kernel(f"k{number}", *case[1:]) for number, case in enumerate(CASES))
    module = parse(text)
    return module, ptxas(module, "sm_80").sass()


@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{name}, {fmt}" for name, fmt, *_ in CASES])
def test_pairs_that_ptxas_fuses_are_marked_and_no_others(number: int) -> None:
    try:
        module, listing = kernels()
    except ToolMissing as error:
        pytest.skip(str(error).splitlines()[0])
    code = sass_of(listing, f"k{number}")
    notes = fidelity(module, f"k{number}", "sm_80")
    assert len(notes) == (0 if re.search(r"\b(?:FADD|DADD|HADD2)\b", code) else 1), code
    if notes:
        assert notes[0].kind == "may be fused"
        assert module.text.splitlines()[notes[0].line - 1].strip().startswith(("add", "sub", "@%p"))
        assert re.search(r"\b[FDH]FMA", code)


def test_approximate_and_inferred_instructions_are_marked() -> None:
    text = """
.version 8.7
.target sm_100a
.address_size 64
.visible .entry k()
{
    .reg .f32 %f<4>; .reg .f64 %fd<4>; .reg .b16 %h<2>; .reg .b32 %r<2>;
    ex2.approx.f32 %f0, %f1;
    div.full.f32 %f0, %f1, %f2;
    div.rn.f32 %f0, %f1, %f2;
    sqrt.rn.f32 %f0, %f1;
    rcp.approx.ftz.f64 %fd0, %fd1;
    tanh.approx.f16 %h0, %h1;
    cvt.rs.f16x2.f32 %r0, %f0, %f1, %r1;
    ret;
}
"""
    notes = parse(text)["k"].fidelity()
    assert [(note.line, note.kind) for note in notes] == [
        (8, "approximate"), (9, "approximate"), (12, "approximate"), (13, "approximate"), (14, "inferred"),
    ]  # fmt: skip
    assert all(note.text in text and note.message for note in notes)


def test_functions_that_a_kernel_calls_are_read_too() -> None:
    text = """
.version 8.0
.target sm_80
.address_size 64
.func f() { .reg .f32 %f<2>; sin.approx.f32 %f0, %f1; ret; }
.visible .entry k() { call f; ret; }
"""
    assert [note.line for note in fidelity(parse(text), "k")] == [5]


def test_atomics_that_a_gpu_does_not_make_atomic_are_noted() -> None:
    operations = [
        ("atom.shared::cluster.min.s64 %rd0, [%r0], %rd1;", True),
        ("red.relaxed.cluster.shared::cluster.or.b64 [%r0], %rd1;", True),
        ("atom.shared::cluster.add.u64 %rd0, [%r0], %rd1;", False),
        ("atom.shared::cluster.cas.b64 %rd0, [%r0], %rd1, %rd0;", False),
        ("atom.shared::cluster.min.s32 %r1, [%r0], %r2;", False),
        ("atom.shared::cta.max.u64 %rd0, [%r0], %rd1;", False),
    ]
    head = ".version 8.0\n.target sm_90\n.address_size 64\n"
    head += ".visible .entry k() { .reg .b32 %r<4>; .reg .b64 %rd<4>;\n"
    text = head + "".join(f"{each}\n" for each, _ in operations) + "ret; }\n"
    torn = [note.text for note in fidelity(parse(text), "k") if note.kind == "not atomic"]
    assert torn == [each for each, lost in operations if lost]


# the errors that the PTX ISA states -----------------------------------------------------------------------

COUNT = 16384


def spread(low: float, high: float, seed: int) -> np.ndarray:
    """Numbers of both signs between powers of two, as f32."""
    rng = np.random.default_rng(seed)
    sizes = 2.0 ** rng.uniform(low, high, COUNT)
    return (sizes * rng.choice([-1.0, 1.0], COUNT)).astype(np.float32)


def computed(texts: list[str], *values: np.ndarray) -> list[np.ndarray]:
    bits = values[0].dtype.itemsize * 8
    given = {bits: [value.view(f"uint{bits}") for value in values]}
    cases = [Case(text, (bits,) * len(values), bits) for text in texts]
    return [found.view(values[0].dtype) for found in run_cases(cases, given)]


def relative(found: np.ndarray, exact: np.ndarray) -> float:
    """The largest error as a part of the exact result, where that is a normal number of the format."""
    info = np.finfo(found.dtype)
    use = (np.abs(exact) >= float(info.tiny)) & (np.abs(exact) <= float(info.max))
    return float(np.max(np.abs(found[use].astype(np.longdouble) / exact[use] - 1)))


def ulps(found: np.ndarray, exact: np.ndarray) -> float:
    """The largest error in units of the last place of the exact result."""
    spacing = np.spacing(np.abs(exact.astype(found.dtype))).astype(np.longdouble)
    use = np.isfinite(spacing) & (spacing > 0)
    return float(np.max(np.abs(found[use].astype(np.longdouble) - exact[use]) / spacing[use]))


def test_reciprocals_and_roots() -> None:
    x = spread(-126, 126, 1)
    wide = np.abs(x).astype(np.longdouble)
    rcp, root, inverse = computed(["rcp.approx.f32", "sqrt.approx.f32", "rsqrt.approx.f32"], np.abs(x))
    assert ulps(rcp, 1 / wide) <= 1
    assert relative(root, np.sqrt(wide)) <= 2**-23
    assert relative(inverse, 1 / np.sqrt(wide)) <= 2**-22.9
    y = (2.0 ** np.random.default_rng(2).uniform(-1000, 1000, COUNT)).astype(np.float64)
    cut = (y.view(np.uint64) & ~np.uint64(0xFFFFFFFF)).view(np.float64)
    rcp64, inverse64 = computed(["rcp.approx.ftz.f64", "rsqrt.approx.f64"], cut)
    assert relative(rcp64, 1 / cut.astype(np.longdouble)) <= 2**-20
    assert relative(inverse64, 1 / np.sqrt(cut.astype(np.longdouble))) <= 2**-21


def test_quotients() -> None:
    x, y = spread(-60, 60, 3), spread(-62, 62, 4)
    approximate, full = computed(["div.approx.f32", "div.full.f32"], x, y)
    exact = x.astype(np.longdouble) / y.astype(np.longdouble)
    assert ulps(approximate, exact) <= 2
    assert ulps(full, exact) <= 2


def test_exponentials_and_logarithms() -> None:
    x = spread(-20, np.log2(126), 5)
    (power,) = computed(["ex2.approx.f32"], x)
    assert relative(power, np.exp2(x.astype(np.longdouble))) <= 2**-22
    positive = np.abs(spread(-126, 127, 6))
    near = (1 + np.random.default_rng(7).uniform(-0.5, 1, COUNT)).astype(np.float32)
    far_log, near_log = (computed(["lg2.approx.f32"], each)[0] for each in (positive, near))
    outside = (positive < 0.5) | (positive > 2)
    exact = np.log2(positive.astype(np.longdouble))
    assert relative(far_log[outside], exact[outside]) <= 2**-22
    assert np.max(np.abs(near_log - np.log2(near.astype(np.longdouble)))) <= 2**-22


def test_sines_and_cosines() -> None:
    x = np.random.default_rng(8).uniform(-np.pi, np.pi, COUNT).astype(np.float32)
    sine, cosine = computed(["sin.approx.f32", "cos.approx.f32"], x)
    wide = x.astype(np.longdouble)
    assert np.max(np.abs(sine - np.sin(wide))) <= 2**-20.5
    assert np.max(np.abs(cosine - np.cos(wide))) <= 2**-20.5


def test_hyperbolic_tangents() -> None:
    x = spread(-20, 5, 9)
    (found,) = computed(["tanh.approx.f32"], x)
    assert relative(found, np.tanh(x.astype(np.longdouble))) <= 2**-11


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_functions_of_half_precision(name: str) -> None:
    """f16: ex2 within 2^-9.9 of the result, tanh 2^-10.987; bf16: 2^-7 and 2^-8."""
    words = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    dtype = np.float16 if name == "f16" else ml_dtypes.bfloat16
    flush = ".ftz" if name == "bf16" else ""
    cases = [Case(f"ex2.approx{flush}.{name}", (16,), 16), Case(f"tanh.approx.{name}", (16,), 16)]
    power, tangent = (found.view(dtype).astype(np.float64) for found in run_cases(cases, {16: [words]}))
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        x = words.view(dtype).astype(np.float64)
        exact, bound = np.exp2(x), np.tanh(x)
        tiny, most = (2.0**-14, 65504.0) if name == "f16" else (2.0**-126, 3.38e38)
        use = np.isfinite(x) & (exact >= tiny) & (exact <= most)
        assert np.max(np.abs(power[use] / exact[use] - 1)) <= (2**-9.9 if name == "f16" else 2**-7)
        use = np.isfinite(x) & (np.abs(bound) >= tiny)
        assert np.max(np.abs(tangent[use] / bound[use] - 1)) <= (2**-10.987 if name == "f16" else 2**-8)


def test_ends_of_the_approximate_functions() -> None:
    """Zeros, infinities, NaN and numbers out of the domain, as the tables of the PTX ISA have them."""
    inf, nan = np.inf, np.nan
    x = np.array([-inf, -1.5, -0.0, 0.0, inf, nan, 2.0, 1.0] * 8, np.float32)
    expected = {
        "rcp": [-0.0, np.float32(-2 / 3), -inf, inf, 0.0, nan, 0.5, 1.0],
        "sqrt": [nan, nan, -0.0, 0.0, inf, nan, np.float32(np.sqrt(2)), 1.0],
        "rsqrt": [nan, nan, -inf, inf, 0.0, nan, np.float32(1 / np.sqrt(2)), 1.0],
        "ex2": [0.0, np.float32(2**-1.5), 1.0, 1.0, inf, nan, 4.0, 2.0],
        "lg2": [nan, nan, -inf, -inf, inf, nan, 1.0, 0.0],
        "tanh": [
            -1.0,
            np.float32(np.tanh(-1.5)),
            -0.0,
            0.0,
            1.0,
            nan,
            np.float32(np.tanh(2)),
            np.float32(np.tanh(1)),
        ],
    }
    got = computed([f"{name}.approx.f32" for name in expected], x)
    for (name, wanted), found in zip(expected.items(), got, strict=True):
        want = np.array(wanted, np.float32)
        assert np.array_equal(np.isnan(found[:8]), np.isnan(want)), name
        good = ~np.isnan(want)
        assert np.allclose(found[:8][good], want[good], rtol=2**-10, atol=0), name
        assert (np.signbit(found[:8]) == np.signbit(want))[good].all(), name
