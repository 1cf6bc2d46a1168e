"""Memory and compiled functions that matrix instructions call."""

from __future__ import annotations

from typing import Any

from lanewise.machine.program import Compiled


def scratch_for(compiled: Compiled) -> Any:
    """Nothing yet."""
    return None
