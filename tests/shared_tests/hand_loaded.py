"""One warp of each `mma`, its registers loaded by hand in CUDA C++, against the arithmetic: bit for bit."""

from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import sampled
from lanewise.formats import Format
from machine.classics import compiled
from machine.hand_loaded import ROOM, every, words


def numbers(fmt: Format, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    if fmt.kind != "float":
        return fmt.from_bits(rng.integers(0, 1 << min(fmt.bits, 20), shape).astype(fmt.word_dtype))
    return fmt.from_bits(fmt.encode(rng.standard_normal(shape)))


def rows(mma: lw.Instruction, name: str, matrix: np.ndarray) -> np.ndarray:
    """A matrix as it lies in memory."""
    by_column = (name == "a" and mma.layouts[0] == "col") or (name == "b" and mma.layouts[1] == "col")
    return words(
        mma.operands[name].format, np.ascontiguousarray(matrix.swapaxes(-1, -2) if by_column else matrix)
    )


def forms_new_in(arch: str) -> list[lw.Instruction]:
    """Every shape, layout and width of elements that a generation brought; of u8 and s8, say, one.

    The rest of them is `test_machine_matrices.py`'s: a product takes a second to compile.
    """
    found: dict[Any, lw.Instruction] = {}
    for mma in lw.instructions(family="mma", arch=arch):
        first = next(each for each in lw.ARCHS if each in mma.archs) == arch
        if first and mma.a.format == mma.b.format and not mma.satfinite:
            small = mma.a.format.bits <= 8
            kind = (mma.a.format.kind, mma.a.format.bits, mma.bitop) if small else mma.a.format
            found.setdefault((mma.shape, mma.layouts, kind, mma.c.format, mma.d.format), mma)
    # Volta's m8n8k4 in every layout with f32 sums, and in one with the others.
    return [
        mma
        for mma in found.values()
        if mma.layouts == ("row", "col") or mma.c.format == mma.d.format == lw.f32
    ]


@sampled(5)
@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_70", "sm_75", "sm_80", "sm_89", "sm_90"])
def test_every_mma_that_a_generation_brought(arch: str) -> None:
    forms = forms_new_in(arch)
    assert len(forms) >= 3
    memory = {name: np.zeros((len(forms), ROOM), np.uint8) for name in "abcd"}
    rng = np.random.default_rng(11)
    expected = []
    for number, mma in enumerate(forms):
        given = {
            name: numbers(mma.operands[name].format, mma.operands[name].matrix_shape, rng) for name in "abc"
        }
        for name, matrix in given.items():
            image = rows(mma, name, matrix).view(np.uint8).ravel()
            memory[name][number, : image.size] = image
        expected.append(
            rows(mma, "d", mma(given["a"], given["b"], given["c"], arch=arch)).view(np.uint8).ravel()
        )
    compiled(every(forms), arch)["every"][len(forms), 32](*memory.values(), arch=arch)
    wrong = [
        mma.text for mma, want, got in zip(forms, expected, memory["d"], strict=True)
        if (got[: want.size] != want).any() or got[want.size :].any()
    ]  # fmt: skip
    assert not wrong
