"""The instruction descriptor of tcgen05.mma: 32 bits that say formats, order and shape of its matrices.

Facts: PTX ISA 9.x, "Instruction descriptor" and "Matrix Shape" of TensorCore 5th generation; the bits are
those of CUTLASS' UMMA::InstrDescriptor and InstrDescriptorBlockScaled (mma_sm100_desc.hpp). The 64-bit
descriptor of a matrix in shared memory is in `isa/matrix_descriptor.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from operator import index
from typing import Any, Literal, NamedTuple

from lanewise.errors import LanewiseError
from lanewise.isa.archs import arch_number, find_arch

Major = Literal["K", "MN"]
Value = int | str | bool


class Field(NamedTuple):
    """Some bits of the descriptor, and what they say; `attribute` names them in `InstructionDescriptor`."""

    name: str
    first: int
    bits: int
    says: str
    attribute: str
    #: The value of the attribute is the number in the bits times this.
    unit: int = 1

    @property
    def mask(self) -> int:
        """The bits of the descriptor that are this field."""
        return ((1 << self.bits) - 1) << self.first

    def of(self, descriptor: int) -> int:
        """Return the number in the field's bits."""
        return (descriptor & self.mask) >> self.first


_BOTH = (
    Field("sparsity selector", 0, 2, "which part of the metadata is used", "sparsity_selector"),
    Field("sparse", 2, 1, "1: A is 2:4 sparse", "sparse"),
)
_MATRICES = (
    Field("format of A", 7, 3, "", "a"),
    Field("format of B", 10, 3, "", "b"),
    Field("negate A", 13, 1, "1: −A (floats)", "negate_a"),
    Field("negate B", 14, 1, "1: −B (floats)", "negate_b"),
    Field("order of A", 15, 1, "0: K-major, 1: M-major", "a_major"),
    Field("order of B", 16, 1, "0: K-major, 1: N-major", "b_major"),
    Field("N", 17, 6, "columns of D, divided by 8", "n", 8),
)
#: The fields for kinds f16, tf32, f8f6f4 and i8. What formats are called is in `KINDS`.
DENSE = (
    *_BOTH,
    Field("saturate", 3, 1, "1: sums stop at the ends of s32 (i8 alone)", "saturate"),
    Field("format of D", 4, 2, "", "d"),
    *_MATRICES,
    Field("M", 24, 5, "rows of D, divided by 16", "m", 16),
    Field("largest shift", 30, 2, "of B's columns in .ws: none 0, 8 1, 16 2, 32 3", "max_shift"),
)
#: The fields for kinds mxf8f6f4, mxf4 and mxf4nvf4.
BLOCK_SCALED = (
    *_BOTH,
    Field("scale of B", 4, 2, "which byte of a column of scale factors is used", "scale_b_id"),
    *_MATRICES,
    Field("format of scales", 23, 1, "", "scale"),
    Field("M", 24, 5, "rows of D, divided by 16", "m", 16),
    Field("scale of A", 29, 2, "which byte of a column of scale factors is used", "scale_a_id"),
    Field("K", 31, 1, "", "k"),
)

_FP8_6_4 = {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5}
#: Numbers of D's formats, and of scale factors' formats.
_D = {"f16": 0, "f32": 1, "s32": 2}
_SCALES = {"ue4m3": 0, "ue8m0": 1}
_SHIFTS = {0: 0, 8: 1, 16: 2, 32: 3}
_MAJORS: dict[Major, int] = {"K": 0, "MN": 1}
#: Formats narrower than a byte lie K-major only; those of a byte have fewer N if B is N-major.
K_MAJOR_ONLY = ("e2m3", "e3m2", "e2m1")
BYTES = ("e4m3", "e5m2", "s8", "u8")


