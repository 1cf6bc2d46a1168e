"""Matrix instructions inside kernels: fragments, and the catalogue's instructions emitting themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from lanewise.formats import Format, f32, f64, s32
from lanewise.isa import Instruction, Operand, arch_number
from lanewise.lang.builder import Address, Register, current
from lanewise.lang.memory import Pointer
from lanewise.lang.slots import put_together, taken_apart
from lanewise.lang.trees import Node
from lanewise.lang.types import f16x2, u16, u32
from lanewise.lang.values import Scalar, Traced, describe, public, refuse, scalar


def register_dtype(operand: Operand) -> Format:
    """What one register of an operand is as a scalar: f32, f64, i32, or u32 for packed elements."""
    return operand.format if operand.format in (f32, f64, s32) else u32


def element_dtype(operand: Operand) -> Format:
    """What one element of an operand is: its format, u16 for ldmatrix's raw ones."""
    return u16 if operand.format.name == "b16" else operand.format


class Fragment(Node):
    """An operand of a matrix instruction as this lane holds it: `f[i]` is an element, `f.registers` all.

    A fragment of one instruction is taken by another whose operand has the same layout and format.
    """

    __slots__ = ("_registers", "operand")
    mutable = True

    def __init__(self, operand: Operand, registers: list[Scalar]) -> None:
        assert len(registers) == operand.registers, (operand, registers)
        self.operand, self._registers = operand, registers

    def parts(self) -> list[Any]:
        return list(self._registers)

    def with_parts(self, parts: list[Any], fresh: bool = False) -> Fragment:
        if fresh:
            return Fragment(self.operand, list(parts))
        self._registers[:] = parts
        return self

    def same_kind(self, other: Any) -> bool:
        return isinstance(other, Fragment) and alike(self.operand, other.operand)

    @property
    def registers(self) -> tuple[Scalar, ...]:
        """The registers: f32, f64, i32, or u32 with several elements in each."""
        return tuple(self._registers)

    @property
    def dtype(self) -> Format:
        """The format of its elements."""
        return element_dtype(self.operand)

    def named(self, name: str) -> None:
        """Let the registers have a Python name."""
        for number, each in enumerate(self._registers):
            each.named(f"{name}{number}" if len(self._registers) > 1 else name)

    def __len__(self) -> int:
        return self.operand.values

    def _place(self, index: Any) -> tuple[int, int]:
        if isinstance(index, Traced):
            raise current().error("registers have no addresses: the index of a fragment is a Python integer")
        if not isinstance(index, int) or not -len(self) <= index < len(self):
            raise current().error(f"{self} has elements 0 to {len(self) - 1}; {index!r} was asked for")
        return divmod(index % len(self), self.operand.slots)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(self[each] for each in range(*index.indices(len(self))))
        register, slot = self._place(index)
        return self._elements(register)[slot]

    def _elements(self, register: int) -> list[Scalar]:
        held = self._registers[register]
        if self.operand.slots == 1:
            dtype = self.dtype
            return [held if held.dtype == dtype else Scalar(dtype, held.in_register)]
        return taken_apart(held.in_register, self.dtype, self.operand.slot_bits, self.operand.shift)

    def __setitem__(self, index: Any, value: Any) -> None:
        register, slot = self._place(index)
        elements = self._elements(register)
        elements[slot] = scalar(value, self.dtype, f"an element of {self}")
        self._registers[register] = _register(self.operand, elements)

    def __iter__(self) -> Iterator[Scalar]:
        return (self[index] for index in range(len(self)))

    def _whole(self, *_: Any) -> Any:
        raise current().error(f"{self} is many values: take f[i], or f.map(lambda x: …) for all of them")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _whole
    __neg__ = __lt__ = __le__ = __gt__ = __ge__ = _whole

    def map(self, f: Callable[[Any], Any]) -> Fragment:
        """The fragment with f applied to each element, of the same format."""
        values = [scalar(f(each), self.dtype, "what .map makes of an element") for each in self]
        slots = self.operand.slots
        return Fragment(
            self.operand,
            [_register(self.operand, values[at : at + slots]) for at in range(0, len(values), slots)],
        )

    def element(self, index: int) -> tuple[Scalar, Scalar]:
        """(row, column) in the matrix of this lane's `index`-th element."""
        from lanewise.lang.fragment_places import place

        return place(self.operand, index)

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        return f"the fragment of {self.operand.title}"


