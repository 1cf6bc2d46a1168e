"""tune"""

from typing import Any


def tune(a: Any, b: Any) -> None:
    """Later."""
