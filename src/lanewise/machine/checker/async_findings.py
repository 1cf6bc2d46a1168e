"""Findings about asynchronous operations in words: what is not complete, not fenced, or touched in flight."""

from __future__ import annotations

from lanewise.machine import abi
from lanewise.machine.checker.access_descriptions import lanes_in_words
from lanewise.machine.checker.proxy_records import AsyncKind, BarrierUse
from lanewise.machine.checker.suspicions import Suspicion
from lanewise.machine.program.ops import Op
from lanewise.machine.runtime.fault_report import KEEP_ALIVE

#: The kind of finding that each suspicion becomes.
ASYNC_KINDS = {
    Suspicion.UNFINISHED_READ: "asynchronous copy",
    Suspicion.UNFENCED: "proxy",
    Suspicion.WEAKLY_FENCED: "proxy",
    Suspicion.READ_UNFENCED: "proxy",
    Suspicion.REGISTER_IN_FLIGHT: "wgmma",
    Suspicion.REGISTER_UNFENCED: "wgmma",
    Suspicion.NO_WGMMA_FENCE: "wgmma",
    Suspicion.EXITED_COPYING: "asynchronous copy",
    Suspicion.ENDED_COPYING: "asynchronous copy",
    Suspicion.BARRIER_OVERWRITTEN: "mbarrier",
    Suspicion.BYTES_LEFT_OVER: "mbarrier",
    Suspicion.BARRIER_UNFENCED: "mbarrier",
    Suspicion.SWIZZLE_DIFFERS: "wgmma",
    Suspicion.MAP_UNFENCED: "proxy",
    Suspicion.ARRIVALS_BEYOND_COUNT: "mbarrier",
    Suspicion.ARRIVAL_UNORDERED: "mbarrier",
    Suspicion.CLUSTER_ARRIVED_TWICE: "barrier",
    Suspicion.TARGET_MAY_EXIT: "cluster",
    Suspicion.TARGET_WEAKLY_KEPT: "cluster",
    Suspicion.REGISTERS_BY_SOME_LANES: "setmaxnreg",
    Suspicion.REGISTERS_OF_SOME_WARPS: "setmaxnreg",
    Suspicion.REGISTERS_BEYOND_POOL: "setmaxnreg",
    Suspicion.REGISTERS_NEEDLESS: "setmaxnreg",
    Suspicion.REGISTERS_UNBOUNDED: "setmaxnreg",
}
#: Suspicions about registers, whose other side is an instruction, and not an access.
OF_REGISTERS = (Suspicion.REGISTER_IN_FLIGHT, Suspicion.REGISTER_UNFENCED)
#: Suspicions about setmaxnreg; the other side of the first two is an instruction as well, if there is one.
OF_REGISTER_POOL = (
    Suspicion.REGISTERS_OF_SOME_WARPS, Suspicion.REGISTERS_BEYOND_POOL, Suspicion.REGISTERS_BY_SOME_LANES,
    Suspicion.REGISTERS_NEEDLESS, Suspicion.REGISTERS_UNBOUNDED,
)  # fmt: skip
#: Suspicions that are advice.
ADVICE = (
    Suspicion.WEAKLY_FENCED, Suspicion.READ_UNFENCED, Suspicion.BARRIER_UNFENCED,
    Suspicion.REGISTERS_NEEDLESS, Suspicion.REGISTERS_UNBOUNDED, Suspicion.TARGET_WEAKLY_KEPT,
)  # fmt: skip
#: Suspicions whose number is not an address.
NOT_OF_MEMORY = (
    *OF_REGISTERS, *OF_REGISTER_POOL, Suspicion.NO_WGMMA_FENCE, Suspicion.EXITED_COPYING,
    Suspicion.CLUSTER_ARRIVED_TWICE,
)  # fmt: skip
#: What completes an operation, and how a thread learns of it.
_COMPLETE = {
    AsyncKind.WGMMA: "a wgmma is complete after wgmma.wait_group, which the warpgroup has not executed",
    AsyncKind.BULK_GROUP: "a bulk group is complete after cp.async.bulk.wait_group in the thread that "
    "committed it, and this thread has not synchronised with that thread since",
    AsyncKind.PHASE: "the copy is complete when the phase of its mbarrier is complete, and this thread has "
    "neither waited for that phase nor synchronised with a thread that has",
}
#: What to do before memory that an operation reads is written.
_WAIT = {
    AsyncKind.WGMMA: "execute wgmma.wait_group first",
    AsyncKind.BULK_GROUP: "execute cp.async.bulk.wait_group.read first, in the thread that committed it",
    AsyncKind.PHASE: "wait for the phase of its mbarrier first",
}


