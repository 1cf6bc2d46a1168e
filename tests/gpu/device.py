"""A CUDA device, as small as the hardware tests need it: assemble kernels, move arrays, launch.

Through cuda.bindings alone. ptxas assembles where it is found, so that its version can be recorded,
and the driver where it is not.
"""

import ctypes
import functools
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lanewise import gpu
from ptxas import find_ptxas


@dataclass(frozen=True)
class Kernel:
    """One PTX entry `k` that takes pointers: inputs in order, then the output. Block i works on item i."""

    ptx: str
    threads: int
    arch: str
    #: Bytes of dynamic shared memory.
    shared: int = 0


def available() -> bool:
    """Whether a CUDA driver and a device are there."""
    try:
        from cuda.bindings import driver
    except ImportError:
        return False
    try:
        if driver.cuInit(0)[0] != driver.CUresult.CUDA_SUCCESS:
            return False
    except RuntimeError:  # cuda.bindings without libcuda
        return False
    status, count = driver.cuDeviceGetCount()
    return bool(status == driver.CUresult.CUDA_SUCCESS and count > 0)


#: Compute capabilities with tensor memory.
TENSOR_MEMORY = ((10, 0), (10, 3), (11, 0))


def torch_here(needs: str = "", fits: Callable[[tuple[int, int]], bool] = lambda capability: True) -> Any:
    """torch on a GPU; without one, or if its compute capability does not fit, the test file is skipped."""
    if not gpu.available():
        pytest.skip("no CUDA device here: these tests launch on one", allow_module_level=True)
    torch = pytest.importorskip("torch")
    if not fits(torch.cuda.get_device_capability()):
        pytest.skip(needs, allow_module_level=True)
    return torch


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
        self._functions: dict[str, Any] = {}

    @property
    def arch(self) -> str:
        """Its arch by name, with the arch-specific suffix from Hopper on: sm_86, sm_90a."""
        number = 10 * self.major + self.minor
        return f"sm_{number}" + ("a" if number >= 90 else "")

    def _function(self, kernel: Kernel) -> Any:
        if kernel.ptx not in self._functions:
            module = _call(self.cu.cuModuleLoadData(assembled(kernel).result()))
            function = self._functions[kernel.ptx] = _call(self.cu.cuModuleGetFunction(module, b"k"))
            most = self.cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            _call(self.cu.cuFuncSetAttribute(function, most, kernel.shared))
        return self._functions[kernel.ptx]

    def run(self, kernel: Kernel, inputs: list[NDArray[Any]], output: NDArray[Any]) -> NDArray[Any]:
        """Launch one block an item of `output`'s first axis; return what the kernel left in the output."""
        return self.run_in_place(kernel, [*inputs, output], len(output))[-1]

    def run_in_place(self, kernel: Kernel, arrays: list[NDArray[Any]], blocks: int) -> list[NDArray[Any]]:
        """Launch so many blocks on the arrays; return what the kernel left in each."""
        cu = self.cu
        function = self._function(kernel)
        arrays = [np.ascontiguousarray(array) for array in arrays]
        pointers: list[Any] = []
        try:
            for array in arrays:
                pointers.append(_call(cu.cuMemAlloc(max(array.nbytes, 16))))
                _call(cu.cuMemcpyHtoD(pointers[-1], array.ctypes.data, array.nbytes))
            values = tuple(int(pointer) for pointer in pointers)
            arguments = (values, (ctypes.c_uint64,) * len(values))
            shape = (blocks, 1, 1, kernel.threads, 1, 1)
            _call(cu.cuLaunchKernel(function, *shape, kernel.shared, 0, arguments, 0))
            _call(cu.cuCtxSynchronize())
            results = [np.empty_like(array) for array in arrays]
            for result, pointer in zip(results, pointers, strict=True):
                _call(cu.cuMemcpyDtoH(result.ctypes.data, pointer, result.nbytes))
        finally:
            for pointer in pointers:
                cu.cuMemFree(pointer)
        return results

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
            "numpy": np.__version__,
        }


@functools.cache
def ptxas_version() -> str | None:
    """The version line of the ptxas in use, or None if the driver assembles."""
    tool = find_ptxas()
    if tool is None:
        return None
    text = subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout
    return (
        "ptxas " + next(line for line in text.splitlines() if "release" in line).split("release")[1].strip()
    )


# Assembling takes a tenth of a second or more a kernel, so it starts early and on every core.
_images: dict[str, Future[bytes]] = {}


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="ptxas")


def assembled(kernel: Kernel) -> Future[bytes]:
    """The kernel's machine code, being made if it is not there yet."""
    if kernel.ptx not in _images:
        _images[kernel.ptx] = _pool().submit(_assemble, kernel.ptx, kernel.arch)
    return _images[kernel.ptx]


def launches(kernels_of: Callable[..., Iterable[Kernel]]) -> Callable[[Any], Any]:
    """Say which kernels a test will launch, given its parameters, so that they are assembled ahead of it."""

    def mark(test: Any) -> Any:
        test.kernels_of = kernels_of
        return test

    return mark


def _assemble(ptx: str, arch: str) -> bytes:
    tool = find_ptxas()
    if tool is None:
        return ptx.encode() + b"\0"
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, "k.ptx"), Path(folder, "k.cubin")
        source.write_text(ptx)
        command = [tool, f"-arch={arch}", "-o", str(cubin), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"ptxas refused the kernel:\n{done.stdout}{done.stderr}\n{ptx}")
        return cubin.read_bytes()
