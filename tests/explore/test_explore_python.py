"""Python that is typed on the page runs for the user of this machine, within limits, and for nobody else."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from lanewise.errors import LanewiseError
from lanewise.explore import kernel_workers, kernels, static_site
from lanewise.explore import server as server_module
from lanewise.explore.answers import Session, answer
from lanewise.explore.kernel_requests import EXAMPLES, KernelRequest, requested
from lanewise.explore.kernel_worker import can_limit
from lanewise.explore.server import ExploreServer

pytestmark = pytest.mark.skipif(not can_limit(), reason="this system has no limits for a process")

SCRIPT = """import numpy as np
import lanewise as lw

@lw.kernel
def add(x: lw.Ptr[lw.i32], by: lw.i32):
    i = lw.lane_id()
    x[i] = x[i] + by

x = np.zeros(32, np.int32)
for by in (1, 2, 3):
    add[1, 32](x, by)
"""


def typed(source: str, **fields: Any) -> dict[str, Any]:
    return {"language": "python", "source": source, **fields}


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[kernel_workers.Workers]:
    made = kernel_workers.Workers()
    monkeypatch.setattr(kernels, "workers", made)
    yield made
    made.close()


def asked(session: Session, what: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    found = answer(session, "kernels", what, json.dumps(body).encode())
    return found.status, json.loads(found.content)


def test_a_script_runs_up_to_the_launch_that_is_shown(workers: kernel_workers.Workers) -> None:
    session = Session(runs_python=True)
    # What a script does to its process ends with it: the next one has a process of its own.
    spoilt = "import lanewise, numpy\nnumpy.zeros = None\nlanewise.kernel = None\n"
    assert asked(session, "run", {"tab": "t", "request": typed(spoilt)})[0] == 400
    before = workers.pids
    body = {"tab": "t", "request": typed(SCRIPT, launch=3)}
    status, data = asked(session, "run", body)
    assert status == 200 and data["kernel"] == "add" and list(data["files"]) == ["kernel.py"]
    assert data["results"][0]["rows"] == [["6"] * 32]  # 1 and 2 of the launches before, 3 of the one shown
    (own,) = workers.pids
    assert own not in before
    place = {"of": "x[3]", "step": data["all"] - 1, "warp": 0, "block": 0}
    status, origin = asked(session, "origin", {**body, **place})
    assert status == 200 and origin["inputs"] == {"x": [[3]]} and workers.pids == [own]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "empty"),
        ("x = (", "kernel.py, line 1: "),
        ("\nraise ValueError('no')", r"kernel.py, line 2: ValueError: no"),
        ("import sys\nsys.exit(3)", "kernel.py, line 2: SystemExit: 3"),
        ("print('nothing')", "without the launch that is shown: call a kernel"),
        ("try:\n    1 / 0\nexcept Exception:\n    pass", "call a kernel"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("x" * (1 << 19), "characters"),
    ],
)
def test_mistakes_in_a_script_are_sentences(source: str, message: str) -> None:
    with (
        pytest.raises(LanewiseError, match=message),
        requested(KernelRequest.of(typed(source)), runs_python=True),
    ):
        pass


def test_a_script_that_catches_everything_still_stops_at_its_launch() -> None:
    guarded = "    try:\n        add[1, 32](x, by)\n    except Exception:\n        pass"
    source = SCRIPT.replace("    add[1, 32](x, by)", guarded)
    with requested(KernelRequest.of(typed(source, launch=2)), runs_python=True) as launch:
        assert launch.arguments[1] == 2


def test_a_launch_that_the_script_checks_itself_is_one_of_its_launches() -> None:
    source = SCRIPT.replace("    add[1, 32](x, by)", "    lw.check(add[1, 32], x, by)")
    with requested(KernelRequest.of(typed(source, launch=2)), runs_python=True) as launch:
        assert launch.arguments[1] == 2


@pytest.mark.parametrize("number", [0, -1, 4, 1000])
def test_a_launch_that_there_is_not(number: int) -> None:
    with (
        pytest.raises(LanewiseError, match=str(number)),
        requested(KernelRequest.of(typed(SCRIPT, launch=number)), runs_python=True),
    ):
        pass


# Who may not ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["run", "origin", "sass"])
def test_a_page_that_is_exported_or_served_to_others_runs_none(
    what: str, workers: kernel_workers.Workers
) -> None:
    """No question runs Python: neither of a session that never does, nor of others at one that does."""
    body: dict[str, Any] = {"tab": "t", "request": typed(SCRIPT)}
    if what == "origin":
        body |= {"of": "x[0]", "step": 0, "warp": 0, "block": 0}
    for session, words in (
        (Session(), "does not run Python"),
        (Session(runs_python=True).for_others(), "served to others"),
    ):
        status, data = asked(session, what, body)
        assert status == 400 and words in data["error"]
    assert workers.pids == []


def test_a_process_without_limits_runs_none(workers: kernel_workers.Workers) -> None:
    with pytest.raises(LanewiseError, match="does not run Python"):
        workers.ask("t", "run", typed(SCRIPT), runs_python=False)


def test_a_system_without_limits_runs_none(
    monkeypatch: pytest.MonkeyPatch, workers: kernel_workers.Workers
) -> None:
    monkeypatch.setattr(kernels, "can_limit", lambda: False)
    status, data = asked(Session(runs_python=True), "run", {"tab": "t", "request": typed(SCRIPT)})
    assert status == 400 and "no limits of memory" in data["error"] and workers.pids == []


def test_a_server_that_is_not_on_the_loopback_address_runs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExploreServer() as server:
        assert server.session.refuses_python == ""
    monkeypatch.setattr(server_module, "ADDRESS", "0.0.0.0")  # bound, and closed at once
    with ExploreServer() as server:
        assert server.session.refuses_python


PROXIES = {
    "X-Forwarded-For": "10.0.0.7",
    "Forwarded": "for=10.0.0.7",
    "Via": "1.1 proxy",
    "X-Real-IP": "10.0.0.7",
}


@pytest.mark.parametrize("header", PROXIES)
def test_what_a_proxy_passes_on_runs_none(
    header: str, server: ExploreServer, workers: kernel_workers.Workers
) -> None:
    def post(question: str, body: dict[str, Any], headers: dict[str, str]) -> dict[str, Any]:
        request = urllib.request.Request(
            f"{server.link}api/kernels/{question}",
            json.dumps(body).encode(),
            {"Content-Type": "application/json", **headers},
        )
        try:
            with urllib.request.urlopen(request) as found:
                return dict(json.load(found))
        except urllib.error.HTTPError as error:
            return dict(json.load(error))

    passed_on = {header: PROXIES[header]}
    assert "served to others" in post("run", {"tab": "t", "request": typed(SCRIPT)}, passed_on)["error"]
    assert "served to others" in post("about", {}, passed_on)["python"]
    assert post("about", {}, {})["python"] == ""


def test_an_exported_site_asks_nothing_of_kernels() -> None:
    rooms = {room for room, _, _ in itertools.islice(static_site.questions(), 400)}
    assert rooms and not rooms & {"kernels", "bits"}


# Limits -----------------------------------------------------------------------------------------------------


def limited(source: str, **limits: float) -> subprocess.CompletedProcess[str]:
    begin = f"from lanewise.explore.kernel_worker import limit_process\nlimit_process(**{limits!r})\n"
    return subprocess.run([sys.executable, "-c", begin + source], capture_output=True, text=True, check=False)


def test_the_processor_time_is_bounded() -> None:
    assert limited("while True: pass", cpu_seconds=1).returncode in (-signal.SIGXCPU, -signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the process looks after it itself")
def test_the_memory_is_bounded() -> None:
    ended = limited("x = bytearray(3 << 30)", memory_bytes=2 << 30)
    assert ended.returncode == 1 and "MemoryError" in ended.stderr
    assert limited("x = bytearray(1 << 29)", memory_bytes=2 << 30).returncode == 0


def test_a_script_that_never_launches_is_stopped(
    workers: kernel_workers.Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_workers, "STOP_SECONDS", 0.0)
    session = Session(runs_python=True)
    answers: list[tuple[int, dict[str, Any]]] = []
    body = {"tab": "t", "request": typed("while True: pass")}
    thread = threading.Thread(target=lambda: answers.append(asked(session, "run", body)))
    thread.start()
    while thread.is_alive():  # a stop that comes before the process is there stops nothing
        workers.stop("t")
        thread.join(0.2)
    ((status, data),) = answers
    assert status == 400 and "the process that ran the script has ended" in data["error"]


def test_the_scripts_of_the_examples_can_be_edited() -> None:
    """What the editor is given of each script is Python that runs when it is typed."""
    for name in ("transpose", "scan"):
        with requested(KernelRequest.of(typed(EXAMPLES[name].source)), runs_python=True) as launch:
            assert launch.files == {"kernel.py": EXAMPLES[name].source}
