"""numba-cuda under a virtual GPU: its linker makes a cubin, and the driver is told the PTX of it.

The cubin is made as for a GPU, so that programs can inspect it. The PTX comes from the same inputs: nvJitLink
links those of its own form (LTO-IR) to PTX, and the driver links PTX texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lanewise.virtual_gpu.driver.linked_ptx import linked
from lanewise.virtual_gpu.driver.modules import ptx_in
from lanewise.virtual_gpu.driver.results import DriverError
from lanewise.virtual_gpu.frameworks.patches import Patches

if TYPE_CHECKING:
    from lanewise.virtual_gpu.frameworks.framework_state import FrameworkState


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


def install(gpu: FrameworkState, patches: Patches) -> None:
    """Tell the driver the PTX of what numba-cuda links, until the patches are taken back."""
    from numba.cuda.cudadrv import driver as numba_driver

    def complete(own: Any, linker: object) -> Any:
        result = own(linker)
        if result.code_type == "cubin" and bytes(result.code[:4]) == b"\x7fELF":
            ptx = _linked_ptx(linker)
            if ptx is not None:
                gpu.driver.know_ptx(bytes(result.code), ptx)
        return result

    if hasattr(numba_driver, "_Linker"):
        patches.wrap(numba_driver._Linker, "complete", complete)
