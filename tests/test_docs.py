"""README.md, CONTRIBUTING.md, CHANGELOG.md and docs/ are true: Python runs as one program a page, commands
run and answer as printed.

Quotations of source files are what the files say, and links lead somewhere.
"""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
IMAGES = ROOT / "docs" / "images"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
LINK = re.compile(r"\]\(([^)#:\s]+)?(?:#([^)\s]+))?\)")


def blocks(page: Path, language: str) -> list[str]:
    return [body for kind, body in FENCE.findall(page.read_text()) if kind == language]


def environment() -> dict[str, str]:
    paths = [str(Path(sys.executable).parent), os.environ["PATH"]]
    return {**os.environ, "PATH": os.pathsep.join(paths), "PYTHONPATH": str(ROOT / "src"), "NO_COLOR": "1"}


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_run(page: Path, tmp_path: Path) -> None:
    program = "\n".join(blocks(page, "python"))
    script = tmp_path / "page.py"
    script.write_text(program)
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def commands(page: Path) -> list[tuple[str, str]]:
    """Every command of a page and what is printed under it."""
    found: list[tuple[str, str]] = []
    for body in blocks(page, "console"):
        for line in body.splitlines():
            if line.startswith("$ "):
                found.append((line.removeprefix("$ "), ""))
            elif found:
                found[-1] = (found[-1][0], f"{found[-1][1]}\n{line}")
    return found


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_run_and_answer_as_printed(page: Path, tmp_path: Path) -> None:
    """They run one after another where `examples` is; an answer may leave out what stands for …"""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for command, answer in commands(page):
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        rest = words(done.stdout + done.stderr)
        for part in words(answer).split("…"):
            _, found, rest = rest.partition(part.strip()) if part.strip() else ("", "…", rest)
            assert found, f"{command}\nanswered\n{done.stdout}{done.stderr}"


def quoted(file: str, name: str) -> str:
    """The lines of a file, or of one function or class in it."""
    text = (ROOT / file).read_text()
    if not name:
        return text
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return "\n".join(text.splitlines()[node.lineno - 1 : node.end_lineno])
    raise AssertionError(f"{file} has no {name}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for file, anchor in LINK.findall(FENCE.sub("", page.read_text())):
        target = page.parent / file if file else page
        assert target.exists(), f"{page.name} links to {file}"
        if anchor:
            assert anchor in anchors(target), f"{page.name} links to {file}#{anchor}"


def test_pictures_are_what_their_script_draws(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, str(IMAGES / "make.py"), str(tmp_path)], env=environment(), check=True, timeout=120
    )
    for path in IMAGES.glob("*.svg"):
        assert path.read_text() == (tmp_path / path.name).read_text(), f"run docs/images/make.py: {path.name}"
