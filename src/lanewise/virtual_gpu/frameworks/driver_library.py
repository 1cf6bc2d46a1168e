"""Frameworks that call the driver from C: its library is loaded when one of them is imported."""

from lanewise.virtual_gpu.frameworks.framework_state import FrameworkState
from lanewise.virtual_gpu.frameworks.patches import Patches
from lanewise.virtual_gpu.library.loading import DriverLibrary


def install(gpu: FrameworkState, patches: Patches) -> None:
    """Connect the library to the virtual GPU, until the patches are taken back."""
    patches.callback(DriverLibrary(gpu.driver).close)
