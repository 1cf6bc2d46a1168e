"""numba-cuda under a virtual GPU: its linker makes PTX of what it would link to a cubin, and the PTX runs.

nvJitLink links inputs of its own form (LTO-IR) to PTX, and the driver links PTX texts. Cubins that a program
asks for, to inspect them, are made as for a GPU; the driver is told the PTX of these too.
"""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any

from lanewise.virtual_gpu.driver.linked_ptx import linked
from lanewise.virtual_gpu.driver.modules import ptx_in
from lanewise.virtual_gpu.driver.results import DriverError
from lanewise.virtual_gpu.frameworks.patches import Patches

if TYPE_CHECKING:
    from lanewise.virtual_gpu.frameworks.framework_state import FrameworkState

_EXTERNAL_FUNCTION = re.compile(r"^\s*\.extern\s+\.func\b[^;{]*?([\w$]+)\s*\(?[^()]*\)?\s*;", re.MULTILINE)
#: External functions that the system has on a GPU, and the machine here.
_SYSTEM_FUNCTIONS = {"vprintf", "malloc", "free", "__assertfail", "__nvvm_reflect"}


def _linked_ptx(linker: Any) -> str | None:
    """Return the PTX of all inputs of a linker of numba-cuda's; None if one of them has none."""
    from numba.cuda.cudadrv import driver as numba_driver

    inputs = linker._object_codes
    optimized = [each for each in inputs if each.code_type == "ltoir"]
    texts = []
    if optimized:
        options = linker._get_linker_options(ptx=True)
        own = numba_driver.Linker(*optimized, options=options)
        texts.append(_text(own.link("ptx").code))
        own.close()
    for each in inputs:
        if each.code_type == "ltoir":
            continue
        try:
            texts.append(ptx_in(_bytes(each.code)))
        except DriverError:  # a library without PTX: the cubin is loaded as it is, which says so
            if each.code_type != "library":
                return None
    return linked(texts) if texts else None


def _bytes(code: Any) -> bytes:
    return code.encode() if isinstance(code, str) else bytes(code)


def _text(code: object) -> str:
    return _bytes(code).split(b"\0", 1)[0].decode()


def _is_complete(ptx: str) -> bool:
    """Return whether every function that a PTX text calls is there; else nvJitLink is to say what is not."""
    return {each[1] for each in _EXTERNAL_FUNCTION.finditer(ptx)} <= _SYSTEM_FUNCTIONS


class _Loading(threading.local):
    """Whether this thread links a kernel in order to run it, so that nobody sees the cubin."""

    is_on = False


def install(gpu: FrameworkState, patches: Patches) -> None:
    """Let numba-cuda's linker make PTX, until the patches are taken back."""
    from numba.cuda import codegen
    from numba.cuda.cudadrv import driver as numba_driver

    loading = _Loading()

    def complete(own: Any, linker: Any) -> Any:
        ptx = _linked_ptx(linker)
        if loading.is_on and ptx is not None and _is_complete(ptx):
            linker.linker = linker  # it must be there for the logs to be read, which are these
            linker._info_log, linker._error_log, linker._complete = "", "", True
            return numba_driver.ObjectCode.from_ptx(ptx.encode() + b"\0")
        result = own(linker)
        if ptx is not None and result.code_type == "cubin" and bytes(result.code[:4]) == b"\x7fELF":
            gpu.driver.know_ptx(bytes(result.code), ptx)
        return result

    def get_cufunc(own: Any, library: Any) -> Any:
        """Load a kernel from PTX. Cubins that are there, by a cache on disk for example, stay as they are."""
        cubins, library._cubin_cache = library._cubin_cache, {}
        before, loading.is_on = loading.is_on, True
        try:
            return own(library)
        finally:
            library._cubin_cache, loading.is_on = cubins, before

    if hasattr(numba_driver, "_Linker"):
        patches.wrap(numba_driver._Linker, "complete", complete)
        patches.wrap(codegen.CUDACodeLibrary, "get_cufunc", get_cufunc)
    _forget_after(numba_driver, patches)


def _forget_after(numba_driver: Any, patches: Patches) -> None:
    """Let numba-cuda give nothing back once the virtual GPU is gone: what it had is gone as well."""
    pending = getattr(numba_driver, "_PendingDeallocs", None)
    if pending is None:
        return
    own = _OWN_CLEAR.setdefault("clear", pending.clear)
    pending.clear = own

    def forget(deallocations: Any) -> None:
        deallocations._cons.clear()
        deallocations._size = 0

    patches.callback(setattr, pending, "clear", forget)


#: numba-cuda's own function that gives back what it no longer needs.
_OWN_CLEAR: dict[str, Any] = {}
