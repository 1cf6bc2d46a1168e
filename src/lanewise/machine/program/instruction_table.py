"""Every instruction of PTX that the machine runs or refuses, with one record for each.

`instruction_record.py` explains the fields; docs/architecture.md shows how an instruction is added. For the
catalogue of matrix instructions, `isa/table.py` is the like.
"""

import re
from functools import lru_cache
from typing import Any, NamedTuple

from lanewise.machine.program.instruction_record import (
    AccessKind,
    AddressFlow,
    BitFlow,
    BlockEnd,
    CodeLength,
    Fusion,
    InstructionRecord,
    Level,
    MemoryAccess,
    Order,
    Proxy,
    Role,
    Size,
    Waits,
)

READ, WRITE, ATOMIC = AccessKind.READ, AccessKind.WRITE, AccessKind.ATOMIC
SUM, COPY, NUMBER = AddressFlow.SUM, AddressFlow.COPY, AddressFlow.MEMORY
#: The most operands of an instruction that takes any number.
MANY = 1 << 16
SMALL_FLOATS, LONG = CodeLength.LONG_FOR_SMALL_FLOATS, CodeLength.LONG


def records(
    patterns: str, level: Level, operands: str, types: str = "", **facts: Any
) -> tuple[InstructionRecord, ...]:
    """Return one record for each of several patterns that are alike.

    `operands` are their roles in order; a question mark marks one that may be missing, a star a last one that
    may be repeated.
    """
    words = operands.split()
    roles = tuple(Role(word.rstrip("?*")) for word in words)
    least = sum(not word.endswith(("?", "*")) for word in words)
    most = MANY if operands.endswith("*") else len(words)
    return tuple(
        InstructionRecord(pattern, level, roles, frozenset(types.split()), least, most, **facts)
        for pattern in patterns.split()
    )


def lane(
    patterns: str, sources: int, lowering: str, *, most: int = 0, **facts: Any
) -> tuple[InstructionRecord, ...]:
    """Return records of instructions of each lane alone: a result, `sources` operands, or up to `most`."""
    operands = " ".join(["def", *["use"] * sources, *["use?"] * (most - sources)])
    return records(patterns, Level.LANE, operands, lowering=f"arithmetic.{lowering}", **facts)


def warp(patterns: str, operands: str, lowering: str = "", **facts: Any) -> tuple[InstructionRecord, ...]:
    """Return records of instructions that a warp executes together."""
    return records(patterns, Level.WARP, operands, lowering=lowering, **facts)


def block(patterns: str, operands: str, lowering: str = "", **facts: Any) -> tuple[InstructionRecord, ...]:
    """Return records of instructions that a thread block executes together."""
    return records(patterns, Level.BLOCK, operands, lowering=lowering, **facts)


def refused(patterns: str, why: str, level: Level = Level.WARP) -> tuple[InstructionRecord, ...]:
    """Return records of instructions that the machine cannot run; the reason is given before a launch."""
    return records(patterns, level, "use*", refused=why)


def typed(kind: AccessKind, operand: int, data: int, **facts: Any) -> tuple[MemoryAccess, ...]:
    """Return an access of as many bytes as the instruction's type and its data operand have."""
    return (MemoryAccess(kind, operand, Size.TYPE, data, **facts),)


def mbarrier(operand: int, kind: AccessKind = WRITE) -> tuple[MemoryAccess, ...]:
    """Return the access to an mbarrier: an arrival publishes earlier writes, a wait acquires them."""
    publishes = kind is WRITE
    return (
        MemoryAccess(kind, operand, Size.MBARRIER, strong=True, releases=publishes, acquires=not publishes),
    )


#: Types of instructions, as PTX writes them.
WORDS, LONG_WORDS = "b16 b32 b64", "b32 b64"
SIGNED, UNSIGNED = "s16 s32 s64", "u16 u32 u64"
INTEGERS, INTEGERS_32 = f"{SIGNED} {UNSIGNED}", "s32 u32"
FLOATS, HALVES = "f32 f64", "f16 f16x2 bf16 bf16x2"
NUMBERS = f"{INTEGERS} {FLOATS}"

#: Pseudo-instructions after a wait: they take the result of bar.red, and those of a device function.
BARRIER_RESULT, CALL_RESULTS = "(bar_red_result)", "(call_results)"

