"""The pages of the documentation and the code in them, for the tests that hold the pages to be true."""

import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
#: A block of code: its language and its lines.
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


def name(page: Path) -> str:
    """The page's path from the root, as the name of a test."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, language: str) -> list[str]:
    """The bodies of a page's blocks of code in one language."""
    return [body for kind, body in FENCE.findall(page.read_text(encoding="utf-8")) if kind == language]


def commands(page: Path) -> list[tuple[str, str]]:
    """Every command of a page and what is printed under it."""
    found: list[tuple[str, str]] = []
    for body in blocks(page, "console"):
        for line in body.splitlines():
            if line.startswith("$ "):
                found.append((line.removeprefix("$ "), ""))
            elif found:
                found[-1] = (found[-1][0], f"{found[-1][1]}{line}\n")
    return found


def environment() -> dict[str, str]:
    """The environment of a program that a test starts: this library, this Python, no colours."""
    paths = [str(Path(sys.executable).parent), os.environ["PATH"]]
    return {**os.environ, "PATH": os.pathsep.join(paths), "PYTHONPATH": str(ROOT / "src"), "NO_COLOR": "1"}
