"""tcgen05.mma as an instruction that computes: its words, and the instruction descriptor that completes them.

The words say the kind, the blocks that take part and whether A is sparse; M, N and the formats are fields of
the descriptor. With both it is an `Instruction` like those of the catalogue. What it computes is in `arith/`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, cast

from lanewise.engines import ProductOptions
from lanewise.errors import LanewiseError
from lanewise.formats import FORMATS, Format, format_of
from lanewise.isa import fragments
from lanewise.isa.archs import arch_number
from lanewise.isa.asynchronous.descriptor import (
    InstructionDescriptor,
    Major,
    Product,
    legal_shapes,
    product_of,
    require_shape,
)
from lanewise.isa.asynchronous.instruction import AsyncInstruction, async_instruction
from lanewise.isa.asynchronous.tensor_places import Bits, BlockPart, block_parts, tensor_bits
from lanewise.isa.instruction import Instruction
from lanewise.isa.lowering import Lowering
from lanewise.isa.operand import Operand, within
from lanewise.isa.sparsity import Metadata
from lanewise.isa.table import Legality
from lanewise.isa.tensor_memory.accumulators import Accumulator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lanewise.numpy_types import AnyArray

TENSOR_MEMORY = "tensor memory"
SHARED_MEMORY = "shared memory"
_SOURCE = "PTX ISA, TensorCore 5th generation"
#: Machine instructions by kind, as ptxas 13.0 writes them.
_OPCODES = {"f16": "UTCHMMA", "tf32": "UTCHMMA", "i8": "UTCIMMA", "mxf4": "UTCOMMA", "mxf4nvf4": "UTCOMMA"}


class DescriptorFields(TypedDict, total=False):
    """The fields of an instruction descriptor that a caller may choose, by name."""

    m: int
    n: int
    k: int
    a: str | Format
    b: str | Format
    d: str | Format
    a_major: Major
    b_major: Major
    negate_a: bool
    negate_b: bool
    saturate: bool
    sparsity_selector: int
    max_shift: int
    scale: str | Format
    scale_a_id: int
    scale_b_id: int


@dataclass(frozen=True, repr=False)
class Tcgen05Instruction(Instruction):
    """A tcgen05.mma with an instruction descriptor: D = A·B + D of M × N × K, on arrays.

    On arrays it takes and returns whole matrices: A (M, K), B (K, N), D (M, N), whatever the blocks of a pair
    hold of them. What was not chosen of M, N and the formats is read off the arrays of a call.

    >>> from lanewise.isa import instruction
    >>> mma = instruction("tcgen05.mma.cta_group::1.kind::f16", m=64, n=8, a="bf16")
    >>> mma.shape, mma.types, hex(mma.descriptor.encode())
    ((64, 8, 16), ('f32', 'bf16', 'bf16'), '0x4020490')
    """

    form: AsyncInstruction = field(kw_only=True)
    descriptor: InstructionDescriptor = field(kw_only=True)
    #: The fields of the descriptor that the caller chose; the others follow the arrays of a call.
    chosen: frozenset[str] = field(default=frozenset(), kw_only=True, compare=False)

    @property
    def text(self) -> str:
        """The instruction's text; its shape and formats are in the descriptor."""
        return self.form.text

    @property
    def product(self) -> Product:
        """What the words say: kind, blocks, sparsity, elements for each scale factor."""
        return product_of(self.form.text)

    @property
    def cta_group(self) -> Literal[1, 2]:
        """How many blocks execute it together."""
        return self.product.cta_group

    @property
    def threads(self) -> int:
        """One thread issues it."""
        return 1

    @property
    def multiplies(self) -> bool:
        """It computes D = A·B + D."""
        return True

    @property
    def words(self) -> tuple[tuple[str, str], ...]:
        """Each word after the opcode, and what it says."""
        return self.form.words

    @property
    def does(self) -> str:
        """What it does, in a sentence."""
        return self.form.does

    def require(self, arch: str) -> str:
        """Return the full name of an arch; raise an error if the arch does not have this instruction."""
        name = self.form.require(arch)
        self.descriptor.require(self.product, name)
        return name

    def lowering(self, arch: str) -> Lowering:
        """Return the machine instruction that an arch has for it."""
        self.require(arch)
        return Lowering("native", f"1 {_OPCODES.get(self.kind, 'UTCQMMA')}")

    @cached_property
    def operands(self) -> Mapping[str, Operand]:
        """The operands by name: A and B in shared memory, D (which is C before) in tensor memory."""
        return MappingProxyType(_operands(self))

    @property
    def c(self) -> Accumulator:
        """C, what D holds before: a matrix in tensor memory, with shape (M, N)."""
        return cast(Accumulator, self.operands["c"])

    @property
    def d(self) -> Accumulator:
        """D, the result: a matrix in tensor memory, with shape (M, N)."""
        return cast(Accumulator, self.operands["d"])

    def tensor_bits(self, operand: str, row: int, col: int) -> tuple[Bits, ...]:
        """Return where an element of A (if it is there), E, scales or D lies in tensor memory: each copy.

        Columns are counted from the operand's address.

        >>> from lanewise.isa import instruction
        >>> instruction("tcgen05 nvfp4 m128n8k64").tensor_bits("scale_a", 70, 1)
        (Bits(block=0, lane=70, column=2, first_bit=8, bits=8),)
        """
        key = self.operand_key(operand)
        layout = self.operands[key]
        row, col = (
            within(row, layout.rows, "row", layout.title),
            within(col, layout.cols, "column", layout.title),
        )
        return tensor_bits(self.descriptor, self.product, key, row, col)

    def operand_key(self, name: str) -> str:
        """Return the key of an operand by its name, in either case: "D", "scale A" or "scale-a", "E"."""
        plain = str(name).strip().lower().replace("-", "_").replace(" ", "_")
        plain = "metadata" if plain == "e" else plain
        if plain not in self.operands:
            names = ", ".join(operand.name for operand in self.operands.values())
            raise LanewiseError(f"{self.text} has no operand {name!r}; it has {names}")
        return plain

    def block_parts(self, operand: str) -> tuple[BlockPart, ...]:
        """Return the rows and columns of A, B, C or D that each block of a pair holds.

        >>> from lanewise.isa import instruction
        >>> instruction("tcgen05 m256n64k16 f16").block_parts("B")[1].columns
        range(32, 64)
        """
        return block_parts(self.descriptor, self.product, self.operand_key(operand))

    def with_fields(self, fields: Mapping[str, Any]) -> Tcgen05Instruction:
        """Return the instruction with other fields of its descriptor, by name."""
        if not fields:
            return self
        return _made(self.form, replace(self.descriptor, **fields), self.chosen | fields.keys())

    def __call__(self, *operands: Any, arch: str | None = None, **options: Any) -> Any:
        """Compute D = A·B + C on arrays and return D with the bits that the arch returns.

        M, N and formats that were not chosen are those of the arrays. The options are metadata (for a sparse
        A), scale_a and scale_b (block-scaled), and negate_a, negate_b and satfinite in place of the
        descriptor's.
        """
        given = dict(zip("abc", operands, strict=False)) | options
        if {"a", "b"} <= given.keys() and not any(hasattr(value, "is_traced") for value in given.values()):
            fitted = self.with_fields(_read_off(self, given, shapes=True))
            if fitted is not self:
                return fitted(*operands, arch=arch, **options)
        return super().__call__(*operands, arch=arch, **{**self._signs(), **options})

    def gemm(
        self, a: object, b: object, c: object = None, *, arch: str, **options: Unpack[ProductOptions]
    ) -> AnyArray:
        """Multiply matrices of any size by repeating the instruction, along K in order as a kernel does."""
        fitted = self.with_fields(_read_off(self, {"a": a, "b": b, "c": c}, shapes=False))
        signs = fitted._signs()
        signs.update(options)
        return super(Tcgen05Instruction, fitted).gemm(a, b, c, arch=arch, **signs)

    def _signs(self) -> ProductOptions:
        """Return the options of a call that the descriptor says: which operands are negated."""
        signs: ProductOptions = {}
        if self.descriptor.negate_a:
            signs["negate_a"] = True
        if self.descriptor.negate_b:
            signs["negate_b"] = True
        return signs

    def __str__(self) -> str:
        return f"{self.text} {self.shape_text} {'.'.join(self.types)}"

    def __repr__(self) -> str:
        return f"<{self}>"


