"""What a tcgen05.mma names: addresses of tensor memory, descriptors, predicates, masks and constants."""

from lanewise.jit.simd import Value, i64
from lanewise.machine.codegen.function_code import U64, BlockCode
from lanewise.machine.program.operands import MemoryOperand, Negated, Register, ResolvedOperand, elements_of
from lanewise.machine.program.ops import Op
from lanewise.machine.tensor_core.tcgen05_form import form_of
from lanewise.ptx import Immediate

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
        value = code.lane_read(operand, U64, lane)
        return value.to(U64).to(i64) ^ negated

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
