"""The stories of docs/debugging.md: the debugger answers as the page shows."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent.parent / "docs" / "debugging.md"


def test_the_stories_are_true(
    answered: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8")
    for body in re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S):
        Path(body.split()[1]).write_text(body, encoding="utf-8")
    stories = re.findall(r"^```text\n\$ lanewise (.*?)\n(.*?)^```$", text, re.M | re.S)
    assert len(stories) == 3
    for command, answer in stories:
        typed = re.findall(r"^\(lanewise\) (.*)$", answer, re.M)
        given = (each for line in typed for each in ("-x", line))
        assert answered(*command.split(), *given) == answer
