"""The site: every public name is in the reference, with an example; notebooks are their pages, and run.

Building the site takes MkDocs, which CI installs for it alone; what can be held without it is held here.
"""

import inspect
import json
import re
import sys
from pathlib import Path

import pytest

import lanewise as lw
from doc_pages import ROOT, blocks
from everything import sampled
from lanewise import lang

sys.path.insert(0, str(ROOT / "docs" / "site"))
import notebooks

REFERENCE = sorted((ROOT / "docs" / "api").glob("*.md"))
#: An entry of the reference, by its last word: `::: lanewise.lang.TensorMap` is of TensorMap.
ENTRY = re.compile(r"^::: lanewise\.(?:[\w.]+\.)?(\w+)$", re.M)
PUBLIC = sorted({*lw.__all__, *lang.__all__} - {"__version__", "lang"})
FORMATS = {name for name in PUBLIC if isinstance(getattr(lw, name), lw.Format)}


def test_every_public_name_is_in_the_reference_once() -> None:
    entries = [name for page in REFERENCE for name in ENTRY.findall(page.read_text(encoding="utf-8"))]
    missing = set(PUBLIC) - FORMATS - set(entries)
    assert not missing, f"docs/api has no entry for {sorted(missing)}"
    twice = {name for name in entries if entries.count(name) > 1}
    assert not twice, f"docs/api has two entries for {sorted(twice)}"
    formats = (ROOT / "docs" / "api" / "formats.md").read_text(encoding="utf-8")
    assert not {name for name in FORMATS if f"`lw.{name}`" not in formats}


@pytest.mark.parametrize("page", REFERENCE, ids=lambda page: page.stem)
def test_every_name_of_the_reference_has_an_example(page: Path) -> None:
    """An example is one in its docstring, or the program of the page, or one that the page links to."""
    text = page.read_text(encoding="utf-8")
    linked = [ROOT / "docs" / name for name in re.findall(r"\]\(\.\./([\w-]+\.md)", text)]
    program = "\n".join(block for each in (page, *linked) for block in blocks(each, "python"))
    for name in set(ENTRY.findall(text)) & set(PUBLIC):
        used = re.search(rf"\blw\.{name}\b", program)
        assert used or ">>>" in (inspect.getdoc(getattr(lw, name)) or ""), f"{page.name}: {name}"


@pytest.mark.parametrize("page", notebooks.PAGES)
def test_a_notebook_has_the_programs_of_its_page(page: str) -> None:
    cells = notebooks.notebook(ROOT / "docs" / page)["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert code == [block.rstrip("\n") for block in blocks(ROOT / "docs" / page, "python")]
    text = "".join(line for cell in cells if cell["cell_type"] == "markdown" for line in cell["source"])
    assert "```python" not in text and "<details" not in text
    assert not re.search(r"\]\((?!https?:|#)", text), "links of a notebook do not depend on where it lies"


@pytest.mark.slow
@sampled(4)
@pytest.mark.parametrize("page", notebooks.PAGES)
def test_a_notebook_runs(page: str, tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient", reason="pip install '.[docs]'")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    found = nbformat.reads(json.dumps(notebooks.notebook(ROOT / "docs" / page)), as_version=4)
    nbformat.validate(found)
    nbclient.NotebookClient(found, resources={"metadata": {"path": str(tmp_path)}}).execute()


def test_the_citation_has_the_version() -> None:
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {lw.__version__}\n" in text
