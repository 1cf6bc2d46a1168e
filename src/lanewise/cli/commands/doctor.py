"""`lanewise doctor`: what is installed, which GPU there is, what works, and what to install for the rest."""

import ctypes
import os
import platform
import sys
from collections.abc import Callable
from functools import partial
from importlib import metadata

from lanewise.cli.input.options import AsJson
from lanewise.cli.terminal.answer import Answer, Table, show
from lanewise.errors import install_command

_PACKAGES = ("numpy", "ml_dtypes", "llvmlite", "typer", "rich")
_OPTIONAL = ("cuda-bindings", "torch", "cupy", "distributed")
_NO_CUDA = "NVIDIA has no CUDA compiler for macOS; PTX made elsewhere runs here"


def doctor(json: AsJson = False) -> Callable[[], None]:
    """Say what is installed here, which GPU there is, what works, and what to install for the rest.

    \b
    lanewise doctor
    lanewise doctor --json
    """
    installed = [*_python(), *_packages(), *_tools(), *_driver(), *_cache()]
    works = _works({name for name, version, _ in installed if version})
    data = {
        "installed": {name: {"version": version, "where": where} for name, version, where in installed},
        "works": {what: {"works": fine, "note": note} for what, fine, note in works},
    }
    tables = (
        Table("installed", ("what", "version", "where"), [(a, b or "no", c) for a, b, c in installed]),
        Table("works", ("what", "works", "note"), [(a, "yes" if b else "no", c) for a, b, c in works]),
    )
    return partial(show, Answer(tables, data), "json" if json else "text")


def _python() -> list[tuple[str, str, str]]:
    from lanewise import __version__

    where = f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors"
    return [("lanewise", __version__, ""), ("python", platform.python_version(), where)]


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _packages() -> list[tuple[str, str, str]]:
    named = [(name, _version(name), "") for name in (*_PACKAGES, *_OPTIONAL)]
    return [(name, version, "" if version else "optional") for name, version, _ in named]


def _tools() -> list[tuple[str, str, str]]:
    from lanewise.ptx.tools.offline_compiler import host_compiler
    from lanewise.ptx.tools.runtime_compiler import load
    from lanewise.ptx.tools.toolkit import find_tools

    listed: list[tuple[str, str, str]] = []
    for major in (13, 12):
        library = load(major)
        if library is not None and (major == 13 or not listed):
            archs = ", ".join(f"sm_{number}" for number in library.archs)
            listed.append(("NVRTC", ".".join(map(str, library.release)), archs))
    if not listed:
        listed.append(("NVRTC", "", ""))
    for name in ("ptxas", "nvdisasm", "nvcc"):
        tools = find_tools(name)
        release = ".".join(map(str, tools[0].release)) if tools else ""
        listed.append((name, release, str(tools[0].path) if tools else ""))
    compiler = host_compiler()
    listed.append(("host compiler", "yes" if compiler else "", compiler or ""))
    return listed


def _driver() -> list[tuple[str, str, str]]:
    """The driver's CUDA release, by asking its own library, and the GPUs that lanewise can use."""
    from lanewise.gpu import devices

    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    release = ""
    try:
        number = ctypes.c_int()
        if ctypes.CDLL(name).cuDriverGetVersion(ctypes.byref(number)) == 0 and number.value:
            release = f"CUDA {number.value // 1000}.{number.value % 1000 // 10}"
    except (OSError, AttributeError):
        pass
    return [
        ("driver", release, ""),
        *((f"GPU {device.ordinal}", device.arch, str(device)) for device in devices()),
    ]


def _cache() -> list[tuple[str, str, str]]:
    from lanewise.disk_cache import PROGRAMS, cache_directory, kept_files

    folder = cache_directory()
    if folder is None:
        return [("cache", "", "machine code is compiled anew in every process (LANEWISE_CACHE_DIR is empty)")]
    files = [file for file in kept_files(folder) if file.path.suffix in PROGRAMS]
    size = sum(file.size for file in files)
    return [("cache", f"{len(files)} programs, {size / 1e6:.1f} MB", str(folder))]


def _works(installed: set[str]) -> list[tuple[str, bool, str]]:
    has_gpu = "GPU 0" in installed
    if has_gpu:
        gpu = ""
    elif "driver" not in installed:
        gpu = "no NVIDIA driver here; everything else does without"
    else:
        gpu = "the driver shows no GPU"
    missing = _NO_CUDA if sys.platform == "darwin" else install_command("cuda")
    has_nvrtc, has_nvcc = "NVRTC" in installed, {"nvcc", "host compiler"} <= installed
    by_nvcc = f'with --compiler nvcc (lw.cuda(…, compiler="nvcc")); for NVRTC: {missing}'
    sass = {"ptxas", "nvdisasm"} <= installed
    needed = missing if sys.platform == "darwin" else f"nvcc ({missing}) and a C++ compiler such as g++"
    return [
        ("run and check PTX on the CPU", True, ""),
        (
            "run and check CUDA C++ on the CPU",
            has_nvrtc or has_nvcc,
            "" if has_nvrtc else by_nvcc if has_nvcc else missing,
        ),
        ("CUDA C++ by nvcc, where it is asked for", has_nvcc, "" if has_nvcc else needed),
        ("machine code (lanewise sass)", sass, "" if sass else missing),
        ("run on a GPU", has_gpu, "" if has_gpu else gpu),
    ]
