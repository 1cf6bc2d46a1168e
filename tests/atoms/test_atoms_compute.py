"""What atoms compute: registers in, registers out, exact on small whole numbers whatever the arithmetic."""

from typing import Any

import numpy as np
import pytest

import lanewise
from everything import sampled
from lanewise.atoms import MMA_Atom, ScaleOut, make_tiled_mma
from lanewise.errors import LanewiseError
from lanewise.isa import Operand

REAL = (
    "SM70_8x8x4_F32F16F16F32_NT",
    "SM70_8x8x4_F16F16F16F16_TN",
    "SM75_16x8x8_F32F16F16F32_TN",
    "SM80_16x8x16_F32BF16BF16F32_TN",
    "SM80_16x8x8_F32TF32TF32F32_TN",
    "SM80_8x8x4_F64F64F64F64_TN",
    "SM80_16x8x32_S32S8U8S32_TN",
    "SM80_16x8x64_S32U4S4S32_TN_SATURATE",
    "SM89_16x8x32_F16E4M3E5M2F16_TN",
    "SM90::MMA_16x8x16_F64F64F64F64_TN",
    "SM90::GMMA::MMA_64x8x16_F32F16F16_RS",
    "SM90::GMMA::MMA_64x24x8_F32TF32TF32_SS_TN",
    "SM90::GMMA::MMA_64x16x32_S32S8S8_RS_TN",
    "SM120_16x8x32_TN<float_e4m3_t, float_e2m1_t, float>",
)
SPARSE = (
    "SM90::GMMA::SPARSE::GMMA_64x8x32_F32F16F16_RS",
    "SM90::GMMA::SPARSE::GMMA_64x8x32_F32F16F16_RS<GMMA::Major::K, GMMA::Major::K, One, One, One>",
    "SM90::GMMA::SPARSE::GMMA_64x8x64_S32S8S8_SS_TN",
    "SM120_SPARSE_16x8x64_TN<float_e4m3_t, float_e5m2_t, float>",
)
SCALED = (
    "SM120_16x8x32_TN_VS<float_e4m3_t, float_e2m1_t, float, float_ue8m0_t, 32>",
    "SM120_16x8x64_TN_VS<float_e2m1_t, float_e2m1_t, float, float_ue4m3_t, 16>",
)
rng = np.random.default_rng(7)


def numbers(operand: Operand) -> np.ndarray:
    """Small whole numbers that every format holds and every sum is exact on."""
    low = 0 if operand.format.kind == "int" and not operand.format.signed else -2
    return rng.integers(low, 3, operand.matrix_shape).astype(operand.format.dtype)


def given(operand: Operand, matrix: np.ndarray) -> np.ndarray:
    """An operand as fma takes it: registers, or the matrix if it lies in shared memory."""
    return operand.pack(matrix) if operand.where == "registers" else matrix


def wide(matrix: np.ndarray) -> np.ndarray:
    return matrix.astype(np.float64)


@sampled(2)
@pytest.mark.parametrize("name", REAL)
def test_fma_multiplies_registers(name: str) -> None:
    mma = MMA_Atom(name)
    inst = mma.instruction
    a, b, c = numbers(inst.a), numbers(inst.b), numbers(inst.c)
    d = mma.fma(given(inst.a, a), given(inst.b, b), inst.c.pack(c))
    assert d.shape == (inst.threads, inst.d.registers)
    assert mma.operation.arch in inst.archs
    np.testing.assert_array_equal(wide(inst.d.unpack(d)), wide(a) @ wide(b) + wide(c))
    np.testing.assert_array_equal(wide(mma(a, b, c)), wide(a) @ wide(b) + wide(c))


def test_fma_takes_registers_in_either_byte_order() -> None:
    mma = MMA_Atom("SM80_16x8x8_F32TF32TF32F32_TN")
    a, b, c = (operand.pack(numbers(operand)) for operand in list(mma.instruction.operands.values())[:3])
    expected = mma.fma(a, b, c)
    for dtype in ("<u4", ">u4"):
        np.testing.assert_array_equal(mma.fma(a.astype(dtype), b.astype(dtype), c), expected)
    np.testing.assert_array_equal(mma.fma(a, b, c.view(np.float32).astype(">f4")), expected)