def name_of(op: Op) -> str:
    """Return the name of an asynchronous instruction, without what does not matter for messages.

    The state spaces and the shape are left out: "cp.async.bulk.tensor", "wgmma.mma_async".
    """
    words = [op.opcode]
    for each in op.modifiers:
        if "::" in each or each in ("sync", "aligned", "global", "tile") or each[0].isdigit():
            break
        words.append(each)
    return ".".join(words)


def accessed(op: Op, space: str) -> str:
    """Return what an asynchronous instruction does to memory of a space, such as "shared write by …"."""
    verbs = [each.kind.value for each in op.record.memory if (each.space or "shared") == space]
    return f"{space} {verbs[0] if verbs else 'access'} by {name_of(op)}"


def unfinished(what: str, kind: AsyncKind, reads: bool) -> str:
    """Return the sentence about an operation that may not be complete."""
    if reads:
        return f"{what}: an asynchronous operation may still be reading these bytes; {_WAIT[kind]}"
    return f"{what}: an asynchronous operation may still be writing these bytes; {_COMPLETE[kind]}"


def fence_message(kind: Suspicion, what: str, line: int, other: int) -> str:
    """Return the sentence about a missing fence between the two proxies."""
    where = f"between line {other} and line {line}" if other < line else f"after line {other}"
    if kind is Suspicion.UNFENCED:
        return (
            f"{what}, through the asynchronous proxy: a plain store wrote these bytes, and is not visible to "
            f"that proxy; add fence.proxy.async {where}, in each thread that wrote, before the threads "
            "synchronise"
        )
    if kind is Suspicion.READ_UNFENCED:
        return (
            f"{what}, through the asynchronous proxy: plain loads read these bytes before, and a barrier "
            f"alone does not order the two proxies; add fence.proxy.async {where}, in each thread that read, "
            "before the threads synchronise"
        )
    return (
        f"{what}, through the asynchronous proxy: a plain store wrote these bytes, and the fence.proxy.async "
        "comes too late or in another thread; execute it in each thread that wrote, before the threads "
        "synchronise"
    )


def register_message(kind: Suspicion, name: str) -> str:
    """Return the sentence about a register of wgmma."""
    if kind is Suspicion.REGISTER_IN_FLIGHT:
        return (
            f"the register {name} belongs to a wgmma that may not be complete: execute wgmma.wait_group first"
        )
    if kind is Suspicion.REGISTER_UNFENCED:
        return f"the register {name} was written after the last wgmma.fence: add one before this wgmma"
    return "the warp has executed no wgmma.fence before its first wgmma: add one"


def exit_message(kind: Suspicion, what: str, address: int) -> str:
    """Return the sentence about an access to the memory of a block that may have exited."""
    rank = (address >> abi.RANK_SHIFT) & 0xFF
    if kind is Suspicion.TARGET_WEAKLY_KEPT:
        return (
            f"{what} in the block of rank {rank} of the cluster, which may have exited by then: the arrival "
            "at the cluster's barrier after it is relaxed, and does not wait for this access; execute "
            "barrier.cluster.arrive without .relaxed"
        )
    return (
        f"{what} in the block of rank {rank} of the cluster, which may have exited by then: none of its "
        f"threads waits for anything that comes after this access; {KEEP_ALIVE}"
    )


