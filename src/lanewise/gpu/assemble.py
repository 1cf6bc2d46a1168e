"""PTX to the machine code of the device at hand: by ptxas, or by the driver; kept on disk by content."""

from __future__ import annotations

import ctypes
import re
from ctypes import c_char_p, c_int, c_size_t, c_void_p
from functools import cache
from typing import TYPE_CHECKING

import lanewise.disk_cache as disk_cache  # `from lanewise` would look for it in the language first
from lanewise.errors import install_command
from lanewise.gpu.device import Context
from lanewise.gpu.driver import GpuError
from lanewise.ptx.compatibility import needed_version
from lanewise.ptx.targets import as_ascii, assembled_for, version_numbers, with_version
from lanewise.ptx.tools.toolkit import Tool, find_tools

if TYPE_CHECKING:
    from lanewise.ptx import Module

#: The PTX versions of the CUDA 12 releases; otherwise minor releases and minor versions go together.
_CUDA_12 = ("8.0", "8.1", "8.2", "8.3", "8.4", "8.5", "8.5", "8.6", "8.7", "8.8")
#: Numbers of options (CUjit_option), and of the kind of input (CUjitInputType).
_ERROR_LOG, _ERROR_LOG_SIZE, _PTX = 5, 6, 1


def newest_ptx(release: tuple[int, int]) -> str:
    """The newest PTX version that the driver of a CUDA release takes.

    >>> newest_ptx((12, 4)), newest_ptx((13, 0)), newest_ptx((11, 8))
    ('8.4', '9.0', '7.8')
    """
    major, minor = release
    if major == 12:
        return _CUDA_12[min(minor, len(_CUDA_12) - 1)]
    return f"{major - 4}.{minor}"


def cubin(module: Module, context: Context, kernel: str = "") -> bytes:
    """The machine code of a module for a device: from disk if it was assembled before."""
    arch = assembled_for(module.target, context.device.arch)
    text = with_visible_variables(module)
    request = f"{text}\0{arch}\0{_circumstances(context.driver.version)}"
    image = disk_cache.read(request, ".cubin")
    if image is None:
        with disk_cache.reading_source():
            image = assemble(module, text, arch, context, kernel)
        disk_cache.keep(request, ".cubin", image)
    return image


def with_visible_variables(module: Module) -> str:
    """The PTX of a module with its variables visible: the driver finds no others by name.

    >>> from lanewise.ptx import parse
    >>> module = parse(".version 9.0\\n.target sm_80\\n.address_size 64\\n.const .f32 k;\\n.global .u32 n;")
    >>> with_visible_variables(module).splitlines()[3:]
    ['.visible .const .f32 k;', '.visible .global .u32 n;']
    """
    text = module.text or str(module)
    hidden = [
        variable
        for variable in module.variables.values()
        if variable.space in ("global", "const") and not variable.linking
    ]
    if not hidden:
        return text
    if not module.text:
        return re.sub(r"(?m)^(?=\.(?:global|const)\b)", ".visible ", text)
    lines = text.split("\n")
    for variable in sorted(hidden, key=lambda variable: (variable.line, variable.column), reverse=True):
        line, start = lines[variable.line - 1], variable.column - 1
        if line.startswith((".global", ".const"), start):
            lines[variable.line - 1] = f"{line[:start]}.visible {line[start:]}"
    return "\n".join(lines)


def assemble(module: Module, text: str, arch: str, context: Context, kernel: str = "") -> bytes:
    """The machine code, made now: by ptxas if one is there that is not of a newer CUDA than the driver."""
    if any(tool.release[0] <= context.driver.version[0] for tool in _assemblers()[:1]):
        from lanewise.ptx.tools.assembler import ptxas

        return ptxas(text, arch).image
    return by_driver(module, text, context, kernel)


@cache
def _assemblers() -> tuple[Tool, ...]:
    return tuple(find_tools("ptxas"))


@cache
def _circumstances(release: tuple[int, int]) -> str:
    """What the machine code depends on besides the PTX and the arch: the driver, and ptxas as it lies there.

    Asking ptxas for its version would take longer than everything else that a warm start does.
    """
    states = [(tool.path, tool.path.stat()) for tool in _assemblers()[:1]]
    return f"{release} " + " ".join(f"{path} {state.st_size} {state.st_mtime_ns}" for path, state in states)


def by_driver(module: Module, text: str, context: Context, kernel: str = "") -> bytes:
    """The machine code by the driver's own compiler. PTX that is too new for it is lowered if that can be."""
    newest = newest_ptx(context.driver.version)
    if version_numbers(module.version) > version_numbers(newest):
        needed = needed_version(module)
        if version_numbers(needed) > version_numbers(newest):
            raise GpuError(
                f"{kernel}: the PTX is of version {module.version} and its instructions need {needed}; "
                f"the driver takes up to {newest} (CUDA {context.device.cuda}): install ptxas "
                f"({install_command('cuda')}), or a newer driver",
                kernel,
                "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
            )
        text = with_version(text, newest)
    with context.current():
        return _link(text, context, kernel)


def _link(text: str, context: Context, kernel: str) -> bytes:
    driver = context.driver
    log = ctypes.create_string_buffer(1 << 14)
    options = (c_int * 2)(_ERROR_LOG, _ERROR_LOG_SIZE)
    values = (c_void_p * 2)(ctypes.addressof(log), len(log))
    state = c_void_p()
    driver("cuLinkCreate_v2", 2, options, values, ctypes.byref(state), kernel=kernel)
    try:
        source = as_ascii(text) + b"\0"
        driver(
            "cuLinkAddData_v2",
            state,
            _PTX,
            source,
            len(source),
            c_char_p(b"ptx"),
            0,
            None,
            None,
            kernel=kernel,
        )
        image, size = c_void_p(), c_size_t()
        driver("cuLinkComplete", state, ctypes.byref(image), ctypes.byref(size), kernel=kernel)
        return ctypes.string_at(image.value or 0, size.value)
    except GpuError as error:
        said = log.value.decode(errors="replace").strip()
        raise GpuError(f"{error}\n{said}" if said else str(error), kernel, error.code) from None
    finally:
        driver("cuLinkDestroy", state)
