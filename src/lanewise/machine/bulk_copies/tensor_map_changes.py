"""Lowerings of tensormap.replace, which changes a field of a tensor map, and of tensormap.cp_fenceproxy."""

from __future__ import annotations

from lanewise.isa.tensor_map_fields import MAP_BYTES
from lanewise.jit.simd import Value, i64
from lanewise.machine.bulk_copies.bulk_copy import stop_unless_done
from lanewise.machine.bulk_copies.operation import ISSUER, Issue
from lanewise.machine.bulk_copies.reductions import copier
from lanewise.machine.bulk_copies.tensor_map import MAP_ALIGNMENT
from lanewise.machine.codegen.function_code import BlockCode, call, shared_code
from lanewise.machine.program.memory_accesses import accesses
from lanewise.machine.program.ops import Op
from lanewise.machine.warp_ops.addresses import WRITE
from lanewise.ptx import Immediate

#: The fields of a tensor map that an instruction may change, by its modifier; those of a dimension have its
#: number behind them.
_NAMES = {
    "global_address": "address",
    "rank": "rank",
    "box_dim": "box",
    "global_dim": "dim",
    "global_stride": "stride",
    "element_stride": "element_stride",
    "elemtype": "type",
    "interleave_layout": "interleave",
    "swizzle_mode": "swizzle",
    "fill_mode": "fill",
}
_PER_DIMENSION = ("box_dim", "global_dim", "global_stride", "element_stride")


def replace(code: BlockCode, op: Op) -> None:
    """Lower tensormap.replace: the bits of one field change."""
    raise op.unsupported("it comes later")


def copy(code: BlockCode, op: Op) -> None:
    """Lower tensormap.cp_fenceproxy: 128 bytes are copied from shared to global memory."""
    size = op.operands[2]
    if not isinstance(size, Immediate) or size.bits != MAP_BYTES:
        raise op.unsupported(f"it copies {MAP_BYTES} bytes")
    target, source = accesses(op)
    function = shared_code(code.module, "copy tensor map", (*ISSUER, "target", "source"), _write_copy)
    active = code.bits(code.active(op))
    with code.when(active.differs(0)):
        lane = code.first_lane(active)
        places = [code.address_of(each.address, lane).to(i64) for each in (target, source)]
        values: list[Value | int] = [code["frame"], op.site, lane, *places]
        stop_unless_done(code, call(code, function, values))


def _write_copy(code: BlockCode) -> None:
    made, size = Issue(code), code.number(MAP_BYTES)
    for each in ("target", "source"):
        made.aligned(code[each], alignment=MAP_ALIGNMENT)
    target = made.host("global", code["target"], size, WRITE)
    copier(code, target, made.host("shared", code["source"], size), size)
    code.give(0)