@dataclass(frozen=True)
class Kind:
    """What a `kind::` of tcgen05.mma multiplies: formats with their numbers, K, what may be set."""

    name: str
    formats: dict[str, int]
    d: tuple[str, ...]
    k: int
    scales: tuple[str, ...] = ()
    #: Elements along K that may share a scale factor.
    blocks: tuple[int, ...] = ()
    #: The larger K that the descriptor may choose (on sm_103a), 0 if there is none.
    long_k: int = 0
    selectors: tuple[int, ...] = (0,)
    scale_ids: tuple[int, ...] = (0,)

    @property
    def block_scaled(self) -> bool:
        """Whether blocks of A and B have scale factors."""
        return bool(self.scales)

    @property
    def integer(self) -> bool:
        """Whether it multiplies integers."""
        return self.d == ("s32",)

    @property
    def narrow(self) -> bool:
        """Whether elements are packed fp4, two to a byte, whatever the other matrix is."""
        return self.k == 64

    def fields(self) -> tuple[Field, ...]:
        """Return the fields of the descriptor, with this kind's formats in words."""
        said = {
            "a": _numbered(self.formats),
            "b": _numbered(self.formats),
            "d": _numbered({name: _D[name] for name in self.d}),
            "scale": _numbered({name: _SCALES[name] for name in self.scales}),
            "k": f"0: K is {self.k} (sparse {2 * self.k})"
            + (f"; 1: {self.long_k} (dense, sm_103a)" if self.long_k else ""),
        }
        table = BLOCK_SCALED if self.block_scaled else DENSE
        return tuple(field._replace(says=field.says or said[field.attribute]) for field in table)


KINDS = {
    kind.name: kind
    for kind in (
        Kind("f16", {"f16": 0, "bf16": 1}, ("f16", "f32"), 16, selectors=(0, 1, 2, 3)),
        Kind("tf32", {"tf32": 2}, ("f32",), 8, selectors=(0, 1, 2, 3)),
        Kind("f8f6f4", _FP8_6_4, ("f16", "f32"), 32),
        Kind("i8", {"u8": 0, "s8": 1}, ("s32",), 32),
        Kind("mxf8f6f4", _FP8_6_4, ("f32",), 32, ("ue8m0",), (32,), scale_ids=(0, 1, 2, 3)),
        Kind("mxf4", {"e2m1": 1}, ("f32",), 64, ("ue8m0",), (32,), 96, scale_ids=(0, 2)),
        Kind("mxf4nvf4", {"e2m1": 1}, ("f32",), 64, ("ue4m3", "ue8m0"), (16, 32), 96, scale_ids=(0, 2)),
    )
}


def kind_of(name: str) -> Kind:
    """Return the kind of a name, with or without `kind::`.

    >>> kind_of("kind::mxf4").formats
    {'e2m1': 1}
    """
    kind = KINDS.get(str(name).removeprefix("kind::"))
    if kind is None:
        raise LanewiseError(f"tcgen05.mma has no kind {name!r}; kinds are {', '.join(KINDS)}")
    return kind


class Product(NamedTuple):
    """What the words of a tcgen05.mma say; everything else is in its instruction descriptor."""

    kind: Kind
    cta_group: Literal[1, 2] = 1
    sparse: bool = False
    ws: bool = False
    #: Elements of A that share a scale factor; 0 without block scales.
    block: int = 0

    @property
    def words(self) -> str:
        """The form in words, for messages."""
        parts = [f"kind::{self.kind.name}", f"cta_group::{self.cta_group}"]
        parts += [".sp"] if self.sparse else []
        parts += [".ws"] if self.ws else []
        return ", ".join(parts)

    def factors(self, k: int) -> int:
        """Return how many scale factors a row of A or a column of B has in a product of this K.

        A sparse A has as many as the dense one of half of its K.

        >>> nvfp4 = Product(KINDS["mxf4nvf4"], block=16)
        >>> nvfp4.factors(64), nvfp4.factors(96)
        (4, 6)
        """
        return (k if k == self.kind.long_k else self.kind.k) // self.block


