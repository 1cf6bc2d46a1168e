"""How work grows with its size, on a machine of any speed that others use, too.

A limit in seconds says something about a machine. Here the processor time of four times the work is compared
with that of the work itself, both measured in this process one after the other.
"""

import time
from collections.abc import Callable

#: The larger work is so many times the smaller.
TIMES = 4
#: How many times as long it may take. Linear growth takes 4 times, quadratic growth 16 times as long.
LINEAR, CONSTANT = 9.0, 2.5
#: Seconds of processor time below which a difference may come from the measurement.
NOISE = 0.05
#: A measurement in which the processor was disturbed is made again, so often at most.
TRIES = 6


def grows_in_proportion(work: Callable[[int], object], size: int) -> bool:
    """Return whether work of `size` takes about `TIMES` times as long as work of `size // TIMES`, or less.

    Work that grows with the square of its size fails every time; work in proportion has to pass only once.
    """
    return _is_within(LINEAR, work, size)


def stays_the_same(work: Callable[[int], object], size: int) -> bool:
    """Return whether work of `size` takes about as long as work of `size // TIMES`."""
    return _is_within(CONSTANT, work, size)


def _is_within(most: float, work: Callable[[int], object], size: int) -> bool:
    work(size // TIMES)  # what is compiled or loaded once is not measured
    for _ in range(TRIES):
        limit = most * _processor_time(work, size // TIMES) + NOISE
        if _processor_time(work, size) < limit:
            return True
    return False


def _processor_time(work: Callable[[int], object], size: int) -> float:
    """Return the seconds that all threads of this process computed while some work was done."""
    begin = time.process_time()
    work(size)
    return time.process_time() - begin
