"""The names by which a trace is asked: registers of the PTX, and variables of a kernel written in Python."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lanewise.errors import LanewiseError
from lanewise.formats import FORMATS, Format, format_of
from lanewise.hints import nearest
from lanewise.isa import Operand
from lanewise.machine.program.operands import Register
from lanewise.machine.program.ops import Program, all_registers
from lanewise.machine.program.ptx_types import TYPE_BITS
from lanewise.numpy_types import AnyDtype
from lanewise.ptx.debug_variables import debug_variables
from lanewise.ptx.model.source_names import SourceNames, SourceValue, SourceVariable

#: The types of signed integers.
SIGNED = frozenset(("s8", "s16", "s32", "s64"))
#: What bits mean: a format, or a type of the PTX such as "s32".
Meaning = Format | str


class Variable(NamedTuple):
    """What a name stands for: its elements, each with the registers that may hold it, and its format.

    `is_vector` says whether it has several elements by its nature, as a fragment has.
    """

    name: str
    elements: tuple[tuple[Register, ...], ...]
    format: Format | None = None
    operand: Operand | None = None
    is_vector: bool = False
    #: The type in the source, as the PTX names types, where debug information tells it.
    type: str = ""

    @property
    def packed(self) -> Operand | None:
        """The fragment of packed numbers that it is in the source, where an index counts those; else None."""
        operand = self.operand
        if not isinstance(operand, Operand) or operand.slots == 1:
            return None
        return operand if operand.registers == len(self.elements) else None

    @property
    def length(self) -> int:
        """How many elements it has in the source."""
        return len(self.elements) if self.packed is None else self.packed.values

    def shown(self, bits: npt.NDArray[np.unsignedinteger], element: int) -> npt.NDArray[np.generic]:
        """Return the bits of an element as numbers of its format, or of its register's type."""
        first = self.elements[element][0]
        values = meant(bits, self.format or self.type)
        return typed(bits, first.type) if values is None else values


def typed(bits: npt.NDArray[np.unsignedinteger], type: str) -> npt.NDArray[np.generic]:
    """Return the bits of a register as its type in the PTX says: floats, signed or unsigned integers."""
    values = meant(bits, type)
    return bits if values is None else values


def meant(bits: npt.NDArray[np.unsignedinteger], meaning: Meaning | None) -> npt.NDArray[np.generic] | None:
    """Return words as the numbers that they mean; None if the meaning does not say it, or of other words.

    Signed integers may have fewer bits than the register that holds them, which repeats their sign.

    >>> meant(np.uint32([0xFFFFFFFD]), "s8"), meant(np.uint16([0x4000]), "f16x2"), meant(np.uint8([1]), "s32")
    (array([-3], dtype=int32), array([2.], dtype=float16), None)
    """
    width = 8 * bits.dtype.itemsize
    if isinstance(meaning, str):
        if meaning == "pred":
            return bits.astype(np.bool_)
        name = meaning.removesuffix("x2") if TYPE_BITS.get(meaning) != width else meaning
        is_signed, own_width = name in SIGNED, TYPE_BITS.get(name, 0)
        format = FORMATS.get(name)
        meaning = format if format is not None and format.kind == "float" else None
    elif meaning is not None:
        is_signed, own_width = meaning.kind == "int" and meaning.signed, meaning.bits
    else:
        return None
    if meaning is not None and meaning.word_bits == width:
        is_one = meaning.bits == width or not (bits >> bits.dtype.type(meaning.bits)).any()
        return meaning.from_bits(bits) if is_one else None  # a byte may hold two numbers of 4 bits
    return bits.view(f"int{width}") if is_signed and own_width <= width else None


def meaning_of(dtype: AnyDtype | None) -> Meaning | None:
    """Return what the bits of an array's elements mean; None where nothing is known but their size."""
    if dtype is not None and dtype.kind == "i":
        return f"s{8 * dtype.itemsize}"
    try:
        return format_of(dtype) if dtype is not None else None
    except LanewiseError:
        return None


#: What a Python variable holds: registers, a number, or, by index or key, what a list, tuple or dict of these
#: holds; None is unknown.
NamedValue = Variable | int | float | dict[object, "NamedValue"] | None


class RegisterNames:
    """All names of a kernel: its registers, with and without %, and its variables."""

    def __init__(self, program: Program, names: SourceNames | None) -> None:
        self.by_name: dict[str, tuple[Register, ...]] = {}
        for op in program.sites:
            for register in all_registers(op):
                known = self.by_name.get(register.name, ())
                if register not in known:
                    self.by_name[register.name] = (*known, register)
        self.variables = {
            name: of_name
            for name, variable in (names.variables.items() if names is not None else ())
            if (of_name := self._variable(name, variable.registers, variable.format, variable.operand))
        }
        #: Variables that are numbers, lists, tuples or dicts while the kernel is traced.
        self.values: dict[str, NamedValue] = {
            name: self._value(name, value) for name, value in (names.values.items() if names else ())
        }
        if names is None:
            self._add_debug_variables(program)
        #: Whether the kernel is CUDA C++ whose variables are not known.
        self.lacks_debug_information = program.module.cuda is not None and not self.variables

    def _value(self, name: str, value: SourceValue) -> NamedValue:
        """Return what a Python variable holds, with the registers of the program."""
        match value:
            case SourceVariable():
                return self._variable(name, value.registers, value.format, value.operand)
            case tuple():
                return {at: self._value(f"{name}[{at}]", item) for at, item in enumerate(value)}
            case dict():
                return {key: self._value(f"{name}[{key!r}]", item) for key, item in value.items()}
        return value

    def _add_debug_variables(self, program: Program) -> None:
        """Add the variables of CUDA C++ that was compiled with debug information; the kernel's come first."""
        declared = debug_variables(program.module.text or "")
        for body in sorted(program.bodies, key=lambda body: not body.function.is_entry):
            mine = (
                {register.name: register for op in body.ops for register in all_registers(op)}
                if declared
                else {}
            )
            for variable in declared:
                registers = tuple(mine[register] for register in variable.registers if register in mine)
                if variable.function != body.function.name or not registers:
                    continue
                fits = variable.type[1:] == str(registers[0].bits)
                named = Variable(variable.name, (registers,), type=variable.type if fits else "")
                self.variables.setdefault(variable.name, named)

    def _variable(
        self,
        name: str,
        elements: Iterable[tuple[str, ...]],
        format: Format | None,
        operand: Operand | None,
    ) -> Variable | None:
        """Return a variable by the names of its registers; None if the kernel uses none of them."""
        registers = tuple(
            tuple(register for name in names for register in self.by_name.get(name, ())) for names in elements
        )
        if not all(registers):
            return None
        return Variable(name, registers, format, operand, len(registers) > 1)

    def find(self, name: str) -> Variable:
        """Return what a name stands for: a variable of the source first, then a register of the PTX."""
        if not isinstance(name, str):
            raise LanewiseError(f"a register or variable is named by a string, not by {name!r}")
        known = self.variables.get(name)
        if known is not None:
            return known
        for spelling in (name, f"%{name}"):
            if spelling in self.by_name:
                return Variable(spelling, (self.by_name[spelling],))
        names = [*self.variables, *self.by_name]
        close = nearest(name, names) or nearest(f"%{name}", names)
        hint = f"; did you mean {close}?" if close else ""
        if self.lacks_debug_information:
            hint += (
                ". Variables of CUDA C++ are known with debug information: --option=-G, "
                'or lw.cuda(…, options=["-G"])'
            )
        raise LanewiseError(f"the kernel has no register or variable {name}{hint}")
