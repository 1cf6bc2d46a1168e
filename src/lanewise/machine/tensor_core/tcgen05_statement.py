"""What a tcgen05.mma names: addresses of tensor memory, descriptors, predicates, masks and constants."""

from typing import NamedTuple

from lanewise.errors import LanewiseError
from lanewise.isa.asynchronous.descriptor import KINDS, InstructionDescriptor, Product, product_of
from lanewise.isa.tensor_memory.accumulators import first_bytes
from lanewise.jit.simd import Value, i64, u64
from lanewise.machine.codegen.function_code import BlockCode
from lanewise.machine.program.operands import MemoryOperand, Negated, Register, ResolvedOperand, elements_of
from lanewise.machine.program.ops import Op
from lanewise.ptx import Immediate

_KINDS = tuple(KINDS.values())
#: The bits of the number: the kind, then flags, then the number of the arch.
_PAIR, _SPARSE, _WS, _BLOCK16, _TENSOR_A, _SHIFTED = (1 << bit for bit in range(4, 10))
_ARCH_SHIFT = 16


class Form(NamedTuple):
    """A form of tcgen05.mma on an arch: the words, and where A lies."""

    product: Product
    a_in_tensor_memory: bool
    arch: str
    #: Whether the rows of A are shifted by one (.ashift).
    shifts_a: bool = False

    @property
    def text(self) -> str:
        """The text of an instruction of this form.

        >>> form_of("tcgen05.mma.cta_group::1.kind::mxf4.block_scale.scale_vec::2X", False, "sm_100a").text
        'tcgen05.mma.cta_group::1.kind::mxf4.block_scale.block32'
        """
        product = self.product
        head = f"tcgen05.mma{'.ws' if product.ws else ''}{'.sp' if product.sparse else ''}"
        scale = f".block_scale.block{product.block}" if product.block else ""
        return f"{head}.cta_group::{product.cta_group}.kind::{product.kind.name}{scale}"

    def packed(self) -> int:
        """Return the form as a number.

        >>> form = form_of("tcgen05.mma.sp.cta_group::2.kind::i8", True, "sm_100a")
        >>> unpacked(form.packed()) == form
        True
        """
        product = self.product
        flags = (
            (_PAIR, product.cta_group == 2),
            (_SPARSE, product.sparse),
            (_WS, product.ws),
            (_BLOCK16, product.block == 16),
            (_TENSOR_A, self.a_in_tensor_memory),
            (_SHIFTED, self.shifts_a),
        )
        number = _KINDS.index(product.kind) | sum(flag for flag, holds in flags if holds)
        return number | int("".join(filter(str.isdigit, self.arch))) << _ARCH_SHIFT


def form_of(text: str, a_in_tensor_memory: bool, arch: str) -> Form:
    """Return the form of an instruction's text."""
    return Form(product_of(text), a_in_tensor_memory, arch, "ashift" in text.split("."))


def unpacked(number: int) -> Form:
    """Return the form of a number."""
    kind = _KINDS[number & 15]
    block = 0 if not kind.block_scaled else 16 if number & _BLOCK16 else 32
    product = Product(kind, 2 if number & _PAIR else 1, bool(number & _SPARSE), bool(number & _WS), block)
    arch = f"sm_{number >> _ARCH_SHIFT}a"
    return Form(product, bool(number & _TENSOR_A), arch, bool(number & _SHIFTED))


