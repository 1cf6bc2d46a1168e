"""Records of bulk copies, tensor copies (TMA), asynchronous stores and changes of tensor maps.

Their bytes are known only when they run (Size.RUN_TIME); memory is accessed by the asynchronous proxy.
"""

from __future__ import annotations

from typing import Any

from lanewise.machine.program.instruction_record import (
    AccessKind,
    InstructionRecord,
    MemoryAccess,
    Order,
    Proxy,
    Size,
)
from lanewise.machine.program.record_builders import ATOMIC, READ, WRITE, refused, warp

_TOLD = "mbarrier::complete_tx::bytes"


def _copy(kind: AccessKind, operand: int, space: str, **facts: Any) -> MemoryAccess:
    """Return an access of a bulk copy, whose bytes are known only when it runs."""
    facts.setdefault("size", Size.RUN_TIME)
    return MemoryAccess(kind, operand, space=space, asynchronous=True, proxy=Proxy.ASYNC, **facts)


def _told(operand: int) -> MemoryAccess:
    """Return the access to the mbarrier that counts the bytes of a copy."""
    return _copy(WRITE, operand, "shared", size=Size.MBARRIER, strong=True)


def _bulk(pattern: str, target: str, source: str, write: AccessKind = WRITE) -> tuple[InstructionRecord, ...]:
    """Return the record of a bulk copy or reduction: [target], [source], size, an mbarrier if it has one."""
    memory = (_copy(write, 0, target), _copy(READ, 1, source))
    if _TOLD in pattern:
        return warp(
            pattern, "address address use address use? use?", "bulk_copies.bulk_copy:lower",
            memory=(*memory, _told(3)), counter="tma", since=90,
        )  # fmt: skip
    return warp(
        pattern, "address address use use? use?", "bulk_copies.bulk_copy:lower", memory=memory, counter="tma",
        since=90,
    )  # fmt: skip


def _tensor_store(pattern: str, write: AccessKind) -> tuple[InstructionRecord, ...]:
    """Return the record of a tensor copy from shared memory: [map, coordinates], [source]."""
    return warp(
        pattern, "tensor address use?", "bulk_copies.tensor_copy:lower_store",
        memory=(_copy(write, 0, "global"), _copy(READ, 1, "shared")), counter="tma", since=90,
    )  # fmt: skip


BULK = (
    *_bulk(f"cp.async.bulk.global.{_TOLD}", "shared", "global"),
    *_bulk(f"cp.async.bulk.shared::cta.shared::cluster.{_TOLD}", "shared", "shared"),
    *_bulk("cp.async.bulk.bulk_group", "global", "shared"),
    *_bulk(f"cp.reduce.async.bulk.{_TOLD}", "shared", "shared", ATOMIC),
    *_bulk("cp.reduce.async.bulk.bulk_group", "global", "shared", ATOMIC),
    *warp(
        "cp.async.bulk.commit_group", "", shared_step="bulk_copies.bulk_copy:commit_step",
        orders=Order.BULK_COMMIT, counter="tma", since=90),
    *warp(
        "cp.async.bulk.wait_group", "use", shared_step="bulk_copies.bulk_copy:wait_step",
        orders=Order.BULK_WAIT, since=90),
    *warp(
        "cp.async.bulk.wait_group.read", "use", shared_step="bulk_copies.bulk_copy:wait_step",
        orders=Order.BULK_WAIT_READ, since=90),
    *warp("cp.async.bulk.prefetch", "address use use?", counter="tma", since=90),
    *warp("cp.async.bulk.prefetch.tensor", "tensor use? use?", counter="tma", since=90),
    *warp(
        f"cp.async.bulk.tensor.global.{_TOLD}", "address tensor address use? use? use?",
        "bulk_copies.tensor_copy:lower_load",
        memory=(_copy(WRITE, 0, "shared"), _copy(READ, 1, "global"), _told(2)), counter="tma", since=90),
    *_tensor_store("cp.async.bulk.tensor.global.bulk_group", WRITE),
    *_tensor_store("cp.reduce.async.bulk.tensor.global.bulk_group", ATOMIC),
    *warp(
        f"st.async.{_TOLD}", "address use address", "bulk_copies.bulk_copy:lower_store",
        types="b32 b64 u32 u64 s32 s64 f32 f64", counter="tma", since=90,
        memory=(_copy(WRITE, 0, "shared", size=Size.TYPE, data=1), _told(2))),
    *warp(
        f"red.async.{_TOLD}", "address use address", "bulk_copies.bulk_copy:lower_store",
        types="b32 b64 u32 s32 u64 s64", counter="tma", since=90,
        memory=(_copy(ATOMIC, 0, "shared", size=Size.TYPE, data=1, strong=True), _told(2))),
    *warp(
        "tensormap.replace", "address use use?", "bulk_copies.tensor_map_changes:replace", counter="st",
        memory=(MemoryAccess(WRITE, 0, Size.TENSOR_MAP),), since=90),
    *warp(
        "tensormap.cp_fenceproxy", "address address use", "bulk_copies.tensor_map_changes:copy", counter="st",
        memory=(
            MemoryAccess(WRITE, 0, Size.RUN_TIME, space="global"),
            MemoryAccess(READ, 1, Size.RUN_TIME, space="shared"),
        ),
        since=90),
    *refused("st.bulk", "it needs sm_100"),
    *refused("st.async red.async", "its form without an mbarrier needs sm_100"),
)  # fmt: skip
