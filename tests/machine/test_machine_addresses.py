"""`lw.address`: device addresses of arrays, in arrays of pointers and in structs."""

import gc
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import lanewise as lw
from lanewise.machine import KernelFault
from lanewise.machine.runtime.device_memory import Allocation, View

SOURCE = r"""
struct Job { const float* x; float* y; int n; };
extern "C" {
__global__ void sum(const float* const* rows, float* out, int rows_count) {
    float s = 0;
    for (int r = 0; r < rows_count; r++) s += rows[r][threadIdx.x];
    out[threadIdx.x] = s;
}
__global__ void copy(Job job) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < job.n) job.y[i] = job.x[i];
}
__global__ void direct(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }
}
"""
JOB = np.dtype([("x", "u8"), ("y", "u8"), ("n", "i4")], align=True)


@pytest.fixture(scope="module")
def module() -> lw.Module:
    try:
        return lw.cuda(SOURCE, arch="sm_80")
    except lw.ptx.ToolMissing as error:
        pytest.skip(str(error))


def rows_of(count: int) -> list[np.ndarray]:
    return [np.arange(32, dtype=np.float32) * (number + 1) for number in range(count)]


def test_an_array_of_pointers(module: lw.Module) -> None:
    rows, out = rows_of(5), np.zeros(32, np.float32)
    pointers = np.array([lw.address(row) for row in rows], dtype=np.uint64)
    module["sum"][1, 32](pointers, out, 5)
    assert (out == 15 * np.arange(32)).all()
    assert lw.check(module["sum"][1, 32], pointers, out, 5).ok


def test_addresses_in_a_struct(module: lw.Module) -> None:
    x, y = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    job = np.array((lw.address(x), lw.address(y), 100), JOB)[()]
    module["copy"][4, 32](job)
    assert (y == x).all()
    report = lw.check(module["copy"][4, 32], np.array((lw.address(x), lw.address(y[1:]), 100), JOB)[()])
    assert [each.kind for each in report.findings] == ["out of bounds"]
    assert "past the end of the array of lw.address (float32, (100,))" in report.findings[0].message


def test_an_address_is_the_same_in_every_launch_and_for_arguments(module: lw.Module) -> None:
    x, y = rows_of(1)[0], np.zeros(64, np.float32)
    first = lw.address(x)
    assert lw.address(x) == first and lw.address(x[3:]) == first + 12 and first % 256 == 0
    module["direct"][1, 32](lw.address(x), y)  # an address is an integer, and a pointer takes one
    assert (y[:32] == x).all()
    # The array of an address and the same array as an argument are one memory: the race is seen.
    pointers = np.array([lw.address(y[1:])], np.uint64)
    report = lw.check(module["sum"][1, 32], pointers, y, 1)
    assert [each.kind for each in report.findings] == ["race"]


@pytest.mark.usefixtures("only_new_objects")
def test_an_address_keeps_its_array_and_a_number_does_not(module: lw.Module) -> None:
    out = np.zeros(32, np.float32)
    kept = lw.address(np.arange(32, dtype=np.float32))
    gc.collect()
    module["sum"][1, 32](np.array([kept], np.uint64), out, 1)
    assert (out == np.arange(32)).all()
    lost = np.array([lw.address(np.ones(32, np.float32))], np.uint64)
    gc.collect()
    message = r"byte 0 of the array of lw.address \(float32, \(32,\)\), which was freed"
    with pytest.raises(KernelFault, match=message):
        module["sum"][1, 32](lost, out, 1)
    report = lw.check(module["sum"][1, 32], lost, out, 1)
    assert "which was freed" in report.findings[0].message
    assert report.findings[0].mend == "free the memory after the last launch that uses it has ended"


def test_read_only_arrays_stay_read_only(module: lw.Module) -> None:
    x, y = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    y.flags.writeable = False
    with pytest.raises(KernelFault, match="read-only"):
        module["copy"][1, 32](np.array((lw.address(x), lw.address(y), 32), JOB)[()])


@pytest.mark.parametrize("offset", [0, 1])
def test_addresses_on_an_executor(module: lw.Module, offset: int) -> None:
    x = np.arange(100, dtype=np.float32)
    y = np.frombuffer(bytearray(401), np.float32, 100, offset)
    job = np.array((lw.address(x), lw.address(y), 100), JOB)[()]
    with ThreadPoolExecutor(2) as pool:
        module["copy"][4, 32](job, executor=pool)
    assert (y == x).all()


def test_what_has_no_address() -> None:
    for wrong in (None, 3, [1, 2], "text"):
        with pytest.raises(lw.LanewiseError, match="takes a NumPy array or an array on a GPU"):
            lw.address(wrong)
    with pytest.raises(lw.LanewiseError, match="big-endian"):
        lw.address(np.zeros(3, ">f4"))
    kept = lw.address(np.zeros(3))
    assert pickle.loads(pickle.dumps(kept)) == kept and repr(kept).startswith("Address(0x")


def test_an_argument_is_named_so_wherever_the_host_has_it() -> None:
    """Memory of a host may lie below the addresses at which the machine places the variables of a module."""
    low = Allocation("a", 0x111B_7F00, 64, 0x111B_7F00, True, (View("a", 0, 64, True),))
    assert not low.is_variable and low.title == "argument a"
    assert Allocation("table", 0x2_0000_0000, 64, 0x111B_7F00, True).title == "variable table"