ARITHMETIC = (
    *lane(
        "add", 2, "floating:add", types=f"{NUMBERS} {HALVES} u16x2 s16x2 f32x2", mixes_types=True,
        needs_values=True, address_flow=SUM, length=SMALL_FLOATS, fusion=Fusion.SUM,
    ),
    *lane(
        "sub", 2, "floating:add", types=f"{NUMBERS} {HALVES} u16x2 s16x2 f32x2", mixes_types=True,
        needs_values=True, address_flow=AddressFlow.DIFFERENCE, length=SMALL_FLOATS, fusion=Fusion.SUM,
    ),
    *lane(
        "mul", 2, "floating:multiply", types=f"{NUMBERS} {HALVES} f32x2", needs_values=True,
        address_flow=AddressFlow.PRODUCT, length=SMALL_FLOATS, fusion=Fusion.PRODUCT,
    ),
    *lane(
        "fma", 3, "floating:fma", types=f"{FLOATS} {HALVES} f32x2", mixes_types=True, needs_values=True,
        length=SMALL_FLOATS,
    ),
    *lane(
        "fma.oob", 3, "floating:fma_out_of_bounds", types=HALVES, needs_values=True, length=SMALL_FLOATS,
        since=90,
    ),
    *lane(
        "div", 2, "floating:divide", types=NUMBERS, needs_values=True, length=CodeLength.LONG_BUT_FOR_FLOATS
    ),
    *lane("div.full", 2, "floating:divide", types="f32", needs_values=True, approximate=True),
    *lane("mad", 3, "floating:mad", types=NUMBERS, needs_values=True, address_flow=AddressFlow.MULTIPLY_ADD),
    *lane("madc", 3, "integer:mad", types=INTEGERS, needs_values=True),
    *lane("addc subc", 2, "integer:addc", types=INTEGERS, needs_values=True),
    *lane("mul24", 2, "integer:mul24", types=INTEGERS_32, needs_values=True),
    *lane("mad24", 3, "integer:mul24", types=INTEGERS_32, needs_values=True),
    *lane("sad", 3, "integer:sad", types=INTEGERS, needs_values=True),
    *lane("rem", 2, "integer:divide", types=INTEGERS, needs_values=True, length=LONG),
    *lane("popc clz", 1, "integer:count", types=LONG_WORDS, needs_values=True),
    *lane("brev", 1, "integer:count", types=LONG_WORDS),
    *lane("bfind", 1, "integer:bfind", types="s32 s64 u32 u64"),
    *lane("dp4a dp2a", 3, "integer:dot", types=INTEGERS_32, mixes_types=True, length=LONG),
    *lane(
        "min max", 2, "float_bits:min_max", types=f"{NUMBERS} {HALVES} u16x2 s16x2", most=3,
        needs_values=True, length=SMALL_FLOATS,
    ),
    *lane("abs", 1, "float_bits:sign", types=f"{SIGNED} {FLOATS} {HALVES}", needs_values=True),
    *lane(
        "neg", 1, "float_bits:sign", types=f"{SIGNED} {FLOATS} {HALVES}", needs_values=True,
        fusion=Fusion.PASSES,
    ),
    *lane("copysign", 2, "float_bits:copysign", types=FLOATS),
    *lane("testp", 1, "float_bits:test", types=FLOATS),
    *lane("sqrt rcp", 1, "approximate:root", types=FLOATS, needs_values=True),
    *lane("rsqrt", 1, "approximate:inverse_root", types=FLOATS, needs_values=True),
    *lane(
        "ex2 tanh", 1, "approximate:approximate", types=f"f32 {HALVES}", needs_values=True, approximate=True,
        length=LONG,
    ),
    *lane(
        "lg2 sin cos", 1, "approximate:approximate", types="f32", needs_values=True, approximate=True,
        length=LONG,
    ),
    *lane("setp", 2, "compare:setp", types=f"{WORDS} {NUMBERS} {HALVES}", most=3),
    *lane("setp.and", 2, "compare:setp", types=f"{WORDS} {NUMBERS} {HALVES}", most=3, decided_by=False),
    *lane("setp.or", 2, "compare:setp", types=f"{WORDS} {NUMBERS} {HALVES}", most=3, decided_by=True),
    *lane(
        "set", 2, "compare:set_", types=f"{WORDS} {NUMBERS} {HALVES}", mixes_types=True, most=3,
        needs_values=True,
    ),
    *lane("selp", 3, "compare:selp", types=f"{WORDS} {NUMBERS}", chooses=True, bit_flow=BitFlow.BITWISE),
    *lane("slct", 3, "compare:slct", types=f"{WORDS} {NUMBERS}", mixes_types=True),
    *lane(
        "cvt", 1, "convert:convert", most=3, address_flow=AddressFlow.CONVERSION, length=SMALL_FLOATS,
        bit_flow=BitFlow.CONVERSION,
    ),
    *lane(
        "cvt.rs", 1, "convert:convert", most=3, length=SMALL_FLOATS,
        inferred="which random bits belong to which number is inferred", since=100),
    *lane("vadd vsub vabsdiff vmin vmax", 2, "video:simple", most=3),
    *lane("vshl vshr", 2, "video:shift", most=3),
    *lane("vset", 2, "video:compare", most=3),
    *lane("vmad", 3, "video:multiply_add"),
    *lane(
        " ".join(
            f"{name}{count}"
            for name in ("vadd", "vsub", "vabsdiff", "vmin", "vmax", "vavrg", "vset")
            for count in (2, 4)
        ),
        3,
        "video:parallel",
    ),
)  # fmt: skip

