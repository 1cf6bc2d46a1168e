"""lanewise's own launches on "cuda" arrays under a virtual GPU: its PTX goes to the driver as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lanewise.virtual_gpu.frameworks.driver_library import install as load_driver_library
from lanewise.virtual_gpu.frameworks.patches import Patches

if TYPE_CHECKING:
    from lanewise.virtual_gpu.frameworks.framework_state import FrameworkState


def install(gpu: FrameworkState, patches: Patches) -> None:
    """Let lanewise's own kernels launch on the virtual GPU, until the patches are taken back."""
    from lanewise.gpu import assemble, loading

    load_driver_library(gpu, patches)

    def as_ptx(own: Any, module: Any, context: Any, kernel: str = "") -> bytes:
        return assemble.with_visible_variables(module).encode() + b"\0"

    patches.wrap(loading, "cubin", as_ptx)
