"""The choices that wgmma has by its immediates, and what they do to operands."""

from typing import Any

from numpy.typing import NDArray

from gpu.forms import forms
from gpu.kernels import Warpgroup
from lanewise.isa import Instruction


def negated(fmt: Any, array: NDArray[Any]) -> NDArray[Any]:
    return fmt.from_bits(fmt.to_bits(array) ^ fmt.word_dtype.type(1 << (fmt.bits - 1)))


def choices(instruction: Instruction) -> list[Warpgroup]:
    """What wgmma can be told by its immediates, one thing at a time."""
    found = [Warpgroup(accumulate=False)]
    if instruction.a.format.kind == "float":
        found += [Warpgroup(negate_a=True), Warpgroup(negate_b=True)]
    if instruction.a.format.bits == 16:
        found.append(Warpgroup(transpose_b=True))
        if instruction.a_source == "descriptor":
            found += [Warpgroup(transpose_a=True), Warpgroup(transpose_a=True, transpose_b=True)]
    return found


CHOICES = [(each, choice) for each in forms("wgmma", "wgmma.sp", widths=(24,)) for choice in choices(each)]
