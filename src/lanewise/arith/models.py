"""The table of arithmetic models: what each architecture computes for each kind of matrix instruction.

Everything hardware decides is a number or a word here; `reference.py` and the kernels only carry it out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from lanewise.errors import LanewiseError
from lanewise.formats import Format, f16
from lanewise.isa.archs import arch_number, find_arch

if TYPE_CHECKING:
    from lanewise.isa import Instruction

Rounding = Literal["RZ-FP32", "RZ-E8M13", "RNE-FP16"]
Fidelity = Literal["confirmed on hardware", "from published models", "inferred", "unknown"]


#: The bits of a NaN result. An f64 NaN may also come from an operand: see `FmaChain`.
NAN_BITS = {"f16": 0x7FFF, "f32": 0x7FFFFFFF, "f64": 0xFFF8000000000000}


@dataclass(frozen=True)
class FusedSum:
    """The truncated fused dot-product-add of Tensor Cores.

    K is cut into blocks of `length` terms. In a block the products and C are aligned on the largest exponent,
    each truncated toward zero to a multiple of 2^(e_max - fraction), summed exactly and rounded once.
    """

    length: int
    fraction: int
    rounding: Rounding
    #: The exponent that a zero product or a zero C counts with when e_max is found.
    e_zero: int
    #: Products summed exactly before they are aligned as one term (block-scaled fp4: 16).
    group: int = 1
    #: Where C enters: with the first block, or after the last by an ordinary rounded addition.
    c_enters: Literal["first", "last"] = "first"
    #: The order of K: as written, or every four cut in two and the first halves taken first.
    k_order: Literal["ascending", "halves of four"] = "ascending"
    #: Whether A and B are made f16 first, which normalises the subnormal numbers of e4m3.
    widened: bool = False
    #: The sign of a negative sum that the rounding takes to zero. An exact zero is always +0.
    underflow: Literal["positive", "signed"] = "positive"

    def __post_init__(self) -> None:
        assert self.length % self.group == 0 and self.length & (self.length - 1) == 0
        assert 0 < self.fraction <= 40 and self.e_zero < 0


@dataclass(frozen=True)
class FmaChain:
    """IEEE fused multiply-adds in one format, k ascending.

    With `group` = 0 the chain starts from C. Otherwise every `group` products are chained from zero, and the
    chains are added to C one after the other. A chain from -0 is one that begins with a plain product.
    """

    format: Literal["f32", "f64"]
    group: int = 0
    zero: Literal["+0", "-0"] = "+0"
    #: A NaN result: always the same, or that of B, of the sum so far or of A, the first there is, made quiet.
    nan: Literal["one", "of b, sum, a"] = "one"


@dataclass(frozen=True)
class IntegerSum:
    """The exact sum of integer products and C; wrapped to 32 bits, or clamped once at the end."""


@dataclass(frozen=True)
class PopcountSum:
    """C plus the number of ones in the xor, or the and, of a row of A and a column of B."""


Scheme = FusedSum | FmaChain | IntegerSum | PopcountSum


@dataclass(frozen=True)
class Row:
    """One row: the instructions it speaks of, and their scheme. An empty condition matches everything."""

    archs: tuple[int, ...]
    families: tuple[str, ...]
    formats: tuple[str, ...]
    accumulator: str
    scheme: Scheme
    shapes: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()

    def matches(self, instruction: Instruction, arch: int) -> bool:
        """Whether the row speaks of this instruction on this arch."""
        return (
            arch in self.archs
            and instruction.family in self.families
            and instruction.a.format.name in self.formats
            and accumulator_of(instruction) == self.accumulator
            and (not self.shapes or instruction.shape_text in self.shapes)
            and (not self.kinds or instruction.kind in self.kinds)
        )


@dataclass(frozen=True)
class Evidence:
    """How far the rows can be trusted for some instructions. The first that matches counts."""

    fidelity: Fidelity
    source: str
    archs: tuple[int, ...]
    families: tuple[str, ...]
    formats: tuple[str, ...] = ()
    shapes: tuple[str, ...] = ()
    condition: Callable[[Instruction], bool] | None = None

    def matches(self, instruction: Instruction, arch: int) -> bool:
        """Whether this evidence is about this instruction on this arch."""
        return (
            arch in self.archs
            and instruction.family in self.families
            and (not self.formats or instruction.a.format.name in self.formats)
            and (not self.shapes or instruction.shape_text in self.shapes)
            and (self.condition is None or self.condition(instruction))
        )


VOLTA, TURING, AMPERE, ADA, HOPPER = (70, 72), (75,), (80, 86, 87, 88), (89,), (90,)
BLACKWELL, RTX_BLACKWELL = (100, 103, 110), (120, 121)
FROM_AMPERE = AMPERE + ADA + HOPPER + BLACKWELL + RTX_BLACKWELL
FROM_HOPPER = HOPPER + BLACKWELL + RTX_BLACKWELL
EVERY = VOLTA + TURING + FROM_AMPERE

SPARSE = ("mma.sp", "mma.sp::ordered_metadata")
MMA = ("mma", *SPARSE)
WMMA = ("wmma.mma",)
WGMMA = ("wgmma", "wgmma.sp")
ALL = MMA + WMMA + WGMMA
TCGEN05 = ("tcgen05.mma", "tcgen05.mma.sp", "tcgen05.mma.ws", "tcgen05.mma.ws.sp")

FP8 = ("e4m3", "e5m2")
F8F6F4 = (*FP8, "e3m2", "e2m3", "e2m1")
INTEGERS = ("s8", "u8", "s4", "u4")

# A sparse A follows the row of its dense kin on the elements selected: `length` counts those.
ROWS: tuple[Row, ...] = (
    # m8n8k4: native on Volta and Turing, FFMAs and FADDs that ptxas makes from Ampere on.
    Row(VOLTA + TURING, MMA, ("f16",), "f32", FusedSum(4, 23, "RZ-FP32", -131), shapes=("m8n8k4",)),
    Row(VOLTA + TURING, MMA, ("f16",), "f16", FusedSum(4, 23, "RNE-FP16", -19), shapes=("m8n8k4",)),
    Row(FROM_AMPERE, MMA, ("f16",), "f32", FmaChain("f32", group=4), shapes=("m8n8k4",)),
    Row(FROM_AMPERE, MMA, ("f16",), "f16", FmaChain("f32", group=2, zero="-0"), shapes=("m8n8k4",)),
    # f16, bf16, tf32. wmma is made of m8n8k4 (Volta), m16n8k8 (Turing), m16n8k16, and for tf32 of m16n8k4.
    Row(VOLTA, WMMA, ("f16",), "f32", FusedSum(4, 23, "RZ-FP32", -131)),
    Row(VOLTA, WMMA, ("f16",), "f16", FusedSum(4, 23, "RNE-FP16", -19)),
    Row(TURING + AMPERE + ADA, MMA + WMMA, ("f16", "bf16"), "f32", FusedSum(8, 24, "RZ-FP32", -132)),
    Row(TURING + AMPERE + ADA, MMA + WMMA, ("f16",), "f16", FusedSum(8, 24, "RNE-FP16", -20)),
    Row(AMPERE + ADA, MMA + WMMA, ("tf32",), "f32", FusedSum(4, 24, "RZ-FP32", -132)),
    Row(FROM_HOPPER, ALL, ("f16", "bf16"), "f32", FusedSum(16, 25, "RZ-FP32", -133)),
    Row(FROM_HOPPER, ALL, ("f16",), "f16", FusedSum(16, 25, "RNE-FP16", -21)),
    Row(FROM_HOPPER, WMMA, ("tf32",), "f32", FusedSum(4, 25, "RZ-FP32", -133)),
    Row(FROM_HOPPER, MMA + WGMMA, ("tf32",), "f32", FusedSum(8, 25, "RZ-FP32", -133)),
    # FP8. On sm_90 and sm_100 ptxas widens to f16: bytes 0 and 1 of every four in one HMMA from zero, bytes 2
    # and 3 in the next, then C is added. Seen with ptxas 13.0.
    Row(ADA, MMA, FP8, "f32", FusedSum(16, 13, "RZ-E8M13", -132)),
    Row(ADA, MMA, FP8, "f16", FusedSum(16, 13, "RNE-FP16", -20)),
    Row(HOPPER, WGMMA, FP8, "f32", FusedSum(32, 13, "RZ-E8M13", -133)),
    Row(HOPPER, WGMMA, FP8, "f16", FusedSum(32, 13, "RNE-FP16", -21)),
    Row(
        HOPPER + BLACKWELL,
        MMA,
        FP8,
        "f32",
        FusedSum(16, 25, "RZ-FP32", -133, c_enters="last", k_order="halves of four", widened=True),
    ),
    Row(
        HOPPER + BLACKWELL,
        MMA,
        FP8,
        "f16",
        FusedSum(16, 25, "RNE-FP16", -21, c_enters="last", k_order="halves of four", widened=True),
    ),
    # FP8, FP6 and FP4, plain and block-scaled.
    Row(
        RTX_BLACKWELL, MMA, F8F6F4, "f32", FusedSum(32, 25, "RZ-FP32", -133), kinds=("", "f8f6f4", "mxf8f6f4")
    ),
    Row(RTX_BLACKWELL, MMA, F8F6F4, "f16", FusedSum(32, 25, "RNE-FP16", -21), kinds=("", "f8f6f4")),
    Row(
        RTX_BLACKWELL,
        MMA,
        ("e2m1",),
        "f32",
        FusedSum(64, 35, "RZ-FP32", -139, group=16),
        kinds=("mxf4", "mxf4nvf4"),
    ),
    # tcgen05.mma: 32 bytes of A at once, or those that a sparse A selects. Block-scaled fp4: the whole K.
    Row(BLACKWELL, TCGEN05, ("tf32",), "f32", FusedSum(8, 25, "RZ-FP32", -133)),
    Row(BLACKWELL, TCGEN05, ("f16", "bf16"), "f32", FusedSum(16, 25, "RZ-FP32", -133)),
    Row(BLACKWELL, TCGEN05, ("f16",), "f16", FusedSum(16, 25, "RNE-FP16", -21)),
    Row(BLACKWELL, TCGEN05, F8F6F4, "f32", FusedSum(32, 25, "RZ-FP32", -133), kinds=("f8f6f4", "mxf8f6f4")),
    Row(BLACKWELL, TCGEN05, F8F6F4, "f16", FusedSum(32, 25, "RNE-FP16", -21), kinds=("f8f6f4",)),
    Row(
        BLACKWELL,
        TCGEN05,
        ("e2m1",),
        "f32",
        FusedSum(128, 35, "RZ-FP32", -139, group=16),
        kinds=("mxf4", "mxf4nvf4"),
    ),
    # The exact ones.
    Row(FROM_AMPERE, MMA + WMMA, ("f64",), "f64", FmaChain("f64", nan="of b, sum, a")),
    Row(EVERY, ALL + TCGEN05, INTEGERS, "s32", IntegerSum()),
    Row(EVERY, ALL, ("b1",), "s32", PopcountSum()),
)

#: Roundings other than to nearest.
_DIRECTED = ("rz", "rm", "rp")
_H200 = "every bit compared on an H200: benchmarks/results/h200_arithmetic.json"
_PUBLISHED = "MMA-Sim; Khattak and Mikaitis, arXiv 2512.07004; Hawkeye, arXiv 2603.20421"
_ISA = "PTX ISA"
_SASS = "the instructions ptxas 13.0 writes, and the model of those"
_KIN = "the same instruction on its nearest measured kin"
_B200 = "MMA-Sim 2.1.1, which its authors checked on a B200"
_B200_BOTH = f"{_B200}; Khattak and Mikaitis (arXiv 2512.07004) agree on a B200"
_B200_FP8 = (
    f"{_B200}. Khattak and Mikaitis' FP8 model of a B200 (arXiv 2512.07004) differs: it is that of mma.sync, "
    "which ptxas emulates with f16 products, and not of kind::f8f6f4, which multiplies FP8 itself"
)
_PAIRS = "the dense model of one block, MMA-Sim 2.1.1: no one has published this form"
_SPARSE = "the dense model on the elements that the metadata select, as an H200 computes mma.sp and wgmma.sp"
_LONG_K = "the model of K = 64, MMA-Sim 2.1.1, with all 96 elements in one sum: no one has published K = 96"


def _published(instruction: Instruction) -> bool:
    """Whether a dense tcgen05.mma is one that MMA-Sim has: one block, no .ws, f16 and bf16 not mixed."""
    mixed = instruction.kind == "f16" and instruction.a.format != instruction.b.format
    return not mixed and ".ws" not in instruction.text and "cta_group::2" not in instruction.text


EVIDENCE: tuple[Evidence, ...] = (
    Evidence("inferred", _SASS, EVERY, WMMA, condition=lambda form: form.until is not None),
    Evidence("confirmed on hardware", _H200, HOPPER, ALL),
    Evidence("inferred", _SASS, FROM_AMPERE, ("mma",), ("f16",), ("m8n8k4",)),
    Evidence("inferred", _KIN, EVERY, SPARSE),
    Evidence("inferred", _SASS, EVERY, WMMA, ("f16", "bf16", "tf32", "f64")),
    Evidence("inferred", _ISA, EVERY, ALL, ("f64",), condition=lambda form: form.rounding in _DIRECTED),
    Evidence("from published models", _ISA, EVERY, ALL + TCGEN05, (*INTEGERS, "b1")),
    Evidence("inferred", _SPARSE, BLACKWELL, TCGEN05, condition=lambda form: form.sparse),
    Evidence("inferred", _LONG_K, BLACKWELL, TCGEN05, condition=lambda form: form.k == 96),
    Evidence("inferred", _PAIRS, BLACKWELL, TCGEN05, condition=lambda form: not _published(form)),
    Evidence("from published models", _B200_BOTH, (100,), TCGEN05, ("f16", "bf16", "tf32")),
    Evidence(
        "from published models", _B200_FP8, (100,), TCGEN05, FP8, condition=lambda form: not form.scale_type
    ),
    Evidence("from published models", _B200, (100,), TCGEN05),
    Evidence("inferred", _SASS, BLACKWELL, ("mma",), FP8),
    Evidence("inferred", _KIN, (72, 88, 103, 110, 121), ALL + TCGEN05),
    Evidence("from published models", _PUBLISHED, EVERY, ALL),
)


@dataclass(frozen=True)
class Model:
    """The rules by which an arch computes an instruction, and how far these rules can be trusted."""

    scheme: Scheme
    fidelity: Fidelity
    source: str
    a: Format
    b: Format
    c: Format
    d: Format
    #: Terms of one instruction's dot products: K, or the half of it that a sparse A selects.
    k: int
    sparse: bool = False
    kind: str = ""
    scale: Format | None = None
    scale_vec: int = 0
    rounding: str = "rn"
    satfinite: bool = False
    #: How an f32 sum becomes an f16 D.
    narrowing: Literal["rn", "rz"] = "rn"
    bitop: str = ""

    def __str__(self) -> str:
        """How the sum is made, in words: block length, fraction bits and rounding, or the chain's format."""
        scheme = self.scheme
        if isinstance(scheme, FusedSum):
            return (
                f"blocks of {self.block} products aligned to {scheme.fraction} fraction bits, truncated, "
                f"then rounded ({scheme.rounding})"
            )
        if isinstance(scheme, FmaChain):
            return f"a chain of {scheme.format} fused multiply-adds, K ascending"
        return "exact integers" if isinstance(scheme, IntegerSum) else "a count of bits"

    @property
    def accumulator(self) -> str:
        """The format that carries the sum from one block to the next: f32 if either C or D is."""
        if "f32" in (self.c.name, self.d.name):
            return "f32"
        return self.d.name

    def emin(self, operand: Literal["a", "b"]) -> int:
        """The exponent of an operand's subnormal numbers, as the alignment sees it."""
        assert isinstance(self.scheme, FusedSum)
        fmt = self.a if operand == "a" else self.b
        return f16.emin if self.scheme.widened else fmt.emin

    @property
    def block(self) -> int:
        """Terms fused in one block: L = min(K, L_max), and no block across the two halves of an FP8 K."""
        assert isinstance(self.scheme, FusedSum)
        terms = self.k if self.scheme.k_order == "ascending" else self.k // 2
        return min(terms, self.scheme.length)


