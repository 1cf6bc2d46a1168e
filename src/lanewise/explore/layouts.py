"""Questions of the room Layouts."""

from __future__ import annotations

from typing import Any

from lanewise.explore.answers import question


@question("layouts", "about")
def about() -> dict[str, Any]:
    """Return what the room can show."""
    return {}
