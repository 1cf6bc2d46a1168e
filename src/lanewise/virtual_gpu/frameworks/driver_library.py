"""The driver's library for frameworks that call it from C, and lanewise's own launches on "cuda" arrays."""

from __future__ import annotations

from typing import Any

from lanewise.virtual_gpu.frameworks.patches import FrameworkState, Patches
from lanewise.virtual_gpu.library.driver_library import DriverLibrary


def install(gpu: FrameworkState, patches: Patches) -> None:
    """Connect the library to the virtual GPU, until the patches are taken back."""
    patches.callback(DriverLibrary(gpu.driver).close)


def install_own_kernels(gpu: FrameworkState, patches: Patches) -> None:
    """Let lanewise's own kernels launch on the virtual GPU: their PTX goes to the driver as it is."""
    from lanewise.gpu import assemble, loading

    install(gpu, patches)

    def as_ptx(own: Any, module: Any, context: Any, kernel: str = "") -> bytes:
        return assemble.with_visible_variables(module).encode() + b"\0"

    patches.wrap(loading, "cubin", as_ptx)


def install_own_records(gpu: FrameworkState, patches: Patches) -> None:
    """Neither read nor keep kernels and launches of `lw.matmul` on disk: they hold machine code of a GPU."""
    from lanewise.gpu import recorded

    for name in ("kept", "keep", "known", "keep_kernel"):
        patches.set(recorded, name, lambda *_: None)
