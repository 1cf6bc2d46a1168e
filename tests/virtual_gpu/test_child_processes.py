"""Processes that a program on a virtual GPU starts or forks: they have it too, and their launches count."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

import lanewise as lw
from doc_pages import environment
from lanewise.cli import main
from lanewise.errors import LanewiseError
from lanewise.virtual_gpu import child_processes
from lanewise.virtual_gpu.devices import find_device
from lanewise.virtual_gpu.driver.driver import Driver
from virtual_gpu.programs import WRITE

#: What a child does: it imports a package that stands for a framework, and launches a kernel.
CHILD = f"""
import colorsys, ctypes, sys
from lanewise.virtual_gpu.session import active

WRITE = '''{WRITE}'''
driver = active().driver
place = driver.cuMemAlloc_v2(128)
values = ctypes.c_uint64(place), ctypes.c_uint32(int(sys.argv[1]))
pointers = (ctypes.c_void_p * 2)(*(ctypes.addressof(each) for each in values))
function = driver.cuModuleGetFunction(driver.load(WRITE), "write")
driver.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, 0, ctypes.addressof(pointers), 0)
print(active().device.name, ctypes.c_uint32.from_address(place + 4).value)
"""


@pytest.fixture(autouse=True)
def _a_package_as_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lanewise.virtual_gpu.session._imported_by_programs", lambda: ["colorsys"])


def launch(driver: Driver) -> None:
    place = driver.cuMemAlloc_v2(128)
    values = ctypes.c_uint64(place), ctypes.c_uint32(4)
    pointers = (ctypes.c_void_p * 2)(*(ctypes.addressof(each) for each in values))
    function = driver.cuModuleGetFunction(driver.load(WRITE), "write")
    driver.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, 0, ctypes.addressof(pointers), 0)
    assert ctypes.c_uint32.from_address(place + 4).value == 1


def test_a_started_process_has_the_gpu_and_its_launches_are_recorded(tmp_path: Path) -> None:
    hidden = tmp_path / "sitecustomize.py"
    hidden.write_text("import os; os.environ['HIDDEN'] = 'it ran'")
    script = CHILD + "import os; print(os.environ['HIDDEN'])"
    with lw.virtual_gpu("L4", memory_gib=2) as gpu:
        path = os.pathsep.join([os.environ["PYTHONPATH"], str(tmp_path), environment()["PYTHONPATH"]])
        command = [sys.executable, "-c", script, "4"]
        ran = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
        assert ran.stdout.split("\n")[:2] == ["L4 1", "it ran"], ran.stderr
        assert not gpu.launches
    (record,) = gpu.launches
    assert (record.kernel, record.process != os.getpid()) == ("write", True)


def test_what_a_check_finds_in_a_started_process_counts_for_the_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    child, parent = tmp_path / "child.py", tmp_path / "parent.py"
    child.write_text(CHILD)
    parent.write_text(f"import subprocess\nsubprocess.run([{sys.executable!r}, {str(child)!r}, '0'])")
    assert main(["check", "--gpu", "A100", str(parent)]) == 1
    said = capsys.readouterr()
    assert "race: global write" in said.out
    assert "1 launch of 1 kernel was checked; errors found: 1" in said.err


def test_the_environment_is_restored() -> None:
    before = dict(os.environ)
    with lw.virtual_gpu("A100"):
        assert os.environ["PYTHONPATH"].startswith(str(child_processes.SITE))
    assert dict(os.environ) == before


def test_a_program_may_enter_another_gpu_than_the_one_it_inherits(tmp_path: Path) -> None:
    from lanewise.virtual_gpu.session import active, inherit

    settings = {"name": find_device("A100"), "check": False, "steps": None}
    with child_processes.inherited_by_children(settings, []) as folder:
        inherit(folder)
        inherited = active()
        assert inherited is not None
        assert inherited.device.name == "A100"
        with lw.virtual_gpu("H100"), pytest.raises(LanewiseError, match="H100 is in use already"):
            inherited.__enter__()
    inherit(tmp_path)  # its parent has ended
    assert active() is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("is_used", [False, True])
def test_a_forked_process_has_the_gpu_unless_its_parent_has_launched(is_used: bool) -> None:
    with lw.virtual_gpu("A100") as gpu:
        if is_used:
            launch(gpu.driver)
        child = os.fork()
        if child == 0:
            try:
                launch(gpu.driver)
                os._exit(0)
            except LanewiseError as error:
                os._exit(3 if "was forked from one that has used the virtual GPU" in str(error) else 4)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == (3 if is_used else 0)
        launch(gpu.driver)
    assert [each.process for each in gpu.launches] == [os.getpid()] * (1 + is_used) + [child] * (not is_used)
