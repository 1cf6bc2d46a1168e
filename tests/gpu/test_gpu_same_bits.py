"""Examples and a sweep of shapes and formats: the machine, computing like the GPU at hand, leaves its bits.

Set LANEWISE_SAME_BITS to a path to keep a record of what was compared.
"""

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lanewise as lw
from gpu.both import Both, record_path, write_record
from lanewise import gpu
from lanewise.launch import watched

if not gpu.available():
    pytest.skip("no CUDA device here: these tests launch on one", allow_module_level=True)
pytest.importorskip("torch")
EXAMPLES = Path(__file__).parents[2] / "examples"
#: Kernels with an approximate function, exp2: they differ in its last bit, and bf16 weights in theirs.
ATTENTION_DIFFERS = 0.016


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ladder() -> Any:
    folder = str(EXAMPLES / "gemm")
    sys.path.insert(0, folder)
    try:
        import ladder

        return ladder
    finally:
        sys.path.remove(folder)


def climbed(number: int, dtype: lw.Format, accumulate: lw.Format, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    rng = np.random.default_rng(m * n * k + number)
    a, b = (rng.normal(size=size).astype(dtype.dtype) for size in ((m, k), (k, n)))
    c = np.zeros((m, n), dtype.dtype)
    rung = next(each for each in ladder().RUNGS if each.number == number)
    configured, arguments, constants = rung.prepare(a, b, c, accumulate)
    configured(*arguments, **constants, arch="sm_90")


def cases() -> Iterator[tuple[str, Callable[[], None]]]:
    """By name, what launches kernels on NumPy arrays."""
    yield "hgemm", naive
    yield "transpose", turned
    for name in ("int8_gemm", "sparse_gemm"):
        yield name, lambda name=name: example(name).main()
    pairs = [(lw.f16, lw.f32), (lw.f16, lw.f16), (lw.bf16, lw.f32)]
    for number in range(1, 9):
        shapes = [(256, 128, 64), (512, 256, 160)]
        shapes += [(131, 70, 50), (40, 129, 33), (257, 24, 152)] if number > 2 else []
        for dtype, accumulate in pairs:
            for shape in shapes:
                yield (
                    f"rung {number} {dtype.name} {accumulate.name} {'x'.join(map(str, shape))}",
                    lambda n=number, d=dtype, a=accumulate, s=shape: climbed(n, d, a, s),
                )
    yield from wmma_rows()
    int8 = example("int8_gemm")
    for m, n, k in ((64, 32, 64), (1, 1, 16), (200, 77, 208)):
        yield f"int8 {m}x{n}x{k}", lambda s=(m, n, k): int8_product(int8, s)


def naive() -> None:
    module = example("hgemm")
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=size).astype(np.float16) for size in ((64, 128), (128, 32)))
    c = np.zeros((64, 32), np.float32)
    module.hgemm[(32 // 8, 64 // 16), 32](a, b, c, 32, 128, module.SWIZZLE, arch="sm_90")


def turned() -> None:
    a = np.random.default_rng(1).integers(0, 2**16, (64, 40), np.uint16)
    example("transpose").transpose[(5, 8), 32](a, np.zeros((40, 64), np.uint16), 64, 40, arch="sm_80")


def wmma_rows() -> Iterator[tuple[str, Callable[[], None]]]:
    from shared_tests import wmma as rows

    test = rows.test_every_row_of_the_tables_computes_what_the_catalogue_does
    for shape, dtype, acc in rows.TABLE:
        name = f"wmma {'x'.join(map(str, shape))} {dtype.name} {acc.name}"
        yield name, lambda s=shape, d=dtype, a=acc: test(s, d, a)
    for shape, dtype in rows.SMALL:
        yield f"wmma {dtype.name}", lambda s=shape, d=dtype: rows.test_four_bit_products(s, d)
    for bit_op in ("xor", "and"):
        yield f"wmma b1 {bit_op}", lambda op=bit_op: rows.test_products_of_bits(op)
    for acc in (lw.f32, lw.f16):
        yield f"wmma satf {acc.name}", lambda a=acc: rows.test_satf_of_floats_is_the_guides_clamp(a)


def int8_product(module: Any, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    rng = np.random.default_rng(m + n + k)
    a, bt = (rng.integers(-128, 128, size).astype(np.int8) for size in ((m, k), (n, k)))
    module.launch(a, bt, np.zeros((m, n), np.int32), arch="sm_90")


CASES = dict(cases())


@pytest.fixture(scope="module")
def seen() -> Iterator[dict[str, Both]]:
    found: dict[str, Both] = {}
    yield found
    if path := record_path():
        write_record(path, found)


@pytest.mark.parametrize("name", CASES)
def test_the_machine_and_the_gpu_leave_the_same_bits(name: str, seen: dict[str, Both]) -> None:
    both = seen[name] = Both()
    with watched(both):
        CASES[name]()
    assert both.kernels
    assert both.differing == 0


def test_attention_differs_by_its_approximate_function_alone(seen: dict[str, Both]) -> None:
    both = seen["attention"] = Both(dtype=np.dtype(ml_dtypes.bfloat16))
    with watched(both):
        example("attention").main()
    assert len(both.kernels) == 2
    assert both.largest_difference <= ATTENTION_DIFFERS
