"""Random calls of `lw.matmul` for sm_100a: shapes, types, layouts, batches and what is fused, by a seed."""

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

BF16, E4M3, E5M2 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
#: Types of A and B, and keywords that go with them.
TYPES: tuple[tuple[Any, Any, dict[str, Any]], ...] = (
    (BF16, BF16, {}),
    (np.float16, np.float16, {}),
    (np.float16, np.float16, {"accumulate": "f16"}),
    (np.float32, np.float32, {}),
    (np.float32, np.float32, {"precision": "tf32"}),
    (E4M3, E4M3, {}),
    (E4M3, E5M2, {"accumulate": "f32"}),
    (np.int8, np.int8, {}),
)


@dataclass
class Call:
    """Two arrays and the keywords of one call."""

    a: Any
    b: Any
    keywords: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        shown = {name: getattr(value, "shape", value) for name, value in self.keywords.items()}
        return f"{self.a.dtype} {self.a.shape} {self.a.strides} · {self.b.dtype} {self.b.shape}: {shown}"


def matrix(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return random elements, contiguous along one of the last two axes, perhaps with longer lines."""
    turned, longer = rng.random() < 0.4, int(rng.choice([0, 0, 8, 3]))
    *outer, rows, columns = shape
    lines = (columns, rows + longer) if turned else (rows, columns + longer)
    numbers = rng.integers(-128, 128, (*outer, *lines)) if dtype == np.int8 else rng.normal(
        size=(*outer, *lines)
    ).astype(np.float32)  # fmt: skip
    found = numbers.astype(dtype)
    if turned:
        found = found.swapaxes(-1, -2)
    return found[..., :rows, :columns]


def fused(rng: np.random.Generator, m: int, n: int, batch: tuple[int, ...]) -> dict[str, Any]:
    """Return random keywords of an epilogue."""

    def numbers(*shape: int) -> Any:
        return rng.normal(size=shape).astype(np.float32)

    found: dict[str, Any] = {}
    if rng.random() < 0.5:
        found["bias"] = numbers(n) if rng.random() < 0.6 else numbers(m, 1)
    if rng.random() < 0.5:
        found["activation"] = str(rng.choice(["relu", "gelu", "gelu_tanh", "silu", "sigmoid"]))
    if rng.random() < 0.4:
        found["alpha"] = 0.75
    if rng.random() < 0.4:
        found["residual"] = matrix(rng, (*batch, m, n), np.float32)
        found["beta"] = 1.5 if rng.random() < 0.5 else None
    return found


def draw(seed: int) -> Call:
    """Return the call of a seed."""
    rng = np.random.default_rng(seed)
    of_a, of_b, keywords = TYPES[int(rng.integers(len(TYPES)))]
    m, n, k = (int(rng.integers(1, most)) for most in (300, 300, 260))
    if rng.random() < 0.4:
        m, n, k = (-(-size // 8) * 8 for size in (m, n, k))
    batch = (int(rng.integers(2, 4)),) if rng.random() < 0.3 else ()
    a, b = matrix(rng, (*batch, m, k), of_a), matrix(rng, (*batch, k, n), of_b)
    keywords = {**keywords, **fused(rng, m, n, batch)}
    if of_a == np.int8 and len(keywords):
        keywords["out_dtype"] = "bf16"
    elif of_a != np.int8 and rng.random() < 0.4:
        keywords["out_dtype"] = str(rng.choice(["f16", "bf16", "f32"]))
    if of_a in (E4M3, E5M2) and "accumulate" in keywords and rng.random() < 0.5 and not batch:
        del keywords["accumulate"]
        blocks = -(-k // 128)
        keywords["scale_a"] = rng.uniform(0.5, 2, (m, blocks)).astype(np.float32)
        keywords["scale_b"] = rng.uniform(0.5, 2, (blocks, -(-n // 128))).astype(np.float32)
    elif of_a in (E4M3, E5M2) and rng.random() < 0.5:
        keywords["scale_a"] = rng.uniform(0.5, 2, (m, 1)).astype(np.float32) if not batch else 0.5
    return Call(a, b, keywords)
