"""Where the device keeps elements, seen through moves of random bits and products of small whole numbers.

Whole numbers this small are exact in every arithmetic: NumPy can say what comes out, and only places matter.
"""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gpu.device import Device, Kernel, launches
from gpu.drawing import Draw, Operands
from gpu.execution import compare, kernels, multiply, name_of, selectors
from gpu.forms import MULTIPLYING, arch, forms
from gpu.inputs import indices, rng_of
from gpu.kernels import ROWS_SIZE, register_kernel, row_kernel, wmma_memory_kernel, wmma_move_kernel
from gpu.record import Record
from gpu.tiles import Strided, padded
from lanewise.isa import Instruction

WARPS = 32  # random bits of so many warps tell one element from another, even of one bit
GAP = 32  # bytes between rows where a stride is given; keeps the alignment that wmma asks for
FILLER = 0xA5


# products of small whole numbers ---------------------------------------------------------------------------


def whole_numbers(instruction: Instruction, count: int, seed: int) -> tuple[Operands, NDArray[np.int64]]:
    """Operands with whole numbers, and the product as NumPy has it."""
    rng = rng_of(instruction, seed, "whole numbers")
    draw = Draw(rng, instruction, count)

    def numbers(name: str, reach: int) -> NDArray[np.int64]:
        fmt = draw.format(name)
        return draw.integers(-reach if fmt.signed else 0, min(reach, int(fmt.max)), name)

    a, b, c = numbers("a", 3), numbers("b", 3), numbers("c", 1000)
    further: dict[str, NDArray[Any]] = {}
    dense = a
    if instruction.sparse:
        further["metadata"] = indices(instruction, count, rng)
        dense = instruction.metadata.expand(a, further["metadata"])
    for name in ("scale_a", "scale_b"):
        if name in instruction.operands:
            further[name] = draw.format(name).array(np.ones(draw.shape(name)))
    if instruction.bitop == "xor":
        product = (dense[..., :, :, None] ^ b[..., None, :, :]).sum(axis=-2)
    else:
        product = dense @ b
    c = c + (product + c == 0)  # no sum is zero: its sign would depend on the rounding
    arrays = [draw.format(name).array(each) for name, each in (("a", a), ("b", b), ("c", c))]
    family = tuple(f"selector {item % len(selectors(instruction))}" for item in range(count))
    return Operands(arrays[0], arrays[1], arrays[2], further, family), product + c


@launches(lambda instruction: kernels(instruction, arch()))
@pytest.mark.parametrize("instruction", forms(*MULTIPLYING), ids=name_of)
def test_fragments(instruction: Instruction, device: Device, record: Record, seed: int) -> None:
    """Fragments, metadata and every selector: the right elements meet."""
    given, product = whole_numbers(instruction, 4 * len(selectors(instruction)), seed)
    returned = multiply(device, instruction, given)
    outcome = compare(instruction, given, instruction.d.format.array(product), returned)
    record.add("fragments, by whole numbers", name_of(instruction), outcome)
    assert not outcome.first, outcome.report


# wmma through memory ---------------------------------------------------------------------------------------


def in_memory(instruction: Instruction, name: str, by_rows: bool, gap: int) -> Strided:
    operand = instruction.operands[name]
    return Strided(operand.rows, operand.cols, operand.format.bits, by_rows, gap)


def moved(instruction: Instruction) -> Strided:
    """The matrix of wmma.load or wmma.store as it lies in memory."""
    by_rows = instruction.layouts == ("row",)
    return in_memory(instruction, instruction.matrix, by_rows, GAP if instruction.stride else 0)


def move_kernel(instruction: Instruction) -> Kernel:
    place = moved(instruction)
    return wmma_move_kernel(instruction, arch(), place.size, place.stride)


def random_matrix(instruction: Instruction, name: str, seed: int) -> NDArray[Any]:
    """Random bits for an operand, as raw words [WARPS, rows, cols]."""
    return Draw(rng_of(instruction, seed, "moves"), instruction, WARPS).bits(name)


@launches(lambda instruction: [move_kernel(instruction)])
@pytest.mark.parametrize("instruction", forms("wmma.load"), ids=name_of)
def test_wmma_load(instruction: Instruction, device: Device, seed: int) -> None:
    operand = instruction.operands[instruction.matrix]
    bits = random_matrix(instruction, instruction.matrix, seed)
    image = padded(moved(instruction).image(bits, FILLER), 16 * instruction.threads)
    blank = np.zeros((WARPS, operand.threads, operand.registers), f"uint{operand.register_bits}")
    words = device.run(move_kernel(instruction), [image], blank)
    np.testing.assert_array_equal(words, operand.pack(operand.format.from_bits(bits)))


@launches(lambda instruction: [move_kernel(instruction)])
@pytest.mark.parametrize("instruction", forms("wmma.store"), ids=name_of)
def test_wmma_store(instruction: Instruction, device: Device, seed: int) -> None:
    operand = instruction.operands[instruction.matrix]
    bits = random_matrix(instruction, instruction.matrix, seed)
    place = moved(instruction)
    filled = np.full((WARPS, place.size + -place.size % (16 * instruction.threads)), FILLER, np.uint8)
    image = device.run(move_kernel(instruction), [operand.pack(operand.format.from_bits(bits))], filled)
    np.testing.assert_array_equal(image[:, : place.size], place.image(bits, FILLER))
    assert (image[:, place.size :] == FILLER).all()