BITS = (
    *lane(
        "and", 2, "bits:logic", types=f"pred {WORDS}", address_flow=AddressFlow.MASK, bit_flow=BitFlow.MASK,
        decided_by=False,
    ),
    *lane(
        "or", 2, "bits:logic", types=f"pred {WORDS}", address_flow=SUM, bit_flow=BitFlow.BITWISE,
        decided_by=True,
    ),
    *lane(
        "xor", 2, "bits:logic", types=f"pred {WORDS}", address_flow=SUM, bit_flow=BitFlow.BITWISE,
        cancels_equal_sources=True,
    ),
    *lane("not", 1, "bits:logic", types=f"pred {WORDS}", bit_flow=BitFlow.BITWISE),
    *lane("cnot", 1, "bits:logic", types=WORDS),
    *lane("lop3", 4, "bits:lop3", types="b32", most=5, bit_flow=BitFlow.BITWISE),
    *lane(
        "shl", 2, "bits:shift", types=WORDS, address_flow=AddressFlow.SHIFT_LEFT, bit_flow=BitFlow.SHIFT_LEFT
    ),
    *lane(
        "shr", 2, "bits:shift", types=f"{WORDS} {INTEGERS}", address_flow=AddressFlow.SHIFT_RIGHT,
        bit_flow=BitFlow.SHIFT_RIGHT,
    ),
    *lane("shf", 3, "bits:funnel", types="b32", bit_flow=BitFlow.FUNNEL),
    *lane(
        "bfe", 3, "bits:extract", types="s32 s64 u32 u64", length=LONG, address_flow=AddressFlow.BIT_FIELD,
        bit_flow=BitFlow.EXTRACT,
    ),
    *lane("bfi", 4, "bits:insert", types=LONG_WORDS, length=LONG, bit_flow=BitFlow.INSERT),
    *lane("bmsk", 2, "bits:mask", types="b32"),
    *lane("szext", 2, "bits:extend", types=INTEGERS_32),
    *lane("prmt", 3, "bits:permute", types="b32", length=LONG, bit_flow=BitFlow.PERMUTE),
    *lane("fns", 3, "bits:find_nth", types="b32", length=LONG),
    *lane("mov", 1, "bits:move", address_flow=COPY, fusion=Fusion.PASSES, bit_flow=BitFlow.MOVE),
    *lane("isspacep", 1, "bits:is_space"),
    *lane("cvta", 1, "bits:convert_address", types="u32 u64", address_flow=COPY),
    *lane("createpolicy", 0, "bits:nothing_known", most=3, since=80),
    *records(
        "createpolicy.range",
        Level.LANE,
        "def address use use",
        lowering="arithmetic.bits:nothing_known",
        since=80,
    ),
)  # fmt: skip

MEMORY = (
    *warp(
        "ld ldu", "def address use?", "warp_ops.load_store:lower", shared_step="warp_ops.load_store:step",
        memory=typed(READ, 1, 0), counter="ld", address_flow=AddressFlow.MEMORY,
    ),
    *warp(
        "st", "address use use?", "warp_ops.load_store:lower", shared_step="warp_ops.load_store:step",
        memory=typed(WRITE, 0, 1), counter="st", needs_values=True,
    ),
    *warp(
        "atom", "def address use use? use?", "warp_ops.atomics:lower", counter="atom", needs_values=True,
        memory=typed(ATOMIC, 1, 2, strong=True), address_flow=AddressFlow.MEMORY,
    ),
    *warp(
        "red", "address use use?", "warp_ops.atomics:lower", memory=typed(ATOMIC, 0, 1, strong=True),
        counter="red", needs_values=True,
    ),
    *warp("alloca", "def use use?", "warp_ops.calls:stack", takes_stack=True),
    *warp("stacksave", "def", "warp_ops.calls:stack"),
    *warp("stackrestore", "use", "warp_ops.calls:stack"),
    # Nothing is done for fences and hints, because memory is coherent here.
    *warp("membar fence", "", orders=Order.FENCE),
    *warp("membar.proxy fence.proxy", "use? use?"),
    *warp("fence.proxy.async", "", orders=Order.PROXY_FENCE, since=90),
    *warp("fence.mbarrier_init", "", orders=Order.INIT_FENCE, since=90),
    *warp("fence.proxy.tensormap::generic.acquire", "use? use?", orders=Order.MAP_FENCE, since=90),
    *warp("fence.proxy.tensormap::generic.release", "", orders=Order.MAP_RELEASE, since=90),
    *warp("prefetch prefetchu", "address"),
    *warp("discard applypriority", "address use", since=80),
    *warp("brkpt", ""),
    *warp("nanosleep pmevent", "use"),
)  # fmt: skip

