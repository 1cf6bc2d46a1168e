"""tcgen05.mma on arrays, bit for bit against integers; its models on every arch; calls, errors and laws."""

import os
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from arith import tcgen05_oracle as oracle
from arith.samples import KINDS as SAMPLES
from arith.samples import numbers
from everything import sampled
from lanewise.arith import model_of
from lanewise.arith.models import EVIDENCE, ROWS, TCGEN05, FusedSum, IntegerSum
from lanewise.errors import IllegalInstruction, LanewiseError
from lanewise.formats import FORMATS
from lanewise.isa import instruction
from lanewise.isa.asynchronous import (
    InstructionDescriptor,
    Tcgen05Instruction,
    async_instructions,
    tcgen05_instruction,
)
from lanewise.isa.asynchronous.descriptor import legal_shapes, product_of

SEED = int(os.environ.get("LANEWISE_SEED", "23"))
FP8_6_4 = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")


def forms() -> list[str]:
    """The texts of tcgen05.mma without words that change no bits."""
    found = (each.text for each in async_instructions() if each.multiplies)
    return [text for text in found if "collector" not in text and "ashift" not in text]


def every_product() -> Iterator[Tcgen05Instruction]:
    """Every form with every pair of formats, each D and each K."""
    for text in forms():
        product = product_of(text)
        for a in product.kind.formats:
            for b in product.kind.formats:
                for d in product.kind.d:
                    for k in legal_shapes(product).k:
                        if product.kind.name == "f16" and d == "f16" and (a, b) != ("f16", "f16"):
                            continue
                        yield tcgen05_instruction(text, a=a, b=b, d=d, k=k)


def test_every_product_has_a_model_on_every_arch() -> None:
    pairs = [(each, arch) for each in every_product() for arch in each.archs]
    used, believed = set(), set()
    for each, arch in pairs:
        model = model_of(each, arch)
        assert model is not None
        if isinstance(model.scheme, FusedSum):  # all terms of an instruction are in one sum
            assert model.block == each.k // (2 if each.sparse else 1)
        else:
            assert isinstance(model.scheme, IntegerSum)
        assert model.fidelity in ("from published models", "inferred") and model.source
        number = int(arch.strip("sm_af"))
        used.add(next(row for row in ROWS if row.matches(each, number)))
        believed.add(next(row for row in EVIDENCE if row.matches(each, number)))
    assert used == {row for row in ROWS if set(row.families) & set(TCGEN05)}
    assert believed == {row for row in EVIDENCE if set(row.families) & set(TCGEN05)}


PRODUCTS = {f"{each.text.removeprefix('tcgen05.')} {each.shape_text} {'.'.join(each.types)}": each
            for each in every_product()}  # fmt: skip


@pytest.mark.slow
@sampled(520)
@pytest.mark.parametrize("name", PRODUCTS)
def test_bits_against_integers(name: str) -> None:
    rng = np.random.default_rng([SEED, *name.encode()])
    product = PRODUCTS[name]
    legal = legal_shapes(product.product)
    m, n = (int(rng.choice(each)) for each in (legal.m, legal.n[:4]))
    formats: dict[str, Any] = dict(zip("dab", product.types, strict=True))
    mma = tcgen05_instruction(product.form, m=m, n=n, k=product.k, **formats)
    arch = str(rng.choice(mma.archs))
    for kind in SAMPLES:
        given = arrays(mma, rng, kind)
        found = mma(**given, arch=arch)
        assert found.shape == (m, n) and found.dtype == mma.d.format.dtype
        for row, column in zip(rng.integers(0, m, 3), rng.integers(0, n, 3), strict=True):
            expected = element(mma, given, int(row), int(column))
            bits = int(mma.d.format.to_bits(found)[row, column])
            assert bits == expected, (kind, row, column, hex(bits), hex(expected))


