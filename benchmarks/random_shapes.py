"""Random products for benchmarks: sizes, types, layouts and batches drawn from a seed, and their arrays.

Sizes are log-uniform from 1 to 16384 and multiples of 1, 8 or 64; a t in a layout stands for an operand that
is stored transposed. Products whose arrays or operations would take too long are drawn again.
"""
# mypy: disable-error-code="no-untyped-call,misc"

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

LAYOUTS, STEPS, BATCHES = ("nn", "nt", "tn", "tt"), (1, 8, 64), (1, 4, 16)
LARGEST = 16384
#: Where the arrays lie.
DEVICE = "cuda"
#: The most products of numbers, and the most bytes of operands and result.
MOST_PRODUCTS, MOST_BYTES = 1.2e12, 3e9
#: Products of numbers from which on a product is large; rows or columns up to which one is skinny; how many
#: times as long as M and N a long K is.
LARGE, SKINNY, LONG = 1e10, 128, 8
#: Bytes of an element, and those of the result.
BYTES = {"bf16": (2, 2), "f16": (2, 2), "e4m3": (1, 2), "s8": (1, 4), "f32": (4, 4), "tf32": (4, 4)}


@dataclass(frozen=True)
class Shape:
    """One product: out (M × N) = a (M × K) · b (K × N), `batch` times, with bias and gelu if `fused`."""

    m: int
    n: int
    k: int
    dtype: str = "bf16"
    layout: str = "nn"
    batch: int = 1
    fused: bool = False

    @property
    def products(self) -> float:
        """Products of two numbers."""
        return float(self.m) * self.n * self.k * self.batch

    @property
    def bytes(self) -> float:
        """Bytes of operands and result."""
        size, out = BYTES[self.dtype]
        return float(self.batch) * ((self.m + self.n) * self.k * size + self.m * self.n * out)

    @property
    def is_aligned(self) -> bool:
        """Whether rows of both operands and of the result begin at multiples of 16 bytes."""
        size, out = BYTES[self.dtype]
        rows = (self.k if self.layout[0] == "n" else self.m, self.n if self.layout[1] == "n" else self.k)
        return all(row * size % 16 == 0 for row in rows) and self.n * out % 16 == 0

    @property
    def group(self) -> str:
        """The class of products that it belongs to in a report."""
        if self.dtype not in ("bf16", "f16"):
            return self.dtype
        if not self.is_aligned:
            return "odd"
        if self.products >= LARGE:
            return "large"
        if self.batch > 1:
            return "batches"
        if self.k >= LONG * max(self.m, self.n):
            return "long K"
        return "skinny" if min(self.m, self.n) <= SKINNY else "small"

    def __str__(self) -> str:
        batch = f"{self.batch}×" if self.batch > 1 else ""
        fused = " bias gelu" if self.fused else ""
        return f"{batch}{self.m}×{self.n}×{self.k} {self.dtype} {self.layout}{fused}"

    def fields(self) -> dict[str, Any]:
        """Return what a record says of it."""
        return asdict(self)


def draw(rng: np.random.Generator, dtypes: tuple[str, ...] = ("bf16", "f16"), fused: float = 0.0) -> Shape:
    """Return a random product; `fused` is the share of those with bias and gelu."""
    while True:
        dtype, batch = str(rng.choice(dtypes)), int(rng.choice(BATCHES))
        least = 16 // BYTES[dtype][0]
        steps = STEPS if BYTES[dtype][0] == 2 else (1, least, 64)
        step = int(rng.choice(steps))
        m, n, k = (_multiple(float(2 ** rng.uniform(0, math.log2(LARGEST))), step) for _ in range(3))
        shape = Shape(m, n, k, dtype, str(rng.choice(LAYOUTS)), batch, bool(rng.random() < fused))
        if shape.products <= MOST_PRODUCTS and shape.bytes <= MOST_BYTES:
            return shape


def _multiple(size: float, step: int) -> int:
    """Return the multiple of `step`, at least one, that is nearest to a size."""
    return max(1, round(size / step)) * step


def shapes(
    seed: int, count: int, dtypes: tuple[str, ...] = ("bf16", "f16"), fused: float = 0.0
) -> list[Shape]:
    """Return the first products of a seed."""
    rng = np.random.default_rng(seed)
    return [draw(rng, dtypes, fused) for _ in range(count)]


def torch_type(name: str) -> Any:
    """Return torch's type of a format."""
    import torch

    names = {
        "bf16": torch.bfloat16, "f16": torch.float16, "e4m3": torch.float8_e4m3fn, "s8": torch.int8,
        "f32": torch.float32, "tf32": torch.float32,
    }  # fmt: skip
    return names[name]


def operands(shape: Shape) -> tuple[Any, Any, Any, dict[str, Any]]:
    """Return a, b and out on the GPU, random normal numbers, and the keywords of `lw.matmul`."""
    import torch

    dtype, lead = torch_type(shape.dtype), (shape.batch,) if shape.batch > 1 else ()

    def matrix(rows: int, columns: int, transposed: bool) -> Any:
        size = (*lead, columns, rows) if transposed else (*lead, rows, columns)
        if shape.dtype == "s8":
            made = torch.randint(-90, 91, size, device=DEVICE, dtype=torch.int8)
        elif shape.dtype == "e4m3":
            made = torch.randn(size, device=DEVICE).to(dtype)
        else:
            made = torch.randn(size, device=DEVICE, dtype=dtype)
        return made.transpose(-1, -2) if transposed else made

    a = matrix(shape.m, shape.k, shape.layout[0] == "t")
    b = matrix(shape.k, shape.n, shape.layout[1] == "t")
    result = {"s8": torch.int32, "e4m3": torch.bfloat16}.get(shape.dtype, dtype)
    out = torch.empty((*lead, shape.m, shape.n), device=DEVICE, dtype=result)
    keywords: dict[str, Any] = {"out": out}
    if shape.dtype == "tf32":
        keywords["precision"] = "tf32"
    if shape.fused:
        keywords |= {"bias": torch.randn(shape.n, device=DEVICE, dtype=dtype), "activation": "gelu_tanh"}
    return a, b, out, keywords