ASYNCHRONOUS = (
    *warp(
        "cp.async", "address address use use? use?", "warp_ops.cp_async:lower",
        shared_step="warp_ops.cp_async:step",
        memory=(
            MemoryAccess(WRITE, 0, Size.OPERAND, 2, space="shared", asynchronous=True),
            MemoryAccess(READ, 1, Size.OPERAND, 2, space="global", shortened_by=3, asynchronous=True),
        ),
        counter="ldgsts", since=80),
    *warp(
        "cp.async.commit_group", "", shared_step="warp_ops.cp_async:commit_step", orders=Order.COMMIT,
        since=80),
    *warp(
        "cp.async.wait_group", "use", shared_step="warp_ops.cp_async:wait_step", orders=Order.WAIT_GROUP,
        since=80),
    *warp(
        "cp.async.wait_all", "", shared_step="warp_ops.cp_async:wait_step", orders=Order.WAIT_ALL, since=80),
    *warp(
        "cp.async.mbarrier", "address", "warp_ops.mbarrier:arrive_copies", memory=mbarrier(0), counter="ld",
        orders=Order.TRACK, since=80),
    *warp(
        "mbarrier.init mbarrier.inval", "address use?", "warp_ops.mbarrier:lower", counter="ld", since=80,
        memory=(MemoryAccess(WRITE, 0, Size.MBARRIER),),
    ),
    *warp(
        "mbarrier.arrive mbarrier.arrive_drop", "def address use?", "warp_ops.mbarrier:lower",
        memory=mbarrier(1), counter="ld", since=80),
    *warp(
        "mbarrier.expect_tx mbarrier.complete_tx", "address use", "warp_ops.mbarrier:lower",
        memory=mbarrier(0), counter="ld", since=90),
    *warp(
        "mbarrier.test_wait", "def address use use?", "warp_ops.mbarrier:test_wait",
        memory=mbarrier(1, READ), counter="ld", waits=Waits.PHASE, since=80,
    ),
    *warp(
        "mbarrier.try_wait", "def address use use?", "warp_ops.mbarrier:test_wait",
        memory=mbarrier(1, READ), counter="ld", waits=Waits.PHASE, since=90,
    ),
    *warp("mbarrier.pending_count", "def use", "warp_ops.mbarrier:pending_count", since=80),
)  # fmt: skip

# Bulk copies, tensor copies (TMA), asynchronous stores and changes of tensor maps: their bytes are known only
# when they run, and the asynchronous proxy accesses the memory.

#: The modifier of copies whose bytes an mbarrier counts.
_COUNTED = "mbarrier::complete_tx::bytes"


def _copy(kind: AccessKind, operand: int, space: str, **facts: Any) -> MemoryAccess:
    """Return an access of a bulk copy, whose bytes are known only when it runs."""
    facts.setdefault("size", Size.RUN_TIME)
    return MemoryAccess(kind, operand, space=space, asynchronous=True, proxy=Proxy.ASYNC, **facts)


def _counted(operand: int) -> MemoryAccess:
    """Return the access to the mbarrier that counts the bytes of a copy."""
    return _copy(WRITE, operand, "shared", size=Size.MBARRIER, strong=True)


def _bulk(pattern: str, target: str, source: str, write: AccessKind = WRITE) -> tuple[InstructionRecord, ...]:
    """Return the record of a bulk copy or reduction: [target], [source], size, an mbarrier if it has one."""
    memory = (_copy(write, 0, target), _copy(READ, 1, source))
    if _COUNTED in pattern:
        return warp(
            pattern, "address address use address use? use?", "bulk_copies.bulk_copy:lower",
            memory=(*memory, _counted(3)), counter="tma", since=90,
        )  # fmt: skip
    return warp(
        pattern, "address address use use? use?", "bulk_copies.bulk_copy:lower", memory=memory, counter="tma",
        since=90,
    )  # fmt: skip


#: What of im2col::w is not confirmed.
_HALO = "which pixels the halo of im2col::w has is inferred from the text of the PTX ISA"


def _tensor_load(pattern: str, **facts: Any) -> tuple[InstructionRecord, ...]:
    """Return the record of a tensor copy to shared memory: [target], [map, coordinates], [mbarrier]."""
    return warp(
        pattern, "address tensor address use? use? use?", "bulk_copies.tensor_copy:lower_load",
        memory=(_copy(WRITE, 0, "shared"), _copy(READ, 1, "global"), _counted(2)), counter="tma",
        **{"since": 90, **facts},
    )  # fmt: skip


def _tensor_store(pattern: str, write: AccessKind) -> tuple[InstructionRecord, ...]:
    """Return the record of a tensor copy from shared memory: [map, coordinates], [source]."""
    return warp(
        pattern, "tensor address use?", "bulk_copies.tensor_copy:lower_store",
        memory=(_copy(write, 0, "global"), _copy(READ, 1, "shared")), counter="tma", since=90,
    )  # fmt: skip


