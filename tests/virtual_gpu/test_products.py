"""`lw.matmul` through the driver of a virtual GPU: its launches, made again and again, have the CPU's bits.

The driver's library stays in a process once it is loaded, so the products run in a process of their own.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from doc_pages import environment

PRODUCTS = """
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


rng = np.random.default_rng(int(sys.argv[1]))
with lw.virtual_gpu("H200") as gpu:
    for dtype in (np.float16, np.float64, np.int8):
        m, n, k = 16 * rng.integers(1, 10, 3)  # others need a workspace, which only torch and CuPy allocate
        a, b = ((3 * rng.standard_normal(shape)).astype(dtype) for shape in ((m, k), (n, k)))
        wanted = lw.matmul(a, b.T, arch="sm_90a")
        out = OnDevice(gpu.driver, np.zeros_like(wanted))
        of_a, of_b = OnDevice(gpu.driver, a), OnDevice(gpu.driver, b)
        of_b.__cuda_array_interface__ |= {"shape": b.T.shape, "strides": b.T.strides}
        for _ in range(3):
            lw.matmul(of_a, of_b, out=out)
            print(np.dtype(dtype).name, out.read().tobytes() == wanted.tobytes())
    print(len(gpu.launches) >= 9)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the driver's library is for Linux")
def test_products_on_a_virtual_gpu_have_the_bits_of_the_cpu(tmp_path: Path) -> None:
    script = tmp_path / "products.py"
    script.write_text(PRODUCTS)
    command = [sys.executable, str(script), "1"]
    expected = [f"{name} True" for name in ("float16", "float64", "int8") for _ in range(3)]
    for _ in range(2):  # nothing that a process keeps on disk may trip the next one
        ended = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.splitlines() == [*expected, "True"]