def product_of(text: str) -> Product:
    """Return what the words of a tcgen05.mma say.

    >>> product_of("tcgen05.mma.sp.cta_group::2.kind::mxf4nvf4.block_scale.scale_vec::4X").block
    16
    """
    words = text.split(".")
    kind = kind_of(next((word for word in words if word.startswith("kind::")), "none"))
    block = 0
    if kind.block_scaled:
        fine = "block16" in words or "scale_vec::4X" in words
        block = 16 if fine else 32
    group: Literal[1, 2] = 2 if "cta_group::2" in words else 1
    return Product(kind, group, "sp" in words, "ws" in words, block)


class Shapes(NamedTuple):
    """The values of M, N and K that a form of tcgen05.mma has."""

    m: tuple[int, ...]
    n: tuple[int, ...]
    k: tuple[int, ...]


class ShapeWords(NamedTuple):
    """The values of M, N and K in words."""

    m: str
    n: str
    k: str


def legal_shapes(product: Product) -> Shapes:
    """Return every M, N and K of a form, as the PTX ISA lists them.

    CUTLASS' assertions are narrower in places (A in tensor memory, sparse f8f6f4): those are its own.

    >>> legal_shapes(product_of("tcgen05.mma.ws.sp.cta_group::1.kind::tf32"))
    Shapes(m=(32, 64, 128), n=(64, 128), k=(16,))
    """
    kind = product.kind
    k = (2 * kind.k,) if product.sparse else (kind.k, *((kind.long_k,) if kind.long_k else ()))
    if product.ws:
        return Shapes((32, 64, 128), (64, 128) if product.sparse else (64, 128, 256), k)
    if product.cta_group == 2:
        m = (256,) if kind.block_scaled and product.sparse else (128, 256)
        step = 32 if kind.integer else 16
        return Shapes(m, tuple(range(step, 257, step)), k)
    m = (128,) if kind.block_scaled else (64, 128)
    n = (8, 16, 24, *range(32, 257, 16)) if kind.integer else tuple(range(8, 257, 8))
    return Shapes(m, n, k)


def require_shape(product: Product, m: int, n: int, k: int) -> None:
    """Raise an error if a form of tcgen05.mma does not have this M, N or K."""
    legal = legal_shapes(product)
    for name, value, allowed in zip("MNK", (m, n, k), legal, strict=True):
        if value not in allowed:
            raise LanewiseError(
                f"{name} is {value}; tcgen05.mma with {product.words} has {name} {_steps(allowed)}"
            )


def shapes(text: str) -> ShapeWords:
    """The shapes of a tcgen05.mma, in words: M and N are chosen by the instruction descriptor.

    >>> shapes("tcgen05.mma.cta_group::2.kind::f16").m
    '128 or 256'
    """
    product = product_of(text)
    legal = legal_shapes(product)
    k = f"{legal.k[0]}" + (f", or {legal.k[1]} on sm_103a" if len(legal.k) > 1 else "")
    return ShapeWords(_either(legal.m), _steps(legal.n), k)