def _register(operand: Operand, elements: list[Scalar]) -> Scalar:
    if operand.slots == 1:
        only = elements[0]
        dtype = register_dtype(operand)
        return only if only.dtype == dtype else Scalar(dtype, only.in_register)
    return Scalar(u32, put_together(elements, operand.slot_bits, operand.shift))


def alike(a: Operand, b: Operand) -> bool:
    """Whether two operands lie in registers in the same way."""

    def what(each: Operand) -> tuple[Any, ...]:
        return (
            each.rows, each.cols, each.format, each.layout, each.slot_bits, each.shift, each.transposed,
            each.register_bits, each.threads, each.products, each.thr_id,
        )  # fmt: skip

    return what(a) == what(b)


def full(operand: Operand, value: Any) -> Fragment:
    """A fragment with one value in every element."""
    current()
    dtype = element_dtype(operand)
    if operand.slots == 1:
        one = scalar(value, dtype, f"a fragment of {operand.title}")
        dtype = register_dtype(operand)
        if one.dtype != dtype:
            one = Scalar(dtype, one.in_register)
    elif not isinstance(value, Traced) and value == 0:
        one = Scalar(u32, constant=0)
    else:
        one = _register(operand, [scalar(value, dtype, f"a fragment of {operand.title}")] * operand.slots)
    return Fragment(operand, [one] * operand.registers)


def from_registers(operand: Operand, registers: Any) -> Fragment:
    """A fragment made of registers: as many as the operand has, of its dtype or u32."""
    return Fragment(operand, _registers(operand, registers, operand.name, operand.instruction))


# emitting -------------------------------------------------------------------------------------------------


def _registers(operand: Operand, given: Any, name: str, instruction: str) -> list[Scalar]:
    """What is given for an operand, as its registers; an error if it is another instruction's."""
    builder = current()
    wanted = register_dtype(operand)
    if isinstance(given, Fragment):
        raw = given.operand.format.name in ("b16", "b8")
        if raw and len(given.registers) != operand.registers:
            raise builder.error(
                f"{name} of {instruction} has {operand.registers} registers, and {given} has "
                f"{len(given.registers)}: load as many 8×8 matrices, num={operand.registers}"
            )
        if not raw and not alike(given.operand, operand):
            raise builder.error(
                f"{name} of {instruction} is given {given}, which lies in registers in another way: "
                f"{_difference(given.operand, operand)}. Store it to memory and load it as this operand, "
                "or use an instruction whose operands agree"
            )
        values = list(given.registers)
    elif isinstance(given, tuple | list) and all(isinstance(each, Scalar) for each in given):
        values = list(given)
    elif isinstance(given, Scalar):
        values = [given]
    else:
        if type(given).__module__ == "numpy":
            refuse(given, f"{name} of {instruction}")
        raise builder.error(
            f"{name} of {instruction} takes a fragment or its registers, not {describe(given)}"
        )
    if len(values) != operand.registers:
        raise builder.error(
            f"{name} of {instruction} has {operand.registers} registers ({operand}); {len(values)} are given"
        )
    for each in values:
        if each.dtype != wanted and not (wanted is u32 and each.dtype.bits == 32 and each.dtype is not f32):
            raise builder.error(
                f"{name} of {instruction} has {public(wanted)} registers, and {describe(each)} is given"
            )
    return values


def _difference(a: Operand, b: Operand) -> str:
    if a.format != b.format:
        return f"its elements are {a.format.name}, here {b.format.name}"
    if a.shape != b.shape:
        return f"it is {a.rows}×{a.cols}, here {b.rows}×{b.cols}"
    return f"(lane, value) → element is {a.layout}, here {b.layout}"


def require(instruction: Instruction) -> None:
    """Complain if the arch that is traced for does not have an instruction; note what it needs."""
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
    """An instruction of the catalogue in the kernel that is being traced."""
    require(instruction)
    if instruction.multiplies and instruction.family in ("mma", "mma.sp", "mma.sp::ordered_metadata"):
        return multiply(instruction, *operands, **options)
    if instruction.family == "ldmatrix":
        return load(instruction, *operands)
    if instruction.family == "stmatrix":
        return store(instruction, *operands)
    if instruction.family == "movmatrix":
        return transpose(instruction, *operands)
    raise current().error(
        f"{instruction.text} is not for calling in a kernel: WMMA has its own functions, wgmma none yet"
    )