@sampled(2)
@pytest.mark.parametrize("name", SPARSE)
def test_fma_of_sparse_operations_takes_metadata(name: str) -> None:
    mma = MMA_Atom(name)
    inst = mma.instruction
    a, b, c = numbers(inst.a), numbers(inst.b), numbers(inst.c)
    places = np.array([rng.permutation(4)[:2] for _ in range(inst.m * inst.metadata.cols)])
    indices = np.sort(places, axis=1).reshape(inst.metadata.indices_shape).astype(np.uint8)
    words = inst.metadata.pack(indices, thread_id=mma.spsel.value)
    d = mma.fma(given(inst.a, a), given(inst.b, b), inst.c.pack(c), words)
    dense = inst.metadata.expand(a, indices)
    assert mma.Shape_MNK[2] == dense.shape[1]
    np.testing.assert_array_equal(wide(inst.d.unpack(d)), wide(dense) @ wide(b) + wide(c))


@pytest.mark.parametrize("name", SCALED)
def test_fma_of_scaled_operations_takes_scale_factors(name: str) -> None:
    mma = MMA_Atom(name)
    inst = mma.instruction
    a, b, c = numbers(inst.a), numbers(inst.b), numbers(inst.c)
    scales = [
        np.exp2(rng.integers(-1, 2, scale.shape)).astype(scale.format.dtype)
        for scale in (inst.scale_a, inst.scale_b)
    ]
    words = [scale.pack(values) for scale, values in zip((inst.scale_a, inst.scale_b), scales, strict=True)]
    d = mma.fma(inst.a.pack(a), inst.b.pack(b), inst.c.pack(c), *words)
    scaled_a = wide(a) * np.repeat(wide(scales[0]), mma.SFVecSize, axis=1)
    scaled_b = wide(b) * np.repeat(wide(scales[1]), mma.SFVecSize, axis=0)
    np.testing.assert_array_equal(wide(inst.d.unpack(d)), scaled_a @ scaled_b + wide(c))


@pytest.mark.parametrize(
    ("arguments", "sign"), [("K, MN", 1), ("K, K, Neg", -1), ("MN, MN, One, Neg", -1), ("K, K, Neg, Neg", 1)]
)
def test_gmma_negates_and_forgets(arguments: str, sign: int) -> None:
    mma = MMA_Atom(f"SM90::GMMA::MMA_64x8x16_F32F16F16_SS<{arguments}>")
    inst = mma.instruction
    a, b, c = numbers(inst.a), numbers(inst.b), numbers(inst.c)
    added = mma.fma(a, b, inst.c.pack(c))
    np.testing.assert_array_equal(wide(inst.d.unpack(added)), sign * (wide(a) @ wide(b)) + wide(c))
    fresh = mma.fma(a, b, inst.c.pack(c), scale_D=ScaleOut.Zero)
    np.testing.assert_array_equal(wide(inst.d.unpack(fresh)), sign * (wide(a) @ wide(b)))
    forgetful = mma.with_(ScaleOut.Zero)
    np.testing.assert_array_equal(forgetful.fma(a, b, inst.c.pack(c)), fresh)


def complex_numbers(operand: Operand) -> np.ndarray:
    return numbers(operand) + 1j * numbers(operand)


def complex_registers(operand: Operand, matrix: np.ndarray) -> np.ndarray:
    parts = [operand.pack(np.ascontiguousarray(part)).view(np.float64) for part in (matrix.real, matrix.imag)]
    return parts[0] + 1j * parts[1]


@pytest.mark.parametrize("name", ["SM80_8x8x4_C64C64C64C64_TN", "SM90::MMA_16x8x8_C64C64C64C64_TN"])
def test_complex_operations_are_four_real_ones(name: str) -> None:
    mma = MMA_Atom(name)
    inst = mma.instruction
    a, b, c = complex_numbers(inst.a), complex_numbers(inst.b), complex_numbers(inst.c)
    d = mma.fma(*(complex_registers(operand, x) for operand, x in ((inst.a, a), (inst.b, b), (inst.c, c))))
    np.testing.assert_array_equal(d, complex_registers(inst.d, a @ b + c))
    np.testing.assert_array_equal(mma(a, b, c), a @ b + c)
    assert mma.ValTypeA.dtype == np.complex128 and str(mma.DRegisters) == f"complex<double>[{d.shape[-1]}]"


