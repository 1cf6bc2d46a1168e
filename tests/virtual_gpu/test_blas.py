"""cuBLAS of a virtual GPU, called as C calls it, against products in double precision."""

import ctypes
import sys
from collections.abc import Iterator
from typing import Any, Literal

import ml_dtypes
import numpy as np
import pytest

import lanewise as lw
from lanewise.virtual_gpu.blas import Blas
from lanewise.virtual_gpu.blas.blas import entry_points
from lanewise.virtual_gpu.blas.matrices import VectorCalls
from lanewise.virtual_gpu.devices import find_device
from lanewise.virtual_gpu.driver import Driver
from lanewise.virtual_gpu.library.program_libraries import BlasLibraries

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a library for Linux")

F32, F64, F16, I8, I32, BF16 = 0, 1, 2, 3, 10, 14
DTYPES = {
    F32: np.float32,
    F64: np.float64,
    F16: np.float16,
    I8: np.int8,
    I32: np.int32,
    BF16: ml_dtypes.bfloat16,
}
SUM_F16, SUM_F32, SUM_F64, SUM_I32, SUM_TF32 = 64, 68, 70, 72, 77
#: How far a result may be off, as a part of the largest: inputs of TF32 have 10 bits.
TOLERANCES = {F32: 1e-5, F64: 1e-13, F16: 2e-3, BF16: 2e-2, I32: 0}


class Device:
    """A virtual GPU with the libraries of cuBLAS, and matrices in its memory."""

    def __init__(self) -> None:
        self.driver = Driver(find_device("H100"))
        self.libraries = BlasLibraries(Blas(self.driver))
        self.c = ctypes.CDLL(str(self.libraries._libraries[0].path))
        self.blas = ctypes.c_uint64()
        assert self.c.cublasCreate_v2(ctypes.byref(self.blas)) == 0

    def put(self, array: np.ndarray) -> ctypes.c_uint64:
        """Return the address of a copy of an array's bytes."""
        raw = np.ascontiguousarray(array).view(np.uint8)
        place = self.driver.cuMemAlloc_v2(max(raw.nbytes, 1))
        ctypes.memmove(place, raw.ctypes.data, raw.nbytes)
        return ctypes.c_uint64(place)

    def get(self, place: ctypes.c_uint64, array: np.ndarray) -> np.ndarray:
        """Return an array like another one from memory."""
        copy = np.empty_like(array)
        ctypes.memmove(copy.ctypes.data, place.value, array.nbytes)
        return copy


@pytest.fixture
def device() -> Iterator[Device]:
    made = Device()
    yield made
    made.libraries.close()


def matrix(rng: np.random.Generator, rows: int, columns: int, leading: int, kind: int) -> np.ndarray:
    """Return memory of a matrix in column-major order, one column in a row of the array; the gaps hold 99."""
    memory = np.full((columns, leading), 99, DTYPES[kind])
    whole = kind in (I8, I32)
    drawn = rng.integers(-9, 9, (columns, rows)) if whole else rng.standard_normal((columns, rows))
    memory[:, :rows] = drawn.astype(DTYPES[kind])
    return memory


def value(memory: np.ndarray, rows: int, transposed: int) -> np.ndarray:
    """Return op(matrix) in double precision."""
    own = memory[:, :rows].astype(np.float64).T
    return own.T if transposed else own


