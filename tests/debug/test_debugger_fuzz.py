"""Nonsense at the prompt and in messages of editors: every line has an answer, and none is a traceback."""

import json
import os
import random
from pathlib import Path

import pytest

from debug.dap_client import Client
from debug.debugged import hgemm_debugger, launched
from lanewise.debug.adapter.adapter import Adapter
from lanewise.debug.commands import _TABLE, Commands, Leave
from lanewise.debug.debugger import Debugger
from lanewise.debug.prompt import answered, completions
from traces.probes import CASES

SCRIPT = Path(__file__).with_name("product_script.py")
COMMANDS = [name for each in _TABLE for name in each.names if each.names[0] not in ("quit", "leave", "block")]
NUMBERS = ("0", "1", "-1", "31", "32", "2**40", "0.5", "0x1f", "1e400", "٣")
OPERATORS = ("+", "-", "*", "/", "//", "%", "**", "<<", "&", "^", "<", "==", "and", "or", "@", "in", "if")
OTHERS = (
    "", "all", "0-3,7", "0xff", "31-0", "ptx:20", "ptx", "1,0", "barriers", "copies", "shared", "warps",
    "28 if lane == 7", "28 if", "As f16[64,64]", "As f16[8,8]", "acc out.svg", "acc out.nothing", "/dev/full",
    "/nowhere/x.html", "a\0b.html", "x.json", "100000000000000",
)  # fmt: skip


def expression(rng: random.Random, names: list[str], depth: int = 0) -> str:
    """Return something like an expression."""
    kind = rng.randrange(3) if depth > 2 else rng.randrange(7)
    if kind < 2:
        return rng.choice(names)
    if kind == 2:
        return rng.choice(NUMBERS)
    inner = [expression(rng, names, depth + 1) for _ in range(3)]
    return {
        3: f"{rng.choice(names)}[{', '.join(inner[: rng.randrange(4)])}]",
        4: f"{rng.choice(names)}[{rng.randint(-5, 40)}:{rng.randint(-5, 40)}, ::{rng.randint(-1, 2)}]",
        5: f"{inner[0]} {rng.choice(OPERATORS)} {inner[1]}",
        6: f"{rng.choice(('abs', 'max', '__import__', ''))}({inner[0]})",
    }[kind]


def line(rng: random.Random, names: list[str]) -> str:
    """Return something that somebody might type, or not."""
    if rng.random() < 0.05:
        return "".join(chr(rng.randint(1, 2000)) for _ in range(rng.randrange(30)))
    rest = expression(rng, names) if rng.random() < 0.6 else rng.choice(OTHERS)
    return f"{rng.choice(COMMANDS)} {rest}"


@pytest.mark.parametrize("which", ["product", "hopper"])
def test_every_line_has_an_answer(which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    case = CASES["hopper"]()
    debugger = (
        hgemm_debugger() if which == "product" else Debugger(launched(case.configured, *case.arguments))
    )
    told, rng = Commands(debugger), random.Random(which)
    recording = debugger.recorded.recording
    names = [
        *(each.name for each in recording.arguments), *recording.shared_arrays.declared,
        *recording.names.variables, *list(recording.names.by_name)[:20], "$lane", "threadIdx.x", "nothing",
    ]  # fmt: skip
    seconds = os.times().user
    for _ in range(1200):
        asked = line(rng, names)
        answer = answered(told, asked)
        assert "Traceback" not in answer and "mistake in lanewise" not in answer, asked
        completions(debugger, asked, asked.split(" ")[-1])
    assert os.times().user - seconds < 60


def test_what_nobody_foresaw_is_an_answer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Commands(hgemm_debugger())

    def fails(line: str) -> str:
        raise IndexError("list index out of range")

    monkeypatch.setattr(told, "do", fails)
    assert answered(told, "next").startswith("error: 'next' failed (IndexError: list index out of range)")
    assert "Please report it" in answered(told, "next")

    def leaves(line: str) -> str:
        raise Leave(quits=True)

    monkeypatch.setattr(told, "do", leaves)
    with pytest.raises(Leave):
        answered(told, "quit")


#: What fields of messages may hold.
JUNK: tuple[object, ...] = (
    None, 0, 1, -1, 2**70, 1.5, "", "acc", "C[3, 5]", "%r1", "a" * 300, [], [1], {}, {"a": 1}, True,
    [{"line": 5}], [{"line": "x"}], [{"dataId": "C[3, 5]"}],
)  # fmt: skip
FIELDS = (
    "threadId", "frameId", "variablesReference", "expression", "context", "breakpoints", "source", "line",
    "name", "dataId", "condition", "filters", "start", "count", "startFrame", "levels", "granularity",
    "sourceReference",
)  # fmt: skip


def test_every_request_has_a_response() -> None:
    requests = [name[4:] for name in dir(Adapter) if name.startswith("_on_")]
    requests = [name for name in requests if name not in ("disconnect", "terminate", "launch", "attach")]
    rng, client = random.Random(5), Client()
    client.begin(SCRIPT, {SCRIPT: []}, stopOnEntry=True)
    client.event("stopped")
    for _ in range(600):
        name = rng.choice(requests) if rng.random() < 0.95 else rng.choice(("", "nothing", "__init__"))
        arguments: object = {rng.choice(FIELDS): rng.choice(JUNK) for _ in range(rng.randrange(5))}
        if rng.random() < 0.05:
            arguments = rng.choice(JUNK)
        client._number += 1
        message = {"seq": client._number, "type": "request", "command": name, "arguments": arguments}
        body = json.dumps(message).encode()
        client.raw(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        response = client.response(client._number)
        assert response["success"] or response["message"], message
        assert "Traceback" not in json.dumps(response) and "mistake in lanewise" not in json.dumps(response)
    client.send("disconnect")