def test_gauss_complex_operations_are_three_real_ones() -> None:
    mma = MMA_Atom("SM80_8x8x4_GC64C64C64GC64_TN")
    inst = mma.instruction
    a, b = complex_numbers(inst.a), complex_numbers(inst.b)
    start = np.zeros((32, 2), dtype=mma.ValTypeC.dtype)
    once = mma.fma(complex_registers(inst.a, a), complex_registers(inst.b, b), start)
    twice = mma.fma(complex_registers(inst.a, a), complex_registers(inst.b, b), once)
    result = (twice["t0"] - twice["t1"]) + 1j * (twice["t2"] - twice["t0"] - twice["t1"])
    np.testing.assert_array_equal(result, complex_registers(inst.d, 2 * (a @ b)))
    with pytest.raises(LanewiseError, match="three partial sums"):
        mma(a, b, np.zeros((8, 8)))


def test_float_registers_may_be_given_as_floats() -> None:
    mma = MMA_Atom("SM80_16x8x16_F32F16F16F32_TN")
    inst = mma.instruction
    a, b, c = numbers(inst.a), numbers(inst.b), numbers(inst.c)
    words = inst.c.pack(c)
    np.testing.assert_array_equal(
        mma.fma(inst.a.pack(a), inst.b.pack(b), words.view(np.float32)),
        mma.fma(inst.a.pack(a), inst.b.pack(b), words),
    )


def test_a_tiled_product_is_the_sum_of_its_atoms() -> None:
    """Threads that multiply their own partitions make the whole product."""
    mma = make_tiled_mma("SM80_16x8x16_F32F16F16F32_TN", (2, 2, 1))
    inst = mma.instruction
    a = rng.integers(-2, 3, (64, 32)).astype(np.float16)
    b = rng.integers(-2, 3, (32, 32)).astype(np.float16)  # (N, K)
    c = np.zeros((64, 32), dtype=np.float32)
    slices = [mma.get_slice(t) for t in range(128)]

    def words(parts: list[Any], operand: Operand, *rest: int) -> np.ndarray:
        """The registers of one operation: the values of all threads at one place of the rest."""
        values = np.array([list(part[None, rest[0], rest[1]]) for part in parts], dtype=operand.format.dtype)
        bits = operand.format.to_bits(values).reshape(len(parts), operand.registers, operand.slots)
        shifts = (np.arange(operand.slots) * operand.slot_bits).astype(np.uint32)
        return np.bitwise_or.reduce(bits.astype(np.uint32) << shifts, axis=-1)

    parts_a = [thr.partition_A(a) for thr in slices]
    parts_b = [thr.partition_B(b) for thr in slices]
    parts_c = [thr.partition_C(c) for thr in slices]
    _, rest_m, rest_n = parts_c[0].shape
    for i in range(rest_m):
        for j in range(rest_n):
            for k in range(parts_a[0].shape[2]):
                wa, wb = words(parts_a, inst.a, i, k), words(parts_b, inst.b, j, k)
                wc = words(parts_c, inst.c, i, j)
                for warp in range(0, 128, 32):
                    lanes = slice(warp, warp + 32)
                    d = mma.fma(wa[lanes], wb[lanes], wc[lanes]).view(np.float32)
                    for t, row in enumerate(d):
                        for v, value in enumerate(row):
                            parts_c[warp + t][v, i, j] = value
    np.testing.assert_array_equal(c, wide(a) @ wide(b).T)


def test_wrong_operands_are_explained() -> None:
    mma = MMA_Atom("SM80_16x8x16_F32F16F16F32_TN")
    with pytest.raises(LanewiseError, match="A, B and C; 4 operands"):
        mma.fma(1, 2, 3, 4)
    with pytest.raises(LanewiseError, match=r"are uint32\[…, 32, 4\]"):
        mma.fma(np.zeros((32, 3), np.uint32), np.zeros((32, 2), np.uint32), np.zeros((32, 4), np.uint32))
    with pytest.raises(LanewiseError, match="then metadata; 3 operands"):
        MMA_Atom(SPARSE[0]).fma(1, 2, 3)
    with pytest.raises(LanewiseError, match="complex128"):
        MMA_Atom("SM80_8x8x4_C64C64C64C64_TN").fma("a", "b", "c")
    with pytest.raises(LanewiseError, match="not on sm_70"):
        mma(np.zeros((16, 16), np.float16), np.zeros((16, 8), np.float16), arch="sm_70")
    assert lanewise.atom(mma.name) == mma
