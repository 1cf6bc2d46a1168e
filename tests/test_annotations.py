"""Every test and every fixture states its types: mypy reads the body of a function only if it is annotated.

mypy itself asks for this everywhere but in files that hold kernels, whose annotations are no Python types.
"""

import ast
from pathlib import Path

TESTS = Path(__file__).parent


def untyped(path: Path) -> list[str]:
    """The tests and fixtures of a file that leave out a type, each with its line."""
    found = []
    module = ast.parse(path.read_text())
    holders: list[ast.Module | ast.ClassDef] = [module]
    holders += [each for each in module.body if isinstance(each, ast.ClassDef)]
    for node in (each for holder in holders for each in holder.body):
        if not isinstance(node, ast.FunctionDef):
            continue
        fixture = any("pytest.fixture" in ast.unparse(each) for each in node.decorator_list)
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        typed = node.returns is not None and all(each.annotation or each.arg == "self" for each in arguments)
        if (node.name.startswith("test_") or fixture) and not typed:
            found.append(f"{path.relative_to(TESTS.parent)}:{node.lineno}: {node.name}")
    return found


def test_every_test_and_fixture_states_its_types() -> None:
    assert not [each for path in sorted(TESTS.rglob("*.py")) for each in untyped(path)]
