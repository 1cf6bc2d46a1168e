"""Requests of warps to shared memory as arrays of addresses, and what the banks make of them.

It is the model of `watch_code/shadow/request_costs.py` once more, on arrays: with it a layout is tried before
it is proposed. `tests/machine/test_check_cost.py` holds the two against each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lanewise.machine import abi

LANES = abi.LANES
#: Bytes of a wavefront: a word in each of 32 banks.
WAVEFRONT = 128
Offsets = npt.NDArray[np.int64]
Lanes = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Requests:
    """Requests of one kind: the lanes' offsets in shared memory, one row each; the lanes that take part."""

    offsets: Offsets
    lanes: Lanes
    #: Bytes of a lane's access; whether lanes give the rows of ldmatrix or stmatrix.
    size: int
    by_rows: bool = False

    @property
    def extent(self) -> tuple[int, int]:
        """The first byte that they touch, and the one after the last."""
        offsets = self.offsets[self.lanes]
        return int(offsets.min()), int(offsets.max()) + self.size

    def moved(self, offsets: Offsets) -> Requests:
        """Return the requests at other offsets."""
        return Requests(offsets, self.lanes, self.size, self.by_rows)


class Cost(NamedTuple):
    """The wavefronts that each request takes, and those that it takes at least: one for each phase."""

    wavefronts: npt.NDArray[np.int64]
    phases: npt.NDArray[np.int64]

    @property
    def excess(self) -> int:
        """The wavefronts that conflicts add, of all requests together."""
        return int((self.wavefronts - self.phases).sum())


def cost_of(requests: Requests) -> Cost:
    """Return the wavefronts that requests take.

    >>> column = Requests(128 * np.arange(32)[None, :], np.ones((1, 32), bool), 4)
    >>> cost_of(column).excess, cost_of(column.moved(column.offsets // 128 * 132)).excess
    (31, 0)
    """
    unit = 16 if requests.by_rows else max(requests.size, 4)
    length = WAVEFRONT // unit  # lanes of a phase
    separate = _phases(requests, unit, length)
    if unit == 4 or requests.by_rows:
        return Cost(separate.sum(axis=1), (separate > 0).sum(axis=1))
    # Two phases go as one if all lanes share their address with the neighbour, or with the next but one.
    pairs = requests.offsets.reshape(len(requests.offsets), -1, 2 * length)
    lanes = np.arange(2 * length)
    shares = [(pairs == pairs[:, :, lanes ^ step]).all(axis=2) for step in (1, 2)]
    whole = requests.lanes.reshape(pairs.shape).all(axis=2)
    joined = (shares[0] | shares[1]) & whole
    together = _phases(requests, unit, 2 * length)
    apart = separate.reshape(*joined.shape, 2)
    wavefronts = np.where(joined, together, apart.sum(axis=2)).sum(axis=1)
    return Cost(wavefronts, np.where(joined, 1, (apart > 0).sum(axis=2)).sum(axis=1))


def _phases(requests: Requests, unit: int, length: int) -> npt.NDArray[np.int64]:
    """Return the wavefronts of each phase of some lanes: the distinct units in the busiest bank."""
    banks = WAVEFRONT // unit
    count = len(requests.offsets)
    units = (requests.offsets // unit).reshape(count, -1, length)
    active = requests.lanes.reshape(units.shape)
    units = np.where(active, units, -1)
    ordered = np.sort(units, axis=2)
    fresh = np.ones(ordered.shape, bool)
    fresh[:, :, 1:] = ordered[:, :, 1:] != ordered[:, :, :-1]
    fresh &= ordered >= 0
    in_bank = fresh[..., None] & ((ordered % banks)[..., None] == np.arange(banks))
    return np.asarray(in_bank.sum(axis=2).max(axis=2))