def pool_message(kind: Suspicion, op: Op, number: int, other: int) -> str:
    """Return the sentence about a setmaxnreg, with the numbers that its suspicion came with."""
    match kind:
        case Suspicion.REGISTERS_BY_SOME_LANES:
            return (
                f"only some lanes of the warp execute setmaxnreg, without {lanes_in_words(number)}: all "
                "threads of a warpgroup have to execute it together"
            )
        case Suspicion.REGISTERS_OF_SOME_WARPS:
            return (
                "some warps of the warpgroup execute this setmaxnreg, while others ask for another number or "
                "for none: all four warps have to execute the same ones"
            )
        case Suspicion.REGISTERS_BEYOND_POOL:
            return (
                f"the warps of the block ask for {number} registers in all, and the block began with "
                f"{other}: on a GPU setmaxnreg.inc waits for ever; let other warpgroups give up more "
                "(setmaxnreg.dec), or ask for fewer here"
            )
        case Suspicion.REGISTERS_NEEDLESS:
            verb = "inc takes" if op.has("inc") else "dec gives up"
            return (
                f"setmaxnreg.{verb} no registers: it asks for {number} for each thread, and each has {other}"
            )
    return (
        "ptxas ignores setmaxnreg here, because it cannot tell how many registers a thread begins with: give "
        "the kernel .maxnreg, or both numbers of __launch_bounds__(threads, blocks)"
    )


def barrier_message(kind: Suspicion, place: str, number: int) -> str:
    """Return the sentence about an mbarrier in shared memory."""
    match kind:
        case Suspicion.EXITED_COPYING:
            return (
                "the thread exits while its bulk copies may still be reading shared memory: "
                "execute cp.async.bulk.wait_group.read 0 first"
            )
        case Suspicion.ENDED_COPYING:
            return (
                "the block ends, and no thread has waited for this copy into shared memory (mbarrier: "
                f"{place}): wait for its phase before the end"
            )
        case Suspicion.CLUSTER_ARRIVED_TWICE:
            return (
                "the thread arrives at the barrier of the cluster a second time before all threads have "
                "arrived once: execute barrier.cluster.wait first"
            )
        case Suspicion.SWIZZLE_DIFFERS:
            return (
                f"the matrix descriptor reads {place} with another swizzle than a tensor copy wrote it with: "
                "give both the same swizzle"
            )
        case Suspicion.MAP_UNFENCED:
            return (
                "the tensor map was changed in this launch, and the thread has executed no "
                "fence.proxy.tensormap::generic.acquire since: add one"
            )
        case Suspicion.ARRIVALS_BEYOND_COUNT:
            return (
                f"the lanes of one instruction arrive at the mbarrier at {place} more often than the "
                f"{number} times that its phase still expects: initialise it with the number of arrivals, or "
                "let fewer lanes arrive"
            )
        case Suspicion.ARRIVAL_UNORDERED:
            return (
                f"a thread arrives at the mbarrier at {place} and cannot know whether the phase before is "
                f"complete: more threads arrive than the {number} that it was initialised for, or a wait is "
                "missing"
            )
        case Suspicion.BARRIER_OVERWRITTEN:
            done = "reads the words of" if number == BarrierUse.LOAD else "overwrites"
            return (
                f"this {done} the mbarrier at {place}, which was initialised and is still valid: execute "
                "mbarrier.inval before its memory is used for anything else"
            )
        case Suspicion.BARRIER_UNFENCED:
            return (
                f"a bulk copy uses the mbarrier at {place}, whose initialisation is not known to be visible "
                "to the asynchronous proxy: add fence.mbarrier_init or fence.proxy.async after mbarrier.init"
            )
    if number > 0:
        return (
            f"{number} bytes that expect_tx announced to the mbarrier at {place} have not come when the "
            "block ends"
        )
    return (
        f"{-number} bytes more came to the mbarrier at {place} than expect_tx announced: a phase may be "
        "complete too early"
    )
