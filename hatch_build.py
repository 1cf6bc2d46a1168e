"""What a package index shows of README.md, where its relative links would lead nowhere.

Links and pictures lead to the address that `[project.urls]` of pyproject.toml names as Source. Without one, a
link is its words, and a picture is left out.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

FENCE = re.compile(r"(^```.*?^```$)", re.M | re.S)
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)\s]+)\)")


def with_absolute_links(text: str, address: str) -> str:
    """Return Markdown whose relative links lead to files of the repository at an address, or are words."""

    def absolute(match: re.Match[str]) -> str:
        picture, words, target = match.groups()
        if address:
            return f"{picture}[{words}]({address}/{'raw' if picture else 'blob'}/main/{target})"
        return "" if picture else words

    parts = FENCE.split(text)  # every other one is code
    return "".join(part if number % 2 else LINK.sub(absolute, part) for number, part in enumerate(parts))


class CustomMetadataHook(MetadataHookInterface):
    """Gives the package its long description."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add README.md with links that lead somewhere."""
        address = metadata.get("urls", {}).get("Source", "")
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": with_absolute_links(text, address)}