def tcgen05_instruction(
    text: str | AsyncInstruction,
    descriptor: int | InstructionDescriptor | None = None,
    **fields: Any,
) -> Tcgen05Instruction:
    """Return the tcgen05.mma of a text with a descriptor, or with some of its fields by name.

    What is not named is what most kernels use: the largest M and N, f32 sums, the kind's first formats.

    >>> tcgen05_instruction("tcgen05.mma.cta_group::2.kind::f8f6f4", a="e5m2").shape
    (256, 256, 32)
    """
    form = text if isinstance(text, AsyncInstruction) else async_instruction(text)
    if ".mma" not in form.family:
        raise LanewiseError(f"{form.text} multiplies nothing: it takes no instruction descriptor")
    if descriptor is not None and fields:
        raise LanewiseError(
            f"a descriptor says everything that {', '.join(fields)} would: give the one or the others"
        )
    product = product_of(form.text)
    if isinstance(descriptor, InstructionDescriptor):
        decoded = descriptor
    elif descriptor is not None:
        decoded = InstructionDescriptor.decode(descriptor, product.kind.name)
    else:
        decoded = _default(form.text, product, fields)
    chosen = frozenset(fields) if descriptor is None else frozenset(DescriptorFields.__annotations__)
    return _made(form, decoded.require(product), chosen)


