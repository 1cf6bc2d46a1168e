"""Views: arrays are parts of the memory that owns them, with its alignment and its addresses."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import lanewise as lw
from lanewise.machine import KernelFault
from lanewise.machine.runtime.address_book import AddressBook, bounds, owner_of
from lanewise.machine.runtime.parameter_bytes import HostArrays

SOURCE = r"""
extern "C" {
__global__ void copy(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
__global__ void copy4(const float4* x, float4* y, int n) { if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x]; }
__global__ void before(const float* x, float* y, int n) { if (threadIdx.x < n) y[threadIdx.x] = x[(int)threadIdx.x - 1]; }
__global__ void add_one(int* x) { atomicAdd(x + threadIdx.x % 4, 1); }
__global__ void add_long(unsigned long long* x) { atomicAdd(x + threadIdx.x % 2, 1ull); }
}
"""  # noqa: E501  # CUDA C++ as it is written


@pytest.fixture(scope="module")
def module() -> lw.Module:
    try:
        return lw.cuda(SOURCE, arch="sm_80")
    except lw.ptx.ToolMissing as error:
        pytest.skip(str(error))


def test_the_owner_of_a_view() -> None:
    whole = np.arange(24, dtype=np.int32)
    strided = np.lib.stride_tricks.as_strided(whole[4:], (4,), (8,))
    for view in (
        whole[3:],
        whole.reshape(4, 6)[1],
        whole.view(np.uint8)[5:9],
        strided,
        whole.view(np.recarray),
    ):
        assert owner_of(view) is whole
    start, stop = bounds(whole)
    assert stop - start == 96 and bounds(whole[::-1]) == (start, stop) and bounds(whole[:0]) == (start, start)


@pytest.mark.parametrize("alignment", [64, 128, 1024, 4096])
@pytest.mark.parametrize("lead", [16, 48, 80, 2032])
def test_bytes_that_the_host_has_aligned_stay_aligned(alignment: int, lead: int) -> None:
    page = np.zeros(4 << 12, np.uint8)
    raw = np.frombuffer(page[-page.ctypes.data % 4096 + lead :].data, np.uint8)
    by_hand = raw[-raw.ctypes.data % alignment :][:64]
    for array, aligned in ((by_hand, True), (raw[alignment - lead % alignment + 1 :], False)):
        arrays, book = HostArrays(AddressBook()), AddressBook()
        arrays.add("x", array)
        (placed,), addresses = arrays.allocate()
        entered = book.enter(array)
        assert (addresses[id(array)] % alignment == 0) is aligned
        assert (entered % alignment == 0) is aligned
        assert addresses[id(array)] - placed.first == array.ctypes.data - raw.ctypes.data


def test_elements_and_whole_arrays_are_not_aligned_by_their_host_addresses() -> None:
    page = np.zeros(4 << 12, np.uint8)
    start = -page.ctypes.data % 4096 + 16
    for array in (
        np.frombuffer(page[start:].data, np.uint8),
        np.frombuffer(page[start:].data, np.float32)[28:],
    ):
        offset = array.ctypes.data - owner_of(array).ctypes.data
        arrays = HostArrays(AddressBook())
        arrays.add("x", array)
        _, addresses = arrays.allocate()
        assert addresses[id(array)] % 4096 == offset


def test_a_view_has_the_alignment_of_its_place(module: lw.Module) -> None:
    a, y = np.arange(68, dtype=np.float32), np.zeros(64, np.float32)
    module["copy4"][1, 32](a[4:], y, 16)
    assert (y == a[4:]).all()
    with pytest.raises(KernelFault, match="misaligned global read of 16 bytes") as raised:
        module["copy4"][1, 32](a[1:65], y, 16)
    assert "byte 4 of the array that argument 0 is a view of (272 bytes" in str(raised.value)
    report = lw.check(module["copy4"][1, 32], a[1:65], y, 16)
    assert [each.kind for each in report.findings] == ["misaligned"]


@pytest.mark.parametrize("offset", [1, 2, 4, 8])
def test_memory_at_odd_host_addresses_counts_as_aligned(module: lw.Module, offset: int) -> None:
    buffer = bytearray(64)
    counts = np.frombuffer(buffer, np.int32, 4, offset)
    module["add_one"][1, 64](counts)
    assert counts.tolist() == [16] * 4
    assert lw.check(module["add_one"][2, 64], counts).ok and counts.tolist() == [48] * 4
    counts[:] = 0
    module["add_long"][1, 64](counts, unchecked=True)  # it takes 64-bit numbers
    assert counts.view(np.uint64).tolist() == [32, 32]
    assert not any(buffer[:offset]) and not any(buffer[offset + 16 :])


def test_what_lies_beside_a_view_is_not_out_of_bounds(module: lw.Module) -> None:
    a, y = np.arange(33, dtype=np.float32), np.zeros(32, np.float32)
    module["before"][1, 32](a[1:], y, 32)
    assert (y == a[:32]).all() and lw.check(module["before"][1, 32], a[1:], y, 32).ok
    with pytest.raises(KernelFault, match="4 bytes before argument 0"):
        module["before"][1, 32](a, y, 32)
    with pytest.raises(KernelFault, match="just past the end of the array that argument 0 is a view of"):
        module["copy"][1, 64](a[1:], np.zeros(64, np.float32), 33)


def test_a_read_only_view_and_a_writable_one_share_their_memory(module: lw.Module) -> None:
    a = np.arange(33, dtype=np.float32)
    behind = a[1:].view()
    behind.flags.writeable = False
    report = lw.check(module["copy"][1, 32], behind, a[:32], 32)
    assert [each.kind for each in report.findings] == ["race"]
    assert report.findings[0].allocation == "argument 0, 1"


def test_what_only_read_only_views_have_is_read_only(module: lw.Module) -> None:
    whole, x = np.zeros(96, np.float32), np.ones(96, np.float32)
    frozen = whole[32:64].view()
    frozen.flags.writeable = False
    pointers = (x[:32], frozen)
    with pytest.raises(KernelFault, match="read-only"):
        module["copy"][1, 32](*pointers, 32)
    # The same memory: part of it may be written by another argument.
    with pytest.raises(KernelFault, match="to read-only memory") as raised:
        module["copy"][1, 64](frozen, whole[:32], 33)
    assert "byte 128 of" in str(raised.value)
    module["copy"][1, 64](frozen, whole[16:48], 32)  # a writable view has these bytes too
    module["copy"][1, 64](frozen, whole[64:], 32)


def test_an_overrun_from_one_view_into_another(module: lw.Module) -> None:
    whole = np.zeros(128, np.float32)
    first, second = whole[:64], whole[64:]
    assert lw.check(module["copy"][1, 96], first, second, 64).ok
    longer = np.zeros(200, np.float32)
    report = lw.check(module["copy"][1, 96], longer[:64], longer[64:128], 65)
    found = report.findings[0]
    assert (found.kind, found.allocation) == ("out of bounds", "argument 1")
    assert "outside of argument 0, of 256 bytes" in found.message and found.thread == (64, 0, 0)
    # Beyond a view where no other view was passed, and in views that overlap, nothing is wrong.
    assert lw.check(module["copy"][1, 96], longer[:64], np.zeros(65, np.float32), 65).ok
    assert lw.check(module["copy"][1, 32], longer[8:72], longer[100:], 32).ok


def test_arrays_of_one_buffer_that_overlap_are_one_allocation() -> None:
    buffer = bytearray(100)
    one, two = np.frombuffer(buffer, np.uint8, 40, 3), np.frombuffer(buffer, np.uint8, 40, 23)
    apart = np.frombuffer(buffer, np.uint8, 10, 80)
    arrays = HostArrays(AddressBook())
    for name, array in (("apart", apart), ("two", two), ("one", one)):
        arrays.add(name, array)
    placed, addresses = arrays.allocate()
    assert [(each.name, each.size) for each in placed] == [("apart", 10), ("two, one", 60)]
    assert addresses[id(two)] - addresses[id(one)] == 20
    assert placed[0].first % 256 == placed[1].first % 256 == 0


def test_views_on_an_executor(module: lw.Module) -> None:
    buffer = bytearray(4 * 300 + 1)
    whole = np.frombuffer(buffer, np.float32, 300, 1)
    whole[:100] = np.arange(100)
    source = whole[:100].view()
    source.flags.writeable = False
    with ThreadPoolExecutor(2) as pool:
        module["copy"][4, 32](source, whole[150:], 100, executor=pool)
    assert (whole[150:250] == np.arange(100)).all() and not whole[250:].any()


def test_schedules_begin_with_the_same_memory_at_odd_host_addresses(module: lw.Module) -> None:
    counts = np.frombuffer(bytearray(17), np.int32, 4, 1)
    assert lw.check(module["add_one"][2, 64], counts, schedule=["in order", "reverse"]).ok
    assert counts.tolist() == [32] * 4
