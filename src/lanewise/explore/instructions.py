"""Questions of the room Instructions."""

from __future__ import annotations

from typing import Any

from lanewise.explore.answers import question


@question("instructions", "about")
def about() -> dict[str, Any]:
    """Return what the room can show."""
    return {}
