"""`lanewise sass` and `lanewise ptx`: what the outside tools make of kernels."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from everything import only_with_everything
from lanewise import ptx
from lanewise.ptx.tools.runtime_compiler import load
from lanewise.ptx.tools.toolkit import find_tools

SAMPLES = Path(__file__).parent.parent / "data" / "ptx"
TENSOR = SAMPLES / "tensor.cu"

needs_assembler = pytest.mark.skipif(
    not (find_tools("ptxas") and find_tools("nvdisasm")), reason="ptxas or nvdisasm is not installed"
)
needs_compiler = pytest.mark.skipif(load(13) is None, reason="NVRTC is not installed")


def opcodes(sass: str) -> set[str]:
    return set(re.findall(r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+ )?([\w.]+)", sass, re.M))


@needs_compiler
@needs_assembler
def test_naive_hgemm(lanewise: Callable[..., Any]) -> None:
    said = lanewise("sass", TENSOR, "--arch", "sm_86", "--entry", "hgemm")
    assert said.code == 0
    assert {"LDSM.16.M88.4", "LDSM.16.M88.2", "HMMA.16816.F16"} <= opcodes(said.out)
    assert "768 bytes of shared memory" in said.err and "registers" in said.err


@pytest.mark.parametrize("command", ["ptx", "sass"])
def test_a_script_without_launches(command: str, lanewise: Callable[..., Any], tmp_path: Path) -> None:
    script = tmp_path / "kernels.py"
    script.touch()
    said = lanewise(command, script)
    assert said.code == 2 and "launches no kernel" in said.err


def test_the_ptx_of_a_script(lanewise: Callable[..., Any], tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    kernel = "@lw.kernel\ndef {0}(x: lw.Ptr[lw.f32]):\n    x[lw.thread_idx.x] = {1}\n"
    script.write_text(
        "import numpy as np\nimport lanewise as lw\n"
        + kernel.format("one", 1.0)
        + kernel.format("two", 2.0)
        + "x = np.ones(32, np.float32)\nprint('printed')\n"
        + "one[1, 32](x)\ntwo[1, 32](x)\none[2, 16](x)\n"
    )
    said = lanewise("ptx", script)
    assert said.code == 0 and said.out.count(".entry") == 2 and "printed" not in said.out
    said = lanewise("ptx", script, "--entry", "two", "-o", tmp_path / "two.ptx")
    assert said.code == 0 and not said.out and set(ptx.load(tmp_path / "two.ptx").entries) == {"two"}


@needs_assembler
def test_the_kernels_of_a_script_are_listed_once_each(lanewise: Callable[..., Any], tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np\n"
        "import lanewise as lw\n"
        "@lw.kernel\n"
        "def double(x: lw.Ptr[lw.f32]):\n"
        "    x[lw.thread_idx.x] = x[lw.thread_idx.x] * 2.0\n"
        "@lw.kernel\n"
        "def clear(x: lw.Ptr[lw.f32]):\n"
        "    x[lw.thread_idx.x] = 0.0\n"
        "x = np.ones(32, np.float32)\n"
        "double[1, 32](x)\n"
        "double[1, 32](x)\n"
        "print(x[0])\n"
        "lw.check(clear[1, 32], x)\n"
    )
    said = lanewise("sass", script, "--arch", "sm_90")
    assert said.code == 0 and said.out.count(".text.double:") == 1 and said.out.count(".text.clear:") == 1
    assert "4.0" in said.err and "4.0" not in said.out  # stdout is for the machine code
    said = lanewise("sass", script, "--arch", "sm_90", "--entry", "clear", "--json")
    (listing,) = json.loads(said.out)
    assert "clear" in listing["sass"] and "double" not in listing["sass"]
    assert "no kernel other" in lanewise("sass", script, "--entry", "other").err


@needs_compiler
@needs_assembler
@only_with_everything
def test_wmma(lanewise: Callable[..., Any]) -> None:
    found = opcodes(lanewise("sass", TENSOR, "--arch", "sm_86", "--entry", "wmma_tile").out)
    assert any(opcode.startswith("HMMA.16816") for opcode in found)
    assert not any(opcode.startswith("LDSM") for opcode in found)  # one kernel alone


@needs_assembler
def test_ptx_is_assembled_for_its_target_or_a_newer_arch(lanewise: Callable[..., Any]) -> None:
    for arch, name in (((), "sm_80"), (("--arch", "sm_90"), "sm_90")):
        said = lanewise("sass", SAMPLES / "tensor_sm80.ptx", *arch, "--json")
        data = json.loads(said.out)
        assert said.code == 0 and data["arch"] == name and "EXIT" in data["sass"]
        assert all(used["registers"] > 0 for used in data["resources"].values())
    said = lanewise("sass", SAMPLES / "tensor_sm80.ptx", "--arch", "sm_75")
    assert said.code == 2 and "sm_75" in said.err


@needs_compiler
def test_ptx_of_cuda(answered: Callable[..., str], lanewise: Callable[..., Any], tmp_path: Path) -> None:
    text = answered("ptx", TENSOR, "--arch", "sm_86")
    module = ptx.parse(text)
    assert module.target == "sm_86" and module["hgemm"].name and ".loc" not in text
    file = tmp_path / "k.ptx"
    assert answered("ptx", TENSOR, "--arch", "sm_86", "--lines", "-o", file) == ""
    assert ".loc" in file.read_text()
    assert answered("ptx", file).startswith(".version")  # read, and written again
    bad = tmp_path / "bad.cu"
    bad.write_text("__global__ void k() { oops; }")
    said = lanewise("ptx", bad)
    assert said.code == 2 and "bad.cu(1)" in said.err and "oops" in said.err


@needs_compiler
def test_macros_and_instances(answered: Callable[..., str], tmp_path: Path) -> None:
    file = tmp_path / "k.cu"
    file.write_text("template <typename T> __global__ void k(T* out) { out[threadIdx.x] = T(N); }")
    assert "st.global.b64" in answered("ptx", file, "-D", "N=3", "--entry", "k<double>").replace(
        ".u64", ".b64"
    )
    out = answered(
        "run", file, "-D", "N=3", "--entry", "k<float>", "--block", 4, "--arg", "zeros:f32:4", "--print", 0
    )
    assert "[3. 3. 3. 3.]" in out


HAND_WRITTEN = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 p) {
    .reg .b64 %rd<3>; .reg .b32 %r<3>;
    ld.param.u64 %rd0, [p];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd1, %r0, 4; add.u64 %rd0, %rd0, %rd1;
    st.global.u32 [%rd0], %r0;
    ret;
}
"""