def arrays(mma: Tcgen05Instruction, rng: np.random.Generator, kind: str) -> dict[str, Any]:
    """Operands of a product, by name."""
    given: dict[str, Any] = {
        name: numbers(operand.format, operand.shape, rng, kind)
        for name, operand in mma.operands.items()
        if name in "abc" or name.startswith("scale")
    }
    if mma.sparse:
        e = mma.metadata
        places = rng.random((m_of(mma), e.cols, e.group // e.run)).argsort(-1)[..., : e.per_code]
        given["metadata"] = np.sort(places, -1).reshape(e.indices_shape).astype(np.uint8)
    return given


def m_of(mma: Tcgen05Instruction) -> int:
    return mma.descriptor.m


def element(mma: Tcgen05Instruction, given: dict[str, Any], row: int, column: int) -> int:
    """The bits of one element of D, by the oracle."""
    d, a, b = mma.types
    terms = mma.k // 2 if mma.sparse else mma.k
    columns = list(range(terms))
    if mma.sparse:  # where in their groups the packed elements are
        group, kept, run = {"tf32": (2, 1, 1)}.get(a, (8, 2, 2) if mma.kind.startswith("mxf4") else (4, 2, 1))
        places = [int(place) for place in given["metadata"][row]]
        columns = [
            at // kept * group + place * run + one for at, place in enumerate(places) for one in range(run)
        ]
    rows = [words(mma, given, "a")[row][at] for at in range(terms)]
    others = [words(mma, given, "b")[at][column] for at in columns]
    if mma.kind == "i8":
        exact = sum(signed(x, a) * signed(y, b) for x, y in zip(rows, others, strict=True))
        return (exact + int(given["c"][row, column])) % (1 << 32)
    pairs = [(oracle.number(x, a), oracle.number(y, b)) for x, y in zip(rows, others, strict=True)]
    scales = []
    if mma.scale_type:
        sides = words(mma, given, "scale_a")[row], [each[column] for each in words(mma, given, "scale_b")]
        scales = [tuple(oracle.number(x, mma.scale_type) for x in pair) for pair in zip(*sides, strict=True)]
    c = oracle.number(words(mma, given, "c")[row][column], d)
    return oracle.fused(pairs, c, d, scales, grouped=mma.kind.startswith("mxf4"))  # type: ignore[arg-type]  # pairs, each of two numbers


def words(mma: Tcgen05Instruction, given: dict[str, Any], name: str) -> list[list[int]]:
    """An operand as raw words; those of tf32 have all 32 bits."""
    fmt, array = mma.operands[name].format, given[name]
    raw = array.view(np.uint32) if fmt.name == "tf32" else fmt.to_bits(array)
    return raw.tolist()


def signed(word: int, name: str) -> int:
    return word - 256 if name == "s8" and word > 127 else word


# calls --------------------------------------------------------------------------------------------------

F16 = "tcgen05.mma.cta_group::1.kind::f16"
NVFP4 = "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16"


def random(fmt: str, *shape: int) -> np.ndarray:
    rng = np.random.default_rng([SEED, *shape])
    return FORMATS[fmt].array(rng.standard_normal(shape), saturate=True)


def test_what_is_not_chosen_follows_the_arrays() -> None:
    mma = instruction(F16)
    for a, b, m, n in (("f16", "bf16", 64, 8), ("bf16", "bf16", 128, 40)):
        x, y = random(a, m, 16), random(b, 16, n)
        chosen = instruction(F16, m=m, n=n, a=a, b=b)
        assert np.array_equal(mma(x, y, arch="sm_100a"), chosen(x, y, arch="sm_100a"))
        assert np.array_equal(mma.gemm(x, y, arch="sm_100a"), chosen(x, y, arch="sm_100a"))
    half = np.zeros((64, 8), np.float16)
    assert mma(random("f16", 64, 16), random("f16", 16, 8), half, arch="sm_100a").dtype == np.float16
    long = instruction(NVFP4)(
        random("e2m1", 128, 96), random("e2m1", 96, 8),
        scale_a=random("ue8m0", 128, 6), scale_b=random("ue8m0", 6, 8), arch="sm_103a",
    )  # fmt: skip
    assert long.shape == (128, 8)


def test_what_is_chosen_stays() -> None:
    mma = instruction(F16, m=128, n=8, a="f16")
    with pytest.raises(LanewiseError, match=r"A has shape \(64, 16\); .* takes \(…, 128, 16\)"):
        mma(random("f16", 64, 16), random("f16", 16, 8), arch="sm_100a")
    with pytest.raises(LanewiseError, match="A is f16 and takes an array of dtype float16"):
        mma(random("bf16", 128, 16), random("f16", 16, 8), arch="sm_100a")
    with pytest.raises(LanewiseError, match="gemm"):
        instruction(F16)(random("f16", 100, 16), random("f16", 16, 8), arch="sm_100a")


def test_gemm_is_the_instruction_repeated_along_k() -> None:
    a, b = random("bf16", 100, 70), random("bf16", 70, 30)
    padded_a, padded_b = np.zeros((128, 80), a.dtype), np.zeros((80, 32), b.dtype)
    padded_a[:100, :70], padded_b[:70, :30] = a, b
    mma = instruction(F16, m=128, n=32, a="bf16")
    d = np.zeros((128, 32), np.float32)
    for k in range(0, 80, 16):
        d = mma(padded_a[:, k : k + 16], padded_b[k : k + 16], d, arch="sm_100a")
    assert np.array_equal(mma.gemm(a, b, arch="sm_100a"), d[:100, :30])


def test_m_and_n_change_no_bits() -> None:
    a, b = random("f16", 256, 16), random("f16", 16, 256)
    whole = instruction("tcgen05 m256n256k16 f16")(a, b, arch="sm_100a")
    part = instruction("tcgen05 m64n24k16 f16")(a[64:128], b[:, 8:32], arch="sm_100a")
    assert np.array_equal(whole[64:128, 8:32], part)


def test_the_descriptor_negates_and_saturates() -> None:
    a, b, c = random("f16", 64, 16), random("f16", 16, 8), random("f32", 64, 8)
    plain = instruction(F16, m=64, n=8)
    bits = InstructionDescriptor("f16", 64, 8, negate_a=True).encode()
    negated = instruction(F16, descriptor=bits)
    assert np.array_equal(negated(a, b, c, arch="sm_100a"), plain(-a, b, c, arch="sm_100a"))
    assert np.array_equal(negated(a, b, c, arch="sm_100a"), plain(a, b, c, arch="sm_100a", negate_b=True))
    both = instruction(F16, m=64, n=8, negate_a=True, negate_b=True)
    assert np.array_equal(both.gemm(a, b, c, arch="sm_100a"), plain(a, b, c, arch="sm_100a"))
    ends = np.full((64, 8), 2**31 - 1, np.int32)
    ones = np.ones((64, 32), np.uint8), np.ones((32, 8), np.uint8)
    integers = "tcgen05.mma.cta_group::1.kind::i8"
    assert (instruction(integers, a="u8")(*ones, ends, arch="sm_100a") == 31 - 2**31).all()
    assert (instruction(integers, a="u8", saturate=True)(*ones, ends, arch="sm_100a") == ends).all()
    with pytest.raises(LanewiseError, match="cannot negate its operands; wgmma and tcgen05"):
        instruction(integers, a="u8")(*ones, arch="sm_100a", negate_a=True)


def test_scales_are_checked() -> None:
    mma = instruction("tcgen05 nvfp4 m128n8k64")
    a, b = random("e2m1", 128, 64), random("e2m1", 64, 8)
    with pytest.raises(LanewiseError, match=r"needs scale_a: float8_e4m3fn of shape \(…, 128, 4\)"):
        mma(a, b, arch="sm_100a")
    ones = {
        "scale_a": np.ones((128, 4), ml_dtypes.float8_e4m3fn),
        "scale_b": np.ones((4, 8), ml_dtypes.float8_e4m3fn),
    }
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert np.array_equal(mma(a, b, arch="sm_100a", **ones), exact)
    with pytest.raises(LanewiseError, match="takes no scale_a"):
        instruction(F16)(random("f16", 64, 16), random("f16", 16, 8), arch="sm_100a", scale_a=ones["scale_a"])


def test_archs_without_it_are_refused() -> None:
    a, b = random("f16", 64, 16), random("f16", 16, 8)
    for arch in ("sm_90a", "sm_100", "sm_120a"):
        with pytest.raises(IllegalInstruction, match=f"{arch} does not have it; sm_100a"):
            instruction(F16)(a, b, arch=arch)
    with pytest.raises(TypeError, match="takes the arch whose bits are wanted"):
        instruction(F16)(a, b)
    with pytest.raises(LanewiseError, match="only sm_103a has that, sm_100a has 64"):
        instruction("tcgen05 mxfp4 m128n8k96", arch="sm_100a")


def test_fidelity_says_which_models_there_are() -> None:
    mma = instruction(F16, m=128, n=64, a="bf16")
    assert mma.fidelity("B200") == "from published models" and "agree" in mma.model("sm_100a").source
    fp8 = instruction("tcgen05 m128n64 e4m3").model("sm_100a")
    assert fp8.fidelity == "from published models" and "differs" in fp8.source
    for text in (
        "tcgen05 m256n64 bf16",
        "tcgen05 m32n64 ws bf16",
        "tcgen05 m64n8 f16 bf16",
        "tcgen05 m64n8 sparse f16",
    ):
        assert instruction(text).fidelity("sm_100a") == "inferred"
    assert mma.fidelity("sm_103a") == "inferred"
