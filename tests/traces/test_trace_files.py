"""Traces in files: Perfetto's events, and a page that a browser shows without fetching anything."""

import json
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import lanewise as lw
from traces.traced import BROWSER, hgemm_trace, matrices, page_at, reduction


@pytest.fixture(scope="module")
def run() -> lw.traces.Trace:
    x, y = np.linspace(-1, 1, 256, dtype=np.float32), np.zeros(1, np.float32)
    return lw.trace(reduction[1, 128], x, y, 256)


def test_perfetto_has_a_track_for_each_warp_and_an_event_for_each_step(
    run: lw.traces.Trace, tmp_path: Path
) -> None:
    path = run.to_perfetto(tmp_path / "run.json")
    events = json.loads(path.read_text())["traceEvents"]
    steps = [each for each in events if each["ph"] == "X" and each.get("cat") != "wait"]
    assert [each["args"]["step"] for each in steps] == list(range(len(run)))
    tracks = {each["tid"] for each in events if each["name"] == "thread_name"}
    assert tracks == {0, 1, 2, 3} == {each["tid"] for each in steps}
    waits = [each for each in events if each.get("cat") == "wait"]
    assert {each["tid"] for each in waits} == {0, 1, 2}
    # Events of a track follow one another: a wait ends where the warp goes on.
    for warp in tracks:
        mine = sorted(
            (each["ts"], each["dur"]) for each in events if each["ph"] == "X" and each["tid"] == warp
        )
        assert all(ts + dur <= following for (ts, dur), (following, _) in pairwise(mine))


def test_the_page_is_one_file_that_fetches_nothing(run: lw.traces.Trace, tmp_path: Path) -> None:
    path = run.save(tmp_path / "run.html")
    text = path.read_text(encoding="utf-8")
    assert "http://" not in text and "https://" not in text and "{{" not in text
    assert "total += x * 2" in text  # the source is in it
    assert run._repr_html_().startswith("<iframe")
    with pytest.raises(lw.LanewiseError, match="could not be written"):
        run.save(tmp_path / "nowhere" / "run.html")
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
def test_a_browser_shows_the_page(tmp_path: Path) -> None:
    run = hgemm_trace(matrices(16, 8, 32))
    step = run.first(lambda step: step.op.opcode == "mma")
    assert step is not None
    path = run.save(tmp_path / "run.html")
    page = page_at(path, step.number)
    assert 'data-ready="1"' in page and '"note">The page cannot' not in page
    assert f"step {step.number}: block (0, 0, 0), warp 0, PTX line {step.line}" in page
    table = re.search(r'<table id="written">(.*?)</table>', page, re.S)
    assert table is not None
    rows = re.findall(r"<tr>(.*?)</tr>", table.group(1), re.S)
    first = [float(each) for each in re.findall(r"<td>([^<]*)</td>", rows[1])]
    assert first[0] == 0 and np.allclose(first[1:], step.registers["acc"][0], rtol=1e-5)


def test_a_trace_is_saved_as_html_alone(tmp_path: Path) -> None:
    with pytest.raises(lw.LanewiseError, match=r"run\.json: a trace is saved as \.html; trace\.to_perfetto"):
        hgemm_trace(matrices()).save(tmp_path / "run.json")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_told_and_nothing_is_lost(tmp_path: Path) -> None:
    run = hgemm_trace(matrices())
    for write in (run.save, run.to_perfetto):
        with pytest.raises(lw.LanewiseError, match=r"'/dev/full' could not be written: .*No space left"):
            write("/dev/full")
    assert Path("/dev/full").is_char_device()
    kept = tmp_path / "run.html"
    kept.write_text("what was there")
    (tmp_path / "run.html.part").symlink_to("/dev/full")  # the disk is full while it is written
    with pytest.raises(lw.LanewiseError, match="No space left"):
        run.save(kept)
    assert kept.read_text() == "what was there" and [each.name for each in tmp_path.iterdir()] == ["run.html"]
    with pytest.raises(lw.LanewiseError, match="could not be written: embedded null"):
        run.save("a\0b.html")
    assert run.save(kept).stat().st_size > 10_000  # the trace is still there
