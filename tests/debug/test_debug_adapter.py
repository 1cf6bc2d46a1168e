"""The debug adapter, spoken with as an editor does."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from debug.dap_client import PATIENCE, Client
from debug.debugged import PTX, line_of
from lanewise.debug.adapter.adapter import Connection
from lanewise.errors import LanewiseError
from traces.traced import hgemm

SCRIPT = Path(__file__).with_name("product_script.py")
KERNELS = Path(__file__).parent.parent / "traces" / "traced.py"
LDMATRIX, STORE = line_of(hgemm, "b = lw.ldmatrix"), line_of(hgemm, "C[(row + r)")
RACE = """\
import numpy as np
import lanewise as lw


@lw.kernel
def reverse(X: lw.Ptr[lw.f32], Y: lw.Ptr[lw.f32]):
    i = lw.thread_idx.x
    tile = lw.shared(lw.f32, 64)
    tile[i] = X[i]
    y = tile[63 - i]
    Y[i] = y


reverse[1, 64](np.arange(64, dtype=np.float32), np.zeros(64, np.float32))
"""
SLOW = """\
import numpy as np
import lanewise as lw


@lw.kernel
def patient(X: lw.Ptr[lw.i32]):
    turns = lw.i32(0)
    while turns < 0x7FFFFFFF:
        turns += 1
    X[1] = turns


