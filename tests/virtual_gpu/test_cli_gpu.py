"""`lanewise run --gpu` and `lanewise check --gpu` on scripts that use the driver, and what they refuse."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from doc_pages import environment
from lanewise.cli import main
from virtual_gpu.programs import WRITE

SCRIPT = f"""
import ctypes, sys
from lanewise.virtual_gpu.session import active

WRITE = '''{WRITE}'''
driver = active().driver
place = driver.cuMemAlloc_v2(128)
function = driver.cuModuleGetFunction(driver.load(WRITE), "write")
for stride in sys.argv[1:]:
    values = ctypes.c_uint64(place), ctypes.c_uint32(int(stride))
    pointers = (ctypes.c_void_p * 2)(*(ctypes.addressof(each) for each in values))
    driver.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, 0, ctypes.addressof(pointers), 0)
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return str(path)


def test_run_lists_the_launches(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--gpu", "H100", "--json", script, "--", "4", "4"]) == 0
    launches = json.loads(capsys.readouterr().out)["launches"]
    assert [(each["kernel"], each["arch"]) for each in launches] == [("write", "sm_90a")] * 2


def test_a_long_name_of_a_template_is_folded_in_the_table_and_whole_in_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, depth = tmp_path / "script.py", 40
    path.write_text(SCRIPT.replace("write", f"_Z3runI{'4GemmI' * depth}f{'E' * depth}EvPjj"))
    assert main(["run", "--gpu", "H100", str(path), "--", "4"]) == 0
    row = capsys.readouterr().out.splitlines()[1]
    assert row.startswith("void run<Gemm<Gemm<")
    assert "<…>" in row
    assert len(row) < 160
    assert main(["run", "--gpu", "H100", "--json", str(path), "--", "4"]) == 0
    assert json.loads(capsys.readouterr().out)["launches"][0]["kernel"].count("Gemm<") == depth


@pytest.mark.parametrize(("strides", "status", "findings"), [("4 4", 0, 0), ("4 0 0 0", 1, 1)])
def test_check_tells_a_finding_once_and_returns_a_status(
    script: str, strides: str, status: int, findings: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "--gpu", "A100", "--json", script, "--", *strides.split()]) == status
    said = capsys.readouterr()
    reports = json.loads(said.out)["launches"]
    assert sum(len(each["findings"]) for each in reports) == findings
    count = len(strides.split())
    assert f"{count} launches of 1 kernel were checked; errors found: {findings}" in said.err


@pytest.mark.skipif(not hasattr(signal, "SIGSEGV"), reason="needs signals")
def test_a_crash_of_a_script_names_its_line(tmp_path: Path) -> None:
    crash = tmp_path / "crash.py"
    crash.write_text("import ctypes\n\nctypes.string_at(8)\n")
    command = [sys.executable, "-m", "lanewise", "run", "--gpu", "A100", str(crash)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment())
    assert done.returncode == -signal.SIGSEGV
    assert "Segmentation fault" in done.stderr and 'crash.py", line 3' in done.stderr


def test_a_fault_is_told_and_the_status_says_so(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--gpu", "A100", script, "--", "400"]) == 2
    assert "global write of 4 bytes out of bounds" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--gpu", "H1000", "SCRIPT"], "no GPU is called 'H1000'; did you mean H100?"),
        (["run", "--gpu", "A100", "--arch", "sm_80", "SCRIPT"], "leave out --arch, which --gpu says"),
        (["check", "--gpu", "A100", "kernel.ptx"], "--gpu is for scripts and programs"),
        (["run", "--gpu", "RTX", "4090", "SCRIPT"], '--gpu "RTX 4090"'),
    ],
)
def test_what_is_refused(
    script: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([script if each == "SCRIPT" else each for each in arguments]) == 2
    assert message in capsys.readouterr().err


# which launches are checked ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (["--first", "1"], 0, "1 launch of 1 kernel was checked, 2 others ran plainly; errors found: 0"),
        (["--first", "2"], 1, "2 launches of 1 kernel were checked, 1 other ran plainly; errors found: 1"),
        (["--only", "wri*"], 1, "3 launches of 1 kernel were checked; errors found: 1"),
        (["--only", "other"], 2, "no kernel that is called other was launched; launched were: write"),
        (["--fast"], 0, "3 launches of 1 kernel were checked; errors found: 0"),
    ],
)
def test_some_launches_are_checked(
    script: str, options: list[str], status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "--gpu", "A100", *options, script, "--", "4", "0", "4"]) == status
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "mangled",
    [
        "_Z3runILi4EfEvPjj",
        "_ZN12_GLOBAL__N_13runILi4EfEEvPjj",
        "_ZN3own3runEPjj",
        "run",
        "_Z3runIXplT_Li1EEEvPjj",
    ],
)
@pytest.mark.parametrize(("pattern", "status"), [("run", 1), ("ru*", 1), ("un", 2)])
def test_only_takes_the_plain_name_of_a_template(
    mangled: str, pattern: str, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT.replace("write", mangled))
    assert main(["check", "--gpu", "A100", "--only", pattern, str(path), "--", "0"]) == status
    assert ("1 launch of 1 kernel was checked" in capsys.readouterr().err) == (status == 1)


def test_fast_tells_what_stops_a_launch(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--gpu", "A100", "--fast", "--json", script, "--", "4", "400"]) == 1
    reports = json.loads(capsys.readouterr().out)["launches"]
    findings = [finding for each in reports for finding in each["findings"]]
    assert [each["kind"] for each in findings] == ["out of bounds"]


def test_memory_that_is_never_freed_is_a_note(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--gpu", "A100", script, "--", "4"]) == 0
    assert "note: memory was never freed: 128 bytes, allocated by " in capsys.readouterr().out


STREAMS = """
from lanewise.virtual_gpu.session import active
driver = active().driver
place = driver.cuMemAlloc_v2(128)
one, two = driver.cuStreamCreate(1), driver.cuStreamCreate(1)
driver.cuMemsetD8Async(place, 1, 128, one)
driver.cuMemsetD8Async(place, 2, 128, two)
driver.cuMemFree_v2(place)
"""


@pytest.mark.parametrize("form", ["sarif", "github", "json", "text"])
def test_races_between_streams_are_told_in_every_form(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "streams.py"
    path.write_text(STREAMS)
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "report.html"
    assert (
        main(["check", "--gpu", "A100", "--streams", "--format", form, "--save", str(page), "streams.py"])
        == 1
    )
    out = capsys.readouterr().out
    place = {
        "sarif": '"startLine": 7', "github": "::error file=streams.py,line=7,title=race::",
        "json": '"line": 7', "text": "streams.py:7: driver.cuMemsetD8Async(place, 2, 128, two)",
    }[form]  # fmt: skip
    assert place in out
    assert "a memset on stream 2" in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["check", "--streams", "SCRIPT"],
            "--streams is for programs on a virtual GPU",
        ),
        (["check", "--gpu", "A100", "--streams", "--fast", "SCRIPT"], "give one of them"),
        (["run", "--executor", "2", "SCRIPT"], "--executor is for programs on a virtual GPU"),
        (["run", "--gpu", "A100", "--executor", "some", "SCRIPT"], "a number of processes is wanted"),
    ],
)
def test_options_that_do_not_go_together(
    script: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([script if each == "SCRIPT" else each for each in arguments]) == 2
    assert message in capsys.readouterr().err
