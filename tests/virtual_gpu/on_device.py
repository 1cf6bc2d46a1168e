"""The beginning of scripts that put arrays into the memory of a virtual GPU."""

ON_DEVICE = """
import ctypes
import sys

import numpy as np

import lanewise as lw


class OnDevice:
    "An array in the memory of a virtual GPU, as other libraries describe theirs."

    def __init__(self, driver, array):
        self.array, self.address = array, driver.cuMemAlloc_v2(array.nbytes)
        ctypes.memmove(self.address, array.ctypes.data, array.nbytes)
        self.__cuda_array_interface__ = {
            "shape": array.shape, "strides": array.strides, "typestr": array.dtype.str,
            "data": (self.address, False), "version": 3,
        }

    def read(self):
        result = np.empty_like(self.array)
        ctypes.memmove(result.ctypes.data, self.address, result.nbytes)
        return result
"""
