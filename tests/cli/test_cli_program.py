"""The program as people run it: in a pipe, on a terminal, interrupted, and starting fast."""

import ast
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lanewise
import lanewise.cli
from everything import EVERYTHING, sampled

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
PROGRAM = [sys.executable, "-m", "lanewise.cli"]
SOURCE = str(Path(lanewise.__file__).parent.parent)
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([SOURCE, os.environ.get("PYTHONPATH", "")])}


def run(*arguments: Any, env: dict[Any, Any] = ENVIRONMENT) -> Any:
    return subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, env=env)


def test_version(answered: Callable[..., str]) -> None:
    assert answered("--version") == f"lanewise {lanewise.__version__}\n"


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["list"],
        ["explain"],
        ["draw"],
        ["draw", "layout"],
        ["compute"],
        ["atoms"],
        ["run"],
        ["check"],
        ["ptx"],
        ["sass"],
        ["doctor"],
        ["cache"],
    ],
)
def test_help_has_examples(command: list[Any], lanewise: Callable[..., Any]) -> None:
    said = lanewise(*command, "--help")
    assert said.code == 0 and said.err == ""
    assert f"lanewise {' '.join(command)}".strip() in said.out.split("Options:")[0].partition("\n")[2]
    assert "\x1b" not in said.out


def test_no_arguments_show_the_help(lanewise: Callable[..., Any]) -> None:
    assert lanewise() == lanewise("--help")


def test_what_is_no_terminal_gets_plain_text_of_any_width(answered: Callable[..., str]) -> None:
    text = answered("list", "--arch", "sm_120a", "--kind", "mxf4")
    assert all(sign not in text for sign in "\x1b│┃─━┏")
    assert max(map(len, text.splitlines())) > 120


def test_closed_pipe_is_no_error() -> None:
    """`lanewise list | head -1`: the reader leaves before the writer is done."""
    with subprocess.Popen(
        [*PROGRAM, "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141


def test_terminal_that_cannot_show_a_cross() -> None:
    done = run("explain", MMA, env={**ENVIRONMENT, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0 and "16?16" in done.stdout


def test_interrupt(tmp_path: Path) -> None:
    pipe = tmp_path / "a.npy"
    os.mkfifo(pipe)
    command = [*PROGRAM, "compute", MMA, str(pipe), str(pipe), "--arch", "sm_80"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        writer = None
        while writer is None and process.poll() is None:
            try:
                writer = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:  # the program has not opened its end yet
                time.sleep(0.05)
        process.send_signal(signal.SIGINT)  # now it waits for a file that nobody writes
        _, err = process.communicate()
        assert process.returncode == 130
        assert err == "lanewise: interrupted\n"
    os.close(writer)  # type: ignore[arg-type]  # opened above, or the program has ended and the test fails


def on_terminal(columns: int, *arguments: Any) -> tuple[Any, ...]:
    """What the program writes to a terminal, and how it ends."""
    pid, terminal = pty.fork()
    if pid == 0:
        environment = {**ENVIRONMENT, "TERM": "xterm-256color", "COLUMNS": str(columns)}
        environment.pop("NO_COLOR", None)
        os.execve(sys.executable, [*PROGRAM, *arguments], environment)
    seen = b""
    try:
        while chunk := os.read(terminal, 65536):
            seen += chunk
    except OSError:  # how Linux says that the other end is closed
        pass
    os.close(terminal)
    return seen.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_terminal_gets_colours_and_its_width() -> None:
    seen, code = on_terminal(60, "explain", MMA, "--operand", "A")
    assert code == 0 and "\x1b[" in seen
    plain = "".join(part.split("m", 1)[-1] if i else part for i, part in enumerate(seen.split("\x1b[")))
    assert max(len(line) for line in plain.splitlines()) <= 60
    assert "12:2.1" in plain


def test_terminal_never_breaks_an_instruction() -> None:
    seen, code = on_terminal(30, "list", "--arch", "sm_80", "--a", "bf16")
    assert code == 0
    for form in lanewise.instructions("sm_80", a="bf16"):
        assert form.text in seen
    for columns in (30, 60, 120) if EVERYTHING else ():
        seen, code = on_terminal(columns, "explain", MMA, "--element", "A", "3", "9")
        assert code == 0 and MMA in seen


def test_a_narrow_terminal_cuts_no_numbers() -> None:
    """A count is never shorter than it is in a pipe; the line may be longer than the terminal is wide."""
    seen, code = on_terminal(20, "list", "--count", "--arch", "sm_90")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", seen)
    assert code == 0
    for family in ("mma", "mma.sp::ordered_metadata", "wmma.load"):
        count = len(lanewise.instructions("sm_90", family))
        assert re.search(rf"^{family} +{count}\b", plain, re.M)


@sampled(6)
@pytest.mark.parametrize(
    ("question", "heavy"),
    [
        (["--element", "A", "3", "9"], "rich.console numpy numba llvmlite"),
        (["--lane", "5", "--csv"], "rich.console numpy numba llvmlite"),
        ([], "rich.console numba llvmlite"),
    ],
)
def test_explain_starts_light(question: list[Any], heavy: str) -> None:
    """The answer in a pipe needs none of the libraries that take their time to load."""
    code = (
        "import sys; from lanewise.cli import main; code = main(sys.argv[2:]);"
        "print(code, *(set(sys.argv[1].split()) & set(sys.modules)), file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, heavy, "explain", MMA, *question]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)
    assert done.stderr == "0\n"


def test_every_option_is_named() -> None:
    """Some versions of typer make the name of an option from its metavar: `--FAMILY`."""
    unnamed = [
        f"{file.name}:{node.lineno}"
        for file in Path(lanewise.cli.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "typer.Option" and not node.args
    ]
    assert unnamed == []


def test_python_m_lanewise() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lanewise", "--version"],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
    )
    assert (done.returncode, done.stdout) == (0, f"lanewise {lanewise.__version__}\n")


def test_shells_complete_words() -> None:
    asked = {"_LANEWISE_COMPLETE": "complete_bash", "COMP_WORDS": "lanewise expl", "COMP_CWORD": "1"}
    if EVERYTHING:
        done = run(env=ENVIRONMENT | asked)
        assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["explain", "explore"], "")
    asked |= {"COMP_WORDS": "lanewise explain --el", "COMP_CWORD": "2"}
    done = run(env=ENVIRONMENT | asked)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["--element"], "")
