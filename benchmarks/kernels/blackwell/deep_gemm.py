"""DeepGEMM's kernels for sm_100 on the CPU machine, each compared with float64.

    nvcc -ptx -std=c++20 -arch=compute_100a --expt-relaxed-constexpr --expt-extended-lambda -w \\
        -IDeepGEMM/deep_gemm/include -Icutlass/include -o deep_gemm.ptx \\
        benchmarks/kernels/blackwell/deep_gemm.cu
    python benchmarks/kernels/blackwell/deep_gemm.py deep_gemm.ptx

It prints a line of JSON for each kernel: its name, the largest error relative to the sums of absolute
products, and whether it is right.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import lanewise as lw

BLOCKS, THREADS, SHARED_BYTES = 4, 256, 220 << 10
BF16, E4M3 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
#: Elements of K that share a scale factor, and factors in a word.
SPAN, FACTORS = 128, 4


class Case:
    """A product: the kernel's name in PTX has a part of its own; a right one has an error below a bound."""

    def __init__(self, part: str, shape: tuple[int, int, int], boxes: tuple[tuple[int, int], ...]) -> None:
        self.part, self.shape, self.boxes = part, shape, boxes

    def launched(self, module: lw.Module, cluster: int) -> Any:
        """Return the configured kernel."""
        (name,) = (each for each in module.entries if self.part in each)
        configured = module[name][BLOCKS, THREADS, SHARED_BYTES]
        return configured.in_clusters((cluster, 1)) if cluster > 1 else configured

    def maps(self, *arrays: Any) -> list[Any]:
        """Return tensor maps of arrays, swizzled by 128 bytes."""
        return [
            lw.tensor_map(array, box, swizzle="128B") for array, box in zip(arrays, self.boxes, strict=True)
        ]


def error_of(result: Any, left: Any, right: Any) -> float:
    """Return the largest error of a product of float64 operands."""
    scale = np.abs(left) @ np.abs(right)
    return float((np.abs(result.astype(np.float64) - left @ right) / scale).max())


def run_bf16(module: lw.Module, case: Case, cluster: int, by_rows: bool, dtype: Any) -> float:
    """Multiply bf16 matrices; B has the columns of the product in its rows, or in its columns."""
    m, n, k = case.shape
    rng = np.random.default_rng(m + n + k)
    a, b = (rng.standard_normal(shape).astype(BF16) for shape in ((m, k), (n, k) if by_rows else (k, n)))
    d = np.zeros((m, n), dtype)
    case.launched(module, cluster)(None, m, n, k, *case.maps(a, b, d))
    right = b.astype(np.float64)
    return error_of(d, a.astype(np.float64), right.T if by_rows else right)


def factors(rng: np.random.Generator, rows: int, k: int) -> tuple[Any, Any]:
    """Return scale factors as numbers (rows, K / 128), and as words of four exponents, rows last."""
    exponents = rng.integers(124, 131, (rows, k // SPAN)).astype(np.uint8)
    padded = np.zeros((rows, -(-exponents.shape[1] // FACTORS) * FACTORS), np.uint8)
    padded[:, : exponents.shape[1]] = exponents
    words = np.ascontiguousarray(padded.view(np.uint32).T)
    return np.exp2(exponents.astype(np.float64) - 127), words


def run_fp8(module: lw.Module, case: Case) -> float:
    """Multiply e4m3 matrices with a scale factor for each 128 elements of K."""
    m, n, k = case.shape
    rng = np.random.default_rng(k)
    a, b = (rng.standard_normal((rows, k)).astype(E4M3) for rows in (m, n))
    (scale_a, words_a), (scale_b, words_b) = (factors(rng, rows, k) for rows in (m, n))
    d = np.zeros((m, n), np.float32)
    maps = case.maps(a.view(np.uint8), b.view(np.uint8), d)
    scales = [lw.tensor_map(words, (1, 128)) for words in (words_a, words_b)]
    case.launched(module, 1)(None, m, n, k, *maps[:2], *scales, maps[2])
    left, right = (
        array.astype(np.float64) * np.repeat(scale, SPAN, 1) for array, scale in ((a, scale_a), (b, scale_b))
    )
    return error_of(d, left, right.T)


SINGLE = Case("Lj128ELj64ELj64E", (256, 192, 256), ((128, 64), (64, 64), (128, 32)))
PAIR = Case("MajorE0ELS3_1E", (512, 256, 192), ((128, 64), (64, 64), (128, 64)))
SWAPPED = Case("Lj32ELj128ELj64E", (64, 512, 256), ((16, 64), (128, 64), (16, 64)))
FP8 = Case("fp8_fp4_gemm_1d1d", (256, 256, 640), ((128, 128), (128, 128), (128, 32)))
#: What runs a kernel of a module and returns its error, and the bound of a right one.
CASES: dict[str, tuple[Callable[[lw.Module], float], float]] = {
    "sm100_bf16_gemm": (lambda module: run_bf16(module, SINGLE, 1, True, np.float32), 2.0**-21),
    "sm100_bf16_gemm, pair, B by columns": (lambda module: run_bf16(module, PAIR, 2, False, BF16), 2.0**-8),
    "sm100_bf16_gemm, pair, A and B swapped": (
        lambda module: run_bf16(module, SWAPPED, 2, True, BF16),
        2.0**-8,
    ),
    "sm100_fp8_fp4_gemm_1d1d, e4m3": (lambda module: run_fp8(module, FP8), 2.0**-20),
}


def main() -> None:
    """Run the kernels of the PTX that the command line names: all, or those that are named behind it."""
    module = lw.load(Path(sys.argv[1]))
    for name in sys.argv[2:] or CASES:
        run, bound = CASES[name]
        begin = time.perf_counter()
        line: dict[str, Any] = {"kernel": name}
        try:
            error = run(module)
            line |= {"error": error, "right": error <= bound}
        except lw.LanewiseError as problem:  # the next kernel is tried whatever befell this one
            line |= {"right": False, "failed": str(problem)[:300]}
        print(json.dumps(line | {"seconds": round(time.perf_counter() - begin, 1)}), flush=True)


if __name__ == "__main__":
    main()
