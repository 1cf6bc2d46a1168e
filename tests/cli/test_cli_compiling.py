"""Options for CUDA C++ in the shell: folders with headers, macros, standards; one kernel of several."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lanewise as lw
from lanewise.ptx import ToolMissing

TWO = r"""
#include "sizes.h"
__device__ float weight;
__device__ int unused_by_one;
__device__ __noinline__ float weighted(float x) { return x * weight; }
__global__ void one(float* x) {
    __shared__ float tile[WIDTH];
    tile[threadIdx.x] = weighted(x[threadIdx.x]);
    __syncthreads();
    x[threadIdx.x] = tile[WIDTH - 1 - threadIdx.x];
}
__global__ void two(int* y) { y[threadIdx.x] = unused_by_one; }
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compiling")
    (folder / "headers").mkdir()
    (folder / "headers" / "sizes.h").write_text("#define WIDTH (8 * FACTOR)\n")
    file = folder / "two.cu"
    file.write_text(TWO)
    try:
        lw.cuda("__global__ void k() {}")
    except ToolMissing as error:
        pytest.skip(str(error))
    return file


def options(source: Path) -> tuple[Any, ...]:
    return source, "-I", source.parent / "headers", "-D", "FACTOR=4", "--std", "c++20"


def test_folders_macros_and_standards(source: Path, answered: Callable[..., str]) -> None:
    said = answered(
        "run", *options(source), "--entry", "one(float*)", "--block", 32, "--arg", "ones:float:32"
    )
    assert "a grid of 1 block was assumed; give --grid for another" in said
    said = answered(
        "run", *options(source), "--entry", "one", "--grid", 1, "--block", 32, "--arg", "ones:f32:32"
    )
    assert "assumed" not in said
    assert "nothing found" in answered(
        "check", *options(source), "--entry", "two", "--block", 32, "--arg", "zeros:i32:32"
    )


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("-I", "/no/such/folder"), "--include /no/such/folder: no such folder"),
        (("--std", "c++20;"), "a standard is written as c++17 or c++20"),
        (("--option", "--no-such-option"), "no-such-option"),
    ],
)
def test_options_that_are_wrong(
    source: Path, lanewise: Callable[..., Any], more: tuple[str, ...], message: str
) -> None:
    said = lanewise("ptx", *options(source)[:5], *more)
    assert said.code == 2 and message in said.err


def test_options_are_for_cuda_alone(tmp_path: Path, lanewise: Callable[..., Any]) -> None:
    (tmp_path / "k.ptx").write_text(".version 8.0\n.target sm_80\n.address_size 64\n.entry k() { ret; }")
    (tmp_path / "k.py").write_text("")
    said = lanewise("run", tmp_path / "k.ptx", "--std", "c++20", "--block", 1)
    assert said.code == 2 and "is PTX: --std is for CUDA C++" in said.err
    said = lanewise("run", tmp_path / "k.py", "--compiler", "nvcc")
    assert said.code == 2 and "leave out --compiler" in said.err


def test_one_kernel_alone(source: Path, answered: Callable[..., str]) -> None:
    text = answered("ptx", *options(source), "--entry", "one")
    module = lw.load(text)
    assert [module[name].demangled for name in module.entries] == ["one(float*)"]
    assert list(module.variables) == ["weight"] and len(module.functions) == 1
    both = lw.load(answered("ptx", *options(source)))
    assert len(both.entries) == 2


def test_arguments_are_held_against_the_signature(source: Path, lanewise: Callable[..., Any]) -> None:
    for command in ("run", "check"):
        asked = (command, *options(source), "--entry", "one", "--block", 32, "--arg", "zeros:half:32")
        said = lanewise(*asked)
        assert said.code == 2 and "argument 0 (x) of one(float*) is float*" in said.err
        assert lanewise(*asked, "--unchecked").code == 1  # it reads beyond an array half as long


def test_doctor_of_nvcc_without_nvrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    from lanewise.cli.commands.doctor import _works

    works = {what: (fine, note) for what, fine, note in _works({"nvcc", "host compiler"})}
    assert works["run and check CUDA C++ on the CPU"][0]
    assert "--compiler nvcc" in works["run and check CUDA C++ on the CPU"][1]
    monkeypatch.setattr(sys, "platform", "darwin")
    works = {what: (fine, note) for what, fine, note in _works(set())}
    notes = [note for what, (_, note) in works.items() if "GPU" not in what]
    assert all("pip install" not in note for note in notes) and "macOS" in notes[1]