@dataclass(frozen=True)
class InstructionDescriptor:
    """The instruction descriptor of tcgen05.mma, by its fields.

    Fields that are left out have the value that most kernels use: K-major, nothing negated, dense; D and the
    scales in the kind's widest format; K the kind's own.

    >>> tile = InstructionDescriptor("f16", 128, 256, "bf16", "bf16")
    >>> hex(tile.encode()), tile.d, tile.k
    ('0x8400490', 'f32', 16)
    >>> InstructionDescriptor.decode(0x8400490, "f16") == tile
    True
    """

    kind: str
    m: int
    n: int
    a: str = ""
    b: str = ""
    d: str = ""
    a_major: Major = "K"
    b_major: Major = "K"
    negate_a: bool = False
    negate_b: bool = False
    sparse: bool = False
    sparsity_selector: int = 0
    saturate: bool = False
    max_shift: int = 0
    scale: str = ""
    scale_a_id: int = 0
    scale_b_id: int = 0
    k: int = 0

    def __post_init__(self) -> None:
        kind = kind_of(self.kind)
        a = self.a or next(iter(kind.formats))
        default = {
            "kind": kind.name,
            "a": a,
            "b": self.b or a,
            "d": self.d or kind.d[-1],
            "scale": self.scale or (kind.scales[-1] if kind.scales else ""),
            "k": self.k or (2 * kind.k if self.sparse else kind.k),
        }
        for name, value in default.items():
            object.__setattr__(self, name, value)
        for name in ("m", "n", "k", "sparsity_selector", "max_shift", "scale_a_id", "scale_b_id"):
            object.__setattr__(self, name, _integer(name, getattr(self, name)))
        for name in ("negate_a", "negate_b", "sparse", "saturate"):
            object.__setattr__(self, name, _flag(name, getattr(self, name)))
        for name, allowed in _allowed(kind, self).items():
            _one_of(kind, name, getattr(self, name), allowed)

    @property
    def form(self) -> Kind:
        """The kind with its formats and shapes."""
        return KINDS[self.kind]

    @property
    def fields(self) -> tuple[Field, ...]:
        """The bits that the kind's descriptor has."""
        return self.form.fields()

    def encode(self) -> int:
        """Return the 32 bits."""
        return sum(self._number(field) << field.first for field in self.fields)

    def _number(self, field: Field) -> int:
        """Return what stands in a field's bits."""
        value: Value = getattr(self, field.attribute)
        codes = _codes(self.form, field.attribute, self.sparse)
        return codes[value] if codes is not None else int(value) // field.unit

    @classmethod
    def decode(cls, descriptor: int, kind: str) -> InstructionDescriptor:
        """Return the fields of 32 bits for a kind; raise an error where they have no meaning for it.

        >>> InstructionDescriptor.decode(0x8400690, "f16")
        Traceback (most recent call last):
        lanewise.errors.LanewiseError: format of A in bits 7-9 of the instruction descriptor 0x08400690 \
is 5; kind::f16 has 0 (f16) or 1 (bf16)
        """
        bits = _integer("the number", descriptor)
        if not -(1 << 31) <= bits < 1 << 32:
            raise LanewiseError(f"an instruction descriptor has 32 bits; {bits:#x} has more")
        bits &= (1 << 32) - 1
        about = kind_of(kind)
        reserved = reserved_bits(bits, about.name)
        if reserved:
            named = ", ".join(str(bit) for bit in range(32) if reserved >> bit & 1)
            raise LanewiseError(
                f"the instruction descriptor {bits:#010x} has bits set that kind::{about.name} reserves: "
                f"{named}"
            )
        sparse = bool(_BOTH[1].of(bits))
        values: dict[str, Any] = {"kind": about.name, "sparse": sparse}
        for field in about.fields():
            values[field.attribute] = _value(about, field, bits, sparse)
        return cls(**values)

    def require(self, product: Product | str, arch: str | None = None) -> InstructionDescriptor:
        """Return the descriptor if the form of tcgen05.mma (text or words) may have it; else raise an error.

        >>> tile = InstructionDescriptor("f16", 256, 128)
        >>> tile.require("tcgen05.mma.cta_group::1.kind::f16")
        Traceback (most recent call last):
        lanewise.errors.LanewiseError: M is 256; tcgen05.mma with kind::f16, cta_group::1 has M 64 or 128
        """
        form = product_of(product) if isinstance(product, str) else product
        if form.kind.name != self.kind:
            raise LanewiseError(
                f"the instruction descriptor is one of kind::{self.kind}, the instruction has "
                f"kind::{form.kind.name}"
            )
        if form.sparse != self.sparse:
            raise LanewiseError(
                f"bit 2 of the instruction descriptor (sparse) is {int(self.sparse)}, and the instruction is "
                f"{'tcgen05.mma.sp' if form.sparse else 'not sparse (.sp)'}: both must say the same"
            )
        require_shape(form, self.m, self.n, self.k)
        if self.max_shift and not form.ws:
            raise LanewiseError(
                f"largest shift (bits 30-31 of the instruction descriptor) is {self.max_shift}; only "
                "tcgen05.mma.ws shifts B, elsewhere it is 0"
            )
        self._require_bytes(form)
        if form.block == 32 and self.scale == "ue4m3":
            raise LanewiseError("ue4m3 scales go with blocks of 16 elements (.block16, .scale_vec::4X)")
        if arch is not None and self.k == form.kind.long_k and arch_number(find_arch(arch)) != 103:
            raise LanewiseError(f"K is {self.k}; only sm_103a has that, {find_arch(arch)} has {form.kind.k}")
        return self

    def _require_bytes(self, form: Product) -> None:
        """Raise an error for an N or a scale id that bytes do not allow."""
        step = 16 * form.cta_group
        if self.b_major == "MN" and self.b in BYTES and self.n % step:
            raise LanewiseError(
                f"N is {self.n}; N-major B of 8-bit elements has N {step} to 256 by {step} with "
                f"cta_group::{form.cta_group}"
            )
        ids = (0, 2) if self.k == form.kind.long_k else (0,)
        if form.block == 16 and not {self.scale_a_id, self.scale_b_id} <= set(ids):
            raise LanewiseError(
                f"scale ids of A and B are {self.scale_a_id} and {self.scale_b_id}; with a scale factor for "
                f"each 16 elements and K = {self.k} both are {_either(ids)}"
            )

    def __str__(self) -> str:
        """The fields that differ from what they are when left out, as a call would give them."""
        plain = InstructionDescriptor(self.kind, self.m, self.n, self.a, self.b, sparse=self.sparse)
        shown = {"kind", "m", "n", "a", "b", "d"}
        parts = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields(self)
            if field.name in shown or getattr(self, field.name) != getattr(plain, field.name)
        ]
        return f"InstructionDescriptor({', '.join(parts)})"


