"""lw.gemm: the matrix instructions of a tiled MMA over fragments, unrolled."""

from __future__ import annotations

from typing import Any

from lanewise.atoms import MMA_Atom
from lanewise.lang.builder import current
from lanewise.lang.matrix import emit
from lanewise.lang.tiles_registers import Registers, as_word
from lanewise.lang.tiles_steps import written
from lanewise.lang.tiles_threads import operand_dtype
from lanewise.lang.values import Scalar, describe, public
from lanewise.layout import size


def gemm(tiled_mma: Any, acc: Any, a: Any, b: Any) -> None:
    """acc += a · b over fragments (V, M, N), (V, M[, K]) and (V, N[, K]), every other row backwards.

    Inside a kernel: `lw.gemm(tiled_mma, tCrC, tCrA[None, None, k], tCrB[None, None, k])`.
    """
    builder = current()
    if not isinstance(tiled_mma, MMA_Atom):
        raise builder.error(f"lw.gemm takes a TiledMMA or an MMA atom first, not {describe(tiled_mma)}")
    instruction = tiled_mma.instruction
    for name, given, ranks in (("c", acc, (3,)), ("a", a, (2, 3)), ("b", b, (2, 3))):
        dtype = operand_dtype(tiled_mma, name)
        if not isinstance(given, Registers):
            raise builder.error(
                f"lw.gemm: {_NAMES[name]} is a fragment in registers, not {describe(given)}; "
                f"partition_fragment_{name.upper()} makes it, lw.copy fills it"
            )
        if given.dtype != dtype:
            raise builder.error(
                f"lw.gemm: {tiled_mma.name} takes {public(dtype)} for {name.upper()}, and {_NAMES[name]} is "
                f"{given}"
            )
        values = instruction.operands[name].values
        if len(given.layout) not in ranks or size(given.layout[0]) != values:
            raise builder.error(
                f"lw.gemm: {_NAMES[name]} has shape {written(given.shape)}; it takes ({values} values, "
                f"{'M, N' if name == 'c' else 'Rest'}{'' if name == 'c' else '[, K]'})"
            )
    m, n, k = size(acc.layout[1]), size(acc.layout[2]), _deep(a)
    if size(a.layout[1]) != m or size(b.layout[1]) != n or _deep(b) != k:
        raise builder.error(
            f"lw.gemm: acc, a and b of shapes {written(acc.shape)}, {written(a.shape)} and "
            f"{written(b.shape)} do not fit: (V, M, N) += (V, M, K) · (V, N, K)"
        )
    for depth in range(k):
        left = [_words(a, instruction.a.values, row + m * depth) for row in range(m)]
        right = [_words(b, instruction.b.values, col + n * depth) for col in range(n)]
        for row in range(m):
            for col in range(n) if row % 2 == 0 else reversed(range(n)):
                place = row + m * col
                sums = _words(acc, instruction.c.values, place)
                made = emit(instruction, left[row], right[col], sums)
                _put(acc, instruction.d.values, place, made.registers)


_NAMES = {"c": "acc", "a": "a", "b": "b"}


def _deep(tensor: Registers) -> int:
    return size(tensor.layout[2]) if len(tensor.layout) == 3 else 1


def _places(tensor: Registers, values: int, number: int) -> list[list[int]]:
    """The elements of one operation, register by register."""
    places = [tensor.place(number * values + each) for each in range(values)]
    return [places[start : start + tensor.slots] for start in range(0, values, tensor.slots)]


def _words(tensor: Registers, values: int, number: int) -> list[Scalar]:
    return [tensor.word(each) for each in _places(tensor, values, number)]


def _put(tensor: Registers, values: int, number: int, registers: tuple[Scalar, ...]) -> None:
    for each, register in zip(_places(tensor, values, number), registers, strict=True):
        tensor.put_word(each, as_word(register, register.dtype))


__all__ = ["gemm"]