def c_format(instruction: Instruction) -> Format:
    """The format of C, which wgmma keeps in D's registers."""
    return instruction.operands.get("c", instruction.d).format


def accumulator_of(instruction: Instruction) -> str:
    """The accumulator's format: SASS widens an f16 C to f32, and narrows an f32 sum to an f16 D."""
    names = (c_format(instruction).name, instruction.d.format.name)
    return "f32" if "f32" in names else names[1]


@lru_cache(maxsize=4096)
def model_of(instruction: Instruction, arch: str) -> Model | None:
    """Return the model of an instruction on an arch, or None if its arithmetic is not known.

    >>> from lanewise.isa import instruction
    >>> mma = instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    >>> model_of(mma, "sm_90").scheme
    FusedSum(length=16, fraction=25, rounding='RZ-FP32', e_zero=-133, group=1, c_enters='first', \
k_order='ascending', widened=False, underflow='positive')
    >>> model_of(mma, "sm_80").fidelity
    'from published models'
    """
    if not instruction.multiplies:
        raise LanewiseError(f"{instruction.text} moves data and computes nothing")
    number = arch_number(find_arch(arch))
    row = next((row for row in ROWS if row.matches(instruction, number)), None)
    if row is None:
        return None
    evidence = next(row for row in EVIDENCE if row.matches(instruction, number))
    scale = instruction.operands.get("scale_a")
    # From sm_80 on ptxas 13.0 drops .satfinite from a float wmma.mma; only the narrowing of D then truncates.
    dropped = instruction.satfinite and instruction.d.format.kind == "float" and number >= 80
    return Model(
        scheme=row.scheme,
        fidelity=evidence.fidelity,
        source=evidence.source,
        a=instruction.a.format,
        b=instruction.b.format,
        c=c_format(instruction),
        d=instruction.d.format,
        k=instruction.a.cols,
        sparse=instruction.sparse,
        kind=instruction.kind,
        scale=scale.format if scale is not None else None,
        scale_vec=instruction.scale_vec,
        rounding=instruction.rounding or "rn",
        satfinite=instruction.satfinite and not dropped,
        narrowing="rz" if dropped else "rn",
        bitop=instruction.bitop,
    )