def multiply(
    instruction: Instruction,
    a: Any,
    b: Any,
    c: Any = None,
    *,
    metadata: Any = None,
    selector: int = 0,
    scale_a: Any = None,
    scale_b: Any = None,
) -> Fragment:
    """D = A·B + C; without C, from zero."""
    text = instruction.text
    if c is None:
        c = full(instruction.c, 0)
    sources: list[Any] = [
        tuple(each.in_register for each in _registers(instruction.operands[name], given, name.upper(), text))
        for name, given in (("a", a), ("b", b), ("c", c))
    ]
    builder = current()
    if instruction.sparse:
        if metadata is None:
            raise builder.error(f"{text} is sparse: give metadata=, a u32 register, and selector=")
        sources += [scalar(_single(metadata), u32, "metadata").in_register, str(int(selector))]
    elif metadata is not None:
        raise builder.error(f"{text} is not sparse and takes no metadata")
    if instruction.scale_type:
        for name, scale in (("scale_a", scale_a), ("scale_b", scale_b)):
            if scale is None:
                raise builder.error(
                    f"{text} is block-scaled: give {name}= a u32 register, or (u32, byte-id, thread-id)"
                )
            word, byte, thread = scale if isinstance(scale, tuple) else (scale, 0, 0)
            pair = tuple(builder.define("mov.b16", "b16", str(int(each))) for each in (byte, thread))
            sources += [scalar(_single(word), u32, name).in_register, pair]
    dtype = register_dtype(instruction.d)
    kind = {"f32": "f32", "f64": "f64"}.get(dtype.name, "b32")
    results = [Register(kind) for _ in range(instruction.d.registers)]
    builder.emit(text, tuple(results), *sources)
    return Fragment(instruction.d, [Scalar(dtype, each) for each in results])


def _single(value: Any) -> Any:
    return value.registers[0] if isinstance(value, Fragment) else value


def _shared_address(pointer: Any, instruction: Instruction) -> Address:
    if not isinstance(pointer, Pointer):
        raise current().error(
            f"{instruction.text} takes a pointer to shared memory, such as array.ptr(row, column), not "
            f"{describe(pointer)}"
        )
    if pointer.space != "shared":
        raise current().error(f"{instruction.text} takes a pointer to shared memory, not {pointer}")
    return Address(pointer.base, pointer.offset)


def load(instruction: Instruction, pointer: Any) -> Fragment:
    """ldmatrix: every lane gives the address of one row."""
    address = _shared_address(pointer, instruction)
    registers = [Register("b32") for _ in range(instruction.d.registers)]
    current().emit(instruction.text, tuple(registers), address)
    return Fragment(instruction.d, [Scalar(u32, each) for each in registers])


def store(instruction: Instruction, pointer: Any, fragment: Any) -> None:
    """stmatrix."""
    address = _shared_address(pointer, instruction)
    values = _registers_of_any(instruction, fragment)
    current().emit(instruction.text, address, tuple(each.in_register for each in values))


def _registers_of_any(instruction: Instruction, given: Any) -> list[Scalar]:
    """Registers of whatever holds as many 32-bit ones: moving does not look into them."""
    operand = instruction.a
    values = list(given.registers) if isinstance(given, Fragment) else given
    values = [values] if isinstance(values, Scalar) else list(values)
    if len(values) != operand.registers or any(
        not isinstance(each, Scalar) or each.dtype.bits != 32 or each.dtype is f32 for each in values
    ):
        raise current().error(
            f"{instruction.text} takes {operand.registers} registers of two 16-bit elements (u32, "
            f"{f16x2.name}), or a fragment of so many; lw.pack(low, high) makes one"
        )
    return values


def transpose(instruction: Instruction, fragment: Any) -> Any:
    """movmatrix: an 8×8 matrix of 16-bit elements, transposed across the warp."""
    values = _registers_of_any(instruction, fragment)
    found = current().result(instruction.text, "b32", values[0].in_register)
    if isinstance(fragment, Scalar):
        return Scalar(fragment.dtype, found)
    return Fragment(instruction.d, [Scalar(u32, found)])
