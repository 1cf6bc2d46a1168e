"""Programs in CUDA C++ with host code: built by nvcc or built before, run and checked on a virtual GPU."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from doc_pages import environment
from everything import only_with_everything
from lanewise.cli import main
from lanewise.errors import LanewiseError
from lanewise.ptx.tools.offline_compiler import find_nvcc, host_compiler
from lanewise.virtual_gpu.programs import library_of

SOURCE = Path(__file__).parent / "program.cu"
needs_nvcc = pytest.mark.skipif(
    find_nvcc() is None or host_compiler() is None or not sys.platform.startswith("linux"),
    reason="needs nvcc and a C++ compiler on Linux",
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program as a library, built once: the command line takes it as it takes an executable."""
    built = library_of(SOURCE, "sm_90a", ("-I.",))
    return Path(shutil.copy(built, tmp_path_factory.mktemp("program") / "program"))


def lanewise(*words: object) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    command = [sys.executable, "-m", "lanewise", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=environment())


PARTS = {
    "plain": ["thread 3 of 64", "wrong 0, counted 128, managed 6, arguments ARGUMENTS"],
    "graphs": [
        "before 0 0, nodes 5",
        "captured 11 0 14, called 200",
        "by hand 12",
        "updated 13",
        "memory of a graph 14",
        "other nodes: cudaErrorGraphExecUpdateFailure",
    ],
    "textures": ["texels 4 5 6 7", "written 0 10 20 30", "at a pitch 4 5 6 7", "faces 0 1 2 3 4 5"],
    "boxes": ["sum 252, pitch at least 1"],
    "cooperative": ["total 32640, threads 1024"],
    "compiled": ["compiled 42"],
    "forked": ["child: cudaErrorInitializationError", "it ended with 3"],
    "memory": ["memory: cudaErrorMemoryAllocation"],
    "wrong": ["wrong", "launch: cudaErrorInvalidConfiguration", "then: cudaSuccess"],
    # An illegal access stays the answer of every later call, as on a GPU.
    "beyond": ["beyond", "launch: cudaErrorIllegalAddress", "then: cudaErrorIllegalAddress"],
}


@needs_nvcc
@only_with_everything
def test_a_program_prints_what_it_prints_on_a_gpu(library: Path) -> None:
    words = [*PARTS, "exit"]
    done = lanewise("run", "--gpu", "H100", "--json", library, "--", *words)
    assert done.returncode == 7, done.stderr
    expected = [line.replace("ARGUMENTS", " ".join(words)) for lines in PARTS.values() for line in lines]
    own = [line for line in done.stderr.splitlines() if not line.startswith(("lanewise gpu", "    "))]
    assert own == expected  # stdout is for JSON
    kernels = [each["kernel"].partition("(")[0] for each in json.loads(done.stdout)["launches"]]
    assert kernels == ["scale", *["add"] * 6, *["sample"] * 2, "faces", "sum_of_grid", "set", "beyond"]
    assert "1,125,899,906,842,624 bytes are asked for" in done.stderr


@needs_nvcc
@only_with_everything
@pytest.mark.parametrize(("what", "number"), [("crash", signal.SIGSEGV), ("abort", signal.SIGABRT)])
def test_a_crash_of_host_code_is_told(library: Path, what: str, number: signal.Signals) -> None:
    done = lanewise("check", "--gpu", "H100", library, "--", what)
    assert done.returncode == 128 + number
    assert f"the program crashed: {number.name}" in done.stderr


@needs_nvcc
@only_with_everything
def test_findings_name_the_lines_of_the_source(library: Path) -> None:
    done = lanewise("check", "--gpu", "H100", "--streams", library, "--", "racy", "streams", "beyond", "exit")
    assert done.returncode == 1, done.stderr  # not 7, the status of main()
    host = ("the first of two", "the second of two", "the memory of both streams")
    for line in ("void racy", "line of the bug", *host):
        number = next(at for at, text in enumerate(SOURCE.read_text().splitlines(), 1) if line in text)
        assert f"program.cu:{number}" in done.stdout


@needs_nvcc
@only_with_everything
def test_an_endless_kernel_ends_by_its_steps_or_by_ctrl_c(library: Path) -> None:
    done = lanewise("run", "--gpu", "H100", "--steps", 1000, library, "--", "endless")
    assert "then: cudaErrorLaunchTimeout" in done.stdout
    command = [sys.executable, "-m", "lanewise", "run", "--gpu", "H100", str(library), "--", "endless"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "endless\n"
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130
    assert "interrupted" in said


@needs_nvcc
@only_with_everything
def test_an_executable_that_was_built_before_runs(tmp_path: Path) -> None:
    """nvcc links NVIDIA's runtime into an executable; the copy that is run has the virtual GPU's."""
    tool = find_nvcc()
    assert tool is not None
    source = tmp_path / "small.cu"
    source.write_text(
        "#include <iostream>\n__global__ void k(int *p) { *p = 42; }\n"
        "int main(int n, char **w) { int *p, h; cudaMalloc(&p, 4); k<<<1, 1>>>(p);\n"
        "cudaMemcpy(&h, p, 4, cudaMemcpyDeviceToHost); std::cout << h << w[1] << std::endl; exit(h); }\n"
    )
    folder = tool.path.resolve().parent.parent / "lib"
    target = [f"-L{folder}", "-gencode", "arch=compute_80,code=compute_80"]
    done = tool.run([*target, str(source), "-o", str(tmp_path / "with_ptx")], tmp_path, 600)
    assert done.returncode == 0, done.stderr
    ran = lanewise("run", "--gpu", "A100", tmp_path / "with_ptx", "--", "!")
    assert (ran.returncode, ran.stdout.splitlines()[0]) == (42, "42!")


def test_files_that_are_no_programs_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("no program")
    assert main(["run", "--gpu", "H100", str(text)]) == 2
    assert "is no program that a virtual GPU can run" in capsys.readouterr().err
    assert main(["check", "--gpu", "H100", str(tmp_path / "none.cu")]) == 2
    assert "no such file" in capsys.readouterr().err
    assert main(["run", "--gpu", "H100", "--grid", "4", str(text)]) == 2
    assert "is a program and launches its kernels itself; leave out --grid" in capsys.readouterr().err


@needs_nvcc
@only_with_everything
def test_what_nvcc_says_is_told(tmp_path: Path) -> None:
    broken = tmp_path / "broken.cu"
    broken.write_text("int main() { return nothing; }\n")
    with pytest.raises(LanewiseError, match=r"nvcc cannot build .*broken\.cu for sm_90a(.|\n)*nothing"):
        library_of(broken, "sm_90a")


@needs_nvcc
@only_with_everything
def test_options_name_files_from_where_the_command_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "headers").mkdir()
    (tmp_path / "headers/seven.h").write_text("int seven();\n")
    (tmp_path / "seven.cpp").write_text("int seven() { return 7; }\n")
    (tmp_path / "main.cu").write_text('#include "seven.h"\nint main() { return seven() - 7; }\n')
    monkeypatch.chdir(tmp_path)
    assert library_of(Path("main.cu"), "sm_90a", ("-Iheaders", "seven.cpp")).exists()
