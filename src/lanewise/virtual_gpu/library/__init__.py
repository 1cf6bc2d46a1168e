"""The shared library with the driver's name, through which programs in C call the virtual GPU."""

from lanewise.virtual_gpu.library.loading import DriverLibrary

__all__ = ["DriverLibrary"]
