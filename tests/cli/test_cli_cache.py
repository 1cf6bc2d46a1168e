"""`lanewise cache`: what it says is in the folder is there, and what it clears is the cache's own."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lanewise.disk_cache as disk_cache


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with two programs of a processor, one of a GPU, and a file that somebody else put there."""
    monkeypatch.setenv("LANEWISE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(disk_cache, "package_digest", lambda: "of a library that nobody changes meanwhile")
    monkeypatch.setattr(disk_cache, "_is_unchanged", lambda: True)
    for request, suffix in (("a", ".o"), ("b", ".o"), ("c", ".cubin")):
        disk_cache.keep(request, suffix, bytes(1000))
    (tmp_path / "notes.txt").write_text("mine")
    return tmp_path


def test_shows_what_is_kept(folder: Path, answered: Callable[..., str]) -> None:
    data = json.loads(answered("cache", "--json"))
    assert data["folder"] == str(folder) and data["most_bytes"] == disk_cache.MOST_BYTES
    programs = {kind: data["files"][kind] for kind in (disk_cache.KINDS[".o"], disk_cache.KINDS[".cubin"])}
    assert list(programs.values()) == [{"files": 2, "bytes": 2064}, {"files": 1, "bytes": 1032}]
    assert data["bytes"] == sum(file.size for file in disk_cache.kept_files(folder))
    assert data["oldest"] <= data["newest"]
    text = answered("cache")
    for said in (str(folder), "2.1 kB", "1.0 kB", "of at most 1.1 GB", "30 days", data["newest"]):
        assert said in text
    installed = json.loads(answered("doctor", "--json"))["installed"]["cache"]
    assert installed == {"version": "3 programs, 0.0 MB", "where": str(folder)}


def test_clears_its_own_files_alone(folder: Path, answered: Callable[..., str]) -> None:
    assert f"removed from {folder}" in answered("cache", "--clear")
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    assert json.loads(answered("cache", "--json"))["files"] == {}
    assert answered("cache", "--clear") == f"0 files, 0 B, removed from {folder}\n"
    assert json.loads(answered("cache", "--clear", "--json")) == {"folder": str(folder), "removed": {}}


def test_path_is_for_scripts(
    folder: Path, answered: Callable[..., str], lanewise: Callable[..., Any]
) -> None:
    assert answered("cache", "--path") == f"{folder}\n"
    for option in ("--clear", "--json"):
        said = lanewise("cache", "--path", option)
        assert said.code == 2 and "--path prints the folder alone" in said.err
    assert len(disk_cache.kept_files(folder)) >= 3  # nothing was cleared


def test_a_folder_that_is_not_there_yet(
    tmp_path: Path, answered: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANEWISE_CACHE_DIR", str(tmp_path / "later"))
    data = json.loads(answered("cache", "--json"))
    assert (data["bytes"], data["files"], data["oldest"]) == (0, {}, None)
    assert answered("cache", "--clear").startswith("0 files")
    assert not (tmp_path / "later").exists()


def test_no_folder_at_all(
    answered: Callable[..., str], lanewise: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANEWISE_CACHE_DIR", "")
    for options in ([], ["--clear"]):
        assert "LANEWISE_CACHE_DIR is empty" in answered("cache", *options)
    assert json.loads(answered("cache", "--json")) == {"folder": None, "files": {}}
    said = lanewise("cache", "--path")
    assert said.code == 2 and "there is no folder" in said.err


def test_words_do_what_the_options_do(folder: Path, answered: Callable[..., str]) -> None:
    assert answered("cache", "path") == answered("cache", "--path") == f"{folder}\n"
    assert "3 files" in answered("cache", "clear") and not disk_cache.kept_files(folder)
