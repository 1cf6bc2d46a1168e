"""What the suite leaves out each time, to stay short. With LANEWISE_EVERYTHING=1 everything is tried."""

from __future__ import annotations

import os
import zlib

import pytest

EVERYTHING = bool(os.environ.get("LANEWISE_EVERYTHING"))

#: For tests that take seconds and hold what other tests hold in part.
only_with_everything = pytest.mark.skipif(
    not EVERYTHING, reason="takes seconds: tried with LANEWISE_EVERYTHING=1"
)


def one_of(count: int, name: str) -> bool:
    """Return whether a case is among those of `count` that are tried each time: always the same ones."""
    return EVERYTHING or zlib.crc32(name.encode()) % count == 0