def places(instruction: Instruction) -> dict[str, Strided]:
    by_rows = {"a": instruction.layout_a == "row", "b": instruction.layout_b == "row", "c": True, "d": True}
    return {name: in_memory(instruction, name, by_rows[name], GAP) for name in "abcd"}


def memory_kernel(instruction: Instruction) -> Kernel:
    sizes = {name: place.size for name, place in places(instruction).items()}
    strides = {name: place.stride for name, place in places(instruction).items()}
    return wmma_memory_kernel(instruction, arch(), sizes, strides)


@launches(lambda instruction: [memory_kernel(instruction)])
@pytest.mark.parametrize("instruction", forms("wmma.mma"), ids=name_of)
def test_wmma_between_load_and_store(instruction: Instruction, device: Device, seed: int) -> None:
    given, product = whole_numbers(instruction, 8, seed)
    lying = places(instruction)
    arrays = {"a": given.a, "b": given.b, "c": given.c}
    images = [
        lying[name].image(instruction.operands[name].format.to_bits(array)) for name, array in arrays.items()
    ]
    blank = np.full((len(given), lying["d"].size), FILLER, np.uint8)
    expected = instruction.d.format.encode(product)
    image = device.run(memory_kernel(instruction), images, blank)
    np.testing.assert_array_equal(image, lying["d"].image(expected, FILLER))


# ldmatrix, stmatrix, movmatrix -----------------------------------------------------------------------------


def scattered_rows(instruction: Instruction, seed: int) -> NDArray[np.uint32]:
    """For every warp and lane the byte offset of its row: rows of 16 bytes anywhere, no two in one place."""
    rng = rng_of(instruction, seed, "rows")
    return np.stack([16 * rng.permutation(32) for _ in range(WARPS)]).astype(np.uint32)


def stored_elements(rows: NDArray[np.uint8], kind: str) -> NDArray[Any]:
    """The elements of 16-byte rows: 8 of 16 bits, 16 bytes, or 16 of 4 or 6 bits with padding behind them."""
    if kind == "b16":
        return rows.view(np.uint16)
    if kind == "b8":
        return rows
    bits = {"b4x16_p64": 4, "b6x16_p32": 6}[kind]
    single = np.unpackbits(rows, axis=-1, bitorder="little")[..., : 16 * bits].reshape(
        *rows.shape[:-1], 16, bits
    )
    return np.packbits(single, axis=-1, bitorder="little")[..., 0]


@launches(lambda instruction: [row_kernel(instruction, arch())])
@pytest.mark.parametrize("instruction", forms("ldmatrix"), ids=name_of)
def test_ldmatrix(instruction: Instruction, device: Device, seed: int) -> None:
    image = rng_of(instruction, seed, "image").integers(0, 256, (WARPS, ROWS_SIZE), np.uint8)
    offsets = scattered_rows(instruction, seed)
    addresses = instruction.row_addresses
    lanes = [addresses.lane(row) for row in range(addresses.rows)]
    rows = image.reshape(WARPS, 32, 16)[np.arange(WARPS)[:, None], offsets[:, lanes] // 16]
    matrix = instruction.d.format.from_bits(stored_elements(rows, instruction.types[-1]))
    blank = np.zeros((WARPS, 32, instruction.d.registers), np.uint32)
    words = device.run(row_kernel(instruction, arch()), [image, offsets[..., None]], blank)
    np.testing.assert_array_equal(words, instruction.d.pack(matrix))


@launches(lambda instruction: [row_kernel(instruction, arch())])
@pytest.mark.parametrize("instruction", forms("stmatrix"), ids=name_of)
def test_stmatrix(instruction: Instruction, device: Device, seed: int) -> None:
    bits = Draw(rng_of(instruction, seed, "moves"), instruction, WARPS).bits("a")
    offsets = scattered_rows(instruction, seed)
    addresses = instruction.row_addresses
    expected = np.full((WARPS, 32, 16), FILLER, np.uint8)
    for row in range(addresses.rows):
        stored = np.ascontiguousarray(bits[:, row]).view(np.uint8)
        expected[np.arange(WARPS), offsets[:, addresses.lane(row)] // 16] = stored
    words = instruction.a.pack(instruction.a.format.from_bits(bits))
    blank = np.full((WARPS, ROWS_SIZE), FILLER, np.uint8)
    image = device.run(row_kernel(instruction, arch()), [words, offsets[..., None]], blank)
    np.testing.assert_array_equal(image, expected.reshape(WARPS, -1))


@launches(lambda instruction: [register_kernel(instruction, arch())])
@pytest.mark.parametrize("instruction", forms("movmatrix"), ids=name_of)
def test_movmatrix(instruction: Instruction, device: Device, seed: int) -> None:
    bits = Draw(rng_of(instruction, seed, "moves"), instruction, WARPS).bits("a")
    words = instruction.a.pack(instruction.a.format.from_bits(bits))
    returned = device.run(register_kernel(instruction, arch()), [words], np.zeros_like(words))
    np.testing.assert_array_equal(
        instruction.d.format.to_bits(instruction.d.unpack(returned)), np.swapaxes(bits, -1, -2)
    )
