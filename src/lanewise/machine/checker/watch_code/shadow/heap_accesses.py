"""Accesses to the heap: bytes that nobody has, bytes that were freed, and bytes that were never written."""

from __future__ import annotations

from lanewise.jit.lane_functions import set_bits
from lanewise.jit.record_layout import RecordLayout, field
from lanewise.jit.restricted_python import compiled, in_place
from lanewise.machine import abi
from lanewise.machine.checker.records import Flag
from lanewise.machine.checker.suspicions import Suspicion
from lanewise.machine.checker.watch_code.accesses import Access
from lanewise.machine.checker.watch_code.clocks.vector_clocks import suspect
from lanewise.machine.checker.watch_code.watch_module import ByteArray
from lanewise.machine.runtime.heap import ByteState

#: How many states a byte may have.
STATES = len(ByteState)


class StateCounts(RecordLayout):
    """How many bytes of a lane's access are in each ByteState."""

    counts = field(8, STATES)


@in_place
def count_states(access: Access, states: ByteArray, start: int) -> StateCounts:
    """Count the states of the bytes that a lane accesses, and note those that it writes."""
    found = StateCounts.on_stack()
    for state in range(STATES):
        found.counts[state] = 0
    for byte in range(start, start + access.size):
        state_of_byte = states.bytes[byte]
        found.counts[state_of_byte] += 1
        if (access.flags & Flag.WRITES != 0) & (state_of_byte == ByteState.UNINITIALISED):
            states.bytes[byte] = ByteState.INITIALISED
    return found


@compiled()
def access_heap(access: Access, states: ByteArray) -> None:
    """Report bytes of the heap that nobody has, and reads of bytes of which none was written."""
    for lane in set_bits(access.active):
        start = access.offsets[lane]
        found = count_states(access, states, start)
        if found.counts[ByteState.FREED] != 0:
            report_heap(access, Suspicion.HEAP_FREED, lane)
        elif found.counts[ByteState.UNALLOCATED] != 0:
            report_heap(access, Suspicion.HEAP_OUTSIDE, lane)
        is_unwritten = found.counts[ByteState.UNINITIALISED] == access.size
        if (access.flags & Flag.READS != 0) & is_unwritten:
            report_heap(access, Suspicion.HEAP_UNINITIALISED, lane)


@in_place
def report_heap(access: Access, kind: int, lane: int) -> None:
    """Report a lane's access to the heap."""
    suspect(kind, access.frame, access.site, lane, access.offsets[lane] + abi.HEAP_BASE, 0, 0)