FORMS = [
    (F16, F16, SUM_F32), (F16, F32, SUM_F32), (BF16, BF16, SUM_F32), (BF16, F32, SUM_F32),
    (F32, F32, SUM_F32), (F64, F64, SUM_F64), (I8, I32, SUM_I32), (F16, F16, SUM_F16), (F32, F32, SUM_TF32),
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_products_of_any_shape_and_type_batched_by_strides(
    device: Device, form: tuple[int, int, int], seed: int
) -> None:
    kind, out, sums = form
    rng = np.random.default_rng([seed, kind, out, sums])
    m, n, k = (int(each) for each in rng.integers(1, 60, 3))
    ta, tb, count = int(rng.integers(2)), int(rng.integers(2)), int(rng.integers(1, 4))
    shape_a, shape_b = ((k, m) if ta else (m, k)), ((n, k) if tb else (k, n))
    lda, ldb, ldc = shape_a[0] + int(rng.integers(4)), shape_b[0] + int(rng.integers(4)), m + 3
    a = [matrix(rng, *shape_a, lda, kind) for _ in range(count)]
    b = [matrix(rng, *shape_b, ldb, kind) for _ in range(count)]
    c = [matrix(rng, m, n, ldc, out) for _ in range(count)]
    kinds: dict[int, Any] = {SUM_F16: ctypes.c_uint16, SUM_F64: ctypes.c_double, SUM_I32: ctypes.c_int32}
    scales = kinds.get(sums, ctypes.c_float)
    alpha, beta = (1, 0) if kind == I8 else (0.5, 2.0 if seed else 0.0)
    raw = [int(np.float16(each).view(np.uint16)) if sums == SUM_F16 else each for each in (alpha, beta)]
    at = [device.put(np.stack(each)) for each in (a, b, c)]
    strides = [ctypes.c_int64(each[0].size) for each in (a, b, c)]
    status = device.c.cublasGemmStridedBatchedEx(
        device.blas, ta, tb, m, n, k, ctypes.byref(scales(raw[0])), at[0], kind, lda, strides[0], at[1], kind,
        ldb, strides[1], ctypes.byref(scales(raw[1])), at[2], out, ldc, strides[2], count, sums, -1,
    )  # fmt: skip
    assert status == 0
    results = device.get(at[2], np.stack(c))
    tolerance = 5e-3 if sums == SUM_TF32 else 2e-2 if sums == SUM_F16 else TOLERANCES[out]
    for number in range(count):
        left, right = value(a[number], shape_a[0], ta), value(b[number], shape_b[0], tb)
        wanted = alpha * left @ right + beta * value(c[number], m, 0)
        got = results[number][:, :m].T.astype(np.float64)
        assert np.abs(got - wanted).max() <= tolerance * max(
            1.0, np.abs(left).max() * np.abs(right).max() * k
        )
        assert (results[number][:, m:] == c[number][:, m:]).all()  # nothing between the columns is written


@pytest.mark.parametrize("letter", ["S", "D", "H"])
def test_products_of_one_type_alone_and_batched_by_pointers(device: Device, letter: str) -> None:
    kind = {"S": F32, "D": F64, "H": F16}[letter]
    rng = np.random.default_rng(ord(letter))
    m, n, k = 33, 20, 17
    a, b, c = [[matrix(rng, *shape, shape[0], kind) for _ in range(3)] for shape in ((m, k), (k, n), (m, n))]
    one = np.array([1], DTYPES[kind])
    at = [[device.put(each) for each in matrices] for matrices in (a, b, c)]
    lists = [device.put(np.array([each.value for each in places], np.uint64)) for places in at]
    sizes = (0, 0, m, n, k, one.ctypes.data_as(ctypes.c_void_p))
    none = np.zeros(1, DTYPES[kind]).ctypes.data_as(ctypes.c_void_p)
    batched = getattr(device.c, f"cublas{letter}gemmBatched")
    assert batched(device.blas, *sizes, lists[0], m, lists[1], k, none, lists[2], m, 3) == 0
    single = getattr(device.c, f"cublas{letter}gemm" + ("" if letter == "H" else "_v2"))
    other = device.put(c[0])
    assert single(device.blas, *sizes, at[0][0], m, at[1][0], k, none, other, m) == 0
    assert (device.get(other, c[0]) == device.get(at[2][0], c[0])).all()
    for number in range(3):
        wanted = value(a[number], m, 0) @ value(b[number], k, 0)
        got = device.get(at[2][number], c[number]).T.astype(np.float64)
        assert np.allclose(got, wanted, rtol=0, atol=TOLERANCES[kind] * 50)


def test_a_product_of_half_precision_has_the_bits_of_lw_matmul(device: Device) -> None:
    rng = np.random.default_rng(7)
    a, b = (rng.standard_normal((64, 64)).astype(np.float16) for _ in range(2))
    c = np.zeros((64, 64), np.float32)
    at = [device.put(each) for each in (a, b, c)]
    one, none = ctypes.c_float(1), ctypes.c_float(0)
    # The row-major product of two arrays is the column-major product in the other order.
    assert device.c.cublasGemmEx(
        device.blas, 0, 0, 64, 64, 64, ctypes.byref(one), at[1], F16, 64, at[0], F16, 64, ctypes.byref(none),
        at[2], F32, 64, SUM_F32, -1,
    ) == 0  # fmt: skip
    assert (device.get(at[2], c) == lw.matmul(a, b, out_dtype=np.float32)).all()


@pytest.mark.parametrize("by_rows", [False, True])
@pytest.mark.parametrize("epilogue", [1, 2, 4, 6, 36])
def test_cublaslt_with_epilogues_in_both_orders(device: Device, by_rows: bool, epilogue: int) -> None:
    rng = np.random.default_rng(epilogue)
    m, n, k = 24, 40, 16
    a, b, bias = (rng.standard_normal(each).astype(np.float16) for each in ((m, k), (n, k), (m,)))
    product, c = ctypes.c_uint64(), device.c
    assert c.cublasLtMatmulDescCreate(ctypes.byref(product), SUM_F32, F32) == 0
    where = device.put(bias)
    for attribute, number, kind in (
        (4, 1, ctypes.c_int32),
        (7, epilogue, ctypes.c_int32),
        (8, where.value, ctypes.c_uint64),
    ):
        held = kind(number)
        size = ctypes.c_size_t(ctypes.sizeof(held))
        assert c.cublasLtMatmulDescSetAttribute(product, attribute, ctypes.byref(held), size) == 0
    layouts = []
    for rows, columns in ((m, k), (n, k), (m, n)):
        layout, order = ctypes.c_uint64(), ctypes.c_int32(1)
        leading = columns if by_rows else rows
        words = [ctypes.c_uint64(each) for each in (rows, columns, leading)]
        assert c.cublasLtMatrixLayoutCreate(ctypes.byref(layout), F16, *words) == 0
        if by_rows:
            assert c.cublasLtMatrixLayoutSetAttribute(layout, 1, ctypes.byref(order), ctypes.c_size_t(4)) == 0
        layouts.append(layout)
    in_memory: Literal["C", "F"] = "C" if by_rows else "F"
    at = [device.put(np.frombuffer(each.tobytes(in_memory), np.uint8)) for each in (a, b)]
    out = np.zeros(m * n, np.float16)
    at.append(device.put(out))
    one, none = ctypes.c_float(1), ctypes.c_float(0)
    assert c.cublasLtMatmul(
        device.blas, product, ctypes.byref(one), at[0], layouts[0], at[1], layouts[1], ctypes.byref(none),
        at[2], layouts[2], at[2], layouts[2], None, None, ctypes.c_size_t(0), None,
    ) == 0  # fmt: skip
    wanted = a.astype(np.float64) @ b.astype(np.float64).T
    if epilogue & 4:
        wanted += bias.astype(np.float64)[:, None]
    if epilogue & 2:
        wanted = np.maximum(wanted, 0)
    if epilogue & 32:
        wanted = wanted / 2 * (1 + np.tanh(0.7978845608 * (wanted + 0.044715 * wanted**3)))
    got = device.get(at[2], out).reshape((m, n), order=in_memory).astype(np.float64)
    assert np.abs(got - wanted).max() < 0.02


@pytest.mark.parametrize("alpha", [1.0, 0.5, 0.1, 1.5, -3.0])
def test_cublaslt_scales_integers_as_floats_and_keeps_the_largest(device: Device, alpha: float) -> None:
    rng = np.random.default_rng(3)
    size, integers, sums, mode = 16, 3, 72, 2
    a, b = (rng.integers(-9, 9, (size, size)).astype(np.int8) for _ in range(2))
    out, c = np.zeros(size * size, np.int8), device.c
    at = [device.put(each) for each in (a.T.copy(), b.T.copy(), out)]
    product, layout, words = ctypes.c_uint64(), ctypes.c_uint64(), [ctypes.c_uint64(size)] * 3
    assert c.cublasLtMatmulDescCreate(ctypes.byref(product), sums, F32) == 0
    assert c.cublasLtMatrixLayoutCreate(ctypes.byref(layout), integers, *words) == 0
    factors = [ctypes.byref(ctypes.c_float(each)) for each in (alpha, 0.0)]

    def multiply() -> int:
        status: int = c.cublasLtMatmul(
            device.blas, product, factors[0], at[0], layout, at[1], layout, factors[1], at[2], layout, at[2],
            layout, None, None, ctypes.c_size_t(0), None,
        )  # fmt: skip
        return status

    assert multiply() == 0
    sums_of_products = a.astype(np.float32) @ b.astype(np.float32)
    wanted = np.clip(np.rint(sums_of_products * np.float32(alpha)), -128, 127)
    assert (wanted == device.get(at[2], out).reshape(size, size).T).all()
    by_rows = ctypes.c_int32(3)  # a vector of alpha
    assert c.cublasLtMatmulDescSetAttribute(product, mode, ctypes.byref(by_rows), ctypes.c_size_t(4)) == 0
    assert multiply() == 15


def test_vectors(device: Device) -> None:
    rng = np.random.default_rng(3)
    x, y, a = (rng.standard_normal(each).astype(np.float32) for each in (30, 30, (6, 10)))
    at_x, at_y, at_a = device.put(x), device.put(y), device.put(a)
    two, one, result = ctypes.c_float(2), ctypes.c_float(1), ctypes.c_float()
    assert device.c.cublasSaxpy_v2(device.blas, 10, ctypes.byref(two), at_x, 3, at_y, -2) == 0
    wanted = y.copy()
    wanted[18::-2] += 2 * x[::3]
    assert np.array_equal(device.get(at_y, y), wanted)
    assert device.c.cublasSdot_v2(device.blas, 30, at_x, 1, at_y, 1, ctypes.byref(result)) == 0
    assert np.isclose(result.value, np.dot(x, wanted), rtol=1e-5)
    assert device.c.cublasSnrm2_v2(device.blas, 15, at_x, 2, ctypes.byref(result)) == 0
    assert np.isclose(result.value, np.linalg.norm(x[::2]))
    assert device.c.cublasSgemv_v2(
        device.blas, 1, 10, 6, ctypes.byref(two), at_a, 10, at_x, 1, ctypes.byref(one), at_y, 1
    ) == 0  # fmt: skip
    assert np.allclose(device.get(at_y, y)[:6], 2 * a @ x[:10] + wanted[:6], atol=1e-5)
    assert device.c.cublasSscal_v2(device.blas, 30, ctypes.byref(two), at_x, 1) == 0
    assert np.array_equal(device.get(at_x, x), 2 * x)


def test_mistakes_have_a_status_and_a_sentence(device: Device, capfd: pytest.CaptureFixture[str]) -> None:
    one = ctypes.byref(ctypes.c_float(1))
    memory = device.put(np.zeros((8, 8), np.float32))
    single = device.c.cublasSgemm_v2
    assert single(ctypes.c_uint64(5), 0, 0, 8, 8, 8, one, memory, 8, memory, 8, one, memory, 8) == 1
    assert single(device.blas, 0, 0, 8, 8, 8, one, memory, 7, memory, 8, one, memory, 8) == 7
    assert single(device.blas, 0, 0, 8, 8, 9, one, memory, 8, memory, 9, one, memory, 8) == 13
    assert device.c.cublasStrsm_v2(device.blas) == 15
    said = capfd.readouterr().err
    assert "no handle of cuBLAS" in said and "the leading dimension of A is 7, less than its 8 rows" in said
    assert "32 too many for its memory" in said and "cublasStrsm_v2" in said


def test_a_captured_product_runs_when_the_graph_is_launched(device: Device) -> None:
    stream = device.driver.cuStreamCreate(0)
    assert device.c.cublasSetStream_v2(device.blas, ctypes.c_uint64(stream)) == 0
    device.driver.cuStreamBeginCapture_v2(stream, 0)
    a, c = device.put(np.eye(4, dtype=np.float32)), device.put(np.zeros((4, 4), np.float32))
    one, none = ctypes.byref(ctypes.c_float(1)), ctypes.byref(ctypes.c_float(0))
    assert device.c.cublasSgemm_v2(device.blas, 0, 0, 4, 4, 4, one, a, 4, a, 4, none, c, 4) == 0
    graph = device.driver.cuStreamEndCapture(stream)
    empty = np.zeros((4, 4), np.float32)
    assert (device.get(c, empty) == 0).all()
    device.driver.cuGraphLaunch(device.driver.cuGraphInstantiateWithFlags(graph, 0), stream)
    assert (device.get(c, empty) == np.eye(4)).all()


def test_every_declared_entry_point_is_answered() -> None:
    blas = Blas(Driver(find_device("H100")))
    for name in entry_points():
        plain = name.removeprefix("cublas").removesuffix("_v2")
        is_product = plain.startswith("Gemm") or plain[1:].startswith("gemm")
        assert is_product or hasattr(blas, name) or hasattr(VectorCalls, plain[1:]), name
