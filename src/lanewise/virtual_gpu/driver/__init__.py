"""The CUDA driver API in Python over the CPU machine, for one device."""

from lanewise.virtual_gpu.driver.driver import Driver
from lanewise.virtual_gpu.driver.results import DriverError, Result

__all__ = ["Driver", "DriverError", "Result"]
