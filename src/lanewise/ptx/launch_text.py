"""A launch as it is written in text: sizes of grid and block, arrays made on the spot, numbers.

What a kernel takes is checked again at the launch, by the machine. Files are read by whoever may.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.formats import FORMATS, format_of
from lanewise.numpy_types import AnyArray, AnyDtype
from lanewise.ptx.arguments import described

if TYPE_CHECKING:
    from lanewise.ptx.model.directives import Variable

#: What an array is filled with, by the first word of `zeros:f32:64x64`.
_FILLS: dict[str, Callable[[Any, tuple[int, ...]], Any]] = {
    "zeros": lambda rng, shape: np.zeros(shape),
    "ones": lambda rng, shape: np.ones(shape),
    "arange": lambda rng, shape: np.arange(prod(shape), dtype="int64").reshape(shape),
    "random": lambda rng, shape: rng.random(shape),
    "normal": lambda rng, shape: rng.standard_normal(shape),
}
_WORDS = ", ".join(_FILLS)
_INTEGER = re.compile(r"([isu])(8|16|32|64)")
#: The elements that an array may have unless somebody allows fewer.
MOST_ELEMENTS = 1 << 40


def parse_argument(
    text: str, number: int, variable: Variable, *, option: str = "--arg", most: int = MOST_ELEMENTS
) -> Any:
    """Return the value of an argument, for the parameter that it is for; `number` counts from 0.

    `option` is what messages call it, `most` the elements that an array may have.

    >>> from lanewise.ptx import parse
    >>> kernel = parse(".version 8.0\\n.target sm_80\\n.entry k(.param .u64 x, .param .f32 a) { ret; }")["k"]
    >>> parse_argument("arange:f16:2x3", 0, kernel.parameters[0])
    array([[0., 1., 2.],
           [3., 4., 5.]], dtype=float16)
    >>> parse_argument("3", 1, kernel.parameters[1])
    3.0
    """
    where = f"{option} {text!r} (argument {number}, {described(variable)})"
    fill = text.partition(":")[0]
    if ":" in text and fill in _FILLS:
        return _made(text, where, number, most)
    if text.startswith("hex:"):
        try:
            return bytes.fromhex(text.removeprefix("hex:"))
        except ValueError:
            raise LanewiseError(f"{where}: bytes are written as hex:00ff…, two digits each") from None
    return _number(text, where, variable)


def three(text: str, option: str) -> tuple[int, ...]:
    """Return a grid or a block: up to three sizes between commas.

    >>> three("8,8", "--grid")
    (8, 8)
    """
    if not re.fullmatch(r"\s*\d{1,12}\s*([,x]\s*\d{1,12}\s*){0,2}", text):
        raise LanewiseError(f"{option} {text!r}: up to three sizes between commas are wanted, as in 8,8")
    return tuple(int(part) for part in re.split("[,x]", text))


def _number(text: str, where: str, variable: Variable) -> Any:
    wide = variable.size == 8 and variable.type[0] in "ub"
    if variable.dims or variable.vector > 1:
        raise LanewiseError(
            f"{where}: a struct of {variable.size} bytes is written as hex:00ff…, or saved by np.save"
        )
    if wide and text in ("null", "nullptr", "none"):
        return None
    if variable.type[0] != "f":
        try:
            return int(text, 0)
        except ValueError:
            pass
    if variable.type[0] in "fb" and not wide:
        try:
            return float(text)
        except ValueError:
            pass
    integer = "an integer" if variable.type[0] != "f" else "a number"
    array = f"an array: a .npy file, or made here ({_WORDS}) as in zeros:f32:64x64; or " if wide else ""
    raise LanewiseError(f"{where}: it takes {array}{integer}")


def _made(text: str, where: str, number: int, most: int) -> AnyArray:
    """An array that is described: `fill:type:shape`, with a seed after that if it is random."""
    fill, *parts = text.split(":")
    if not 2 <= len(parts) <= (3 if fill in ("random", "normal") else 2):
        seed = "[:seed]" if fill in ("random", "normal") else ""
        raise LanewiseError(f"{where}: an array is {fill}:type:shape{seed}, as in {fill}:f32:64x64")
    sizes = parts[1].split("x")
    if not all(size.isdecimal() and int(size) > 0 for size in sizes):
        raise LanewiseError(f"{where}: {parts[1]!r} is not a shape such as 1024 or 64x64")
    shape = tuple(map(int, sizes))
    if prod(shape) > most:
        allowed = f"; here an array has at most {most}" if most < MOST_ELEMENTS else ""
        raise LanewiseError(f"{where}: {prod(shape)} elements are too many{allowed}")
    seed = parts[2] if len(parts) == 3 else str(number)  # two random arguments are not the same
    if not seed.isdecimal():
        raise LanewiseError(f"{where}: {seed!r} is not a seed, an integer from 0 on")
    rng = np.random.default_rng(int(seed))
    integers = _integer_type(parts[0])
    if integers is not None:
        if fill == "normal":
            raise LanewiseError(f"{where}: normal numbers are of a floating type")
        if fill == "random":
            limits = np.iinfo(integers)
            return np.asarray(rng.integers(limits.min, limits.max, shape, integers, endpoint=True))
        return np.asarray(_FILLS[fill](rng, shape)).astype(integers)
    try:
        format = format_of(parts[0])
    except LanewiseError:
        known = ", ".join(dict.fromkeys([*FORMATS, "i32, u32, i64, u64, …"]))
        raise LanewiseError(f"{where}: {parts[0]!r} is not a type; known are {known}") from None
    values = _FILLS[fill](rng, shape)
    if fill == "random" and format.kind != "float":  # every value of s4, u4, b1 as likely as another
        values = rng.integers(int(format.min), int(format.max), shape, endpoint=True)
    elif fill == "arange" and format.kind != "float":
        values = values % (1 << format.bits - int(format.signed))
    return np.asarray(format.array(values))


def _integer_type(name: str) -> AnyDtype | None:
    match = _INTEGER.fullmatch(name)
    if match is None:
        return None
    return np.dtype(f"{'u' if match[1] == 'u' else ''}int{match[2]}")
