"""The GPU: a Module assembled for the device at hand, kept on disk, loaded once and launched on CUDA arrays.

Through the CUDA driver alone: nothing else has to be installed. Which engine a launch takes,
`lanewise.launch` decides by its arguments.
"""

from lanewise.gpu.arrays import any_on_gpu
from lanewise.gpu.device import Device, available, devices, synchronize
from lanewise.gpu.driver import GpuError
from lanewise.gpu.launching import launch
from lanewise.hints import not_called
from lanewise.tracebacks import short_functions

__all__ = ["Device", "GpuError", "any_on_gpu", "available", "devices", "launch", "synchronize"]

short_functions(__name__)
not_called(
    __name__,
    'the arrays of a launch decide whether it runs on a GPU; lanewise.virtual_gpu("H100") imitates one',
)
