"""The packages of the language stand in the order that its docstring gives, and import only downwards."""

import ast
from pathlib import Path

import pytest

import lanewise.lang

FOLDER = Path(lanewise.lang.__file__).parent
ORDER = next(line for line in (lanewise.lang.__doc__ or "").splitlines() if "→" in line).split(" → ")
FILES = sorted(path for path in FOLDER.rglob("*.py") if path != FOLDER / "__init__.py")


def imported_packages(path: Path) -> list[tuple[int, str]]:
    """(line, package) of every import out of the language, in functions and under TYPE_CHECKING too."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lanewise.lang"):
            modules = [node.module or ""]
            if node.module == "lanewise.lang":
                modules = [f"lanewise.lang.{each.name}" for each in node.names]
            found += [(node.lineno, module.split(".")[2]) for module in modules]
    return found


def test_the_order_names_every_package() -> None:
    packages = {path.parent.name for path in FOLDER.glob("*/__init__.py")}
    assert sorted(ORDER) == sorted(packages | {path.stem for path in FOLDER.glob("*.py")} - {"__init__"})


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_a_package_imports_only_those_before_it(path: Path) -> None:
    package = path.relative_to(FOLDER).parts[0].removesuffix(".py")
    allowed = ORDER[: ORDER.index(package) + 1]
    for line, other in imported_packages(path):
        assert other in allowed, f"{path.name}:{line}: {package} imports {other}"
