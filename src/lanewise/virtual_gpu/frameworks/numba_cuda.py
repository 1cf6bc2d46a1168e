"""numba-cuda under a virtual GPU: its linker makes PTX of what it would link to a cubin, and the PTX runs.

nvJitLink links inputs of its own form (LTO-IR) to PTX, and the driver links PTX texts. Cubins that a program
asks for, to inspect them, are made as for a GPU; the driver is told the PTX of these too.
"""

from __future__ import annotations

import re
import threading
from typing import Any

from lanewise.virtual_gpu.driver.linking import linked
from lanewise.virtual_gpu.driver.modules import ptx_in
from lanewise.virtual_gpu.driver.results import DriverError
from lanewise.virtual_gpu.frameworks.patches import FrameworkState, Patches

_EXTERNAL_FUNCTION = re.compile(r"^\s*\.extern\s+\.func\b[^;{]*?([\w$]+)\s*\(?[^()]*\)?\s*;", re.MULTILINE)
#: External functions that the system has on a GPU, and the machine here.
_SYSTEM_FUNCTIONS = {"vprintf", "malloc", "free", "__assertfail", "__nvvm_reflect"}
#: The functions of CUDA's device library by which the blocks of a cooperative launch wait for each other. A
#: barrier has one counter: each block adds to it, the first block as much as changes bit 31 with the last.
_GRID_BARRIER = """
.version 7.0
.target sm_70
.address_size 64
.global .align 4 .u32 lanewise_arrived;
.visible .func (.param .b64 handle) cudaCGGetIntrinsicHandle(.param .b32 scope)
{
    .reg .b64 %rd;
    mov.u64 %rd, 1;
    st.param.b64 [handle], %rd;
    ret;
}
.visible .func (.param .b32 status) cudaCGSynchronize(.param .b64 handle, .param .b32 flags)
{
    .reg .pred %p;
    .reg .b32 %x, %y, %z, %nx, %ny, %nz, %n, %one, %old, %now;
    barrier.sync 0;
    mov.u32 %x, %tid.x;
    mov.u32 %y, %tid.y;
    mov.u32 %z, %tid.z;
    or.b32 %x, %x, %y;
    or.b32 %x, %x, %z;
    setp.ne.u32 %p, %x, 0;
    @%p bra done;
    mov.u32 %nx, %nctaid.x;
    mov.u32 %ny, %nctaid.y;
    mov.u32 %nz, %nctaid.z;
    mul.lo.u32 %n, %nx, %ny;
    mul.lo.u32 %n, %n, %nz;
    mov.u32 %x, %ctaid.x;
    mov.u32 %y, %ctaid.y;
    mov.u32 %z, %ctaid.z;
    or.b32 %x, %x, %y;
    or.b32 %x, %x, %z;
    setp.eq.u32 %p, %x, 0;
    sub.u32 %n, 0x80000001, %n;
    selp.b32 %one, %n, 1, %p;
    fence.acq_rel.gpu;
    atom.global.add.u32 %old, [lanewise_arrived], %one;
wait:
    ld.acquire.gpu.global.u32 %now, [lanewise_arrived];
    xor.b32 %now, %now, %old;
    setp.ge.s32 %p, %now, 0;
    @%p bra wait;
    fence.acq_rel.gpu;
done:
    barrier.sync 0;
    mov.u32 %x, 0;
    st.param.b32 [status], %x;
    ret;
}
"""


def _linked_ptx(linker: Any) -> str | None:
    """Return the PTX of all inputs of a linker of numba-cuda's; None if one of them has none."""
    from numba.cuda.cudadrv import driver as numba_driver

    inputs = linker._object_codes
    optimized = [code for code in inputs if code.code_type == "ltoir"]
    texts = []
    if optimized:
        options = linker._get_linker_options(ptx=True)
        own = numba_driver.Linker(*optimized, options=options)
        texts.append(_text(own.link("ptx").code))
        own.close()
    for code in inputs:
        if code.code_type == "ltoir":
            continue
        try:
            texts.append(ptx_in(_bytes(code.code)))
        except DriverError:  # a library without PTX: the cubin is loaded as it is, which says so
            if code.code_type != "library":
                return None
    if any("cudaCGSynchronize" in text or "cudaCGGetIntrinsicHandle" in text for text in texts):
        texts.insert(0, _GRID_BARRIER)  # PTX wants functions before their calls
    return linked(texts) if texts else None


def _bytes(code: Any) -> bytes:
    return code.encode() if isinstance(code, str) else bytes(code)


def _text(code: object) -> str:
    return _bytes(code).split(b"\0", 1)[0].decode()


def _is_complete(ptx: str) -> bool:
    """Return whether every function that a PTX text calls is there; else nvJitLink is to say what is not."""
    return {match[1] for match in _EXTERNAL_FUNCTION.finditer(ptx)} <= _SYSTEM_FUNCTIONS


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
_OWN_CLEAR: dict[str, object] = {}
