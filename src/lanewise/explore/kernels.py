"""Questions of the room Kernels."""

from __future__ import annotations

from typing import Any

from lanewise.explore.answers import question
from lanewise.explore.session import Session


@question("kernels", "about")
def about(session: Session) -> dict[str, Any]:
    """Return what the room can show."""
    return {"files": [path.name for path in session.files]}


def add_launch(
    session: Session, configured: Any, arguments: tuple[Any, ...], options: dict[str, Any]
) -> None:
    """Run a launch of a script that the command line opened, and keep what the room shows of it."""
    configured(*arguments, **options)