def reserved_bits(descriptor: int, kind: str) -> int:
    """Return the bits of a descriptor that are set and that the kind reserves.

    >>> reserved_bits(1 << 23, "f16") == 1 << 23, reserved_bits(1 << 23, "mxf4")
    (True, 0)
    """
    about = kind_of(kind)
    known = sum(field.mask for field in about.fields())
    if about.block_scaled:  # M is 128 or 256: the lower bits of M are reserved, and so are the selector's
        known &= ~(0b111 << 24 | 0b11)
    if about.block_scaled and not about.long_k:
        known &= ~(1 << 31)
    if about.narrow:  # two bits name the format of B
        known &= ~(1 << 12)
    return index(descriptor) & 0xFFFFFFFF & ~known


def _codes(kind: Kind, attribute: str, sparse: bool) -> dict[Any, int] | None:
    """Return the numbers that stand for an attribute's values, None where a number stands for itself."""
    if attribute in ("a", "b"):
        return dict(kind.formats)
    if attribute == "k":
        return {2 * kind.k: 0} if sparse else {kind.k: 0} | ({kind.long_k: 1} if kind.long_k else {})
    flags = {False: 0, True: 1}
    codes: dict[str, dict[Any, int]] = {
        "d": {name: _D[name] for name in kind.d},
        "scale": {name: _SCALES[name] for name in kind.scales},
        "a_major": dict(_MAJORS),
        "b_major": dict(_MAJORS),
        "max_shift": dict(_SHIFTS),
        "negate_a": flags,
        "negate_b": flags,
        "sparse": flags,
        "saturate": flags,
    }
    return codes.get(attribute)