BULK = (
    *_bulk(f"cp.async.bulk.global.{_COUNTED}", "shared", "global"),
    *_bulk(f"cp.async.bulk.shared::cta.shared::cluster.{_COUNTED}", "shared", "shared"),
    *_bulk("cp.async.bulk.bulk_group", "global", "shared"),
    *_bulk(f"cp.reduce.async.bulk.{_COUNTED}", "shared", "shared", ATOMIC),
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
    *_tensor_load(f"cp.async.bulk.tensor.global.{_COUNTED}"),
    *_tensor_load(f"cp.async.bulk.tensor.global.{_COUNTED}.im2col::w", inferred=_HALO, since=100),
    *_tensor_load(f"cp.async.bulk.tensor.global.{_COUNTED}.im2col::w::128", inferred=_HALO, since=100),
    *_tensor_store("cp.async.bulk.tensor.global.bulk_group", WRITE),
    *_tensor_store("cp.reduce.async.bulk.tensor.global.bulk_group", ATOMIC),
    *warp(
        f"st.async.{_COUNTED}", "address use address", "bulk_copies.bulk_copy:lower_store",
        types="b32 b64 u32 u64 s32 s64 f32 f64", counter="tma", since=90,
        memory=(_copy(WRITE, 0, "shared", size=Size.TYPE, data=1), _counted(2))),
    *warp(
        f"red.async.{_COUNTED}", "address use address", "bulk_copies.bulk_copy:lower_store",
        types="b32 b64 u32 s32 u64 s64", counter="tma", since=90,
        memory=(_copy(ATOMIC, 0, "shared", size=Size.TYPE, data=1, strong=True), _counted(2))),
    *warp(
        "tensormap.replace", "address use use?", "bulk_copies.tensor_map:replace", counter="st",
        memory=(MemoryAccess(WRITE, 0, Size.TENSOR_MAP),), since=90),
    *warp(
        "tensormap.cp_fenceproxy", "address address use", "bulk_copies.tensor_map:copy", counter="st",
        memory=(
            MemoryAccess(WRITE, 0, Size.TENSOR_MAP, space="global", by_one_lane=True),
            MemoryAccess(READ, 1, Size.RUN_TIME, space="shared"),
        ),
        orders=Order.MAP_COPY, since=90),
    *warp(
        "st.bulk", "address use use", "bulk_copies.bulk_copy:zero", counter="st", since=100,
        memory=(MemoryAccess(WRITE, 0, Size.ANY_OPERAND, 1, space="shared"),)),
    *warp(
        "st.async", "address use", "bulk_copies.bulk_copy:lower_store", counter="st", since=100,
        types="b8 u8 s8 b16 u16 s16 b32 u32 s32 f32 b64 u64 s64 f64",
        memory=(_copy(WRITE, 0, "", size=Size.TYPE, data=1, strong=True),)),
    *warp(
        "red.async", "address use", "bulk_copies.bulk_copy:lower_store", counter="red", since=90,
        types="b32 u32 s32 u64 s64", memory=(_copy(ATOMIC, 0, "", size=Size.TYPE, data=1, strong=True),)),
)  # fmt: skip

MATRICES = (
    *warp(
        "mma", "def use use use use*", "tensor_core.mma:lower", shared_step="tensor_core.mma:step",
        waits=Waits.WARP, multiplies=True,
    ),
    *warp(
        "wmma.mma", "def use use use", "tensor_core.mma:lower", shared_step="tensor_core.mma:step",
        waits=Waits.WARP, multiplies=True,
    ),
    *warp(
        "wmma.load", "def address use?", "warp_ops.wmma_tiles:lower", waits=Waits.WARP, counter="ld",
        memory=(MemoryAccess(READ, 1, Size.TILE_LINE),),
    ),
    *warp(
        "wmma.store", "address use use?", "warp_ops.wmma_tiles:lower", waits=Waits.WARP, counter="st",
        memory=(MemoryAccess(WRITE, 0, Size.TILE_LINE),),
    ),
    *warp(
        "ldmatrix", "def address", shared_step="warp_ops.ldmatrix:step", waits=Waits.WARP, counter="ldsm",
        memory=(MemoryAccess(READ, 1, Size.MATRIX_ROW),),
    ),
    *warp(
        "stmatrix", "address use", shared_step="warp_ops.ldmatrix:step", waits=Waits.WARP, counter="stsm",
        memory=(MemoryAccess(WRITE, 0, Size.MATRIX_ROW, data=1),), since=90),
    *warp("movmatrix", "def use", "warp_ops.ldmatrix:transpose", waits=Waits.WARP),
)  # fmt: skip

_BLEND = "the bits of blended texels are an H200's, and inferred for other GPUs"


# Four neighbouring warps execute wgmma together.


def _warpgroup(patterns: str, operands: str, **facts: Any) -> tuple[InstructionRecord, ...]:
    return records(patterns, Level.WARPGROUP, operands, since=90, **facts)


def _operand(number: int) -> MemoryAccess:
    """Return the access to a matrix in shared memory that a descriptor names."""
    return MemoryAccess(READ, number, Size.DESCRIPTOR, space="shared", asynchronous=True, proxy=Proxy.ASYNC)


WARPGROUP = (
    *_warpgroup(
        "wgmma.mma_async", "def descriptor descriptor use use*", shared_step="tensor_core.wgmma:step",
        waits=Waits.WARPGROUP, multiplies=True, counter="wgmma", memory=(_operand(1), _operand(2)),
    ),
    *_warpgroup("wgmma.fence", "", orders=Order.WARPGROUP_FENCE),
    *_warpgroup("wgmma.commit_group", "", orders=Order.WARPGROUP_COMMIT),
    *_warpgroup("wgmma.wait_group", "use", orders=Order.WARPGROUP_WAIT),
)  # fmt: skip

