"""Products with 4-bit weights on a GPU: launches, recorded once for each kind of call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lanewise.formats import f32, s32
from lanewise.gpu.device import Context, context
from lanewise.linalg.kernels.int4.packing import CHUNK
from lanewise.linalg.launch.attention import require_hopper
from lanewise.linalg.launch.device_view import DeviceView
from lanewise.linalg.launch.prepare import (
    OPERANDS,
    Prepared,
    current_stream,
    kept_launches,
    operand_addresses,
    record_launches,
)
from lanewise.linalg.operands import View, empty, view_of
from lanewise.linalg.problem import Problem
from lanewise.linalg.quantize import QuantizedMatrix
from lanewise.linalg.rules import Request
from lanewise.recently_used import RecentlyUsed

if TYPE_CHECKING:
    from lanewise.linalg.kernels.int4.plans import Tile

_PREPARED: RecentlyUsed[object, Prepared] = RecentlyUsed(1024)
#: Where the address of scales is among those of operands.
_METADATA = OPERANDS.index("metadata")
#: Bytes that rows begin at multiples of.
_ALIGNED = 16


def multiply(request: Request, problem: Problem, b: QuantizedMatrix, tile: Tile) -> Prepared | None:
    """Launch the kernel that unpacks weights as it multiplies; returns what repeats it, if anything does."""
    if not (problem.m and problem.n):
        return None
    x, leading = _rows(request, problem, b)
    copied = x is not request.a
    there = b.on_device(x)
    ordinal = x.device
    assert ordinal is not None
    packed = b.chunks * CHUNK * b.columns // 4  # as many elements of 16 bits
    request.a, request.b = (
        x,
        request.b._replace(shape=(packed,), strides=(1,), address=there.values_address, array=there.values),
    )
    addresses = operand_addresses(request, None)
    addresses[_METADATA] = there.metadata_address
    key = (problem, leading, tile, b.k, b.group, b.columns, request.alpha, request.beta, ordinal)
    launches = _PREPARED.get(key)
    if launches is None:
        name = None if problem.epilogue.function is not None else f"int4 {key!r}"
        launches = _prepared(name, context(ordinal), addresses, request, problem, (leading, tile), b)
        _PREPARED.put(key, launches)
    launches(addresses, current_stream(x, ordinal))
    return None if copied else launches


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


def _prepared(
    name: str | None, there: Context, addresses: list[int], request: Request, problem: Problem,
    how: tuple[int, Tile], b: QuantizedMatrix,
) -> Prepared:  # fmt: skip
    """Return the launch of a call: from disk, or made and recorded; `how` are rows' distance and the tile."""
    require_hopper(there.device, "products with weights of lw.quantize")
    kept = kept_launches(name, there)
    if kept is not None:
        return kept
    from lanewise.linalg.kernels.int4.kernels import product_launch

    leading, tile = how
    x = DeviceView(OPERANDS.index("a"), request.a.address, (problem.m, b.k), (leading, 1), b.format)
    bias_type, residual_type = problem.epilogue.added_dtypes
    others = (
        ("b", s32), ("metadata", b.format), ("out", problem.out.dtype), ("bias", bias_type),
        ("residual", residual_type), ("scale_out", f32),
    )  # fmt: skip
    places = [(OPERANDS.index(name), fmt) for name, fmt in others]
    memory = [
        DeviceView(number, addresses[number], (1,), (1,), fmt) if addresses[number] else 0
        for number, fmt in places
    ]
    packed, factors = (b.chunks, b.group, b.columns), (request.alpha, request.beta)
    launch = product_launch(problem, [x, *memory], packed, factors, tile)
    return record_launches(name, [launch], there, addresses)


def unpack(b: QuantizedMatrix, like: View, target: View) -> None:
    """Write weights (N, K) to memory on a GPU."""
    there = b.on_device(like)
    ordinal = like.device
    assert ordinal is not None
    addresses = [there.values_address, there.metadata_address, target.address]
    key = ("unpack", b.shape, b.chunks, b.group, b.format.name, ordinal)
    launches = _PREPARED.get(key)
    if launches is None:
        device = context(ordinal)
        require_hopper(device.device, "products with weights of lw.quantize")
        launches = kept_launches(repr(key), device)
        if launches is None:
            from lanewise.linalg.kernels.int4.kernels import unpack_launch

            formats = (s32, b.format, b.format)
            memory = [
                DeviceView(number, address, (1,), (1,), fmt)
                for number, (address, fmt) in enumerate(zip(addresses, formats, strict=True))
            ]
            launch = unpack_launch(b.format, memory, b.shape[1], (b.chunks, b.group, b.columns))
            launches = record_launches(repr(key), [launch], device, addresses)
        _PREPARED.put(key, launches)
    launches(addresses, current_stream(like, ordinal))
