"""`lanewise explore` as a program: the link, Ctrl-C, files, ports, and the static site."""

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lanewise.cli.commands.explore import open_file
from lanewise.explore import kernels, static_site
from lanewise.explore.answers import Session
from lanewise.explore.kernel_requests import EXAMPLES, KernelRequest, requested


def test_it_serves_until_ctrl_c(tmp_path: Path) -> None:
    kernel = tmp_path / "k.ptx"
    kernel.write_text(".version 7.0\n.target sm_80\n.address_size 64\n")
    command = [sys.executable, "-m", "lanewise", "explore", "--no-browser", str(kernel)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        link, _, room = program.stdout.readline().strip().partition("#")
        assert link.startswith("http://127.0.0.1:") and room == "/kernels?file=k.ptx"
        with urllib.request.urlopen(link) as page:
            assert b"lanewise explore" in page.read()
        asked = urllib.request.Request(
            f"{link}api/layouts/evaluate",
            json.dumps({"text": "(2,2)"}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(asked) as answer:
            assert json.load(answer)["indices"] == [[0, 2], [1, 3]]
        program.send_signal(signal.SIGINT)
        _, said = program.communicate()
        assert program.returncode == 0 and said.strip() == ""


SAXPY = EXAMPLES["saxpy"].source


def test_the_page_opens_at_the_first_file(tmp_path: Path) -> None:
    """A script at its first launch; a kernel with a launch that runs; else the text."""
    files = {
        "my kernel.ptx": SAXPY,
        "empty.ptx": ".version 7.0\n.target sm_80\n.address_size 64\n",
        "wrong.ptx": "this is no PTX",
        "quiet.py": "x = 1\n",
        "launches.py": f"import lanewise as lw, numpy as np\nk = lw.load({SAXPY!r})['saxpy']\n"
        "x = np.ones(8, np.float32)\nfor _ in range(2):\n    k[1, 8](1.0, x, x, 8)\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    session = Session([tmp_path / name for name in files])
    rooms = {name: open_file(tmp_path / name, session) for name in files}
    assert rooms == {
        "my kernel.ptx": "#/kernels?file=my%20kernel.ptx&run=1",
        "empty.ptx": "#/kernels?file=empty.ptx",
        "wrong.ptx": "#/kernels?file=wrong.ptx",
        "quiet.py": "#/kernels?file=quiet.py",
        "launches.py": "#/kernels?opened=1",
    }
    about = kernels.about(session)
    assert len(about["opened"]) == 2
    request = {name: value for name, value in about["files"][0].items() if name != "name"}
    with requested(KernelRequest.of(request)) as launch:  # what the page begins with is a launch
        assert len(launch.arguments) == 4


def test_what_it_does_not_open(lanewise: Callable[..., Any], tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("")
    for arguments, words in (
        (["nowhere.cu"], "no such file"),
        ([tmp_path], "a folder, not a file"),
        ([text], "opens PTX"),
        ([text, "--static", tmp_path / "site"], "saved traces"),
        (["--static", text], "is a file"),
        (["--port", "99999"], "--port"),
    ):
        said = lanewise("explore", *arguments)
        assert said.code == 2 and words in said.err and said.err.count("\n") == 1


def test_the_static_site_is_files(
    lanewise: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [("layouts", "evaluate", {"text": "(2,2):(2,1)"}), ("tour", "pages", {})]
    monkeypatch.setattr(static_site, "questions", lambda: asked)
    trace = tmp_path / "run.html"
    trace.write_text("<html><title>hgemm: a trace</title></html>")
    said = lanewise("explore", "--static", tmp_path / "site", trace)
    assert said.code == 0 and "a site with 2 answers" in said.out and "a minute" in said.err
    site = tmp_path / "site"
    assert "data-static" in (site / "index.html").read_text()
    name = static_site.file_name({"text": "(2,2):(2,1)"})
    assert json.loads((site / "data/layouts/evaluate" / f"{name}.json").read_text())["size"] == 4
    listed = json.loads((site / "data/traces.json").read_text())
    assert listed == [{"file": "traces/0-run.html", "title": "hgemm: a trace"}]
    assert (site / listed[0]["file"]).read_text() == trace.read_text()
