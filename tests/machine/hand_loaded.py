"""CUDA C++ of warps that do one `mma` each, registers loaded by hand as the PTX ISA's formulas say.

The formulas are written out here once more, as kernels have them; the catalogue's fragments are not used.
"""

from collections.abc import Sequence

import numpy as np

from lanewise.formats import Format
from lanewise.isa import Instruction

_WORDS = {"f64": ("double", "d", 64), "f32": ("float", "f", 32)}


def word_of(fmt: Format) -> tuple[str, str, int]:
    """The C type of a register, its letter in inline assembly, and its bits."""
    return _WORDS.get(fmt.name, ("unsigned", "r", 32))


def name_of(mma: Instruction) -> str:
    """A C identifier."""
    return mma.text.removeprefix("mma.sync.aligned.").replace(".", "_")


#: Bytes that each matrix of an instruction has in the arrays of `every`.
ROOM = 2048


def every(instructions: Sequence[Instruction]) -> str:
    """One kernel, `every`: block i does the i-th instruction on the i-th matrices of the arrays."""
    cases = ""
    for number, mma in enumerate(instructions):
        casts = ", ".join(f"({word_of(mma.operands[name].format)[0]}*){name}" for name in "abcd")
        cases += f"    case {number}: {name_of(mma)}({casts}); break;\n"
    moves = " ".join(f"{matrix} += blockIdx.x * {ROOM};" for matrix in "abcd")
    return (
        "".join(map(function, instructions))
        + f"""
extern "C" __global__ void every(char* a, char* b, char* c, char* d) {{
    {moves}
    switch (blockIdx.x) {{
{cases}    }}
}}
"""
    )


def function(mma: Instruction) -> str:
    """A function on A by rows, B by columns, C and D by rows, each in words of a register's width."""
    if mma.shape == (8, 8, 4) and mma.a.format.name == "f16":
        return _quads(mma)
    per_word = {
        name: word_of(mma.operands[name].format)[2] // mma.operands[name].format.bits for name in "abcd"
    }
    row = {
        "a": mma.k // per_word["a"],
        "b": mma.k // per_word["b"],
        "c": 8 // per_word["c"],
        "d": 8 // per_word["d"],
    }
    tall = mma.m == 16
    a = [
        f"A[(g + {8 * (i % 2) if tall else 0}) * {row['a']} + t + {4 * (i // 2 if tall else i)}]"
        for i in range(mma.m * mma.k // per_word["a"] // 32)
    ]
    b = [f"B[g * {row['b']} + t + {4 * i}]" for i in range(8 * mma.k // per_word["b"] // 32)]

    def sums(matrix: str) -> list[str]:
        if per_word[matrix.lower()] == 2:
            return [f"{matrix}[(g + {8 * i}) * 4 + t]" for i in range(mma.m // 8)]
        return [f"{matrix}[(g + {8 * (i // 2)}) * 8 + 2 * t + {i % 2}]" for i in range(mma.m // 4)]

    return _text(mma, "int g = threadIdx.x / 4, t = threadIdx.x % 4;", a, b, sums("C"), sums("D"))


def _quads(mma: Instruction) -> str:
    """Volta's m8n8k4: four quad pairs of eight lanes, each with a product of its own."""
    by_row_a, by_row_b = (layout == "row" for layout in mma.layouts)
    lanes = "int l = threadIdx.x, q = l % 16 / 4, s = l / 16, i = l % 4 + 4 * s;"
    # A and B: two words of two elements each; q numbers the quad pair (lanes 4q to 4q + 3 and 16 more).
    a = [f"A[q * 16 + i * 2 + {w}]" if by_row_a else f"A[q * 16 + (l % 4) * 4 + s * 2 + {w}]" for w in (0, 1)]
    b = [f"B[q * 16 + (l % 4) * 4 + s * 2 + {w}]" if by_row_b else f"B[q * 16 + i * 2 + {w}]" for w in (0, 1)]

    def sums(matrix: str) -> list[str]:
        if mma.operands[matrix.lower()].format.name == "f16":
            return [f"{matrix}[q * 32 + i * 4 + {w}]" for w in range(4)]
        return [
            f"{matrix}[q * 64 + ((l & 1) + {n & 2} + 4 * s) * 8 + {n & 4} + (l & 2) + {n & 1}]"
            for n in range(8)
        ]

    return _text(mma, lanes, a, b, sums("C"), sums("D"))


def _text(mma: Instruction, lanes: str, a: list[str], b: list[str], c: list[str], d: list[str]) -> str:
    types = {name: word_of(mma.operands[name].format) for name in "abcd"}
    places, start = {}, 0
    for name, registers in (("d", d), ("a", a), ("b", b), ("c", c)):
        places[name] = "{" + ", ".join(f"%{start + i}" for i in range(len(registers))) + "}"
        start += len(registers)
    outputs = ", ".join(f'"={types["d"][1]}"(d[{i}])' for i in range(len(d)))
    inputs = ", ".join(
        f'"{types[name][1]}"({value})' for name, values in (("a", a), ("b", b), ("c", c)) for value in values
    )
    stores = " ".join(f"{value} = d[{i}];" for i, value in enumerate(d))
    return f"""
__device__ void {name_of(mma)}(
    const {types["a"][0]}* A, const {types["b"][0]}* B, const {types["c"][0]}* C, {types["d"][0]}* D) {{
    {lanes}
    {types["d"][0]} d[{len(d)}];
    asm volatile("{mma.text} {places["d"]}, {places["a"]}, {places["b"]}, {places["c"]};"
        : {outputs}
        : {inputs});
    {stores}
}}
"""


def words(fmt: Format, matrix: np.ndarray) -> np.ndarray:
    """A matrix's rows as words of a register's width, the first element in the lowest bits."""
    bits = fmt.to_bits(matrix)
    dtype = np.dtype(f"uint{word_of(fmt)[2]}")
    if fmt.bits >= 8:
        return np.ascontiguousarray(bits).view(dtype)
    single = (bits[..., None] >> np.arange(fmt.bits, dtype=np.uint8)) & 1
    flat = single.reshape(*matrix.shape[:-1], -1)
    return np.packbits(flat, axis=-1, bitorder="little").view(dtype)
