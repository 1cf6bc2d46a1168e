"""`lanewise doctor`: what it says is what is there."""

import json
import platform
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

import lanewise
from lanewise.errors import install_command
from lanewise.gpu import Device
from lanewise.ptx.tools import toolkit


def test_says_what_is_installed(answered: Callable[..., str]) -> None:
    data = json.loads(answered("doctor", "--json"))
    installed = {name: each["version"] for name, each in data["installed"].items()}
    assert installed["python"] == platform.python_version()
    assert installed["lanewise"] == lanewise.__version__
    for name in ("numpy", "llvmlite", "rich"):
        assert installed[name] == metadata.version(name)
    assert bool(installed["ptxas"]) == bool(toolkit.find_tools("ptxas"))
    assert data["works"]["run and check PTX on the CPU"]["works"] is True


def test_text_and_json_say_the_same(answered: Callable[..., str]) -> None:
    data, text = json.loads(answered("doctor", "--json")), answered("doctor")
    for what in (*data["installed"], *data["works"]):
        assert what in text


def test_says_what_to_install(answered: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lanewise.ptx.tools.toolkit.find_tools", lambda name: [])
    monkeypatch.setattr("lanewise.ptx.tools.runtime_compiler.load", lambda major: None)
    works = json.loads(answered("doctor", "--json"))["works"]
    for what in ("run and check CUDA C++ on the CPU", "machine code (lanewise sass)"):
        assert works[what] == {"works": False, "note": install_command("cuda")}


def test_a_gpu_is_shown(answered: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(0, "NVIDIA H200", "sm_90", 132, 232448, "13.0", "580.65")
    monkeypatch.setattr("lanewise.gpu.devices", lambda: [device])
    data = json.loads(answered("doctor", "--json"))
    assert data["installed"]["GPU 0"]["version"] == "sm_90" and "H200" in data["installed"]["GPU 0"]["where"]
    assert data["works"]["run on a GPU"] == {"works": True, "note": ""}
    monkeypatch.setattr("lanewise.gpu.devices", list)
    works = json.loads(answered("doctor", "--json"))["works"]["run on a GPU"]
    assert not works["works"] and works["note"]


def test_cache_that_is_switched_off(answered: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANEWISE_CACHE_DIR", "")
    assert "LANEWISE_CACHE_DIR is empty" in answered("doctor")


def test_a_checkout_installs_from_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "src" / "lanewise"
    package.mkdir(parents=True)
    assert (
        install_command("cuda", package) == "pip install 'lanewise[cuda]'"
    )  # a folder called src, and no checkout
    (tmp_path / "pyproject.toml").touch()
    assert install_command("cuda", package) == f"pip install '{tmp_path}[cuda]'"
    installed = tmp_path / "site-packages" / "lanewise"
    note = installed.parent / "lanewise-0.1.0.dist-info" / "direct_url.json"
    note.parent.mkdir(parents=True)
    for url, installs in {
        tmp_path.as_uri(): f"{tmp_path}[cuda]",
        (tmp_path / "gone").as_uri(): "lanewise[cuda]",
        "https://files.example/lanewise.whl": "lanewise[cuda]",
    }.items():
        note.write_text(json.dumps({"url": url}))
        assert install_command("cuda", installed) == f"pip install '{installs}'"
    monkeypatch.chdir(tmp_path)
    assert install_command("cuda", package) == "pip install '.[cuda]'"