@needs_compiler
@needs_assembler
def test_lines_of_the_source_between_instructions(lanewise: Callable[..., Any], tmp_path: Path) -> None:
    cuda, hand = tmp_path / "double.cu", tmp_path / "k.ptx"
    cuda.write_text("__global__ void twice(float* x) {\n  x[threadIdx.x] *= 2.0f;\n}\n")
    hand.write_text(HAND_WRITTEN)
    text = lanewise("sass", cuda, "--arch", "sm_90", "--lines").out
    _, _, after = text.partition("// double.cu:2  x[threadIdx.x] *= 2.0f;")
    assert "LDG" in after
    text = lanewise("sass", hand, "--lines").out
    _, _, after = text.partition("// k.ptx:9  st.global.u32 [%rd0], %r0;")
    assert after.split()[1].startswith("STG")
    assert "// " not in lanewise("sass", hand).out.replace("//-", "")


@needs_assembler
def test_encodings_beside_instructions(lanewise: Callable[..., Any], tmp_path: Path) -> None:
    hand = tmp_path / "k.ptx"
    hand.write_text(HAND_WRITTEN)
    encoding = r"EXIT ;\s+/\* 0x[0-9a-f]{16} \*/"
    assert re.search(encoding, lanewise("sass", hand, "--encodings").out)
    assert not re.search(encoding, lanewise("sass", hand).out)
    assert re.search(encoding, ptx.parse(HAND_WRITTEN)["k"].sass(encodings=True))


@needs_assembler
def test_a_kernel_is_shown_though_ptxas_refuses_another(lanewise: Callable[..., Any], tmp_path: Path) -> None:
    small = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry small() { ret; }"
    large = ".visible .entry large() { .shared .align 4 .b8 s[80000]; ret; }"
    file = tmp_path / "two.ptx"
    file.write_text(f"{small}\n{large}\n")
    said = lanewise("sass", file, "--entry", "small")
    assert said.code == 0 and "EXIT" in said.out and "large" not in said.out
    assert lanewise("sass", file, "--entry", "large").code == 2