# Tensor memory: tcgen05.


def _tensor(patterns: str, operands: str, lowering: str = "", **facts: Any) -> tuple[InstructionRecord, ...]:
    return warp(patterns, operands, lowering, touches_tensor_memory=True, since=100, **facts)


_B200 = "what a B200 computes for tcgen05.mma is from published models, or inferred"


def _product(pattern: str, operands: str) -> tuple[InstructionRecord, ...]:
    facts = {"multiplies": True, "inferred": _B200, "memory": (_operand(2),), "counter": "utcmma"}
    return _tensor(pattern, operands, "tensor_core.tcgen05:lower", **facts)


TENSOR_MEMORY = (
    *_tensor(
        "tcgen05.alloc", "address use", "tensor_memory.allocation:lower", waits=Waits.COLUMNS, counter="st",
        memory=(MemoryAccess(WRITE, 0, Size.TENSOR_MEMORY_ADDRESS),),
    ),
    *_tensor(
        "tcgen05.dealloc", "use use", shared_step="tensor_memory.allocation:dealloc_step", waits=Waits.WARP,
    ),
    *_tensor(
        "tcgen05.relinquish_alloc_permit", "", shared_step="tensor_memory.allocation:relinquish_step",
        waits=Waits.WARP,
    ),
    *_tensor(
        "tcgen05.ld", "def tmem use?", shared_step="tensor_memory.loads_and_stores:step", waits=Waits.WARP),
    *_tensor(
        "tcgen05.ld.red", "def def tmem use?", shared_step="tensor_memory.loads_and_stores:step",
        waits=Waits.WARP),
    *_tensor(
        "tcgen05.ld.red.16x32bx2", "def def tmem use", shared_step="tensor_memory.loads_and_stores:step",
        waits=Waits.WARP, inferred="that each thread reduces its own half of a lane is inferred"),
    *_tensor(
        "tcgen05.st", "tmem use use?", shared_step="tensor_memory.loads_and_stores:step", waits=Waits.WARP,
        needs_values=True),
    *_tensor(
        "tcgen05.st.unpack::16b", "tmem use use?", shared_step="tensor_memory.loads_and_stores:step",
        waits=Waits.WARP, needs_values=True,
        inferred="that the upper half of each column becomes 0 is inferred"),
    *_tensor(
        "tcgen05.wait::ld", "", shared_step="tensor_memory.loads_and_stores:load_wait_step",
        waits=Waits.WARP),
    *_tensor(
        "tcgen05.wait::st", "", shared_step="tensor_memory.loads_and_stores:wait_step", waits=Waits.WARP),
    *_product("tcgen05.mma", "tmem matrix descriptor use use use*"),
    *_product("tcgen05.mma.sp", "tmem matrix descriptor tmem use use use*"),
    *_product("tcgen05.mma.block_scale", "tmem matrix descriptor use tmem tmem use"),
    *_product("tcgen05.mma.sp.block_scale", "tmem matrix descriptor tmem use tmem tmem use"),
    *_tensor(
        "tcgen05.cp", "tmem descriptor", "tensor_memory.copies:lower", memory=(_operand(1),),
        counter="utccp"),
    *_tensor(
        "tcgen05.shift", "tmem", "tensor_memory.copies:lower_shift",
        inferred="that each lane takes the words of the next one is inferred"),
    *_tensor(
        "tcgen05.commit", "address use?", "tensor_memory.commit:lower", counter="st",
        memory=(_copy(WRITE, 0, "shared", size=Size.MBARRIER, strong=True, releases=True),)),
    # The order that fences make is that of the machine anyway.
    *_tensor("tcgen05.fence::before_thread_sync tcgen05.fence::after_thread_sync", ""),
)  # fmt: skip


def _blended(pattern: str, operands: str) -> tuple[InstructionRecord, ...]:
    facts = {"needs_values": True, "address_flow": NUMBER, "inferred": _BLEND, "confirmed_on": "sm_90"}
    return warp(pattern, operands, "textures.fetch:lower", **facts)


TEXTURES = (
    *_blended("tex", "def handle"),
    *_blended("tex.level", "def handle use"),
    *_blended("tex.grad", "def handle use use"),
    *warp("tld4", "def handle", "textures.fetch:lower", needs_values=True, address_flow=NUMBER),
    *warp("txq suq", "def handle", "textures.objects:query", address_flow=NUMBER),
    *warp("suld", "def handle", "textures.surfaces:lower", needs_values=True, address_flow=NUMBER),
    *warp("sust sured", "handle use", "textures.surfaces:lower", needs_values=True, writes_surface=True),
)  # fmt: skip

