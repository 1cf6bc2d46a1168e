"""What silences a tool says which rule and why: `type: ignore`, `noqa`, tests that are left out."""

import ast
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "tests", "benchmarks", "examples")
#: Comments that silence a tool: its codes, and what follows them.
SILENCED = {
    "type: ignore": re.compile(r"#\s*type:\s*ignore(?P<codes>\[[\w\-, ]+\])?(?P<rest>.*)"),
    "noqa": re.compile(r"#[\s\w:]*noqa(?P<codes>:\s*[A-Z]+\d+(?:,\s*[A-Z]+\d+)*)?(?P<rest>.*)"),
}
#: Words that say nothing by themselves, and a word that may be a reason.
_OTHERS = re.compile(r"noqa:?[A-Z\d, ]*")
_REASON = re.compile(r"[A-Za-z\d]{3}")


def sources(pattern: str) -> Iterator[tuple[Path, str]]:
    """The files of the project in which a pattern stands, and their texts."""
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*.py")):
            if re.search(pattern, text := file.read_text(encoding="utf-8")):
                yield file, text


def silent_faults(comment: str) -> Iterator[str]:
    """What a comment that silences a tool does not say."""
    for what, pattern in SILENCED.items():
        found = pattern.search(comment)
        if found and not found["codes"]:
            yield f"{what} without a code"
        elif found and not _REASON.search(_OTHERS.sub("", found["rest"])):
            yield f"{what} without a reason"


def test_comments_that_silence_a_tool_have_a_code_and_a_reason() -> None:
    seen = []
    for file, _ in sources(r"type:\s*ignore|noqa"):
        with tokenize.open(file) as text:
            comments = [
                each for each in tokenize.generate_tokens(text.readline) if each.type == tokenize.COMMENT
            ]
        name = file.relative_to(ROOT)
        seen += [
            f"{name}:{each.start[0]}: {fault}" for each in comments for fault in silent_faults(each.string)
        ]
    assert not seen, "\n".join(seen)


def left_out(tree: ast.AST) -> Iterator[int]:
    """The lines of marks and calls that leave a test out, or let it fail, and give no reason."""
    reasons: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (node.args or node.keywords):
            by_name = any(each.arg == "reason" for each in node.keywords)
            is_mark = isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Attribute)
            if by_name or (node.args and not is_mark):
                reasons.add(id(node.func))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or node.attr not in ("skip", "skipif", "xfail"):
            continue
        owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
        if owner in ("mark", "pytest") and id(node) not in reasons:
            yield node.lineno


def test_tests_that_are_left_out_say_why() -> None:
    seen = [
        f"{file.relative_to(ROOT)}:{number}: a test is left out without a reason"
        for file, text in sources(r"\.(skip|skipif|xfail)\b")
        for number in left_out(ast.parse(text))
    ]
    assert not seen, "\n".join(seen)


def test_what_is_missing_is_seen() -> None:
    wrong = ["# type: ignore", "# type: ignore[misc]", "# noqa", "# noqa: E501", "# ruff: noqa"]
    wrong.append("# type: ignore[misc]  # noqa: E501")
    assert all(list(silent_faults(each)) for each in wrong)
    right = (
        "# type: ignore[misc]  # torch has no types",
        "# noqa: E501, as written",
        "# noqa: B018 (it raises)",
    )
    assert not any(list(silent_faults(each)) for each in right)
    wrong = ["pytest.skip()", "pytest.mark.skip", "pytest.mark.xfail(strict=True)", "pytest.mark.skipif(x)"]
    assert sorted(left_out(ast.parse("\n".join(wrong)))) == [1, 2, 3, 4]
    good = ("pytest.skip('why')", "pytest.mark.skip(reason='why')", "pytest.mark.slow", "rows.skip")
    assert not list(left_out(ast.parse("\n".join(good))))
