"""The facts that the sentences of suspicions name: what was accessed, by whom, where, and what mends it.

A sentence of `suspicions.py` has names in braces. Each is a number that compiled code reported, a
property of `Facts`, or one of SHORT_FACTS.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

from lanewise.machine import abi
from lanewise.machine.checker import mends
from lanewise.machine.checker.access_descriptions import (
    described,
    lanes_in_words,
    shared_home,
    source_of,
)
from lanewise.machine.checker.allocations.pointer_bounds import view_name
from lanewise.machine.checker.mends import Language, Place, Race, Reach
from lanewise.machine.checker.proxy_records import AsyncKind, BarrierUse, TensorOperand
from lanewise.machine.checker.records import OBSERVED
from lanewise.machine.checker.site_table import by_async_proxy
from lanewise.machine.checker.suspicions import TENSOR_COMPLETE, Suspicion
from lanewise.machine.program.instruction_record import MemoryAccess, Proxy, Waits
from lanewise.machine.program.memory_accesses import LocatedAccess
from lanewise.machine.program.operands import Register
from lanewise.machine.program.ops import Op
from lanewise.machine.runtime.heap import heap_of
from lanewise.machine.runtime.launch import Launch
from lanewise.machine.runtime.shared_names import shared_name
from lanewise.machine.tensor_memory_records import UNIT

if TYPE_CHECKING:
    from lanewise.machine.checker.mends import ControlFlow

#: Why an operation that completes so may not be complete.
_COMPLETE = {
    AsyncKind.WGMMA: "a wgmma is complete after wgmma.wait_group, which the warpgroup has not executed",
    AsyncKind.BULK_GROUP: "a bulk group is complete after cp.async.bulk.wait_group in the thread that "
    "committed it, and this thread has not synchronised with that thread since",
    AsyncKind.PHASE: "the copy is complete when the phase of its mbarrier is complete, and this thread has "
    "neither waited for that phase nor synchronised with a thread that has",
    AsyncKind.TENSOR: TENSOR_COMPLETE,
}

_OPERANDS = {
    TensorOperand.MATRIX_A: "A",
    TensorOperand.SCALES_OF_A: "the scale factors of A",
    TensorOperand.SCALES_OF_B: "the scale factors of B",
    TensorOperand.METADATA: "the metadata of A",
}


def name_of(op: Op) -> str:
    """Return the name of an asynchronous instruction, without what does not matter for messages.

    The state spaces and the shape are left out: "cp.async.bulk.tensor", "wgmma.mma_async".
    """
    words = [op.opcode]
    for modifier in op.modifiers:
        if "::" in modifier or modifier in ("sync", "aligned", "global", "tile") or modifier[0].isdigit():
            break
        words.append(modifier)
    return ".".join(words)


@dataclass(frozen=True)
class Other:
    """The other access or instruction of a suspicion, and who executed it."""

    place: Place
    reach: Reach
    writes: bool


@dataclass(frozen=True, eq=False)
class Facts:
    """What is known of one suspicion when it is put into words."""

    kind: Suspicion
    numbers: dict[str, int]
    launch: Launch
    flow: ControlFlow
    here_place: Place
    located: LocatedAccess | None
    space: str
    allocation: str
    #: The registers that the number `register` counts, and those that the compiler has folded to a NaN.
    registers: Sequence[Register] = ()
    folded_registers: frozenset[int] = frozenset()
    other: Other | None = None
    #: How the operation completes that the access comes too early for; None for a cp.async.
    operation: AsyncKind | None = None
    alignment: int = 0
    #: Whether the bytes are in the shared memory of another block of the cluster.
    in_other_block: bool = False
    #: Masks of lanes that are elsewhere and of those that have exited, at a barrier.
    absent: int = 0
    gone: int = 0
    #: Of a register without a value: the instruction that needs it, or what was computed from it.
    needing: Place | None = None

    __iter__ = None  # names, not numbers, are its items

    def __getitem__(self, name: str) -> object:
        """Return what a name in braces stands for."""
        if name in self.numbers:
            return self.numbers[name]
        return SHORT_FACTS[name](self) if name in SHORT_FACTS else getattr(self, name)

    def message(self) -> str:
        """Return the sentence that says what is wrong."""
        return self.kind.message.format_map(self)

    def mend(self) -> str:
        """Return what mends it."""
        return self.kind.mend.format_map(self)

    def __getattr__(self, name: str) -> str:
        """Return an instruction of SPELLINGS as the kernel's language writes it."""
        if name in mends.SPELLINGS:
            return mends.spelled(name, self.language)
        raise AttributeError(name)

    @cached_property
    def language(self) -> Language:
        """The language of the line."""
        return Language.of(self.launch.compiled.module, self.here_place.source)

    @property
    def op(self) -> Op:
        """The instruction that the finding is at."""
        return self.here_place.op

    # what was accessed --------------------------------------------------------------------------------------

    @property
    def access(self) -> str:
        """What the instruction does to memory, such as "shared write of 4 bytes"."""
        if self.located is not None:
            return described(self.located, self.space)
        verbs = [access.kind.value for access in self._accesses_of_copy(self.op)]
        return f"{self.space} {verbs[0] if verbs else 'access'} by {name_of(self.op)}"

    def _accesses_of_copy(self, op: Op) -> list[MemoryAccess]:
        """Return the accesses of an asynchronous copy to the space of the finding."""
        return [access for access in op.record.memory if (access.space or "shared") == self.space]

    def _copy_writes(self, op: Op) -> bool:
        """Return whether an instruction may write to the space of the finding, if it is a bulk copy."""
        is_copy = by_async_proxy(op) and not op.record.touches_tensor_memory
        accesses = self._accesses_of_copy(op) if is_copy else []
        return not accesses or any(access.writes for access in accesses)

    @property
    def place(self) -> str:
        """The variable of shared memory at the address."""
        return shared_name(self.launch, self.numbers["address"] & 0xFFFFFF)

    @property
    def home(self) -> str:
        """What the address was computed from, with its size."""
        low, high = self.numbers["low"], self.numbers["high"]
        if self.space != "shared":
            return view_name(self.launch, self.numbers["address"], low, high)
        return f"{shared_home(self.launch, low, high)} ({high - low} bytes)"

    @property
    def of_heap_block(self) -> str:
        """The block of the heap that the address lies in, as the end of a sentence."""
        address = self.numbers["address"]
        block = heap_of(self.launch.compiled.module).at(address)
        return f": {block.title}" if block is not None and address in block else ""

    @property
    def past_heap_block(self) -> str:
        """The block of the heap that the address lies behind, as the end of a sentence."""
        address = self.numbers["address"]
        block = heap_of(self.launch.compiled.module).at(address)
        if block is None:
            return ""
        distance = address - block.first - block.size
        where = f"{distance} bytes past the end" if distance > 0 else "just past the end"
        return f": {'beyond the end' if distance < 0 else where} of {block.title}"

    # registers ----------------------------------------------------------------------------------------------

    @property
    def register_name(self) -> str:
        """The name of the register."""
        number = self.numbers["register"]
        return self.registers[number].name if number < len(self.registers) else ""

    @property
    def folded(self) -> str:
        """Why a register has no value, as the end of a sentence: a load, or what a compiler left there."""
        if self._is_from_lanes:
            return (
                ": it was loaded from a lane of tensor memory that nothing was written to; a product of "
                "M = 64 writes 16 of each 32 lanes"
            )
        is_folded = self.numbers["register"] in self.folded_registers
        return ": the compiler wrote a NaN in its place" if is_folded else ""

    @property
    def needed_by(self) -> str:
        """Another line, which needs what was computed without a value, as the end of a sentence."""
        if self.needing is None or self.needing.is_on_line_of(self.here_place):
            return ""
        return f"; {self.needing.named(self.here_place)} depends on it"

    @property
    def _is_from_lanes(self) -> bool:
        """Whether the other instruction loads lanes of tensor memory."""
        return self.other is not None and self.other.place.op.record.touches_tensor_memory

    @property
    def give_value(self) -> str:
        """What gives a register its value."""
        if self._is_from_lanes:
            rows = "lanes that hold rows of the product (the first 16 of a warp)"
            return f"let {self.here} use only {rows}, or multiply with M = 128"
        if self.other is not None and self.other.place.op.record.shuffles:
            return "take the value from a lane that takes part in the shuffle and has one"
        if self.other is not None and self.other.place.op.record.decodes_answer:
            decoded = self.other.place.named(self.here_place)
            return f"use what {decoded} decodes only where the answer names a block ({self.is_canceled})"
        return f"give the variable a value on every way to {self.here}"

    # lines --------------------------------------------------------------------------------------------------

    @property
    def here(self) -> str:
        """The line of the finding."""
        return self.here_place.named()

    @property
    def after_other(self) -> str:
        """Where something has to stand between the other access and this one."""
        if self.other is None:
            return f"before {self.here}"
        return f"after {self.other.place.named(self.here_place)}"

    @property
    def names_registers(self) -> str:
        """What keeps a compiler from moving writes of registers behind a fence that does not name them."""
        if self.language is not mends.Language.CPLUSPLUS:
            return ""
        return '; name the registers in its asm ("+r" or "+f"), or the compiler may write them behind it'

    # races --------------------------------------------------------------------------------------------------

    @property
    def order(self) -> str:
        """What orders the two accesses."""
        return mends.race_mend([self.race])

    @property
    def race(self) -> Race:
        """The two accesses that nothing orders, for the mends."""
        assert self.other is not None, "a race has two accesses"
        mine = self._copy_writes(self.op) if self.located is None else self.located.access.writes
        reach = self.other.reach
        atomic = self.op.record.is_atomic or self.other.place.op.record.is_atomic
        if atomic and self.launch.shape.warps > 1:  # what is updated by atomics is for all warps
            reach = max(reach, Reach.BLOCK)
        other, several = self.other, self.launch.shape.warps > 1
        # What a thread copies is of all warps; in a branch that some of them skip, it may be of its own.
        is_copied = any(by_async_proxy(place.op) for place in (self.here_place, other.place))
        if several and is_copied and not (reach is Reach.WARP and self._is_of_own_warp):
            reach = max(reach, Reach.BLOCK)
        return Race(
            self.flow,
            self.here_place,
            other.place,
            mine,
            other.writes and self._copy_writes(other.place.op),
            reach,
            self.language,
            partial(source_of, self.launch),
        )

    @property
    def _is_of_own_warp(self) -> bool:
        """Whether two accesses of a warp stand in a branch where neither the block nor some warps meet."""
        assert self.other is not None, "a race has two accesses"
        one, other = self.here_place, self.other.place
        return not self.flow.all_come_by(one.op, other.op) and not mends.named_barrier(self.flow, one, other)

    @property
    def _mixed(self) -> Place | None:
        """The plain access, if the other one is an atomic."""
        if self.other is None:
            return None
        mine, theirs = self.op.record.is_atomic, self.other.place.op.record.is_atomic
        return None if mine == theirs else self.other.place if mine else self.here_place

    @property
    def weak_reason(self) -> str:
        """Whether the memory model orders two accesses that GPUs do in order, and why not."""
        if self._is_observed:
            return (
                "the two accesses are ordered only if the thread goes on because of the value that it has "
                "read here before: a strong read has observed that write, and it is not known whether the "
                "thread has waited for it"
            )
        return f"nothing orders the two accesses. {self._no_order_reason}"

    @property
    def _is_observed(self) -> bool:
        """Whether a strong read has observed the other access, perhaps without having waited for it."""
        return bool(self.numbers.get("who", 0) & OBSERVED)

    @property
    def _no_order_reason(self) -> str:
        """Why two accesses are ordered on GPUs, but not by the memory model."""
        if self.other is not None and self.other.reach <= Reach.WARP:
            return "The lanes of the warp only meet here, for example at a shuffle, and do not synchronise"
        if self._mixed is not None:
            return "One of them is atomic, and the other one is not"
        return (
            "Usual reasons: a flag was read without a fence, or the scope of an arrival at an mbarrier, or "
            "of the wait for it, does not include the other block"
        )

    @property
    def weak_order(self) -> str:
        """What makes two accesses ordered by the memory model."""
        if self._is_observed:
            return f"make the access of {self.here} strong, too: atomic, or volatile"
        if self.other is not None and self.other.reach <= Reach.WARP:
            return self.order
        if self._mixed is not None:
            return f"make the access of {self._mixed.named(self.here_place)} atomic, too"
        is_of_cluster = self.other is not None and self.other.reach > Reach.BLOCK and self.space == "shared"
        if is_of_cluster and self.flow.has_mbarriers:
            return (
                "arrive and wait with the scope of the cluster: mbarrier.arrive.release.cluster, "
                "mbarrier.try_wait.acquire.cluster"
            )
        return f"{mends.spelled('fence', self.language)} after the read of the flag, before {self.here}"

    # what is not complete or not written --------------------------------------------------------------------

    @property
    def initialise(self) -> str:
        """What gives memory a value before it is read."""
        what = self.allocation or f"{self.space} memory"
        if self.space != "shared":
            return f"write {what} before {self.here} reads it"
        barrier = mends.spelled("block_barrier", self.language)
        return f"write {what} before {self.here} reads it, then {barrier} if other threads wrote it"

    @property
    def unfinished(self) -> str:
        """Why a copy may not be complete."""
        if self.operation is None:
            return "an asynchronous copy of these bytes may not be complete"
        return f"an asynchronous operation may still be writing these bytes; {_COMPLETE[self.operation]}"

    @property
    def copied(self) -> bool:
        """Whether the other access is a write of cp.async, which is by the generic proxy."""
        written = () if self.other is None else self.other.place.op.record.memory
        return any(
            access.writes and access.asynchronous and access.proxy is Proxy.GENERIC for access in written
        )

    @property
    def after_writer(self) -> str:
        """Where a fence between the proxies belongs: after a store, or after the wait for a copy."""
        if self.copied and self.other is not None:
            return f"after a wait for the copies of {self.other.place.named(self.here_place)}"
        return self.after_other

    @property
    def wait_for_it(self) -> str:
        """What waits for the operation that writes."""
        if self._is_of_two_blocks and self.race.both_write:
            return self.order
        match self.operation:
            case AsyncKind.WGMMA:
                return f"{self.wgmma_commit} and {self.wgmma_wait} before {self.here}"
            case AsyncKind.BULK_GROUP:
                return self._wait_for_group(self.bulk_wait)
            case AsyncKind.PHASE if self.in_other_block:
                return (
                    f"before {self.here}, wait for an mbarrier of this block at which the other one arrives "
                    "when it has waited for the phase of its own and has read the bytes "
                    "(mbarrier.arrive.release.cluster; for a product, tcgen05.commit with multicast)"
                )
            case AsyncKind.PHASE:
                return f"wait for the phase of its mbarrier before {self.here}"
            case AsyncKind.TENSOR:
                return self.tensor_wait
        gap = ""
        # The copy is ordered before an operation of the asynchronous proxy, and was only not waited for.
        if self.other is not None and not by_async_proxy(self.op):
            gap = mends.gap_before_copy(self.flow, self.here_place, self.other.place)
        if gap:
            return f"{mends.spelled('block_barrier', self.language)} {gap}"
        return f"{self.copy_wait} before {self.here}, in the thread that copies{self._then_all}"

    @property
    def wait_for_read(self) -> str:
        """What waits for the operation that reads."""
        if self._is_of_two_blocks:
            return self.order
        if self.operation in (AsyncKind.BULK_GROUP, None):
            return self._wait_for_group(self.bulk_wait_read)
        return self.wait_for_it

    @property
    def _is_of_two_blocks(self) -> bool:
        """Whether the operation is one of another block, which accesses global memory, too."""
        return self.other is not None and self.other.reach is Reach.GRID and self.space == "global"

    def _wait_for_group(self, wait: str) -> str:
        """Return where a wait for a bulk group has to stand."""
        return f"{wait} before {self.here}, in the thread that committed it{self._then_all}"

    @property
    def _then_all(self) -> str:
        """The barrier by which other threads learn that a thread has waited."""
        reach = self.other.reach if self.other is not None else Reach.BLOCK
        if reach is Reach.THREAD and self.op.record.waits is Waits.NOBODY:
            return ""
        if self.other is not None and mends.named_barrier(self.flow, self.here_place, self.other.place):
            return f", then {mends.spelled('named_barrier', self.language)} of the threads that come by"
        several = self.launch.shape.warps > 1  # copies into shared memory are for all of them
        barrier = "block_barrier" if reach > Reach.WARP or several else "warp_barrier"
        return f", then {mends.spelled(barrier, self.language)}"

    # tensor memory ------------------------------------------------------------------------------------------

    @property
    def tensor_access(self) -> str:
        """What the instruction does to tensor memory."""
        verb = {"ld": "reads", "st": "writes", "dealloc": "frees"}.get(self.op.modifiers[0], "accesses")
        return f"{name_of(self.op)} {verb} tensor memory"

    @property
    def tensor_read(self) -> str:
        """What the instruction reads from tensor memory."""
        operand = TensorOperand(self.numbers["operand"])
        if operand is TensorOperand.SUMS:
            return self.tensor_access
        return f"{name_of(self.op)} reads {_OPERANDS[operand]} from tensor memory"

    @property
    def tensor_wait(self) -> str:
        """What waits for an operation of the pipe."""
        commit = f"{self.tensor_commit} to an mbarrier {self.after_other}, in the thread that issues it"
        return f"{commit}, and a wait for that mbarrier before {self.here}"

    @property
    def tensor_read_early(self) -> str:
        """What is wrong with the other instruction, if this one writes what that has read."""
        if self.other is None:
            return self.tensor_access
        reader, writer = name_of(self.other.place.op), name_of(self.op)
        return f"{reader} reads tensor memory before its {writer} is complete; {TENSOR_COMPLETE}"

    @property
    def tensor_wait_before_other(self) -> str:
        """What lets the other instruction wait for this one."""
        commit = f"{self.tensor_commit} to an mbarrier after {self.here}, in the thread that issues it"
        reader = self.other.place.named(self.here_place) if self.other is not None else "the read"
        return f"{commit}, and a wait for that mbarrier before {reader}"

    @property
    def tensor_order(self) -> str:
        """What orders two threads that issue operations of the pipe, or makes them one."""
        if self.op.has("dealloc"):
            users = "let all threads that use the columns synchronise with the warp that frees them"
            return f"{users}, before {self.here}"
        if self.other is not None and self.other.place.op is self.op and self.other.reach is Reach.WARP:
            why = f"each lane of the warp that comes to {self.here} issues one of its own"
            return f"let one lane issue it ({self.one_lane}): {why}"
        before = f"{self.tensor_before} {self.after_other}, a barrier or an mbarrier between the two threads"
        return f"{before}, and {self.tensor_after} before {self.here}; or let one thread issue both"

    @property
    def tensor_initialise(self) -> str:
        """What gives tensor memory a value before it is read."""
        operand = TensorOperand(self.numbers["operand"])
        if self.op.modifiers[0] == "mma" and operand is TensorOperand.SUMS:
            in_python = self.language is mends.Language.PYTHON
            how = "`accumulate=False`" if in_python else "enable-input-d false"
            first = f"let the first product of a sum not accumulate ({how})"
            writers = f"{self.tensor_stores}, {self.tensor_copies}"
            return f"{first}, or fill the columns before {self.here} ({writers})"
        writers = f"{self.tensor_products}, {self.tensor_stores}, {self.tensor_copies}"
        return f"write these columns before {self.here} ({writers})"

    # mbarriers and clusters ---------------------------------------------------------------------------------

    @property
    def fewer_arrivals(self) -> str:
        """What leaves as many arrivals at an mbarrier as its phase still expects."""
        expected = self.numbers["expected"]
        if expected == 0:
            return f"wait for the phase before {self.here}"
        return f"let {expected} of them arrive (one: if (threadIdx.x == 0))"

    @property
    def bytes_left(self) -> str:
        """How the bytes that came differ from those that were announced."""
        count = self.numbers["bytes"]
        if count > 0:
            return (
                f"{count} bytes that expect_tx announced to the mbarrier at {self.place} have not come when "
                "the block ends"
            )
        return (
            f"{-count} bytes more came to the mbarrier at {self.place} than expect_tx announced: a phase may "
            "be complete too early"
        )

    @property
    def expect_bytes(self) -> str:
        """What makes expect_tx agree with the copies."""
        count = self.numbers["bytes"]
        less = f"{abs(count)} bytes {'fewer' if count > 0 else 'more'}"
        return f"announce what the copies bring: {less} in expect_tx"

    # threads ------------------------------------------------------------------------------------------------

    @property
    def counts(self) -> str:
        """How many threads a barrier is for."""
        most, least = self.numbers["most"], self.numbers["least"]
        if least == most:
            return f"{most} threads"
        return f"{least or 'all'} threads in some of its instructions and {most} in others"

    @property
    def is_harmless(self) -> bool:
        """Whether lanes have exited before the barrier and did not skip it."""
        return not self.absent and not self.numbers["bypassed"]

    @property
    def barrier_for_all(self) -> str:
        """Where a barrier has to stand."""
        if self.is_harmless:
            return "let the threads that have nothing to do skip the work, and not the barrier"
        return f"move the barrier of {self.here} out of the branch, to where all threads of the block come by"


