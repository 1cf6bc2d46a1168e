"""A CUDA device, as small as the hardware tests need it: assemble PTX, move arrays, launch one kernel.

Through cuda.bindings alone; ptxas assembles where it is found (so that its version can be recorded), the driver otherwise.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np


def available() -> bool:
    """Whether a CUDA driver and a device are there."""
    try:
        from cuda.bindings import driver
    except ImportError:
        return False
    if driver.cuInit(0)[0] != driver.CUresult.CUDA_SUCCESS:
        return False
    status, count = driver.cuDeviceGetCount()
    return bool(status == driver.CUresult.CUDA_SUCCESS and count > 0)


def _call(result: tuple[Any, ...]) -> Any:
    from cuda.bindings import driver

    status, *values = result
    if status != driver.CUresult.CUDA_SUCCESS:
        name = driver.cuGetErrorName(status)[1]
        raise RuntimeError(f"CUDA driver: {name.decode() if name else status}")
    return values[0] if len(values) == 1 else tuple(values)


class Device:
    """The first CUDA device, with its primary context current."""

    def __init__(self) -> None:
        from cuda.bindings import driver as cu

        self.cu = cu
        _call(cu.cuInit(0))
        self.handle = _call(cu.cuDeviceGet(0))
        self.context = _call(cu.cuDevicePrimaryCtxRetain(self.handle))
        _call(cu.cuCtxSetCurrent(self.context))
        attribute = cu.CUdevice_attribute
        self.major = _call(
            cu.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, self.handle)
        )
        self.minor = _call(
            cu.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, self.handle)
        )
        self.name = _call(cu.cuDeviceGetName(128, self.handle)).split(b"\0")[0].decode()

    @property
    def arch(self) -> str:
        """Its arch by name, with the arch-specific suffix from Hopper on: sm_86, sm_90a."""
        number = 10 * self.major + self.minor
        return f"sm_{number}" + ("a" if number >= 90 else "")

    def load(self, ptx: str) -> Any:
        """A module from PTX text."""
        image = _assemble(ptx, self.arch)
        return _call(self.cu.cuModuleLoadData(image))

    def run(
        self,
        ptx: str,
        entry: str,
        grid: int,
        block: int,
        inputs: list[np.ndarray],
        output: np.ndarray,
        shared_bytes: int = 0,
    ) -> np.ndarray:
        """Launch `entry` on the inputs and one output, all passed as pointers in this order; return the output."""
        cu = self.cu
        module = self.load(ptx)
        function = _call(cu.cuModuleGetFunction(module, entry.encode()))
        if shared_bytes > 48 * 1024:
            _call(
                cu.cuFuncSetAttribute(
                    function,
                    cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                    shared_bytes,
                )
            )
        pointers = []
        arrays = [np.ascontiguousarray(array) for array in [*inputs, output]]
        try:
            for array in arrays:
                pointer = _call(cu.cuMemAlloc(max(array.nbytes, 16)))
                pointers.append(pointer)
                _call(cu.cuMemcpyHtoD(pointer, array.ctypes.data, array.nbytes))
            values = tuple(int(pointer) for pointer in pointers)
            arguments = (values, (ctypes.c_uint64,) * len(values))
            _call(cu.cuLaunchKernel(function, grid, 1, 1, block, 1, 1, shared_bytes, 0, arguments, 0))
            _call(cu.cuCtxSynchronize())
            result = np.empty_like(arrays[-1])
            _call(cu.cuMemcpyDtoH(result.ctypes.data, pointers[-1], result.nbytes))
        finally:
            for pointer in pointers:
                cu.cuMemFree(pointer)
            cu.cuModuleUnload(module)
        return result

    def describe(self) -> dict[str, str]:
        """What a record must say about where it was made."""
        version = _call(self.cu.cuDriverGetVersion())
        smi = shutil.which("nvidia-smi")
        driver = ""
        if smi:
            query = [smi, "--query-gpu=driver_version", "--format=csv,noheader"]
            driver = subprocess.run(query, capture_output=True, text=True, check=False).stdout.split("\n")[0]
        return {
            "device": self.name,
            "arch": self.arch,
            "driver": driver,
            "cuda_driver_api": f"{version // 1000}.{version % 1000 // 10}",
            "assembler": ptxas_version() or "driver",
            "python": platform.python_version(),
        }


@functools.cache
def _ptxas() -> str | None:
    found = shutil.which("ptxas")
    return found or next(
        (str(p) for p in [Path("/usr/local/cuda/bin/ptxas")] if p.exists()), None
    )


@functools.cache
def ptxas_version() -> str | None:
    """The version line of the ptxas in use, or None if the driver assembles."""
    tool = _ptxas()
    if tool is None:
        return None
    text = subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout
    return "ptxas " + next(line for line in text.splitlines() if "release" in line).split("release")[1].strip()


def _assemble(ptx: str, arch: str) -> bytes:
    tool = _ptxas()
    if tool is None:
        return ptx.encode() + b"\0"
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, "k.ptx"), Path(folder, "k.cubin")
        source.write_text(ptx)
        command = [tool, f"-arch={arch}", "-o", str(cubin), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"ptxas refused the kernel:\n{done.stdout}{done.stderr}")
        return cubin.read_bytes()
