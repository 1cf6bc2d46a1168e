"""Jupyter notebooks made of pages: text becomes Markdown cells, Python becomes code cells.

python docs/site/notebooks.py notebooks/     # writes tutorial.ipynb and the others there
"""

import json
import re
import sys
import tomllib
from hashlib import sha256
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1]
_PROJECT = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
#: The address of the repository; empty as long as it has none.
ADDRESS = _PROJECT.get("urls", {}).get("Source", "")
#: The pages that are notebooks as well, and the notebooks' names.
PAGES = {
    "tensor-cores.md": "tensor_cores.ipynb",
    "tutorial.md": "tutorial.ipynb",
    "your-kernel.md": "your_kernel.ipynb",
    "wmma.md": "wmma.ipynb",
}
CODE = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)\s]+)\)")


def notebook(page: Path) -> dict[str, Any]:
    """Return the notebook of a page, as nbformat 4 has it.

    Links and pictures lead to the repository; where that has no address, links are words.
    """
    text = page.read_text(encoding="utf-8")
    cells: list[dict[str, Any]] = []

    def add(kind: str, source: str) -> None:
        source = source.strip("\n")
        if not source:
            return
        # An identifier that depends on the cell alone: the same page gives the same file.
        name = sha256(f"{len(cells)} {source}".encode()).hexdigest()[:16]
        cell = {"cell_type": kind, "id": name, "metadata": {}, "source": source.splitlines(keepends=True)}
        cells.append(cell | ({"execution_count": None, "outputs": []} if kind == "code" else {}))

    def absolute(match: re.Match[str]) -> str:
        if not ADDRESS:
            return "" if match[1] else match[2]
        return f"{match[1]}[{match[2]}]({ADDRESS}/{'raw' if match[1] else 'blob'}/main/docs/{match[3]})"

    at = 0
    for block in CODE.finditer(text):
        add("markdown", LINK.sub(absolute, _plain(text[at : block.start()])))
        add("code", block[1])
        at = block.end()
    add("markdown", LINK.sub(absolute, _plain(text[at:])))
    return {
        "cells": cells,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _plain(text: str) -> str:
    """Text without the tags that fold an answer away: a fold cannot reach over several cells."""
    text = re.sub(r"<details[^>]*><summary>(.*?)</summary>", r"**\1**", text)
    return text.replace("</details>", "")


def write(folder: Path) -> list[Path]:
    """Write every notebook into a folder, and return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for page, name in PAGES.items():
        file = folder / name
        file.write_text(
            json.dumps(notebook(DOCS / page), indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        written.append(file)
    return written


if __name__ == "__main__":
    for path in write(Path(sys.argv[1] if len(sys.argv) > 1 else "notebooks")):
        print(path)
