"""Which Hopper kernels there are: which tiles, clusters, schedules and epilogues go together."""

from __future__ import annotations

from dataclasses import replace

from lanewise.errors import LanewiseError
from lanewise.formats import f32, tf32
from lanewise.linalg.kernels.hopper.shared_memory import SharedMemory
from lanewise.linalg.kernels.hopper.traits import (
    FIRST_REGISTERS,
    INSTRUCTION_REGISTERS,
    LARGEST_CLUSTER,
    LINE,
    MOST_SHARED,
    OTHER_REGISTERS,
    REGISTERS,
    ROWS,
    WIDEST,
    Store,
    Traits,
    traits_of,
)
from lanewise.linalg.operand_copies import can_be_shifted
from lanewise.linalg.orientation import oriented
from lanewise.linalg.plan import Plan
from lanewise.linalg.problem import Problem
from lanewise.linalg.sum_order import element_bytes, planes_of, wgmma_widths

#: Stages that are enough.
_LEAST_STAGES = 3
#: Rows of the highest box of TMA.
_HIGHEST_BOX = 256


def require_possible(traits: Traits) -> None:
    """Raise an error if there is no kernel with these constants."""
    memory = SharedMemory(traits)
    reason = _about_tile(traits) or _about_memory(traits, memory)
    reason = reason or _about_schedule(traits) or _about_results(traits, memory)
    if reason:
        plan = traits.plan
        schedule = "pingpong" if traits.pingpong else "cooperative"
        raise LanewiseError(f"tile {plan.tile}, cluster {plan.cluster}, {schedule}: {reason}")


def _about_tile(T: Traits) -> str:
    """Return what is wrong with a tile's sizes: they are multiples of an instruction's, in few registers."""
    sums = T.problem.sums
    if T.consumer_rows % ROWS or not T.consumer_rows:
        return f"{T.bm} rows are not a multiple of 64 for each of the warpgroups"
    if T.consumers not in REGISTERS:
        return f"{T.bm} rows take {T.consumers} warpgroups; a block has {max(REGISTERS)} at most"
    widths = wgmma_widths(T.a.name, T.b.name, sums.name)
    if T.bn not in widths and not (T.bn > WIDEST and T.piece in widths):
        names = ", ".join(map(str, widths))
        return f"wgmma of {T.a.name} and {T.b.name} takes {names} columns, not {T.piece}"
    if T.piece not in widths:
        return f"sums are promoted in halves of {T.bn} columns, but wgmma takes no {T.piece}"
    if T.bn > WIDEST and (T.promotes or T.grouped or T.problem.sparse or T.plan.split * T.plan.groups > 1):
        return f"more than {WIDEST} columns are for dense products whose K is not split or promoted"
    if T.bk * T.element_bytes != LINE:
        return f"a stage must have {LINE // T.element_bytes} elements of K (128 bytes), not {T.bk}"
    of_instruction = min(T.bn, WIDEST) // 2 * sums.bits // 32 + T.plan.a_in_registers * INSTRUCTION_REGISTERS
    if (
        T.sum_registers + OTHER_REGISTERS > T.most_registers
        or of_instruction + OTHER_REGISTERS > FIRST_REGISTERS[T.consumers]
    ):
        return f"{T.consumer_rows} × {T.bn} sums do not fit into the registers of a warpgroup"
    return ""


def _about_memory(T: Traits, memory: SharedMemory) -> str:
    """Return what is wrong with a cluster's shares of a tile, or with the size of shared memory."""
    plan, wide = T.plan, LINE // T.element_bytes
    rows, columns = plan.cluster
    b_k_major = T.problem.b.k_major
    if (b_k_major and T.bn % (8 * rows)) or T.bm % (8 * columns):
        return f"a cluster {plan.cluster} does not divide the tile into parts of eight rows"
    if b_k_major and T.bn // rows > _HIGHEST_BOX:
        return f"{T.bn // rows} columns are more than TMA loads at once; take a cluster of more rows"
    if not b_k_major and T.piece < T.bn and T.piece % wide:
        return f"halves of {T.bn} columns are no multiple of the {wide} of a box"
    if T.cluster_size > LARGEST_CLUSTER:
        return f"a cluster of {T.cluster_size} blocks; every launch can have {LARGEST_CLUSTER}"
    if T.bn % T.store_columns:
        return f"{T.bn} columns cannot be divided among {plan.split} blocks"
    if memory.total > MOST_SHARED:
        return f"{plan.stages} stages take {memory.total} bytes of shared memory; it has {MOST_SHARED}"
    return ""