EXCHANGE = (
    *warp(
        "shfl.sync",
        "def use use use members",
        "warp_ops.exchange:shuffle",
        waits=Waits.MEMBERS,
        shuffles=True,
    ),
    *warp("vote.sync", "def use members", "warp_ops.exchange:vote", waits=Waits.MEMBERS),
    *warp("match.sync", "def use members", "warp_ops.exchange:match", types="b32 b64", waits=Waits.MEMBERS),
    *warp(
        "redux.sync",
        "def use members",
        "warp_ops.exchange:reduce",
        types="u32 s32 b32 f32",
        waits=Waits.MEMBERS,
        since=80,
    ),
    *warp("elect.sync", "def members", "warp_ops.exchange:elect", waits=Waits.MEMBERS, since=90),
    *warp("activemask", "def", "warp_ops.exchange:activemask"),
    *block("bar barrier.aligned", "barrier? use?", waits=Waits.BARRIER, whole_warps=True),
    *block("barrier", "barrier? use?", waits=Waits.BARRIER),
    *block("bar.red barrier.red.aligned", "def barrier use use?", waits=Waits.BARRIER, whole_warps=True),
    *block("barrier.red", "def barrier use use?", waits=Waits.BARRIER),
    *warp("bar.warp", "members", waits=Waits.MEMBERS),
    *block(BARRIER_RESULT, "def barrier use use?", "warp_ops.exchange:barrier_result", second_half=True),
)

CONTROL = (
    *warp("bra", "label", ends=BlockEnd.JUMP),
    *warp("brx", "use label", ends=BlockEnd.SWITCH),
    *warp("ret", "", ends=BlockEnd.RETURN),
    *warp("exit", "", ends=BlockEnd.EXIT),
    *warp("trap", "", ends=BlockEnd.TRAP),
    *warp("call", "def callee use", ends=BlockEnd.CALL, address_flow=AddressFlow.MEMORY),
    *warp(CALL_RESULTS, "def callee use", "warp_ops.calls:results", second_half=True),
)

_REFERENCES = "it asks what kind of reference a handle is, and CUDA 12 removed texture and surface references"
_WITHDRAWN = "without .sync it is withdrawn since PTX 6.4"

#: Clusters, and what prepares a kernel's warps and launches on Hopper.
CLUSTERS = (
    *lane("mapa", 2, "bits:map_address", types="u32 u64 s32 s64", since=90, address_flow=AddressFlow.SUM),
    *lane("getctarank", 1, "bits:cluster_rank", types="u32 u64 s32 s64", since=90),
    # The order is that of a release and an acquire unless .relaxed says otherwise.
    *records(
        "barrier.cluster.arrive", Level.CLUSTER, "", lowering="warp_ops.exchange:arrive", since=90,
        orders=Order.CLUSTER_ARRIVAL,
    ),
    *records("barrier.cluster.wait", Level.CLUSTER, "", waits=Waits.CLUSTER, since=90),
    *warp(
        "setmaxnreg", "use", "warp_ops.exchange:set_registers", orders=Order.REGISTERS, since=90,
    ),
    # Kernels of one stream run one after the other here, so that there is nothing to wait for.
    *warp("griddepcontrol", "", since=90),
    *warp(
        "clusterlaunchcontrol.try_cancel", "address address", "bulk_copies.launch_control:try_cancel",
        memory=(_copy(WRITE, 0, "shared"), _counted(1)), counter="tma", takes_over_clusters=True, since=100),
    *records(
        "clusterlaunchcontrol.query_cancel", Level.LANE, "def use",
        lowering="bulk_copies.launch_control:query_cancel", decodes_answer=True, since=100),
)  # fmt: skip

REFUSED = (
    *refused("multimem", "there is one device, and no multicast memory"),
    *refused("istypep", _REFERENCES),
    *refused("shfl vote", _WITHDRAWN),
)

#: Of patterns that are equally long the first that matches counts.
TABLE = (
    *REFUSED, *ARITHMETIC, *BITS, *MEMORY, *ASYNCHRONOUS, *BULK, *MATRICES, *TEXTURES, *EXCHANGE, *CONTROL,
    *WARPGROUP,
    *TENSOR_MEMORY,
    *CLUSTERS,
)  # fmt: skip


def _by_opcode() -> dict[str, list[InstructionRecord]]:
    """Return the records of each opcode, those of longer patterns first."""
    records: dict[str, list[InstructionRecord]] = {}
    for record in sorted(TABLE, key=lambda record: -len(record.modifiers)):
        same = records.setdefault(record.opcode, [])
        assert all(other.modifiers != record.modifiers for other in same), f"{record.pattern} stands twice"
        same.append(record)
    return records


_BY_OPCODE = _by_opcode()
#: Rows that the checker's table has for an instruction: one for what it orders, one for each access whose
#: size is known, and that is not by the asynchronous proxy.
MOST_ROWS = max(
    (record.orders is not Order.NOTHING)
    + sum(access.proxy is not Proxy.ASYNC and access.size is not Size.RUN_TIME for access in record.memory)
    for record in TABLE
)


