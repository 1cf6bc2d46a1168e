"""The shared library with the driver's name, through which programs in C call the virtual GPU."""

from lanewise.virtual_gpu.library.driver_library import DriverLibrary

__all__ = ["DriverLibrary"]
