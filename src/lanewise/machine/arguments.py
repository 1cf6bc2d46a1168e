"""Arguments of a launch: checked against the kernel's parameters and laid out as its parameter bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.machine.memory import Arrays, Bytes, room
from lanewise.machine.resolve import Body, Symbol
from lanewise.ptx import Variable

_SIZES = {"s": "int", "u": "uint", "b": "uint", "f": "float"}


class Arguments:
    """The arguments of one launch: `arrays` they name, and the parameter bytes once addresses are known."""

    def __init__(self, body: Body, size: int, values: tuple[Any, ...]) -> None:
        self.body, self.size = body, size
        parameters = body.function.parameters
        if len(values) != len(parameters):
            names = ", ".join(f".{each.type} {each.name}" for each in parameters)
            raise LanewiseError(
                f"{body.function.name} takes {len(parameters)} argument{'s' if len(parameters) != 1 else ''} "
                f"({names}); {len(values)} given"
            )
        self.arrays = Arrays()
        self.values: list[Any] = []
        for number, (variable, value) in enumerate(zip(parameters, values, strict=True)):
            name = f"{number} ({variable.name})"
            if _is_array(value) and not variable.dims:
                array = _array(name, value, variable)
                self.arrays.add(name, array)
                self.values.append(array)
            else:
                self.values.append(_encoded(name, value, variable))

    def bytes(self, where: dict[int, int]) -> Bytes:
        """The parameter bytes."""
        memory = room(max(self.size, 8))
        for symbol, value in zip(self.body.parameters, self.values, strict=True):
            assert isinstance(symbol, Symbol)
            raw = where[id(value)].to_bytes(8, "little") if isinstance(value, np.ndarray) else value
            memory[symbol.address : symbol.address + len(raw)] = np.frombuffer(raw, np.uint8)
        return memory


def _is_array(value: Any) -> bool:
    return (isinstance(value, np.ndarray) and value.ndim > 0) or hasattr(value, "__cuda_array_interface__")


def _array(name: str, value: Any, variable: Variable) -> Any:
    if not isinstance(value, np.ndarray):
        raise LanewiseError(f"argument {name} lies on a GPU: the machine takes NumPy arrays")
    if variable.element_size != 8 or variable.type.startswith("f"):
        raise LanewiseError(f"argument {name} is .{variable.type} and takes a number; an array was given")
    return value


def _encoded(name: str, value: Any, variable: Variable) -> bytes:
    """A number or a struct as the bytes of a parameter."""
    size = variable.size
    if variable.dims or variable.vector > 1:
        raw = _struct(name, value, size)
        if len(raw) != size:
            raise LanewiseError(f"argument {name} is {size} bytes; {len(raw)} were given")
        return raw
    if (
        isinstance(value, np.generic | np.ndarray)
        and value.dtype.itemsize == size
        and value.dtype.kind not in "OUS"
    ):
        mismatch = (variable.type[0] == "f" and value.dtype.kind in "biu") or (
            variable.type[0] in "su" and value.dtype.kind in "fc"
        )
        if not mismatch:
            return bytes(np.asarray(value).tobytes())
    if isinstance(value, np.generic | np.ndarray):
        value = value.item()
    kind = variable.type[0]
    if isinstance(value, bool | int) and kind in "sub":
        number = int(value)
        low = -(1 << 8 * size - 1)
        high = (1 << 8 * size) - 1 if kind != "s" else (1 << 8 * size - 1) - 1
        if not low <= number <= high:
            raise LanewiseError(f"argument {name}: {number} does not fit into .{variable.type}")
        return (number % (1 << 8 * size)).to_bytes(size, "little")
    if isinstance(value, bool | int | float) and kind in "fb" and size in (2, 4, 8):
        with np.errstate(over="ignore"):
            return bytes(np.array(float(value)).astype(f"f{size}").tobytes())
    if value is None and size == 8:
        return bytes(8)
    raise LanewiseError(
        f"argument {name} is .{variable.type}: {type(value).__name__} {value!r} cannot be passed; "
        + ("pass a NumPy array or an integer" if size == 8 else "pass a number")
    )


def _struct(name: str, value: Any, size: int) -> bytes:
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if isinstance(value, np.generic | np.ndarray) and not value.dtype.hasobject:
        return bytes(value.tobytes())
    raise LanewiseError(
        f"argument {name} is a struct of {size} bytes: pass bytes, or a NumPy structured scalar of that size"
    )