def _counted(count: int, one: str, several: str) -> str:
    """Return a number of things in words."""
    return f"1 {one}" if count == 1 else f"{count} {several}"


#: Facts that one expression says, by their names in sentences: what was accessed, and the threads that did.
SHORT_FACTS: dict[str, Callable[[Facts], object]] = {
    "instruction": lambda facts: name_of(facts.op),
    "rank": lambda facts: (facts.numbers["address"] >> abi.RANK_SHIFT) & 0xFF,
    "takes_or_gives": lambda facts: "inc takes" if facts.op.has("inc") else "dec gives up",
    "writer": lambda facts: "cp.async, which is of the generic proxy," if facts.copied else "a plain store",
    "uses": lambda facts: "reads the words of" if facts.numbers["use"] == BarrierUse.LOAD else "overwrites",
    "tensor_operand": lambda facts: _OPERANDS[TensorOperand(facts.numbers["operand"])],
    "tensor_operation": lambda facts: f"a {name_of(facts.other.place.op)}" if facts.other else "an operation",
    "tensor_columns": lambda facts: UNIT * facts.numbers["units"].bit_count(),
    "by_whom": lambda facts: "in all threads" if facts.language is Language.PYTHON else "in one warp",
    "lanes_named": lambda facts: lanes_in_words(facts.numbers["lanes"]),
    "threads_named": lambda facts: _counted(facts.numbers["threads"], "thread", "threads"),
    "warps_named": lambda facts: _counted(facts.numbers["warps"], "warp has", "warps have"),
    "whole_warps": lambda facts: -(-facts.numbers["threads"] // abi.LANES) * abi.LANES,
    "missing_lanes": lambda facts: missing_lanes(facts.absent, facts.gone, facts.is_harmless),
}


def missing_lanes(absent: int, gone: int, harmless: bool = False) -> str:
    """Return which lanes have not come to a barrier, and where they are.

    `absent` and `gone` are masks of the lanes that are elsewhere and of those that have exited. Lanes that
    skipped the barrier before they exited are an error. That lanes exited earlier is `harmless` on GPUs.

    >>> missing_lanes(0xFFFF0000, 1)
    'some are elsewhere in the kernel (lanes 16 to 31) and some have exited (lane 0)'
    """
    parts = []
    if absent or not gone:
        parts.append(f"some are elsewhere in the kernel ({lanes_in_words(absent)})")
    if gone:
        how = "some have exited" if parts or harmless else "some have skipped it and exited"
        parts.append(f"{how} ({lanes_in_words(gone)})")
    promise = "; GPUs are known not to wait for them, but the PTX ISA does not promise it"
    return " and ".join(parts) + (promise if harmless else "")
