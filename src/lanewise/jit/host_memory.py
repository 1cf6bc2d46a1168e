"""Memory of the host that machine code reads and writes: its address, and zeroed bytes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lanewise.jit.machine_code import address

Bytes = npt.NDArray[np.uint8]


def zeroed_bytes(size: int) -> Bytes:
    """Zeroed bytes at an address that suits every vector."""
    whole = np.zeros(size + 64, np.uint8)
    start = -address(whole) % 64
    return whole[start : start + size]
