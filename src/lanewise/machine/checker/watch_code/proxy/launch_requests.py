"""Called for cluster launch control: a block that was refused must not ask again."""

from lanewise.jit.lane_functions import lowest_bit
from lanewise.jit.restricted_python import compiled
from lanewise.machine.abi import WarpFrame
from lanewise.machine.checker.suspicion_sentences import Suspicion
from lanewise.machine.checker.watch_code.clocks.happens_before import UNORDERED, ordered
from lanewise.machine.checker.watch_code.clocks.vector_clocks import (
    local_warp,
    suspect,
    watch_of_running,
)


@compiled()
def note_refusal(frame: WarpFrame, row: int, lanes: int) -> None:
    """Some lanes have learnt that an answer names no block: none is left."""
    if lanes != 0:
        watch = watch_of_running(frame)
        if watch.refused < watch.start:  # the first one counts: others learn of it the sooner
            watch.refused = watch.epoch
            watch.refused_lanes = lanes
            watch.refused_row = row


@compiled()
def ask_for_block(frame: WarpFrame, site: int, active: int) -> None:
    """A thread executes clusterlaunchcontrol.try_cancel.

    What its warp has learnt it knows, too; what another warp has, if something orders that before.
    """
    if active == 0:
        return
    watch, lane = watch_of_running(frame), lowest_bit(active)
    refused = watch.refused
    if refused >= watch.start:
        is_own = local_warp(watch, refused) == watch.clock.index
        if is_own or ordered(watch, refused, 0, watch.refused_lanes, lane) != UNORDERED:
            suspect(Suspicion.ASKED_AGAIN, frame, site, lane, 0, 0, watch.refused_row)
