"""The seconds after which the page's server stops waiting, multiplied by LANEWISE_PATIENCE.

A limit keeps a kernel that never ends, or a program that does not answer, from holding the page. It says
nothing about what is right: on a busy or slow machine the same work takes many times as long, and there
LANEWISE_PATIENCE=10 in the environment makes every limit ten times as long. The processes that run kernels
inherit the variable.
"""

import os

from lanewise.errors import LanewiseError

PATIENCE = "LANEWISE_PATIENCE"
#: Larger factors mean no limit: ten years of seconds are more than a wait of the operating system takes.
MOST_PATIENCE = 1e6


def seconds(limit: float) -> float:
    """Return a limit in seconds, multiplied by the factor that LANEWISE_PATIENCE names.

    >>> seconds(0.0)
    0.0
    """
    return limit * _patience(os.environ.get(PATIENCE, ""))


def _patience(text: str) -> float:
    """Return the factor that is written in the variable; 1 where it is not set."""
    if not text.strip():
        return 1.0
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not factor > 0:  # also NaN, which is not comparable
        raise LanewiseError(
            f"{PATIENCE} is {text!r}, where a number above 0 is expected: 10 makes every time limit of "
            "`lanewise explore` ten times as long"
        )
    return min(factor, MOST_PATIENCE)
