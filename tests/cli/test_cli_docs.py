"""The answers printed in docs/command-line.md are those that the commands give; … stands for anything."""

import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parent.parent.parent / "docs" / "command-line.md"


def sessions() -> Iterator[Any]:
    """(command, the answer shown under it) of every console block."""
    for block in re.findall(r"^```console\n(.*?)^```$", PAGE.read_text(), re.M | re.S):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, _, answer = part.partition("\n")
            yield shlex.split(command), answer


def test_shown_answers_are_given(
    lanewise: Callable[..., Any],
    answered: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = 0
    for (program, *arguments), answer in sessions():
        if program == "python":
            subprocess.run([sys.executable, *arguments], check=True, timeout=60)
        elif answer:
            pattern = "(.|\n)*".join(map(re.escape, answer.split("…\n")))
            if "||" in arguments:  # a command that ends with findings
                said = lanewise(*arguments[: arguments.index("||")])
                assert (said.code, said.err) == (1, "")
                given = said.out
            else:
                given = answered(*arguments)
            assert re.fullmatch(pattern, given), f"{arguments}\n{given}"
            shown += 1
    assert shown >= 8
