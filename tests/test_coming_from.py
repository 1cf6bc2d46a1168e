"""The pages for those who come from elsewhere: what they quote can be read, and what they name exists.

The Python of this library's side is run by test_docs.py.
"""

import ast
import re
from pathlib import Path

import pytest

import lanewise as lw

PAGES = sorted((Path(__file__).parents[1] / "docs" / "coming-from").glob("*.md"))
by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def test_all_four_are_there() -> None:
    assert [page.stem for page in PAGES] == ["cuda-cpp", "cute", "numba-cuda", "triton"]


@by_page
def test_quoted_python_parses(page: Path) -> None:
    for body in re.findall(r"^```python3\n(.*?)^```$", page.read_text(), re.M | re.S):
        functions = [node.name for node in ast.walk(ast.parse(body)) if isinstance(node, ast.FunctionDef)]
        ours = re.findall(r"^@lw\.kernel\ndef (\w+)", page.read_text(), re.M)
        assert set(functions) <= set(ours), "the same kernel stands on both sides, under one name"


@by_page
def test_names_of_this_library_exist(page: Path) -> None:
    for path in set(re.findall(r"\blw((?:\.\w+)+)", page.read_text())):
        found: object = lw
        for name in path.split(".")[1:]:
            if name not in ("x", "y", "z"):  # of lw.thread_idx, which a kernel alone can read
                found = getattr(found, name)
