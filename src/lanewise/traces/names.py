"""The names by which a trace is asked: registers of the PTX, and variables of a kernel written in Python."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lanewise.errors import LanewiseError
from lanewise.formats import Format
from lanewise.hints import nearest
from lanewise.isa import Operand
from lanewise.machine.program.operands import Register
from lanewise.machine.program.ops import Program, all_registers
from lanewise.ptx.debug_variables import debug_variables
from lanewise.ptx.model.source_names import SourceNames, SourceValue, SourceVariable

#: Types of registers that are shown as floats; others are shown as integers.
_FLOATS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}


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

    def shown(self, bits: npt.NDArray[np.unsignedinteger], element: int) -> npt.NDArray[np.generic]:
        """Return the bits of an element as numbers of its format, or of its register's type."""
        first = self.elements[element][0]
        if self.format is not None and self.format.bits == first.bits:
            return self.format.from_bits(bits)
        return typed(bits, self.type or first.type)


def typed(bits: npt.NDArray[np.unsignedinteger], type: str) -> npt.NDArray[np.generic]:
    """Return the bits of a register as its type in the PTX says: floats, signed or unsigned integers."""
    if type == "pred":
        return bits.astype(np.bool_)
    if type in _FLOATS and bits.dtype.itemsize == np.dtype(_FLOATS[type]).itemsize:
        return bits.view(_FLOATS[type])
    return bits.view(bits.dtype.str.replace("u", "i")) if type.startswith("s") else bits


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
