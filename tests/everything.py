"""What the suite leaves out each time, to stay short. With LANEWISE_EVERYTHING=1 everything is tried."""

import os
import zlib
from collections.abc import Sequence
from typing import TypeVar

import pytest

Case = TypeVar("Case")

EVERYTHING = bool(os.environ.get("LANEWISE_EVERYTHING"))

#: For tests that take seconds and hold what other tests hold in part.
only_with_everything = pytest.mark.skipif(
    not EVERYTHING, reason="takes seconds: tried with LANEWISE_EVERYTHING=1"
)


#: `@sampled(3)` for a test with many cases that differ little: about one in three is tried each time, the
#: first among them, unless cases are chosen by name (`-k`, or `file::test`). The root conftest.py chooses.
sampled = pytest.mark.sampled


def is_sampled(count: int, number: int) -> bool:
    """Return whether case `number` of a sampled test is tried each time: one in `count`, the first too.

    Multiples of the golden ratio fall evenly, and do not keep step with the values of one parameter.
    """
    return EVERYTHING or number * 0.6180339887498949 % 1 < 1 / count


def some_of(count: int, cases: Sequence[Case]) -> list[Case]:
    """Return those of the cases within one test that are tried each time: one in `count`, the first too."""
    return [case for number, case in enumerate(cases) if is_sampled(count, number)]


def one_of(count: int, name: str) -> bool:
    """Return whether a case is among those of `count` that are tried each time: always the same ones."""
    return EVERYTHING or zlib.crc32(name.encode()) % count == 0


def examples(count: int) -> int:
    """Return how many examples Hypothesis draws of `count`: an eighth each time, but not fewer than 20."""
    return count if EVERYTHING else min(count, max(count // 8, 20))
