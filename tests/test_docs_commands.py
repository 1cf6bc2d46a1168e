"""The commands on every page run, exit with 0 and answer as printed; `…` stands for anything.

`lanewise` and `python -c` run inside the test process, one after another in one folder, because a page has
dozens of them. Scripts run as processes of their own, and so does what needs a shell: a pipe, an output file.
"""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from doc_pages import PAGES, ROOT, commands, environment, name
from lanewise.cli import main

#: The page whose answers are compared line by line: it is where a reader compares a terminal with the page.
LINE_BY_LINE = ROOT / "docs" / "command-line.md"
NEEDS_A_SHELL = re.compile(r" [|>] ")


def words(text: str) -> str:
    return " ".join(text.split())


def in_this_process(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code of a command, and what it printed."""
    capsys.readouterr()
    program, *rest = arguments
    if program == "lanewise":
        code = main(rest)
    else:
        assert (program, rest[0]) == ("python", "-c"), arguments
        exec(compile(rest[1], "<string>", "exec"), {"__name__": "__main__"})
        code = 0
    said = capsys.readouterr()
    return code, said.out + said.err


def in_a_shell(command: str, folder: Path) -> tuple[int, str]:
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment(), capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr


def answer_of(command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code and output of a command; `A || B` runs B if A fails, as in a shell."""
    if NEEDS_A_SHELL.search(command) or command.startswith("python examples"):
        return in_a_shell(command, folder)
    first, otherwise, second = command.partition(" || ")
    code, said = in_this_process(shlex.split(first), capsys)
    if otherwise and code:
        match shlex.split(second):
            case ["true"]:
                code = 0
            case ["test", "$?", "=", expected]:
                code = int(code != int(expected))
            case ["echo", text]:
                code, said = 0, f"{said}{text}\n"
            case _:
                raise AssertionError(f"this test does not know {second!r}")
    return code, said


def test_a_failing_command_is_told_from_one_that_succeeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = "lanewise explain mma.m16n8k24"
    assert answer_of(wrong, tmp_path, capsys)[0] == 2
    assert answer_of(f"{wrong} || test $? = 2", tmp_path, capsys)[0] == 0
    assert answer_of(f"{wrong} || test $? = 1", tmp_path, capsys)[0] == 1
    code, said = answer_of(f"{wrong} || echo so", tmp_path, capsys)
    assert code == 0 and said.endswith("\nso\n")


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=name)
def test_commands_run_and_answer_as_printed(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They run one after another where `examples` is."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    for command, answer in commands(page):
        with monkeypatch.context() as patch:
            if command.startswith("lanewise cache"):  # `--clear` must not take what other tests have compiled
                patch.setenv("LANEWISE_CACHE_DIR", str(tmp_path / "cache"))
            code, given = answer_of(command, tmp_path, capsys)
        assert code == 0, f"{command}\n{given}"
        if page == LINE_BY_LINE and answer:
            pattern = "(.|\n)*".join(map(re.escape, answer.split("…\n")))
            assert re.fullmatch(pattern, given), f"{command}\nanswered\n{given}"
        rest = words(given)
        for part in words(answer).split("…"):
            _, found, rest = rest.partition(part.strip()) if part.strip() else ("", "…", rest)
            assert found, f"{command}\nanswered\n{given}"