def checked_descriptor(form: Form, bits: int) -> InstructionDescriptor:
    """Return the instruction descriptor of a product; raise an error if the form does not have it."""
    product = form.product
    descriptor = InstructionDescriptor.decode(bits, product.kind.name).require(product, form.arch)
    if form.a_in_tensor_memory and descriptor.a_major != "K":
        raise LanewiseError("A lies in tensor memory, which holds K-major matrices only: bit 15 has to be 0")
    if form.shifts_a and descriptor.m not in (128, 256):
        raise LanewiseError(f"M is {descriptor.m}; with .ashift it is 128 or 256")
    if descriptor.sparsity_selector > 1:
        raise LanewiseError(
            f"the sparsity selector is {descriptor.sparsity_selector}; which part of the metadata 2 and 3 "
            "choose is not known to the machine, which takes 0 and 1"
        )
    if product.block:
        factors = product.factors(descriptor.k)
        allowed = first_bytes(factors)
        for name, number in (("A", descriptor.scale_a_id), ("B", descriptor.scale_b_id)):
            if number not in allowed:
                raise LanewiseError(
                    f"the scale factors of {name} begin at byte {number} of a column; with "
                    f"{factors} of them in a row they begin at "
                    f"{' or '.join(map(str, allowed))}"
                )
    return descriptor


#: The largest exponent by which D may be scaled down.
MOST_SCALE_D = 15


class Statement:
    """The operands of one instruction, in the order in which PTX has them."""

    def __init__(self, op: Op, arch: str) -> None:
        self.op = op
        words = op.source.head.split(".")
        rest = list(op.operands)
        self.d = self._address(rest, "D")
        self.a = rest.pop(0) if rest else self._missing()
        self.b = self._value(rest, "B's descriptor")
        sparse, scaled, ws = ("sp" in words, "block_scale" in words, "ws" in words)
        self.metadata = self._address(rest, "the metadata") if sparse else None
        self.descriptor = self._value(rest, "the instruction descriptor")
        self.scale_a = self._address(rest, "A's scale factors") if scaled else None
        self.scale_b = self._address(rest, "B's scale factors") if scaled else None
        self.mask: list[ResolvedOperand] = []
        pair = "cta_group::2" in words
        if rest and not scaled and not ws and self._is_mask(rest[0]):
            self.mask = list(elements_of(rest.pop(0)))
            if len(self.mask) != (8 if pair else 4):
                raise op.unsupported(f"disable-output-lane has {8 if pair else 4} registers of 32 bits")
        self.enable = self._value(rest, "enable-input-d")
        self.scale_d = self._scale_d(rest) if rest and not ws else 0
        self.zero_mask = rest.pop(0) if rest and ws else None
        if rest:
            raise op.unsupported("it has more operands than its modifiers allow")
        if "ashift" in words and not isinstance(self.a, MemoryOperand):
            raise op.unsupported(".ashift shifts rows of tensor memory, and A is in shared memory")
        self.form = form_of(op.source.head, isinstance(self.a, MemoryOperand), arch)

    def adds(self, code: BlockCode, lane: Value) -> Value:
        """Return whether the product is added to D, in one lane."""
        operand, negated = self.enable, 0
        if isinstance(operand, Negated) and operand.operator == "!":
            operand, negated = operand.operand, 1
        if isinstance(operand, Immediate):
            return code.number(int(operand.bits != 0) ^ negated)
        if not isinstance(operand, Register) or not operand.is_predicate:
            raise self.op.unsupported("enable-input-d is a predicate")
        value = code.lane_read(operand, u64, lane)
        return value.to(u64).to(i64) ^ negated

    def _missing(self) -> ResolvedOperand:
        raise self.op.unsupported("operands are missing")

    def _is_mask(self, operand: ResolvedOperand) -> bool:
        return len(elements_of(operand)) > 1

    def _value(self, rest: list[ResolvedOperand], name: str) -> ResolvedOperand:
        if not rest or isinstance(rest[0], MemoryOperand):
            raise self.op.unsupported(f"{name} is missing")
        return rest.pop(0)

    def _address(self, rest: list[ResolvedOperand], name: str) -> MemoryOperand:
        address = rest.pop(0) if rest else None
        if not isinstance(address, MemoryOperand):
            raise self.op.unsupported(f"{name} is an address of tensor memory in brackets")
        return address

    def _scale_d(self, rest: list[ResolvedOperand]) -> int:
        operand = rest.pop(0)
        if isinstance(operand, Immediate) and 0 <= operand.bits <= MOST_SCALE_D:
            return operand.bits
        raise self.op.unsupported(f"scale-input-d is a constant of 0 to {MOST_SCALE_D}")
