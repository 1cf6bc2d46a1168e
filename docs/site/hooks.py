"""What MkDocs does to build the site from pages that are read in the repository, too.

Links out of docs/ lead to the repository. `*` in the navigation stands for the pages that it does not name.
Pages listed in `notebooks.PAGES` are also written as notebooks.
"""

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import notebooks

DOCS = Path(__file__).parents[1]
LINK = re.compile(r"\[([^\]]*)\]\((\.\./[^)\s]+)\)")


def on_config(config: Any) -> Any:
    """Put the names of pages in the place of each `*` of the navigation."""
    written = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    named = {entry for entry in _entries(config.nav) if "*" not in entry}

    def expanded(nav: Any) -> Any:
        if isinstance(nav, dict):
            return {title: expanded(inner) for title, inner in nav.items()}
        if not isinstance(nav, list):
            return nav
        entries: list[Any] = []
        for entry in nav:
            if isinstance(entry, str) and entry.endswith("*"):
                folder = entry.removesuffix("*")
                rest = sorted(page for page in written - named if page.startswith(folder))
                if not folder:  # folders that have no entry of their own get one each
                    rest = [page for page in rest if not page.startswith("api/")]
                    for inner in sorted({page.split("/")[0] for page in rest if "/" in page}):
                        pages = [page for page in rest if page.startswith(f"{inner}/")]
                        entries.append({inner.replace("-", " ").capitalize(): pages})
                    rest = [page for page in rest if "/" not in page]
                entries.extend(rest)
            else:
                entries.append(expanded(entry))
        return entries

    config.nav = expanded(config.nav)
    return config


def _entries(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    inner = nav.values() if isinstance(nav, dict) else nav
    return [entry for part in inner for entry in _entries(part)]


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Lead links to files outside docs/ to the repository, and offer the notebook of a page that has one.

    As long as the repository has no address, such links are words.
    """
    here = posixpath.dirname(page.file.src_uri)

    def absolute(match: re.Match[str]) -> str:
        path, _, anchor = match[2].partition("#")
        target = posixpath.normpath(posixpath.join("docs", here, path))
        if target.startswith("docs/"):
            return match[0]
        if not notebooks.ADDRESS:
            return match[1]
        kind = "tree" if (DOCS.parent / target).is_dir() else "blob"
        return f"[{match[1]}]({notebooks.ADDRESS}/{kind}/main/{target}{anchor and '#' + anchor})"

    markdown = LINK.sub(absolute, markdown)
    if page.file.src_uri in notebooks.PAGES:
        name = notebooks.PAGES[page.file.src_uri]
        title, rest = markdown.split("\n", 1)
        link = f'<a href="{_up(page.url)}notebooks/{name}" download>Download this page as a notebook</a>'
        markdown = f"{title}\n\n{link}\n{rest}"
    return markdown


def _up(url: str) -> str:
    return "../" * url.count("/")


def on_post_build(config: Any) -> None:
    """Write the notebooks beside the pages."""
    notebooks.write(Path(config.site_dir) / "notebooks")
