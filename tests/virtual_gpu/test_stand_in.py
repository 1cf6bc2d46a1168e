"""Libraries that stand in for those of frameworks, and cubins whose PTX a compiler told."""

import ctypes
import struct
import sys

import pytest

from lanewise.virtual_gpu.devices import find_device
from lanewise.virtual_gpu.driver import Driver, DriverError
from lanewise.virtual_gpu.driver.driver import entry_points
from lanewise.virtual_gpu.frameworks.cute_dsl import RuntimeFunctions, _translation
from lanewise.virtual_gpu.library.stand_in import Arguments, StandIn
from virtual_gpu.programs import WRITE

ON_LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a library for Linux")


def _cubin(number: int) -> bytes:
    """Return an ELF file without sections, as a cubin begins."""
    header = (
        b"\x7fELF\x02\x01\x01"
        + bytes(9)
        + struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 64, 0, 0, 64, 56, 1, 64, 0, 0)
    )
    return header + bytes([number]) * 56


@ON_LINUX
def test_python_answers_functions_of_a_library_with_words_of_64_bits() -> None:
    seen = []

    def answer(name: str, words: Arguments) -> int:
        seen.append((name, words(10)))
        return 0x1234_5678_9ABC_DEF0

    library = StandIn("libstand_in_test.so", ("first", "second"), answer)
    loaded = ctypes.CDLL(str(library.path))
    loaded.second.restype = ctypes.c_uint64
    arguments = [ctypes.c_uint64(value << 40 | value) for value in range(10)]
    assert loaded.second(*arguments) == 0x1234_5678_9ABC_DEF0
    assert seen == [("second", [each.value for each in arguments])]
    library.close()
    assert loaded.first() == 4


@ON_LINUX
def test_the_functions_of_cute_dsl_make_a_launch() -> None:
    driver = Driver(find_device("H100"))
    library = StandIn("libcute_test.so", RuntimeFunctions.names(), RuntimeFunctions(driver))
    loaded = ctypes.CDLL(str(library.path))
    handle, kernel, memory = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_uint64()
    image = ctypes.create_string_buffer(WRITE.encode())
    none = ctypes.c_void_p()

    def load_at(place: int) -> int:
        return int(loaded._cudaLibraryLoadData(ctypes.c_void_p(place), image, none, none, 0, none, none, 0))

    load = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(load_at)

    for _ in range(2):  # the second time there is nothing to be done
        assert loaded.cuda_dialect_init_library_once(ctypes.byref(handle), load, none, none) == 0
    assert loaded._cudaLibraryGetKernel(ctypes.byref(kernel), handle, b"write") == 0
    assert loaded._cudaKernelSetAttributeForDevice(kernel, 8, 4096, 0) == 0
    assert driver.cuKernelGetAttribute(8, kernel.value, 0) == 4096
    assert loaded._cudaMalloc(ctypes.byref(memory), ctypes.c_size_t(256)) == 0
    stride = ctypes.c_uint32(4)
    parameters = (ctypes.c_void_p * 2)(ctypes.addressof(memory), ctypes.addressof(stride))
    assert loaded._cudaLaunchKernel(kernel, 1, 1, 1, 8, 1, 1, parameters, ctypes.c_size_t(0), none) == 0
    assert list((ctypes.c_uint32 * 9).from_address(memory.value)) == [0, 1, 2, 3, 4, 5, 6, 7, 0]
    assert loaded._cudaMemset(memory, 0, ctypes.c_size_t(8)) == 0
    assert list((ctypes.c_uint32 * 3).from_address(memory.value)) == [0, 0, 2]
    assert loaded._cudaFree(memory) == 0 and loaded._cudaFree(memory) == 1
    library.close()


@pytest.mark.parametrize("name", [each for each in RuntimeFunctions.names() if each.startswith("_")])
def test_every_function_passes_all_arguments_of_its_entry_point(name: str) -> None:
    entry, places, _ = _translation(name)
    assert hasattr(Driver, entry.name)
    assert len(places) == len(entry_points()[entry.name].parameters)


def test_a_cubin_whose_ptx_is_known_runs_alone_and_in_a_fatbin() -> None:
    driver = Driver(find_device("H100"))
    known, unknown = _cubin(1), _cubin(2)
    driver.know_ptx(known, WRITE)
    entry = struct.pack("<HHIQIIIIIIQQQ", 2, 0x101, 64, len(known), 0, 0, 0, 90, 0, 0, 0x11, 0, 0)
    fatbin = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry) + len(known)) + entry + known
    for image in (known + b"what follows in memory", fatbin):
        raw = ctypes.create_string_buffer(image, len(image))
        module = driver.cuModuleLoadData(ctypes.addressof(raw))
        assert driver.cuModuleGetFunction(module, "write")
    raw = ctypes.create_string_buffer(unknown, len(unknown))
    with pytest.raises(DriverError, match="no PTX"):
        driver.cuModuleLoadData(ctypes.addressof(raw))


def test_the_kernels_of_a_library_and_the_clusters_that_fit() -> None:
    driver = Driver(find_device("H100"))
    library = driver.load(WRITE)
    assert driver.cuLibraryGetKernelCount(library) == 2
    kernels = (ctypes.c_uint64 * 2)()
    driver.cuLibraryEnumerateKernels(ctypes.addressof(kernels), 2, library)
    names = [ctypes.string_at(driver.cuFuncGetName(each)).decode() for each in kernels]
    assert names == ["write", "endless"]
    whole, half = (driver.cuOccupancyAvailableDynamicSMemPerBlock(kernels[0], count, 128) for count in (1, 2))
    assert whole == 227 * 1024 and half == 113 * 1024
    attribute = struct.pack("<II3I", 4, 0, 2, 1, 1).ljust(72, b"\0")
    attributes = ctypes.create_string_buffer(attribute, 72)
    fields = (2, 1, 1, 128, 1, 1, whole, 0, 0, ctypes.addressof(attributes), 1)
    config = ctypes.create_string_buffer(struct.pack("<7I4xQQI", *fields[:7], *fields[8:]))
    assert driver.cuOccupancyMaxActiveClusters(kernels[0], ctypes.addressof(config)) == 66
