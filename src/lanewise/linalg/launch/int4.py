"""Products with 4-bit weights on a GPU: launches, recorded once for each kind of call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lanewise.formats import s32
from lanewise.gpu.device import Device
from lanewise.linalg.arrays import device_view
from lanewise.linalg.kernels.family import Launch
from lanewise.linalg.kernels.int4.packing import CHUNK
from lanewise.linalg.launch.prepare import (
    OPERANDS,
    Prepared,
    current_stream,
    hopper_launches,
    operand_addresses,
    pointers_of,
)
from lanewise.linalg.operands import View, empty, view_of
from lanewise.linalg.problem import Problem
from lanewise.linalg.quantize import QuantizedMatrix
from lanewise.linalg.rules import Request

if TYPE_CHECKING:
    from lanewise.linalg.kernels.int4.plans import Tile

#: Bytes that rows begin at multiples of.
_ALIGNED = 16
#: What an error calls these products.
_NAME = "products with weights of lw.quantize"


def multiply(request: Request, problem: Problem, b: QuantizedMatrix, tile: Tile) -> Prepared | None:
    """Launch the kernel that unpacks weights as it multiplies; returns what repeats it, if anything does."""
    if not (problem.m and problem.n):
        return None
    x, leading = _rows(request, problem, b)
    copied = x is not request.a
    there = b.on_device(x)
    ordinal = x.device
    assert ordinal is not None
    packed = (b.chunks * CHUNK * b.columns // 4,)  # as many elements of 16 bits
    request.a = x
    request.b = request.b._replace(
        shape=packed, strides=(1,), address=there.values_address, array=there.values
    )
    request.metadata = request.b._replace(shape=(1,), address=there.metadata_address, array=there.metadata)
    addresses = operand_addresses(request, None)
    key = (problem, leading, tile, b.k, b.packed, request.alpha, request.beta)

    def launches(device: Device) -> list[Launch]:
        from lanewise.linalg.kernels.int4.launches import product_launch

        pointers = pointers_of(request, problem, addresses, 0)
        pointers.a = device_view(OPERANDS.index("a"), x.address, (problem.m, b.k), (leading, 1), b.format)
        return [product_launch(problem, pointers, b.packed, tile)]

    on_disk = problem.epilogue.function is None
    prepared = hopper_launches(_NAME, key, ordinal, addresses, launches, on_disk)
    prepared(addresses, current_stream(x, ordinal))
    return None if copied else prepared


def _rows(request: Request, problem: Problem, b: QuantizedMatrix) -> tuple[View, int]:
    """Return the rows as TMA loads them, 16-byte pieces of each, and their distance."""
    a = problem.a
    aligned = a.k_major and a.inner == 1 and a.alignment >= _ALIGNED and a.leading >= 0
    if aligned and (problem.m == 1 or a.leading >= b.k):
        return request.a, max(a.leading, -(-b.k // 8) * 8) if problem.m == 1 else a.leading
    width = b.chunks * CHUNK
    made: Any = empty(request.a, (problem.m, width), request.a.format)
    made[:, : b.k] = request.a.array.reshape(problem.m, b.k)
    return view_of(made, "a"), width


def unpack(b: QuantizedMatrix, like: View, target: View) -> None:
    """Write weights (N, K) to memory on a GPU."""
    there = b.on_device(like)
    ordinal = like.device
    assert ordinal is not None
    addresses = [there.values_address, there.metadata_address, target.address]

    def launches(device: Device) -> list[Launch]:
        from lanewise.linalg.kernels.int4.launches import unpack_launch

        memory = [
            device_view(number, addresses[number], (1,), (1,), fmt)
            for number, fmt in enumerate((s32, b.format, b.format))
        ]
        return [unpack_launch(b.format, memory, b.shape[1], b.packed)]

    key = ("unpack", b.shape, b.chunks, b.group, b.format.name)
    hopper_launches(_NAME, key, ordinal, addresses, launches)(addresses, current_stream(like, ordinal))
