"""ptxas and nvdisasm behind their functions, and what is said where a tool is not installed."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from lanewise import LanewiseError
from lanewise.ptx import (
    ToolFailed,
    ToolMissing,
    cuda,
    nvdisasm,
    nvrtc,
    parse,
    ptxas,
)
from lanewise.ptx.tools import offline_compiler, runtime_compiler, toolkit

needs_ptxas = pytest.mark.skipif(
    not toolkit.find_tools("ptxas"), reason="ptxas is not installed (extra `cuda`)"
)
needs_nvdisasm = pytest.mark.skipif(
    not toolkit.find_tools("nvdisasm"), reason="nvdisasm is not installed (extra `cuda`)"
)
HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"
KERNEL = f"""{HEADER}
.visible .entry k(.param .u64 out)
{{
    .reg .b32 %r<3>; .reg .b64 %rd<4>; .shared .align 4 .b8 tile[512]; .local .b32 spill[16];
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    mov.u64 %rd3, spill;
    add.u64 %rd2, %rd2, %rd3;
    st.local.u32 [%rd2], %r1;
    st.volatile.shared.u32 [tile], %r1;
    bar.sync 0;
    ld.local.u32 %r2, [%rd2+4];
    st.global.u32 [%rd1], %r2;
    ret;
}}
"""


@needs_ptxas
def test_resources() -> None:
    cubin = ptxas(KERNEL)
    used = cubin.resources["k"]
    assert cubin.arch == "sm_80"
    assert cubin.image.startswith(b"\x7fELF")
    assert (used.shared, used.stack, used.barriers, used.spill_stores) == (512, 64, 1, 0)
    assert 4 <= used.registers <= 16
    assert used.constant[0] >= 0x160 + 8  # the parameters begin at 0x160 on sm_80


@needs_ptxas
def test_spills_are_reported() -> None:
    values = range(64)
    loads = "\n".join(f"ld.volatile.global.f32 %f{i}, [%rd1+{4 * i}];" for i in values)
    stores = "\n".join(f"st.volatile.global.f32 [%rd1+{4 * i}], %f{i};" for i in values)
    text = (
        f"{HEADER}.visible .entry k(.param .u64 p) {{ .reg .f32 %f<64>; .reg .b64 %rd<2>;\n"
        f"ld.param.u64 %rd1, [p];\n{loads}\n{stores}\nret; }}"
    )
    used = ptxas(text, options=["--maxrregcount=24"]).resources["k"]
    assert used.registers <= 24
    assert used.spill_stores > 0 and used.spill_loads > 0


@needs_ptxas
def test_the_arch_is_the_target_unless_said() -> None:
    assert ptxas(parse(KERNEL)).arch == "sm_80"
    assert ptxas(KERNEL, "90").arch == "sm_90"
    with pytest.raises(LanewiseError, match="unknown arch"):
        ptxas(KERNEL, "sm_1")
    with pytest.raises(LanewiseError, match="takes a Module or PTX text"):
        ptxas(Path("kernel.ptx"))  # type: ignore[arg-type]  # wrong on purpose


@needs_ptxas
def test_a_newer_version_is_lowered_and_said() -> None:
    cubin = ptxas(KERNEL.replace(".version 8.0", ".version 9.99"))
    assert "assembled as PTX" in cubin.notes[0]
    assert cubin.image == ptxas(KERNEL.replace("8.0", cubin.notes[0].split()[3].rstrip(","))).image
    assert ptxas(KERNEL).notes == ()


@needs_ptxas
def test_refusals_show_the_line() -> None:
    with pytest.raises(ToolFailed, match=r"line 5: Unknown symbol '%r1'\n +add\.s32 %r1, %r1, 1;") as caught:
        ptxas(f"{HEADER}.entry k() {{\n add.s32 %r1, %r1, 1;\n ret; }}")
    assert "error" in caught.value.log
    with pytest.raises(ToolFailed, match="not-an-option"):
        ptxas(KERNEL, options=["--not-an-option"])


@needs_ptxas
def test_characters_beyond_ascii_in_comments_and_file_names_are_no_matter() -> None:
    text = (
        KERNEL.replace("    bar.sync 0;", "    .loc 1 3 1\n    bar.sync 0; // 8×8, für alle")
        + '.file 1 "kérnel.py"\n'
    )
    assert ptxas(text).resources["k"] == ptxas(KERNEL).resources["k"]


def test_a_comment_without_an_end_never_reaches_ptxas() -> None:
    with pytest.raises(ValueError, match="without an end"):  # ptxas 13.0 reads on for ever
        ptxas(f"{KERNEL}\n/* ")


@needs_ptxas
def test_a_tool_that_takes_too_long_is_stopped() -> None:
    with pytest.raises(ToolFailed, match="stopped after"):
        ptxas(KERNEL, timeout=0.0001)


@needs_ptxas
@needs_nvdisasm
def test_sass(tmp_path: Path) -> None:
    cubin = ptxas(KERNEL)
    sass = cubin.sass()
    assert "STS" in sass and "BAR.SYNC" in sass and "EXIT" in sass
    file = tmp_path / "k.cubin"
    file.write_bytes(cubin.image)
    assert nvdisasm(cubin.image) == nvdisasm(file) == sass
    assert "/* 0x" in nvdisasm(cubin, options=["-c", "-hex"])


@needs_ptxas
@needs_nvdisasm
def test_a_listing_is_kept_for_the_same_cubin_and_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANEWISE_CACHE_DIR", str(tmp_path))
    cubin = ptxas(KERNEL)
    listing, runs = cubin.sass(), list[str]()

    def refuse(tool: toolkit.Tool, *_: object) -> None:
        runs.append(tool.path.name)
        raise ToolFailed("started again", "")

    monkeypatch.setattr(toolkit.Tool, "run", refuse)
    assert cubin.sass() == listing and not runs
    with pytest.raises(ToolFailed, match="started again"):
        nvdisasm(cubin, options=["-c", "-hex"])


@needs_nvdisasm
def test_what_is_no_cubin(tmp_path: Path) -> None:
    for wrong in (b"nothing", "text", tmp_path / "absent.cubin"):
        with pytest.raises(LanewiseError):
            nvdisasm(wrong)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ToolFailed, match="nvdisasm refuses"):
        nvdisasm(b"\x7fELF" + bytes(100))


# what is not installed ----------------------------------------------------------------------------------


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (toolkit, offline_compiler):
        monkeypatch.setattr(module, "find_tools", lambda name: [])
    monkeypatch.setattr("lanewise.ptx.tools.assembler.find_tools", lambda name: [])
    monkeypatch.setattr(runtime_compiler, "load", lambda major: None)


@pytest.mark.usefixtures("nothing_installed")
def test_without_the_extra_one_sentence_says_what_to_install() -> None:
    for use in (lambda: ptxas(KERNEL), lambda: nvdisasm(b"\x7fELF"), lambda: nvrtc("")):
        with pytest.raises(
            ToolMissing, match=r"is not installed: pip install '(?:lanewise|\.)\[cuda\]' \(about \d+ MB"
        ) as caught:
            use()
        assert "\n" not in str(caught.value)
    with pytest.raises(ToolMissing, match=r"pip install '(?:lanewise|\.)\[cuda\]'"):
        cuda("__global__ void only_here() {}")  # what another test has compiled is kept


@pytest.mark.usefixtures("nothing_installed")
def test_nvcc_that_is_asked_for_and_missing_is_named() -> None:
    with pytest.raises(ToolMissing, match=r"nvcc .*is not installed"):
        cuda("__global__ void k() {}\nint main() { return 0; }", compiler="nvcc")


def test_an_arch_that_cuda_13_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lanewise.ptx.tools.assembler.find_tools", lambda name: [])
    with pytest.raises(ToolMissing, match="nvidia-cuda-nvcc-cu12"):
        ptxas(KERNEL, "sm_70")


def test_a_toolkit_is_found_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "ptxas"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 12.3, V12.3.1'\n")
    program.chmod(0o755)
    monkeypatch.setattr(toolkit, "package_folders", lambda: iter(()))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    tool = toolkit.find_tool("ptxas")
    assert (tool.path, tool.release) == (program, (12, 3))


def test_newer_packages_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (
        "nvidia/cu13/include",
        "nvidia/cuda_runtime/include",
        "nvidia/cu14/include",
        "nvidia/cu13/include/cccl",
    ):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "nvidia/cu13/include/cuda_runtime.h").touch()
    (tmp_path / "nvidia/cu13/include/cuda_runtime_api.h").write_text("#define CUDART_VERSION  13020\n")

    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path / "nvidia")])
    monkeypatch.setattr(toolkit, "find_spec", lambda name: spec)
    monkeypatch.setattr(toolkit, "toolkit_folders", lambda: iter(()))
    assert [path.name for path in toolkit.package_folders()] == ["cu14", "cu13", "cuda_runtime"]
    assert [path.name for path in toolkit.include_folders(13)] == ["include", "cccl"]
    assert toolkit.header_release(tmp_path / "nvidia/cu13/include") == (13, 2)
    assert toolkit.header_release(tmp_path) == (0, 0)


def test_headers_that_packages_lack_come_from_a_toolkit_of_the_same_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, same, older = (tmp_path / each for each in ("nvidia/cu13", "cuda-13", "cuda-12"))
    for folder, version in ((package, 13020), (same, 13000), (older, 12080)):
        (folder / "include/crt").mkdir(parents=True)
        (folder / "include/cuda_runtime.h").touch()
        (folder / "include/cooperative_groups.h").touch()
        (folder / "include/cuda_runtime_api.h").write_text(f"#define CUDART_VERSION {version}\n")
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path / "nvidia")])
    monkeypatch.setattr(toolkit, "find_spec", lambda name: spec)
    monkeypatch.setattr(toolkit, "toolkit_folders", lambda: iter((older, same)))
    assert toolkit.include_folders(13) == [package / "include", same / "include"]
    (package / "include/crt/mma.h").touch()
    assert toolkit.include_folders(13) == [package / "include"]
