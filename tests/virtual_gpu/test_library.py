"""The library with the driver's name: its file, its code, and programs that call it from C.

Programs run in processes of their own: a library that was loaded under a name stays.
"""

import struct
import subprocess
import sys
from importlib.util import find_spec

import pytest

from doc_pages import environment
from lanewise.virtual_gpu.driver.driver import entry_points
from lanewise.virtual_gpu.library.driver_library import exported_name, exported_names
from lanewise.virtual_gpu.library.stand_in import AARCH64, X86_64, Processor, code, shared_library

ON_LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a library for Linux")

FROM_C = """
import ctypes
import lanewise as lw
from lanewise.virtual_gpu.library import DriverLibrary

with lw.virtual_gpu("H100", memory_gib=1) as gpu:
    library = DriverLibrary(gpu.driver)
    driver = ctypes.CDLL("libcuda.so.1")  # by its name alone, as any program asks for it
    count, place, entry, status = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_void_p(), ctypes.c_int(7)
    assert driver.cuInit(0) == 0
    assert driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value == 1
    assert driver.cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t(1 << 31)) == 2
    assert driver.cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t(1024)) == 0
    assert gpu.driver.memory.find(place.value).size == 1024
    assert driver.cuMulticastCreate(0, 0) == 801
    rest = ctypes.byref(entry), 12000, ctypes.c_uint64(0), ctypes.byref(status)
    assert driver.cuGetProcAddress_v2(b"cuMemAlloc", *rest) == 0
    assert entry.value == ctypes.cast(driver.cuMemAlloc_v2, ctypes.c_void_p).value and status.value == 0
    assert driver.cuGetProcAddress_v2(b"cuNone", *rest) == 500
    assert entry.value is None and status.value == 1
    # more arguments than registers: the last ones lie on the stack
    ptx = b".version 8.0\\n.target sm_80\\n.address_size 64\\n.visible .entry k(.param .u64 p) {"
    ptx += b" .reg .b64 %a; .reg .b32 %r; ld.param.u64 %a, [p]; mov.u32 %r, %ntid.y;"
    ptx += b" st.global.u32 [%a], %r; ret; }"
    module, function = ctypes.c_uint64(), ctypes.c_uint64()
    assert driver.cuModuleLoadData(ctypes.byref(module), ptx) == 0
    assert driver.cuModuleGetFunction(ctypes.byref(function), module, b"k") == 0
    pointers = (ctypes.c_void_p * 1)(ctypes.addressof(place))
    none = ctypes.c_void_p()
    assert driver.cuLaunchKernel(function, 1, 1, 1, 1, 7, 1, 0, none, pointers, none) == 0
    assert ctypes.c_uint32.from_address(place.value).value == 7
    library.close()
    assert driver.cuInit(0) == 4
print("done")
"""

BINDINGS = """
import numpy as np
import lanewise as lw

with lw.virtual_gpu("A100") as gpu:
    from cuda.bindings import driver

    def done(result):
        assert int(result[0]) == 0, result
        return result[1] if len(result) == 2 else result[1:]

    done(driver.cuInit(0))
    device = done(driver.cuDeviceGet(0))
    done(driver.cuCtxSetCurrent(done(driver.cuDevicePrimaryCtxRetain(device))))
    attribute = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
    assert done(driver.cuDeviceGetAttribute(attribute, device)) == 108
    numbers = np.arange(100, dtype=np.int32)
    memory = done(driver.cuMemAlloc(numbers.nbytes))
    done(driver.cuMemcpyHtoD(memory, numbers.ctypes.data, numbers.nbytes))
    back = np.zeros_like(numbers)
    done(driver.cuMemcpyDtoH(back.ctypes.data, memory, back.nbytes))
    assert (back == numbers).all()
    assert gpu.driver.calls["cuMemcpyHtoD_v2"] == 1
print("done")
"""


def run(script: str) -> str:
    ran = subprocess.run([sys.executable, "-c", script], env=environment(), capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@ON_LINUX
def test_a_program_finds_the_library_by_its_name_and_calls_it() -> None:
    assert run(FROM_C) == "done\n"


@ON_LINUX
@pytest.mark.skipif(find_spec("cuda") is None, reason="cuda-bindings is not installed")
def test_cuda_bindings_run_unchanged() -> None:
    assert run(BINDINGS) == "done\n"


def test_every_declared_entry_point_is_exported_and_no_name_twice() -> None:
    names = exported_names()
    assert len(names) == len(set(names)) > 450
    assert set(entry_points()) <= set(names)
    assert exported_name("cuCtxCreate", 12050) == "cuCtxCreate_v4"
    assert exported_name("cuCtxCreate", 4000) == "cuCtxCreate_v2"
    assert exported_name("cuStreamBeginCapture", 10010) == "cuStreamBeginCapture_v2"


@pytest.mark.parametrize("processor", [X86_64, AARCH64], ids=lambda each: each.name)
def test_the_files_symbols_lead_to_their_stubs(processor: Processor) -> None:
    names = ["first", "second", "third"]
    image = shared_library("libtest.so.1", names, processor)
    assert struct.unpack_from("<H", image, 18) == (processor.elf_number,)
    symbols = 64 + 4 * 56
    values = [struct.unpack_from("<Q", image, symbols + (2 + n) * 24 + 8)[0] for n in range(3)]
    assert values[1] - values[0] == values[2] - values[1] == processor.stub_bytes
    slot = struct.unpack_from("<Q", image, symbols + 24 + 8)[0]
    assert image[values[0] :].startswith(code(processor, 3, slot - values[0]))