def _about_schedule(T: Traits) -> str:
    """Return what is wrong with how sums are split, promoted, or skewed."""
    plan = T.plan
    if plan.skew and (
        T.consumers == 1 or T.pingpong or T.promotes or T.grouped or not 0 < plan.skew <= plan.stages
    ):
        return (
            f"skew={plan.skew} must be 1 to {plan.stages}, for two or three cooperative warpgroups whose "
            "sums are not promoted, and not for grouped products"
        )
    if T.threads_load_a and T.consumers > 2:
        return "a_in_registers=True is for at most two warpgroups where TMA cannot load A"
    if T.splits_a and (T.consumer_rows != ROWS or T.piece != T.bn):
        return (
            "a_in_registers=True of f32 is for 64 rows for each warpgroup, and sums that are not promoted in "
            "halves"
        )
    if T.transposes_a and (T.a is not tf32 or T.problem.a.k_major or T.grouped):
        return "a_in_registers=True is for f32, and for tf32 whose neighbours lie along M, not for experts"
    if T.shifts_a and (not can_be_shifted(T.problem) or plan.cluster[1] > 1):
        return (
            "a_in_registers=True of 8 and 16 bits is for rows that TMA cannot load (of 8 bits, along K), for "
            "sums that are not promoted, and for clusters whose blocks have rows of their own; not for "
            "experts or a sparse operand"
        )
    if T.planes > 1 and (
        T.multicasting > 1 or not (T.problem.b.k_major and (T.problem.a.k_major or T.splits_a))
    ):
        return "products of split f32 need K-major operands and clusters that share no loads"
    if plan.l2 and (len(plan.l2) != 2 or not set(plan.l2) <= set("fn-")):
        return f"l2={plan.l2!r} must be two letters, one for A and one for B, each f, n or -"
    return ""


def _about_results(T: Traits, memory: SharedMemory) -> str:
    """Return what is wrong with who stores results, or with experts' rows."""
    plan = T.plan
    if T.store is Store.REGISTERS and (T.out.bits < 16 or T.grouped):
        return "direct stores need results of 16 or 32 bits, and no grouped products"
    if plan.gather and (plan.groups == 1 or T.problem.sums is not f32 or T.out.bits < 16):
        return "gather=True needs groups above 1, f32 sums and results of 16 or 32 bits"
    if T.grouped and (plan.split * plan.groups > 1 or T.transposed or T.store is Store.TMA or T.pingpong):
        return "grouped products need cooperative warpgroups, stores by threads and a K that is not split"
    if T.grouped and plan.cluster not in ((1, 1), (1, 2), (2, 1)):
        return "clusters of grouped products must be 1 × 2 or 2 × 1"
    if plan.whole_sectors and (
        T.transposed or not T.aligned_rows or T.grouped or T.problem.sparse or T.problem.promote
        or plan.direct or plan.split * plan.groups > 1 or T.bn <= T.overlap
    ):  # fmt: skip
        return (
            "whole_sectors=True is for dense products whose K is not split, without scales of blocks, and "
            "whose kernel stores rows (swap=False, if rows of the result are contiguous) that begin and end "
            "at multiples of 16 bytes"
        )
    columns = memory.box_columns
    if columns * T.out.bits % 128:
        return f"rows of {columns} results are not a multiple of 16 bytes"
    return ""


def fitted(problem: Problem, plan: Plan) -> Plan | None:
    """Return a plan with as many of its stages as shared memory holds; None if there is no such kernel.

    Results leave through two buffers at least. Those that threads store one by one, and those of sums that
    were promoted, leave all at once, if three stages are left then, and never in rows of less than 128 bytes.
    Results of 16 bits of experts with the widest tiles leave as they can: on an H200 a fourth stage makes
    products with tiles of 128 × 256 1.02 times as fast (benchmarks/results/h200_group_stages.json).
    """
    seen = oriented(problem, plan)
    most: Plan | None = None
    stage_bytes = (plan.tile[0] + plan.tile[1]) * plan.tile[2] * element_bytes(problem) * planes_of(problem)
    stage_bytes -= plan.a_in_registers * (planes_of(problem) > 1) * plan.tile[0] * LINE
    for stages in range(min(plan.stages, MOST_SHARED // stage_bytes), 1, -1):
        tried = replace(plan, stages=stages)
        try:
            traits = traits_of(seen, tried)
            require_possible(traits)
        except LanewiseError:
            continue
        memory = SharedMemory(traits)
        if memory.stages_rows and memory.box_columns < min(traits.store_columns, LINE * 8 // traits.out.bits):
            continue
        enough = memory.buffers >= min(2, memory.subtiles) and not traits.promotes
        at_once = traits.store is Store.REGISTERS or plan.gather or memory.holds_all_results
        widest_of_experts = traits.grouped and traits.bn == WIDEST and traits.out.bits == 16
        if at_once or widest_of_experts or (traits.store is Store.TMA and enough):
            return tried
        most = most or tried
        if stages <= _LEAST_STAGES:
            break
    return most