def _default(text: str, product: Product, fields: dict[str, Any]) -> InstructionDescriptor:
    """Return the descriptor with some fields chosen, the others as most kernels have them."""
    unknown = [name for name in fields if name not in DescriptorFields.__annotations__]
    if unknown:
        raise LanewiseError(
            f"{text} has no field {unknown[0]!r} in its instruction descriptor; it has "
            f"{', '.join(DescriptorFields.__annotations__)}"
        )
    legal = legal_shapes(product)
    values: dict[str, Any] = {"m": legal.m[-1], "n": legal.n[-1], "sparse": product.sparse}
    if product.block == 16 and "ue4m3" in product.kind.scales:
        values["scale"] = "ue4m3"
    require_shape(product, *(fields.get(name, getattr(legal, name)[0]) for name in "mnk"))
    values |= {
        name: format_of(value).name if name in ("a", "b", "d", "scale") else value
        for name, value in fields.items()
    }
    return InstructionDescriptor(product.kind.name, **values)


def _made(
    form: AsyncInstruction, descriptor: InstructionDescriptor, chosen: frozenset[str]
) -> Tcgen05Instruction:
    """Return the instruction of a form and a descriptor."""
    product = product_of(form.text)
    checked = descriptor.require(product)
    terms = checked.k // 2 if product.sparse else checked.k
    return Tcgen05Instruction(
        family=form.family,
        shape_text=f"m{checked.m}n{checked.n}k{checked.k}",
        types=(checked.d, checked.a, checked.b),
        satfinite=checked.saturate,
        kind=checked.kind,
        scale_vec=terms // product.block if product.block else 0,
        scale_type=checked.scale,
        legality=Legality(_archs(form, checked), form.since),
        form=form,
        descriptor=checked,
        chosen=chosen,
    )


def _archs(form: AsyncInstruction, descriptor: InstructionDescriptor) -> tuple[str, ...]:
    """Return the archs that have the form with this K."""
    if descriptor.k != descriptor.form.long_k:
        return form.archs
    return tuple(arch for arch in form.archs if arch_number(arch) == 103)


