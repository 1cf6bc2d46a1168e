"""nvcc and the host's compiler make a shared library of a program's source, with PTX in it."""

import json
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

from lanewise import disk_cache
from lanewise.errors import LanewiseError, install_command
from lanewise.hints import missing_file
from lanewise.isa.archs import arch_number
from lanewise.ptx.tools.offline_compiler import find_nvcc, host_compiler
from lanewise.ptx.tools.toolkit import ToolFailed, ToolMissing
from lanewise.virtual_gpu.programs.elf_file import ElfFile

_SOURCES = (".cu", ".cpp", ".cc", ".cxx")
#: Options that name libraries which are loaded before the program: those of the virtual GPU, and NVRTC.
_LOADED = ("-lcublas", "-lcublasLt", "-lcudart", "-lcuda", "-lnvrtc")
#: How long nvcc may take: CUTLASS takes minutes.
_SECONDS = 1800
#: The end of the name under which a library is kept on disk.
_SUFFIX = ".program"
#: Folders of libraries: they live as long as the process.
_BUILT: list[tempfile.TemporaryDirectory[str]] = []


def library_of(file: Path, arch: str, options: Iterable[str] = ()) -> Path:
    """Return what is to be loaded of a program: an executable itself, or what nvcc makes of a source file."""
    if not file.is_file():
        raise missing_file(file)
    if file.suffix in _SOURCES:
        return build(file, arch, options)
    with file.open("rb") as opened:
        if not ElfFile.is_one(opened.read(65)):
            raise LanewiseError(
                f"{file} is no program that a virtual GPU can run: neither a Python script, CUDA C++ "
                f"({', '.join(_SOURCES)}) nor an executable of Linux with 64 bits"
            )
    return file


def build(file: Path, arch: str, options: Iterable[str] = ()) -> Path:
    """Return a shared library of a program whose main() is in a source file; it holds PTX for an arch.

    Options are those of nvcc; further sources and libraries may be among them. What was built is kept, and
    built again if the file, a header or an option changed.
    """
    tool, host = find_nvcc(), host_compiler()
    if tool is None or host is None:
        lacking = " and ".join(
            word for word, there in (("nvcc", tool), ("a C++ compiler such as g++", host)) if there is None
        )
        raise ToolMissing(
            f"{file} has host code: {lacking} would be needed to build it, and is not installed; "
            f"{install_command('test')} brings nvcc"
        )
    options = [option for option in options if option not in _LOADED]  # the linker need not find them
    target = arch.replace("sm_", "compute_")
    if arch_number(arch) < 75 and tool.release >= (13, 0):
        raise ToolMissing(f"nvcc {tool.release[0]}.{tool.release[1]} has no {arch} any more; CUDA 12's has")
    command = [
        "-shared",
        "-Xcompiler=-fPIC",
        # What the program defines is its own, also where a library of this process has the same name.
        "-Xlinker=-Bsymbolic",
        "-cudart=none",
        "--no-compress",
        "-lineinfo",
        # Findings name lines of host code as well.
        "-Xcompiler=-g1,-fno-omit-frame-pointer",
        "-gencode",
        f"arch={target},code={target}",
        *(() if any("-std" in option for option in options) else ("-std=c++17",)),
        *(() if any(re.fullmatch(r"-O\d|-G|-g", option) for option in options) else ("-O2",)),
        *options,
    ]
    here = Path.cwd()  # which options name files from
    request = repr((str(file.resolve()), str(tool.path), str(here) if options else "", command))
    folder = tempfile.TemporaryDirectory(prefix="lanewise-")
    _BUILT.append(folder)
    library, inputs = Path(folder.name) / file.with_suffix(".so").name, Path(folder.name) / "inputs.d"
    # nvcc lists the files that it reads for one source alone: what several make is not kept.
    is_alone = not any(option.endswith((*_SOURCES, ".c", ".o", ".a")) for option in options)
    kept = _kept(request) if is_alone else None
    if kept is None:
        listing = ["-MD", "-MF", str(inputs)] if is_alone else []
        done = tool.run([*command, *listing, str(file.resolve()), "-o", str(library)], here, _SECONDS)
        if done.returncode:
            log = (done.stdout + done.stderr).strip()
            raise ToolFailed(
                f"nvcc cannot build {file} for {arch}:\n{log or f'exit status {done.returncode}'}", log
            )
        if is_alone:
            stamps = json.dumps(_stamps(_named_in(inputs, file)))
            disk_cache.keep(request, _SUFFIX, stamps.encode() + b"\n" + library.read_bytes())
    else:
        library.write_bytes(kept)
    return library


def _kept(request: str) -> bytes | None:
    """Return a library that was built before, unless a file that it was built from has changed."""
    content = disk_cache.read(request, _SUFFIX)
    if content is None:
        return None
    stamps, _, library = content.partition(b"\n")
    before = json.loads(stamps)
    return library if before and _stamps(before) == before else None


def _named_in(inputs: Path, file: Path) -> list[str]:
    """Return the files that nvcc read, as its list for make has them."""
    if not inputs.is_file():
        return [str(file.resolve())]
    _, _, names = inputs.read_text().replace("\\\n", " ").partition(":")
    return [name.replace("\\ ", " ") for name in re.split(r"(?<!\\)\s+", names.strip()) if name]


def _stamps(names: Iterable[str]) -> dict[str, list[int]]:
    """Return size and time of each file; files that are not there have none."""
    stamps = {}
    for name in names:
        try:
            state = Path(name).stat()
        except OSError:
            continue
        stamps[name] = [state.st_size, state.st_mtime_ns]
    return stamps
