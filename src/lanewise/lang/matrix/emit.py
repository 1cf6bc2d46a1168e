"""The catalogue's instructions emitting themselves in a kernel: mma, ldmatrix, stmatrix and movmatrix.

`Instruction.__call__` comes here when an operand is traced. WMMA has functions of its own in `wmma.py`.
"""

from typing import Any

from lanewise.formats import f32
from lanewise.isa import Instruction, arch_number
from lanewise.lang.matrix.fragment import Fragment, full_fragment, operand_registers
from lanewise.lang.memory.pointer import Pointer
from lanewise.lang.trace.builder import Address, Register, current
from lanewise.lang.trace.scalar import Scalar, register_dtype, scalar
from lanewise.lang.trace.traced import describe
from lanewise.lang.trace.types import f16x2, register_kind, u32


def require(instruction: Instruction) -> None:
    """Note what an instruction needs; an error if the arch that is traced for does not have it."""
    builder = current()
    if builder.arch is not None:
        instruction.require(builder.arch)
    first = arch_number(instruction.archs[0])
    if builder.arch is None and instruction.archs[0][-1] in "af":
        raise builder.error(
            f"{instruction.text} exists on {', '.join(instruction.archs)} only: trace the kernel for one of "
            "them, as in kernel.ptx(arch) or kernel[grid, block](…, arch=arch)"
        )
    builder.need(instruction.text, first, instruction.since)


def emit(instruction: Instruction, *operands: Any, **options: Any) -> Any:
    """Emit an instruction of the catalogue in the kernel that is being traced; return its result."""
    if instruction.family in ("wgmma", "wgmma.sp"):
        from lanewise.lang.matrix.wgmma import multiply_async  # loaded where a kernel needs it

        return multiply_async(instruction, *operands, **options)
    if instruction.family.startswith("tcgen05"):
        from lanewise.lang.matrix.tcgen05 import multiply_in_tensor_memory

        return multiply_in_tensor_memory(instruction, *operands, **options)
    require(instruction)
    if instruction.multiplies and instruction.family in ("mma", "mma.sp", "mma.sp::ordered_metadata"):
        return multiply(instruction, *operands, **options)
    if instruction.family == "ldmatrix":
        return load_matrices(instruction, *operands)
    if instruction.family == "stmatrix":
        return store_matrices(instruction, *operands)
    if instruction.family == "movmatrix":
        return transpose_matrix(instruction, *operands)
    raise current().error(
        f"{instruction.text} is not for calling in a kernel: WMMA has functions of its own, lw.wmma"
    )


def multiply(
    instruction: Instruction,
    a: object,
    b: object,
    c: object = None,
    *,
    metadata: object = None,
    selector: int = 0,
    scale_a: object = None,
    scale_b: object = None,
) -> Fragment:
    """Emit D = A·B + C and return D; without C, the sum begins at zero."""
    text = instruction.text
    if c is None:
        c = full_fragment(instruction.c, 0)
    sources: list[object] = [
        tuple(
            operand_register.in_register
            for operand_register in operand_registers(instruction.operands[name], given, name.upper(), text)
        )
        for name, given in (("a", a), ("b", b), ("c", c))
    ]
    builder = current()
    if instruction.sparse:
        if metadata is None:
            raise builder.error(f"{text} is sparse: give metadata=, a u32 register, and selector=")
        sources += [scalar(_single_register(metadata), u32, "metadata").in_register, str(int(selector))]
    elif metadata is not None:
        raise builder.error(f"{text} is not sparse and takes no metadata")
    if instruction.scale_type:
        for name, scale in (("scale_a", scale_a), ("scale_b", scale_b)):
            if scale is None:
                raise builder.error(
                    f"{text} is block-scaled: give {name}= a u32 register, or (u32, byte-id, thread-id)"
                )
            word, byte, thread = scale if isinstance(scale, tuple) else (scale, 0, 0)
            pair = tuple(builder.define("mov.b16", "b16", str(int(selector))) for selector in (byte, thread))
            sources += [scalar(_single_register(word), u32, name).in_register, pair]
    dtype = register_dtype(instruction.d.format)
    results = [Register(register_kind(dtype)) for _ in range(instruction.d.registers)]
    builder.emit(text, tuple(results), *sources)
    return Fragment(instruction.d, [Scalar(dtype, result) for result in results])


def _single_register(value: object) -> object:
    """Return the first register of a fragment; another value as it is."""
    return value.registers[0] if isinstance(value, Fragment) else value


#: Bytes of a row of ldmatrix and stmatrix.
_ROW_BYTES = 16


def _shared_address(pointer: object, instruction: Instruction) -> Address:
    """Return the address behind a pointer; an error unless it points to shared memory."""
    if not isinstance(pointer, Pointer):
        raise current().error(
            f"{instruction.text} takes a pointer to shared memory, such as array.ptr(row, column), not "
            f"{describe(pointer)}"
        )
    if pointer.space != "shared":
        raise current().error(f"{instruction.text} takes a pointer to shared memory, not {pointer}")
    pointer.require_together(_ROW_BYTES, f"the elements of a row of {instruction.text}")
    return pointer.operand


def load_matrices(instruction: Instruction, pointer: object) -> Fragment:
    """Emit ldmatrix, for which every lane gives the address of one row, and return the fragment."""
    address = _shared_address(pointer, instruction)
    registers = [Register("b32") for _ in range(instruction.d.registers)]
    current().emit(instruction.text, tuple(registers), address)
    return Fragment(instruction.d, [Scalar(u32, register) for register in registers])


def store_matrices(instruction: Instruction, pointer: object, fragment: object) -> None:
    """Emit stmatrix, which stores the registers of a fragment as rows of 8×8 matrices."""
    address = _shared_address(pointer, instruction)
    values = _raw_registers(instruction, fragment)
    current().emit(instruction.text, address, tuple(value.in_register for value in values))


def _raw_registers(instruction: Instruction, given: Any) -> list[Scalar]:
    """Return the 32-bit registers of a fragment or a tuple, which are moved whatever they hold."""
    operand = instruction.a
    values = list(given.registers) if isinstance(given, Fragment) else given
    values = [values] if isinstance(values, Scalar) else list(values)
    if len(values) != operand.registers or any(
        not isinstance(value, Scalar) or value.dtype.bits != 32 or value.dtype is f32 for value in values
    ):
        raise current().error(
            f"{instruction.text} takes {operand.registers} registers of two 16-bit elements (u32, "
            f"{f16x2.name}), or a fragment of so many; lw.pack(low, high) makes one"
        )
    return values


def transpose_matrix(instruction: Instruction, fragment: object) -> Any:
    """Emit movmatrix and return an 8×8 matrix of 16-bit elements transposed across the warp."""
    values = _raw_registers(instruction, fragment)
    register = current().result(instruction.text, "b32", values[0].in_register)
    if isinstance(fragment, Scalar):
        return Scalar(fragment.dtype, register)
    return Fragment(instruction.d, [Scalar(u32, register)])