def _operands(instruction: Tcgen05Instruction) -> dict[str, Operand]:
    """Return the operands: matrices in shared and tensor memory, which no thread holds."""
    m, n, k = instruction.shape
    descriptor, product = instruction.descriptor, instruction.product
    terms = k // 2 if product.sparse else k

    def operand(name: str, shape: tuple[int, int], fmt: Format, where: str) -> Operand:
        flat = fragments.descriptor_layout(*(shape if "b" not in name.lower() else shape[::-1]))
        return Operand(
            name, *shape, fmt, flat, _SOURCE, slot_bits=fmt.bits, threads=128, where=where,
            transposed="b" in name.lower(), instruction=instruction.text,
        )  # fmt: skip

    def accumulator(name: str) -> Accumulator:
        return Accumulator(
            name, m, n, FORMATS[descriptor.d], fragments.descriptor_layout(m, n), _SOURCE, slot_bits=32,
            threads=128, where=TENSOR_MEMORY, instruction=instruction.text, cta_group=product.cta_group,
            ws=product.ws, sparse=product.sparse,
        )  # fmt: skip

    operands: dict[str, Operand] = {
        "a": operand("A", (m, terms), FORMATS[descriptor.a], SHARED_MEMORY),
        "b": operand("B", (k, n), FORMATS[descriptor.b], SHARED_MEMORY),
        "c": accumulator("C"),
        "d": accumulator("D"),
    }
    if product.sparse:
        bits = 4 if product.kind.narrow else max(8, FORMATS[descriptor.a].bits)
        groups = k // {32: 2, 4: 8}.get(bits, 4)
        operands["metadata"] = Metadata(
            "E", m, groups, FORMATS["u4"], fragments.descriptor_layout(m, groups), _SOURCE, slot_bits=4,
            threads=128, where=TENSOR_MEMORY, instruction=instruction.text, element_bits=bits,
        )  # fmt: skip
    if product.block:
        vector, scale = instruction.scale_vec, FORMATS[descriptor.scale]
        operands["scale_a"] = operand("scale A", (m, vector), scale, TENSOR_MEMORY)
        operands["scale_b"] = operand("scale B", (vector, n), scale, TENSOR_MEMORY)
    return operands


def _read_off(instruction: Tcgen05Instruction, given: Mapping[str, Any], shapes: bool) -> dict[str, Any]:
    """Return the fields that the caller left open and that the arrays of a call decide."""
    descriptor, kind = instruction.descriptor, instruction.product.kind
    fields: dict[str, Any] = {}
    for name, operand in (("a", "a"), ("b", "b"), ("d", "c"), ("scale", "scale_a")):
        choices = {"d": kind.d, "scale": kind.scales}.get(name, tuple(kind.formats))
        given_format = _format_among(given.get(operand), choices)
        if (
            given_format is not None
            and name not in instruction.chosen
            and getattr(descriptor, name) != given_format
        ):
            fields[name] = given_format
    a, b = (_shape(given[name]) for name in "ab")
    if shapes and len(a) >= 2 and len(b) >= 2:
        sizes = {"m": a[-2], "n": b[-1]} | ({"k": b[-2]} if b[-2] == kind.long_k else {})
        legal = legal_shapes(instruction.product)
        for name, size in sizes.items():
            open_field = name not in instruction.chosen and getattr(descriptor, name) != size
            if open_field and size in getattr(legal, name):
                fields[name] = size
    return fields


def _shape(array: object) -> tuple[int, ...]:
    """Return the shape of an array or of nested lists, nothing if it has none."""
    if hasattr(array, "shape"):
        return tuple(array.shape)
    sizes = []
    while isinstance(array, list | tuple) and array:
        sizes.append(len(array))
        array = array[0]
    return tuple(sizes)


def _format_among(array: object, choices: tuple[str, ...]) -> str | None:
    """Return which of some formats an array has, None if that cannot be read off it."""
    dtype = getattr(array, "dtype", None)
    fitting = [name for name in choices if dtype is not None and FORMATS[name].dtype == dtype]
    return fitting[0] if len(fitting) == 1 else None