def _value(kind: Kind, field: Field, bits: int, sparse: bool) -> Any:
    """Return what a field of a descriptor says."""
    number = field.of(bits)
    codes = _codes(kind, field.attribute, sparse)
    if codes is None:
        return number * field.unit
    for value, code in codes.items():
        if code == number:
            return value
    place = f"{field.first}-{field.first + field.bits - 1}" if field.bits > 1 else f"{field.first}"
    choices = " or ".join(f"{code} ({value})" for value, code in codes.items())
    raise LanewiseError(
        f"{field.name} in bits {place} of the instruction descriptor {bits:#010x} is {number}; "
        f"kind::{kind.name} has {choices}"
    )


def _allowed(kind: Kind, given: InstructionDescriptor) -> dict[str, Iterable[Value]]:
    """Return the values that attributes may have, those that depend on others included."""
    signs = (False,) if kind.integer else (False, True)
    major = ("K", "MN")
    k: tuple[int, ...] = (2 * kind.k,) if given.sparse else (kind.k, kind.long_k or kind.k)
    both_f16 = given.a == given.b == "f16"
    ids = (0, 1, 2, 3) if given.k == kind.long_k else kind.scale_ids
    return {
        "a": kind.formats,
        "b": kind.formats,
        "d": [name for name in kind.d if name != "f16" or kind.name != "f16" or both_f16],
        "m": (128, 256) if kind.block_scaled else (32, 64, 128, 256),
        "n": range(8, 257, 8),
        "k": tuple(dict.fromkeys(k)),
        "a_major": ("K",) if given.a in K_MAJOR_ONLY else major,
        "b_major": ("K",) if given.b in K_MAJOR_ONLY else major,
        "negate_a": signs,
        "negate_b": signs,
        "saturate": (False, True) if kind.integer else (False,),
        "sparsity_selector": kind.selectors if given.sparse else (0,),
        "max_shift": (0,) if kind.block_scaled else tuple(_SHIFTS),
        "scale": kind.scales or ("",),
        "scale_a_id": ids,
        "scale_b_id": ids,
    }


def _one_of(kind: Kind, name: str, value: Value, allowed: Iterable[Value]) -> None:
    """Raise an error that says what an attribute may be, if it is something else."""
    choices = tuple(allowed)
    if value in choices:
        return
    words = "8 to 256 by 8" if name == "n" else _either(choices)
    why = {
        "a_major": ": formats narrower than 8 bits are K-major",
        "b_major": ": formats narrower than 8 bits are K-major",
        "d": " for these formats of A and B",
    }.get(name, "")
    raise LanewiseError(
        f"{name} of an instruction descriptor of kind::{kind.name} is {words}, not {value!r}{why}"
    )


def _integer(name: str, value: Any) -> int:
    """Return a plain int, or raise an error that names the attribute."""
    try:
        return index(value)
    except TypeError:
        raise LanewiseError(f"{name} of an instruction descriptor is an integer, not {value!r}") from None


def _flag(name: str, value: object) -> bool:
    """Return a plain bool of 0, 1, False or True."""
    if value not in (0, 1):
        raise LanewiseError(f"{name} of an instruction descriptor is True or False, not {value!r}")
    return bool(value)


def _numbered(codes: dict[str, int]) -> str:
    return ", ".join(f"{name} {code}" for name, code in codes.items())


def _either(values: tuple[Value, ...]) -> str:
    """Some values in words.

    >>> _either((32, 64, 128))
    '32, 64 or 128'
    """
    *first, last = (str(value) for value in values)
    return f"{', '.join(first)} or {last}" if first else last


def _steps(values: tuple[int, ...]) -> str:
    """Some numbers in words, with their step where they have one.

    >>> _steps(tuple(range(16, 257, 16))), _steps((8, 16, 24, *range(32, 257, 16)))
    ('16 to 256 by 16', '8, 16, 24, and 32 to 256 by 16')
    """
    if len(values) < 4:
        return _either(values)
    step = values[-1] - values[-2]
    start = len(values) - 1
    while start and values[start] - values[start - 1] == step:
        start -= 1
    regular = f"{values[start]} to {values[-1]} by {step}"
    return regular if not start else f"{', '.join(map(str, values[:start]))}, and {regular}"