patient[1, 32](np.zeros(32, np.int32))
"""


@pytest.fixture
def client() -> Iterator[Callable[..., Client]]:
    made: list[Client] = []

    def start(*arguments: str, **how: bool) -> Client:
        made.append(Client(*arguments, **how))
        return made[-1]

    yield start
    for each in made:
        if each.process is not None:
            each.process.kill()
            each.process.wait()


def test_a_session_forwards_and_backwards(client: Callable[..., Client]) -> None:
    editor = client()
    condition = {"line": STORE, "condition": "lane == 7 and acc[0] > 1000"}
    editor.begin(SCRIPT, {KERNELS: [LDMATRIX, condition]})
    changed = [editor.event("breakpoint")["breakpoint"] for _ in range(2)]
    assert [each["verified"] for each in changed] == [True, True]
    stop = editor.event("stopped")
    assert (stop["reason"], editor.line()) == ("breakpoint", LDMATRIX)
    assert [each["name"] for each in editor.ask("threads")["threads"]] == ["warp 0"]

    fragments = editor.scope("Fragments")
    rows = editor.below(fragments["a"])
    assert [each["value"] for each in editor.below(rows["[2]"]).values()] == [str(n) for n in range(32, 48)]
    assert editor.below(editor.below(editor.scope("Shared memory")["As"])["[3]"])["[3, 5]"]["value"] == "53"
    assert editor.below(editor.scope("Lanes")["lane 7"])["lane"]["value"] == "7"
    assert editor.scope("Special registers")["ntid.x"]["value"] == "32"
    assert editor.scope("Variables")["lane"]["value"] == "0, 1, 2, 3, … (lanes 0-31)"
    assert editor.below(editor.scope("Variables")["lane"])["lane 9"]["value"] == "9"
    assert "%a0" in editor.scope("Registers") and "A" in editor.scope("Arrays")

    assert (editor.move("next", threadId=1)["reason"], editor.line()) == ("step", LDMATRIX + 1)
    assert (editor.move("stepBack", threadId=1)["reason"], editor.line()) == ("step", LDMATRIX)
    editor.move("stepIn", threadId=1, granularity="instruction")
    assert editor.line() == LDMATRIX
    assert editor.move("reverseContinue", threadId=1)["reason"] in ("breakpoint", "entry")
    frame = editor.ask("stackTrace", threadId=1)["stackFrames"][0]["id"]
    assert editor.ask("evaluate", expression="lane * 0 + 3", frameId=frame)["result"] == "3 in lanes 0-31"
    asked = editor.ask("evaluate", expression="info shared", frameId=frame, context="repl")
    assert "As" in asked["result"]
    assert "no register" in editor.refused("evaluate", expression="nothing", frameId=frame)

    element = editor.below(editor.scope("Arrays")["C"])["[1]"]
    info = editor.ask("dataBreakpointInfo", variablesReference=element["variablesReference"], name="[1, 1]")
    assert info["description"] == "C[1, 1]"
    editor.ask("setBreakpoints", source={"path": str(KERNELS)}, breakpoints=[])
    made = editor.ask("setDataBreakpoints", breakpoints=[{"dataId": info["dataId"]}])["breakpoints"]
    assert made[0]["verified"]
    stop = editor.move("continue", threadId=1)
    assert stop["reason"] == "data breakpoint" and "0 → 17" in stop["description"]
    assert editor.move("reverseContinue", threadId=1)["reason"] == "data breakpoint"
    editor.move("continue", threadId=1)
    editor.ask("continue", threadId=1)  # to the second launch, which changes nothing: C has its values
    assert editor.event("exited")["exitCode"] == 0
    editor.event("terminated")
    outputs = [each["body"]["output"] for each in editor.events if each.get("event") == "output"]
    assert "done 17.0" in "".join(outputs)
    assert editor.close() == 0


def test_findings_are_exceptions(client: Callable[..., Client], tmp_path: Path) -> None:
    script = tmp_path / "race.py"
    script.write_text(RACE)
    editor = client()
    editor.begin(script, {}, filters=("findings",), check=True)
    stop = editor.event("stopped")
    assert stop["reason"] == "exception" and "\nrace: " in stop["text"] and "\n    mend: " in stop["text"]
    assert editor.ask("exceptionInfo", threadId=2)["exceptionId"] == "race" and stop["threadId"] == 2
    assert len(editor.ask("threads")["threads"]) == 2
    assert editor.line(2) == 9
    assert editor.close() == 0


def test_a_kernel_in_a_file(client: Callable[..., Client], tmp_path: Path) -> None:
    kernel = tmp_path / "k.ptx"
    kernel.write_text(PTX)
    editor = client(process=True)
    editor.begin(
        kernel, {kernel: [13]}, block=32, kernelArguments=["arange:f32:32"], stopOnEntry=True, stopAtEnd=True
    )
    assert editor.event("stopped")["reason"] == "entry"
    source = editor.ask("stackTrace", threadId=1)["stackFrames"][0]["source"]
    assert source["path"] == str(kernel.resolve())
    editor.move("continue", threadId=1)
    assert editor.line() == 13 and editor.scope("Registers")["%f0"]["value"].startswith("0, 1, 2")
    assert editor.move("continue", threadId=1)["description"] == "the end of the launch"
    assert editor.move("stepBack", threadId=1)["reason"] == "step"
    assert editor.ask("source", sourceReference=1)["content"].startswith(".version")
    assert editor.close() == 0


def test_pause_stops_a_kernel_that_runs(client: Callable[..., Client], tmp_path: Path) -> None:
    script = tmp_path / "slow.py"
    script.write_text(SLOW)
    editor = client()
    editor.begin(script, {}, stopOnEntry=True)
    editor.ask_later("pause", threadId=1)
    while not editor.has_event("stopped", 0.2):  # until it runs, and is stopped
        editor.ask_later("pause", threadId=1)
    assert editor.event("stopped")["reason"] == "entry"
    assert editor.close() == 0


def test_an_editor_that_goes_away_ends_the_adapter(client: Callable[..., Client], tmp_path: Path) -> None:
    script = tmp_path / "slow.py"
    script.write_text(SLOW)
    editor = client("--limit", "1", port=True)
    editor.begin(script, {})
    editor.hang_up()
    assert editor.process.wait(PATIENCE) in (0, 130)


def test_mistakes_are_responses(client: Callable[..., Client], tmp_path: Path) -> None:
    editor = client()
    assert "does not know" in editor.refused("nonsense")
    assert "does not know" in editor.refused("__class__")
    assert "no launch" in editor.refused("evaluate", expression="1")
    assert "no launch" in editor.refused("scopes", frameId=1)
    assert "no launch" in editor.refused("stackTrace")
    assert editor.ask("threads")
    editor.begin(tmp_path / "nothing.ptx", {})
    assert editor.event("exited")["exitCode"] == 2
    outputs = [each["body"]["output"] for each in editor.events if each.get("event") == "output"]
    assert "nothing.ptx" in "".join(outputs)
    assert editor.close() == 2


@pytest.mark.parametrize(
    "data",
    [
        b"Content-Length: x\r\n\r\n",
        b"Content-Length: 99999999999\r\n\r\n",
        b"\r\n{}",
        b"Content-Length: 3\r\n\r\n{{{",
        b"Content-Length: 2\r\n\r\n[]",
        b"x" * 5000,
    ],
)
def test_what_is_no_message_is_told(data: bytes) -> None:
    with pytest.raises(LanewiseError, match=r"Debug Adapter Protocol|Content-Length"):
        Connection(io.BytesIO(data), io.BytesIO()).read()


def test_a_stream_that_ends_is_no_error() -> None:
    for data in (b"", b"Content-Length: 20\r\n\r\n{}"):
        assert Connection(io.BytesIO(data), io.BytesIO()).read() is None
