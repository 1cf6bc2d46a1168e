"""tcgen05.mma in a kernel: `mma(a, b, acc)` with descriptors of shared memory, A perhaps in tensor memory.

One thread issues the product for its block, or for a pair of blocks. Order and completion are
`lw.tcgen05`'s; descriptors are made in `descriptor.py`, matrices of tensor memory in `tensor_memory.py`.
"""

from dataclasses import replace
from typing import Any

from lanewise.errors import LanewiseError
from lanewise.isa import Instruction
from lanewise.isa.asynchronous.products import Tcgen05Instruction
from lanewise.isa.matrix_descriptor import TCGEN05_VERSION, Major
from lanewise.lang.matrix.descriptor import Descriptor
from lanewise.lang.matrix.tensor_memory import TmemMatrix, require_tcgen05
from lanewise.lang.trace.builder import Address, current
from lanewise.lang.trace.operators import as_predicate
from lanewise.lang.trace.scalar import Scalar, scalar
from lanewise.lang.trace.traced import describe
from lanewise.lang.trace.types import u32, u64


def multiply_in_tensor_memory(
    instruction: Instruction,
    a: object,
    b: object,
    c: object = None,
    *,
    accumulate: object = True,
    scale_a: object = None,
    scale_b: object = None,
    metadata: object = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    **fields: Any,
) -> TmemMatrix:
    """Emit D = A·B + D, or D = A·B where `accumulate` is false, and return the accumulator D.

    `a` and `b` are descriptors from lw.make_umma_desc, or u64 values with transpose_a and transpose_b for
    matrices that are MN-major; `a` may be a matrix in tensor memory, where scales and metadata lie. `fields`
    are those of the instruction descriptor, such as negate_a=True.
    """
    assert isinstance(instruction, Tcgen05Instruction)
    builder, text = current(), instruction.text
    require_tcgen05(text)
    d = _accumulator(instruction, c)
    operand_a, a_major = _matrix(instruction, "a", a, transpose_a)
    operand_b, b_major = _matrix(instruction, "b", b, transpose_b)
    try:
        described = replace(instruction.descriptor, a_major=a_major, b_major=b_major, **fields)
        described.require(instruction.product, builder.arch or "sm_100a")
    except (LanewiseError, TypeError) as error:
        raise builder.error(str(error)) from None
    operands = [Address(d.address.in_register), operand_a, operand_b]
    if instruction.product.sparse:
        operands.append(_tensor_address(metadata, "metadata", text))
    elif metadata is not None:
        raise builder.error(f"{text} is not sparse and takes no metadata")
    operands.append(builder.define("mov.b32", "b32", f"0x{described.encode():08X}"))
    for name, scale in (("scale_a", scale_a), ("scale_b", scale_b)):
        if instruction.product.block:
            operands.append(_tensor_address(scale, name, text))
        elif scale is not None:
            raise builder.error(f"{text} is not block-scaled and takes no {name}")
    builder.emit(text, *operands, as_predicate(accumulate).in_register)
    return d


def _accumulator(instruction: Tcgen05Instruction, given: object) -> TmemMatrix:
    """Return the accumulator of a product; an error unless it is a matrix that fits."""
    if isinstance(given, TmemMatrix) and given.slot_bits == 32 and given.dtype == instruction.d.format:
        return given
    raise current().error(
        f"{instruction.text} adds to an accumulator of {instruction.d.format.name} in tensor memory, "
        f"memory.accumulator(mma) of memory = lw.tmem.alloc(columns); not to {describe(given)}"
    )


def _matrix(
    instruction: Tcgen05Instruction, name: str, given: object, transpose: bool
) -> tuple[object, Major]:
    """Return the operand for A or B, and along which index it is contiguous."""
    what = f"{name.upper()} of {instruction.text}"
    operand = instruction.operands[name]
    if isinstance(given, TmemMatrix) and name == "a":
        if given.dtype != operand.format or given.columns < operand.cols:
            raise current().error(
                f"{what} is {operand.rows}×{operand.cols} of {operand.format.name}, and given is {given}"
            )
        return Address(given.address.in_register), "K"
    if isinstance(given, Descriptor):
        if transpose:
            raise current().error(f"{what}: the descriptor says itself that it is {given.major}-major")
        rows, k = (operand.cols, operand.rows) if name == "b" else (operand.rows, operand.cols)
        given.require(rows // instruction.cta_group, k, operand.format, what, TCGEN05_VERSION)
        return given.bits.in_register, given.major
    if isinstance(given, Scalar) and given.dtype is u64:
        return given.in_register, "MN" if transpose else "K"
    raise current().error(
        f"{what} is a descriptor of shared memory, from lw.make_umma_desc or as u64 bits"
        f"{', or a matrix in tensor memory' if name == 'a' else ''}; not {describe(given)}"
    )


def _tensor_address(given: object, name: str, text: str) -> Address:
    """Return the address of scale factors or metadata in tensor memory."""
    if isinstance(given, TmemMatrix):
        return Address(given.address.in_register)
    if isinstance(given, Scalar):
        return Address(scalar(given, u32, name).in_register)
    raise current().error(f"{text} takes {name}= in tensor memory; not {describe(given)}")
