"""The root conftest.py: a run has a cache folder of its own, removed at the end, and heeds SIGINT."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from everything import EVERYTHING, only_with_everything

ROOT = Path(__file__).parents[1]

#: Two tests that two workers share: each notes the folder that it and a program it starts would use, and
#: whether code is compiled with few passes.
NOTES = """
import os, subprocess, sys
from pathlib import Path
import pytest

ASK = "from lanewise.disk_cache import cache_directory; print(cache_directory())"

@pytest.mark.parametrize("number", [0, 1])
def test_note(number):
    asked = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True)
    named = os.environ["LANEWISE_CACHE_DIR"]
    there = Path(named).is_dir()
    quickly = os.environ["LANEWISE_COMPILE_QUICKLY"]
    worker = os.environ.get("PYTEST_XDIST_WORKER", "controller")
    note = [worker, named, asked.stdout.strip(), quickly, str(there)]
    (Path(__file__).parent / f"note{number}").write_text("\\n".join(note))
    if there:
        (Path(named) / f"compiled{number}.o").touch()
"""


def run(folder: Path, *options: str, **variables: str) -> list[list[str]]:
    """What the two tests noted in a run of pytest, started with these variables of lanewise and no others."""
    (folder / "conftest.py").write_text((ROOT / "conftest.py").read_text())
    (folder / "test_notes.py").write_text(NOTES)
    (folder / "pytest.ini").touch()  # so that the settings of a folder above do not apply
    (folder / "temporary").mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LANEWISE_")}
    environment |= {"TMPDIR": str(folder / "temporary"), "PYTHONPATH": str(ROOT / "src"), **variables}
    for name in [name for name in environment if name.startswith("PYTEST_")]:
        del environment[name]  # of the run that this test is part of
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(folder)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return [(folder / f"note{number}").read_text().split("\n") for number in (0, 1)]


@only_with_everything
@pytest.mark.parametrize("options", [("-n", "2"), ()], ids=["two workers", "one process"])
def test_workers_and_programs_share_a_folder_that_is_removed_at_the_end(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    notes = run(tmp_path, *options)
    assert all(worker.startswith("gw" if options else "controller") for worker, *_ in notes)
    assert {there for *_, there in notes} == {"True"}
    folders = {folder for _, named, asked, *_ in notes for folder in (named, asked)}
    assert len(folders) == 1 and Path(folders.pop()).parent == tmp_path / "temporary"
    assert not list((tmp_path / "temporary").glob("lanewise-tests-*"))


def test_a_folder_that_the_user_names_is_used_and_kept(tmp_path: Path) -> None:
    named = tmp_path / "warm"
    named.mkdir()
    notes = run(tmp_path, LANEWISE_CACHE_DIR=str(named))
    assert {(used, asked) for _, used, asked, *_ in notes} == {(str(named), str(named))}
    assert {quickly for *_, quickly, _ in notes} == {"1"}
    assert {path.name for path in named.iterdir()} == {"compiled0.o", "compiled1.o"}
    assert not list((tmp_path / "temporary").glob("lanewise-tests-*"))


@only_with_everything
def test_an_empty_name_keeps_nothing_on_disk(tmp_path: Path) -> None:
    notes = run(tmp_path, LANEWISE_CACHE_DIR="", LANEWISE_EVERYTHING="1")
    assert {(used, asked) for _, used, asked, *_ in notes} == {("", "None")}
    assert {quickly for *_, quickly, _ in notes} == {""}


def test_this_run_does_not_use_the_users_folder() -> None:
    """Whatever started this run, the suite's folder or one that was named for it is in use."""
    assert "LANEWISE_CACHE_DIR" in os.environ


def test_hypothesis_reads_no_sources_unless_everything_is_tried() -> None:
    providers = pytest.importorskip("hypothesis.internal.conjecture.providers")
    constants = getattr(providers, "_get_local_constants", None)
    if constants is None:
        pytest.skip("this release of Hypothesis draws no constants of modules")
    assert bool(len(constants())) == EVERYTHING


def test_a_run_in_the_background_heeds_sigint(tmp_path: Path) -> None:
    """What a test starts can be interrupted, even if the run itself was started with SIGINT ignored."""
    ask = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    (tmp_path / "conftest.py").write_text((ROOT / "conftest.py").read_text())
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "test_child.py").write_text(
        "import subprocess, sys\n"
        "def test_child():\n"
        f"    assert subprocess.check_output([sys.executable, '-c', {ask!r}]) == b'True\\n'\n"
    )
    command = f"trap '' INT; exec {sys.executable} -m pytest -q -p no:cacheprovider ."
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
