"""The house rule: each room imports only rooms that stand above it."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "lanewise"

#: From the top of the house down; a room may import itself and any room before it.
ROOMS = (
    "errors",
    "engines",
    "disk_cache",
    "formats",
    "layout",
    "isa",
    "arith",
    "atoms",
    "draw",
    "ptx",
    "machine",
    "gpu",
    "launch",
    "lang",
    "linalg",
    "cli",
)
#: Engines that never know of each other, although one stands above the other.
NEVER = {("gpu", "machine")}
FILES = sorted(SOURCE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path) -> list[tuple[int, str]]:
    """(line, room) of every import of the package in a file, in functions and under TYPE_CHECKING too."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level <= 1, f"{path}:{node.lineno}: a relative import stays in its room"
            if node.level == 1:
                continue
            names = [node.module or ""]
            if node.module == "lanewise":
                names = [f"lanewise.{alias.name}" for alias in node.names]
        line = getattr(node, "lineno", 0)
        found += [(line, name.split(".")[1]) for name in names if name.startswith("lanewise.")]
        if "lanewise" in names:
            found.append((line, "__init__"))
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_only_rooms_above(path: Path) -> None:
    room = room_of(path)
    if room == "__init__":
        return
    assert room in ROOMS, f"{room} is in no room of the house"
    allowed = set(ROOMS[: ROOMS.index(room) + 1])
    for line, other in imported(path):
        version_only = room == "cli" and other in ("__init__", "__version__")
        assert version_only or other in allowed, f"{path.name}:{line}: {room} imports {other}"
        assert (room, other) not in NEVER, f"{path.name}:{line}: {room} must not know {other}"


def test_rule_would_catch_an_upward_import(tmp_path: Path) -> None:
    culprit = tmp_path / "layout.py"
    culprit.write_text("def f():\n    from lanewise.isa import instruction\n")
    assert imported(culprit) == [(2, "isa")]
    assert ROOMS.index("isa") > ROOMS.index("layout")
