"""README.md, CONTRIBUTING.md, CHANGELOG.md and docs/ are true.

The Python code of a page runs as one program, quotations of source files are what the files say, and links
lead somewhere. test_docs_commands.py runs the commands.
"""

import ast
import re
import runpy
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from doc_pages import FENCE, PAGES, ROOT, blocks, environment, name

IMAGES = ROOT / "docs" / "images"
LINK = re.compile(r"\]\(([^)#:\s]+)?(?:#([^)\s]+))?\)")


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=name)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page runs as a script inside the test process: starting a new one would take a second more."""
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks(page, "python")), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(script)])
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with np.printoptions():
        runpy.run_path(str(script), run_name="__main__")


def quoted(file: str, name: str) -> str:
    """The lines of a file, or of one function or class in it."""
    text = (ROOT / file).read_text()
    if not name:
        return text
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return "\n".join(text.splitlines()[node.lineno - 1 : node.end_lineno])
    raise AssertionError(f"{file} has no {name}")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_quotations_are_what_the_files_say(page: Path) -> None:
    """A block of `py` names a file or a function in it first; `...` stands for lines left out."""
    for body in blocks(page, "py"):
        first, *lines = body.splitlines()
        named = re.fullmatch(r"# ([\w/]+\.py)(?:: (\w+))?", first)
        assert named, f"the first line is '# file.py' or '# file.py: function', not {first!r}"
        # Quotations lose their indentation, so every line is compared without what comes before it.
        source = [line.strip() for line in quoted(named[1], named[2] or "").splitlines()]
        at = 0
        for part in re.split(r"^ *\.\.\.$", dedent("\n".join(lines)), flags=re.M):
            wanted = [line.strip() for line in part.strip().splitlines()]
            places = [n for n in range(at, len(source)) if source[n : n + len(wanted)] == wanted]
            assert places, f"{first}: not there, or not in this order\n{part}"
            at = places[0] + len(wanted)


def anchors(page: Path) -> set[str]:
    """The names under which a page's headings are linked to."""
    text = FENCE.sub("", page.read_text())
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.+)$", text, re.M)
    }


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for file, anchor in LINK.findall(FENCE.sub("", page.read_text())):
        target = page.parent / file if file else page
        assert target.exists(), f"{page.name} links to {file}"
        if anchor:
            assert anchor in anchors(target), f"{page.name} links to {file}#{anchor}"


def test_the_readme_of_the_package_has_no_relative_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would lead nowhere on a package index. Code, which has brackets and parentheses too, stays."""
    for module in ("hatchling", "hatchling.metadata", "hatchling.metadata.plugin"):
        monkeypatch.setitem(sys.modules, module, ModuleType(module))  # it is there when the package is built
    interface = SimpleNamespace(MetadataHookInterface=object)
    monkeypatch.setitem(sys.modules, "hatchling.metadata.plugin.interface", interface)
    hook: Any = runpy.run_path(str(ROOT / "hatch_build.py"))
    text = (ROOT / "README.md").read_text()
    for address in ("", "https://example.org/lanewise"):
        found = hook["with_absolute_links"](text, address)
        assert not re.search(r"\]\((?!https?:|#)", FENCE.sub("", found))
        assert FENCE.findall(found) == FENCE.findall(text)
        assert (f"[tutorial]({address}/blob/main/docs/tutorial.md)" in found) == bool(address)


def test_no_page_names_an_address_that_there_is_not() -> None:
    """The project has no public address yet; where one is needed, pyproject.toml names it."""
    files = [*PAGES, *(ROOT / each for each in ("pyproject.toml", "mkdocs.yml", "CITATION.cff"))]
    assert [page.name for page in files if "github.com/lanewise" in page.read_text()] == []


def test_pictures_are_what_their_script_draws(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(IMAGES / "make.py"), str(tmp_path)], env=environment(), check=True)
    for path in IMAGES.glob("*.svg"):
        assert path.read_text() == (tmp_path / path.name).read_text(), f"run docs/images/make.py: {path.name}"


def test_the_files_where_one_would_look_are_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Where would you look?")[2]
    named = re.findall(r"`([\w/]+/\w+\.py)`", text)
    assert len(named) >= 20
    assert [each for each in named if not (ROOT / "src" / "lanewise" / each).is_file()] == []
