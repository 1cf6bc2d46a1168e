"""What `schedule=` of a launch asks for: when asynchronous operations take effect."""

import operator

from lanewise.errors import LanewiseError, shown
from lanewise.machine.async_records import Completion

EARLY, LATE = "early", "late"
#: Seeds are 64-bit numbers.
MOST_SEED = (1 << 63) - 1


def seed_of(asked: object, others: str) -> int:
    """Return a seed that a user names; `others` is what else would be allowed, for the error."""
    try:
        seed = operator.index(asked)  # type: ignore[arg-type]  # what is no integer raises TypeError
    except Exception:  # whatever an object does that is no integer
        raise LanewiseError(f"schedule= is {others}, not {type(asked).__name__} {shown(asked)}") from None
    if isinstance(asked, bool) or not 0 <= seed <= MOST_SEED:
        raise LanewiseError(f"schedule={asked!r}: a seed is an integer from 0 to {MOST_SEED}")
    return seed


def completion_of(asked: object) -> tuple[Completion, int]:
    """Return when asynchronous operations take effect in a plain launch, and the seed that draws it.

    >>> completion_of("late"), completion_of(7)
    ((<Completion.LATE: 1>, 0), (<Completion.RANDOM: 2>, 7))
    """
    if asked is None or (isinstance(asked, str) and asked == EARLY):
        return Completion.EARLY, 0
    if isinstance(asked, str) and asked == LATE:
        return Completion.LATE, 0
    return Completion.RANDOM, seed_of(asked, f'"{EARLY}", "{LATE}" or an integer (a seed)')
