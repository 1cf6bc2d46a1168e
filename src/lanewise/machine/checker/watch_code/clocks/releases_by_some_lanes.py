"""Releases by some lanes of a warp, which other warps keep beside their vector clocks.

A vector clock has the last release of each warp. If only some lanes of the warp made it, it does not stand
for an earlier release by other lanes, which is kept here: what lanes did before all of them arrived at one
mbarrier is known by that, also after one of them has arrived at another one.
"""

from lanewise.jit.lane_functions import any_lane, joined
from lanewise.jit.restricted_python import compiled, inlined
from lanewise.machine.checker import records
from lanewise.machine.checker.records import BlockWatch, PartialRelease, WarpClock
from lanewise.machine.checker.watch_code.watch_module import LaneWords


@inlined
def partial_release(watch: BlockWatch, epoch: int) -> PartialRelease:
    """Return the record of a release by its epoch; another one may be there."""
    return watch.watch.partial_releases[epoch & (records.RELEASES_KEPT - 1)]


@inlined
def adds_to(watch: BlockWatch, before: int, after: int) -> bool:
    """Return whether a release stands for accesses that a later one of the same warp does not stand for."""
    release = partial_release(watch, after)
    return (release.epoch == after) & (release.synced < before)


@compiled()
def keep_release(clock: WarpClock, release: int) -> None:
    """Keep a release beside the last one of its warp."""
    for index in range(records.RELEASES_KNOWN):
        if clock.known_releases[index] == release:
            return
    clock.known_releases[clock.known_count & (records.RELEASES_KNOWN - 1)] = release
    clock.known_count += 1


@inlined
def keep_earlier(watch: BlockWatch, clock: WarpClock, known: int, release: int) -> None:
    """Keep a release that a clock learns of after a later one, `known`, of the same warp."""
    if (release < known) & (release != 0) and adds_to(watch, release, known):
        keep_release(clock, release)


@compiled()
def learn_releases(watch: BlockWatch, clock: WarpClock, seen: LaneWords, epochs: LaneWords) -> None:
    """Let a clock learn of later releases of the block's warps; `seen` is its vector of those it knows.

    A release by some lanes of a warp does not stand for an earlier one of other lanes, which is kept.
    """
    for index in range(watch.warps):
        before, after = seen.words[index], epochs.words[index]
        if (before < after) & (before != 0) and adds_to(watch, before, after):
            keep_release(clock, before)
    seen.words = joined(seen.words, epochs.words)


@inlined
def see_releases(watch: BlockWatch, clock: WarpClock, seen: LaneWords, epochs: LaneWords) -> None:
    """Let a clock learn of releases of the block's warps, a vector of epochs, if some are later."""
    if any_lane(epochs.words > seen.words):
        learn_releases(watch, clock, seen, epochs)


@inlined
def share_releases(target: WarpClock, source: WarpClock) -> None:
    """Let one clock know the releases which another one keeps."""
    if source.known_count > 0:
        for index in range(records.RELEASES_KNOWN):
            release = source.known_releases[index]
            if release != 0:
                keep_release(target, release)