@lru_cache(maxsize=1 << 14)
def record_of(opcode: str, modifiers: tuple[str, ...]) -> InstructionRecord | None:
    """Return the record with the longest pattern that matches; None if there is none.

    >>> record_of("cp", ("async", "wait_group")).orders
    <Order.WAIT_GROUP: 4>
    >>> record_of("multimem", ("red",)).refused
    'there is one device, and no multicast memory'
    """
    present = set(modifiers)
    return next((record for record in _BY_OPCODE.get(opcode, ()) if record.modifiers <= present), None)


def refused_instructions() -> dict[str, str]:
    """Return the patterns of all instructions that the machine cannot run, with the reasons."""
    return {record.pattern: record.refused for record in TABLE if record.refused}


# Forms that only some GPUs from Blackwell on have, though earlier GPUs have others of them. What an opcode as
# a whole needs stands in its record (`since`). Held against ptxas 13.0 for every target.


class Targets(NamedTuple):
    """Targets of PTX: those with numbers from `least` on, below `limit`, with one of some suffixes."""

    least: int
    limit: int
    #: Suffixes that are allowed; "" allows every target, with or without one.
    suffixes: str
    #: The targets in words, for messages.
    words: str

    def has(self, target: str) -> bool:
        """Return whether a target such as "sm_100a" is one of them."""
        match = re.fullmatch(r"sm_(\d+)([af]?)", target)
        if match is None or not self.least <= int(match[1]) < self.limit:
            return False
        return not self.suffixes or (bool(match[2]) and match[2] in self.suffixes)


BLACKWELL = Targets(100, 1000, "", "sm_100")
FAMILIES = Targets(100, 1000, "af", "a target with the suffix a or f, from sm_100a on")
DATACENTER = Targets(100, 120, "af", "sm_100a, sm_103a or sm_110a, or the same with f")
FAMILY_100 = Targets(100, 110, "af", "sm_100a or sm_103a, or the same with f")
ARCH_100 = Targets(100, 110, "a", "sm_100a or sm_103a")


class LaterForm(NamedTuple):
    """Forms by their opcodes, by modifiers that all must be there, and by the least number of operands."""

    opcodes: str
    modifiers: str
    targets: Targets
    operands: int = 0

    def has(self, modifiers: frozenset[str], operands: int) -> bool:
        """Return whether an instruction with one of the opcodes is of these forms."""
        return modifiers.issuperset(self.modifiers.split()) and operands >= self.operands


#: Of several that fit an instruction each counts.
LATER_FORMS = (
    LaterForm("add sub mul fma", "f32x2", BLACKWELL),
    *(LaterForm("add sub fma", f"f32 {half}", BLACKWELL) for half in ("f16", "bf16")),
    LaterForm("min max", "f32", BLACKWELL, operands=4),
    *(LaterForm("ld st", f"v8 {word}", BLACKWELL) for word in ("b32", "u32", "s32", "f32")),
    *(LaterForm("ld st", f"v4 {word}", BLACKWELL) for word in ("b64", "u64", "s64", "f64")),
    *(LaterForm("cvt", f"{rounding} satfinite tf32", BLACKWELL) for rounding in ("rn", "rz")),
    *(LaterForm("cvt", kind, FAMILIES) for kind in ("e2m1x2", "e2m3x2", "e3m2x2", "ue8m0x2")),
    LaterForm("cvt", "rs", ARCH_100),
    LaterForm("redux", "f32", FAMILY_100),
    LaterForm("cp", "cp_mask", BLACKWELL),
    LaterForm("cp", "tile::gather4", BLACKWELL),
    LaterForm("cp", "im2col::w", BLACKWELL),
    *(
        LaterForm("cp", f"{place} {mode}", DATACENTER)
        for place in ("shared::cluster", "prefetch")
        for mode in ("tile::gather4", "im2col::w")
    ),
    *(
        LaterForm("cp", word, DATACENTER)
        for word in ("tile::scatter4", "im2col::w::128", "cta_group::1", "cta_group::2")
    ),
    *(LaterForm("red", f"async {word}", BLACKWELL) for word in ("release", "mmio")),
    LaterForm("tensormap", "swizzle_atomicity", FAMILIES),
    LaterForm("clusterlaunchcontrol", "multicast::cluster::all", FAMILIES),
)


_LATER_BY_OPCODE: dict[str, list[LaterForm]] = {}
for _form in LATER_FORMS:
    for _name in _form.opcodes.split():
        _LATER_BY_OPCODE.setdefault(_name, []).append(_form)


@lru_cache(maxsize=1 << 14)
def needed_targets(opcode: str, modifiers: tuple[str, ...], operands: int, target: str) -> str:
    """Return the targets that an instruction needs, in words, if a target is not one of them; else nothing.

    >>> needed_targets("redux", ("sync", "min", "f32"), 3, "sm_90a")
    'sm_100a or sm_103a, or the same with f'
    >>> needed_targets("redux", ("sync", "min", "f32"), 3, "sm_103a")
    ''
    """
    present = frozenset(modifiers)
    forms = (form for form in _LATER_BY_OPCODE.get(opcode, ()) if form.has(present, operands))
    return next((form.targets.words for form in forms if not form.targets.has(target)), "")
