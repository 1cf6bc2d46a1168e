"""A module of its own, because every name of it is Any for mypy: annotations that it cannot read otherwise.

`annotations.py` says why; nothing imports this module when a program runs.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    raise AttributeError(f"module 'lanewise.lang.frontend.any_annotation' has no attribute {name!r}")
