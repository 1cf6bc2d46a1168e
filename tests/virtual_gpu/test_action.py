"""action.yml: it is well formed, and its command line marks the lines of a wrong program."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from doc_pages import ROOT, environment
from everything import sampled
from virtual_gpu.programs import WRITE

yaml = pytest.importorskip("yaml")

PROGRAM = f'''
import ctypes, sys
from lanewise.virtual_gpu.session import active

driver = active().driver
place = driver.cuMemAlloc_v2(128)
function = driver.cuModuleGetFunction(driver.load("""{WRITE}"""), "write")
values = ctypes.c_uint64(place), ctypes.c_uint32(int(sys.argv[1]))
pointers = (ctypes.c_void_p * 2)(*(ctypes.addressof(each) for each in values))
driver.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, 0, ctypes.addressof(pointers), 0)
driver.cuMemFree_v2(place)
'''


@pytest.fixture(scope="module")
def action() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
    return loaded


def test_every_input_is_described_and_passed_on(action: dict[str, Any]) -> None:
    assert action["runs"]["using"] == "composite"
    passed = " ".join(value for step in action["runs"]["steps"] for value in step["env"].values())
    for name, each in action["inputs"].items():
        assert each["description"].endswith(".")
        assert f"${{{{ inputs.{name} }}}}" in passed
        assert each.get("required") or "default" in each


@sampled(2)
@pytest.mark.skipif(shutil.which("bash") is None, reason="the action's steps are for bash")
@pytest.mark.parametrize(("stride", "status"), [("0", 1), ("4", 0)])
def test_its_command_line_checks_a_program(
    action: dict[str, Any], stride: str, status: int, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = tmp_path / "bin" / "lanewise"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m lanewise "$@"\n')
    command.chmod(0o755)
    inputs = {"program": "program.py", "arguments": stride, "options": "--first 5"}
    values = {name: inputs.get(name, each.get("default", "")) for name, each in action["inputs"].items()}
    step = action["runs"]["steps"][-1]
    variables = {
        name: values[text.removeprefix("${{ inputs.").removesuffix(" }}")]
        for name, text in step["env"].items()
    }
    path = {"PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}"}
    ran = subprocess.run(
        ["bash", "-e", "-c", step["run"]],
        cwd=tmp_path, env=environment() | variables | path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == status, ran.stderr
    assert ("::error " in ran.stdout) == bool(status)
    assert (tmp_path / values["report"]).read_text().startswith("<!DOCTYPE html>")
