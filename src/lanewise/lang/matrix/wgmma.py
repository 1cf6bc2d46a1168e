"""wgmma in a kernel: `mma(a, b, acc)` with descriptors of shared memory, A perhaps in registers.

The product is asynchronous and changes the accumulator's registers in place. Fences and groups around it are
in `hopper/warpgroup.py`; descriptors are made in `descriptor.py`.
"""

from dataclasses import replace

from lanewise.isa import Instruction
from lanewise.lang.matrix.descriptor import Descriptor
from lanewise.lang.matrix.fragment import Fragment, operand_registers, same_register_layout
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.operators import as_predicate
from lanewise.lang.trace.scalar import Scalar, scalar
from lanewise.lang.trace.traced import Traced, describe
from lanewise.lang.trace.types import u32, u64


def multiply_async(
    instruction: Instruction,
    a: object,
    b: object,
    c: object = None,
    *,
    accumulate: object = True,
    negate_a: bool = False,
    negate_b: bool = False,
    transpose_a: bool = False,
    transpose_b: bool = False,
    metadata: object = None,
    selector: int = 0,
) -> Fragment:
    """Emit D = A·B + D, or D = A·B where `accumulate` is false, and return the accumulator.

    `a` and `b` are descriptors from lw.make_gmma_desc, or u64 values with transpose_a and transpose_b for
    matrices that are MN-major; `a` may be a fragment. Nobody may touch the accumulator before lw.wgmma_wait.
    """
    builder, text = current(), instruction.text
    builder.need_specific(text, "sm_90a", instruction.since)
    if not isinstance(a, Descriptor) and not (isinstance(a, Scalar) and a.dtype is u64):
        if instruction.a_source != "registers":
            instruction = replace(instruction, a_source="registers")
    elif instruction.a_source == "registers":
        instruction = replace(instruction, a_source="descriptor")
    sources: list[object] = []
    transposed = {}
    for name, given, transpose in (("a", a, transpose_a), ("b", b, transpose_b)):
        operand = instruction.operands[name]
        if operand.where == "registers":
            scalars = operand_registers(operand, given, name.upper(), text)
            sources.append(tuple(scalar.in_register for scalar in scalars))
            if transpose:
                raise builder.error(f"A of {text} comes from registers, where it is K-major: no transpose_a")
            continue
        bits, transposed[name] = _descriptor_bits(instruction, name, given, transpose)
        sources.append(bits)
    if instruction.sparse:
        if metadata is None:
            raise builder.error(f"{text} is sparse: give metadata=, a u32 register, and selector=")
        held = metadata.registers[0] if isinstance(metadata, Fragment) else metadata
        sources += [scalar(held, u32, "metadata").in_register, str(int(selector))]
    elif metadata is not None:
        raise builder.error(f"{text} is not sparse and takes no metadata")
    sources.append(as_predicate(accumulate).in_register)
    if instruction.types[0] != "s32":
        sources += ["-1" if negates else "1" for negates in (negate_a, negate_b)]
    elif negate_a or negate_b:
        raise builder.error(f"{text} multiplies integers, and negates neither of them")
    if instruction.types[1] in ("f16", "bf16"):
        sources += [str(int(transposes)) for transposes in transposed.values()]
    elif any(transposed.values()):
        raise builder.error(
            f"{text} takes K-major matrices only; MN-major ones are for 16-bit elements. Let TMA or the "
            "layout put K first"
        )
    accumulator = _accumulator(instruction, c)
    builder.emit(text, tuple(child.in_register for child in accumulator.children()), *sources)
    return accumulator


def _descriptor_bits(
    instruction: Instruction, name: str, given: object, transpose: bool
) -> tuple[object, bool]:
    """Return the 64 bits for an operand in shared memory, and whether it is MN-major."""
    operand, text = instruction.operands[name], instruction.text
    what = f"{name.upper()} of {text}"
    if isinstance(given, Descriptor):
        if transpose:
            raise current().error(f"{what}: the descriptor says itself that it is {given.major}-major")
        rows, k = (operand.cols, operand.rows) if name == "b" else (operand.rows, operand.cols)
        given.require(rows, k, operand.format, what)
        return given.bits.in_register, given.major == "MN"
    if isinstance(given, Scalar) and given.dtype is u64:
        return given.in_register, transpose
    hint = ""
    if isinstance(given, Traced) and hasattr(given, "ptr"):
        hint = ": make it by lw.make_gmma_desc(array)"
    raise current().error(
        f"{what} is a descriptor of shared memory, from lw.make_gmma_desc or as u64 bits; not "
        f"{describe(given)}{hint}"
    )


def _accumulator(instruction: Instruction, given: object) -> Fragment:
    """Return the accumulator of a product; an error unless it is a fragment that may be changed in place."""
    text = instruction.text
    if given is None:
        raise current().error(
            f"{text} adds to an accumulator in place: make one before lw.wgmma_fence(), acc = mma.zeros(), "
            "and give accumulate=False for the product that begins the sum"
        )
    if not isinstance(given, Fragment):
        raise current().error(f"the accumulator of {text} is a fragment, mma.zeros(); not {describe(given)}")
    if not same_register_layout(given.operand, instruction.c):
        raise current().error(
            f"the accumulator of {text} is {instruction.c.rows}×{instruction.c.cols} of "
            f"{instruction.c.format.name}; given is {given}, {given.operand.rows}×{given.operand.cols} of "
            f"{given.operand.format.name}"
        )
    return given
