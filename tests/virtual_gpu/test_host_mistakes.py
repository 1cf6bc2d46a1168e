"""First mistakes of host code on a virtual GPU: device memory that it follows, calls that CUDA refuses."""

import ctypes
import mmap
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from doc_pages import environment
from everything import only_with_everything
from lanewise.ptx.tools.offline_compiler import find_nvcc, host_compiler
from lanewise.virtual_gpu.devices import find_device
from lanewise.virtual_gpu.driver import Driver, DriverError, Result
from lanewise.virtual_gpu.driver.reserved_addresses import ReservedAddresses
from lanewise.virtual_gpu.programs import library_of
from lanewise.virtual_gpu.runtime import Runtime
from virtual_gpu.programs import WRITE

SOURCE = Path(__file__).parent / "host_mistakes.cu"
on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="programs in C run on Linux")
needs_nvcc = pytest.mark.skipif(
    find_nvcc() is None or host_compiler() is None or not sys.platform.startswith("linux"),
    reason="needs nvcc and a C++ compiler on Linux",
)
HOST_TO_HOST, TO_DEVICE, TO_HOST, WITHIN_DEVICE, DEFAULT_KIND = range(5)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = library_of(SOURCE, "sm_90a")
    return Path(shutil.copy(built, tmp_path_factory.mktemp("mistakes") / "mistakes"))


def lanewise(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lanewise", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=environment())


def line_of(comment: str) -> str:
    lines = enumerate(SOURCE.read_text().splitlines(), 1)
    return f"host_mistakes.cu:{next(number for number, text in lines if text.endswith(f'// {comment}'))}"


# memory that host code cannot follow, without a compiler --------------------------------------------------


def hidden_driver() -> Driver:
    """A driver whose device memory is out of host code's reach, as programs in C have it."""
    driver = Driver(find_device("H100"))
    driver.memory.reserved = ReservedAddresses()
    return driver


@on_linux
def test_hidden_memory_is_copied_filled_and_used_by_kernels() -> None:
    driver = hidden_driver()
    place, other = driver.cuMemAlloc_v2(128), driver.cuMemAlloc_v2(128)
    known = driver.memory.find(place)
    assert known is not None and known.host != place and place % mmap.PAGESIZE == 0
    function = driver.cuModuleGetFunction(driver.load(WRITE), "write")
    words = (ctypes.c_uint64 * 2)(place, 4)
    parameters = (ctypes.c_uint64 * 2)(ctypes.addressof(words), ctypes.addressof(words) + 8)
    driver.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, 0, ctypes.addressof(parameters), 0)
    driver.cuMemsetD32_v2(place + 4, 77, 1)
    driver.cuMemcpy(other, place, 128)
    host = (ctypes.c_uint32 * 32)()
    driver.cuMemcpy(ctypes.addressof(host), other, 128)
    assert list(host) == [0, 77, *range(2, 32)]
    driver.cuMemFree_v2(other)
    with pytest.raises(DriverError, match="which was freed"):
        driver.cuMemcpy(ctypes.addressof(host), other, 128)
    with pytest.raises(DriverError, match="freed already"):
        driver.cuMemFree_v2(other)


@on_linux
def test_memory_that_both_sides_share_is_not_hidden() -> None:
    driver = hidden_driver()
    for place in (
        driver.cuMemAllocManaged(64, 1),
        driver.cuMemAllocHost_v2(64),
        driver.cuMemHostAlloc(64, 0),
    ):
        driver.cuMemsetD32_v2(place, 5, 16)
        assert ctypes.c_uint32.from_address(place + 60).value == 5


@on_linux
def test_mapped_memory_is_hidden_too() -> None:
    driver = hidden_driver()
    size = driver.cuMemGetAllocationGranularity(0, 0)
    start = driver.cuMemAddressReserve(2 * size, 0, 0, 0)
    memory = driver.cuMemCreate(size, 0, 0)
    for place in (start, start + size):  # the same memory twice
        driver.cuMemMap(place, size, 0, memory, 0)
    driver.cuMemSetAccess(start, 2 * size, 0, 1)
    whole = driver.memory.find(start + size)
    assert whole is not None and whole.size == 2 * size and whole.host != whole.first
    driver.cuMemsetD32_v2(start + 8, 77, 1)
    word = ctypes.c_uint32()
    driver.cuMemcpy(ctypes.addressof(word), start + size + 8, 4)
    assert word.value == 77
    driver.cuMemUnmap(start, 2 * size)
    driver.cuMemAddressFree(start, 2 * size)
    assert driver.memory.find(start) is None


@on_linux
def test_freed_addresses_are_not_given_again_soon() -> None:
    addresses = ReservedAddresses()
    first = addresses.reserve(100, 4096)
    addresses.give_back(first)
    assert addresses.has(first) and addresses.has(first - 1) and not addresses.has(first + (1 << 40))
    assert first not in [addresses.reserve(100, 4096) for _ in range(16)]
    addresses.keep_again(first)
    addresses.give_back(first)


@on_linux
def test_directions_of_copies_are_those_that_an_h200_takes() -> None:
    """Measured on an H200 with the driver 580: only pageable memory in place of the device's is refused."""
    driver = hidden_driver()
    runtime = Runtime(driver)
    host, other = ((ctypes.c_float * 32)() for _ in range(2))
    h, g = ctypes.addressof(host), ctypes.addressof(other)
    d, e = (driver.cuMemAlloc_v2(128) for _ in range(2))
    m, p, q = driver.cuMemAllocManaged(128, 1), driver.cuMemAllocHost_v2(128), driver.cuMemAllocHost_v2(128)

    def copied(target: int, source: int, kind: int, bytes: int = 128) -> int:
        return runtime.call("cudaMemcpy", [target, source, bytes, kind])

    refused = [(h, d, 1), (d, h, 2), (g, h, 3), (g, h, 1), (g, h, 2), (m, h, 3), (h, d, 3), (d, h, 3)]
    taken = [
        (e, d, 1),
        (e, d, 2),
        (p, q, 1),
        (p, q, 2),
        (p, q, 3),
        (p, d, 3),
        (m, d, 2),
        (d, m, 1),
        (d, m, 2),
    ]
    taken += [(e, d, 0), (h, d, 0), (d, h, 1), (h, d, 2), (e, d, 3), (d, h, 4), (h, d, 4)]
    assert {copied(*each) for each in refused} == {Result.INVALID_VALUE}
    assert {copied(*each) for each in taken} == {Result.SUCCESS}
    assert copied(h, d, 7) == Result.INVALID_MEMCPY_DIRECTION
    assert copied(h, d, TO_DEVICE, 0) == Result.SUCCESS


# programs -------------------------------------------------------------------------------------------------

READS = "host code reads byte 12 of device memory (128 bytes at"


@needs_nvcc
@only_with_everything
def test_host_code_that_follows_a_device_pointer_is_stopped_with_a_sentence(program: Path) -> None:
    done = lanewise("run", "--gpu", "H100", program, "--", "good", "read")
    assert done.returncode == 128 + signal.SIGSEGV
    assert done.stdout.startswith("1 1 1\n")
    assert f"{line_of('reads')}: printf" in done.stderr and READS in done.stderr
    assert f"{line_of('the memory of the device')})" in done.stderr
    assert "cudaMemcpy(…, cudaMemcpyDeviceToHost); or allocate memory that both sides reach" in done.stderr
    checked = lanewise("check", "--gpu", "H100", program, "--", "good", "read")
    assert checked.returncode == 1
    assert f"{line_of('reads')}: printf" in checked.stdout and f"host access: {READS}" in checked.stdout
    assert "nothing after this point was run or checked" in checked.stderr


@needs_nvcc
@only_with_everything
@pytest.mark.parametrize(
    ("what", "comment", "words"),
    [
        ("write", "writes", "host code writes byte 4 of device memory"),
        ("print", "prints", "host code reads byte 0 of device memory"),  # inside the C library
        ("read-freed", "reads what was freed", "which was freed at"),
        ("result", "a result", "lets a call of CUDA access byte 0 of device memory (8 bytes"),
    ],
)
def test_the_line_of_host_code_is_told(program: Path, what: str, comment: str, words: str) -> None:
    done = lanewise("run", "--gpu", "H100", program, "--", what)
    assert done.returncode == 128 + signal.SIGSEGV
    assert f"{line_of(comment)}: " in done.stderr and words in done.stderr
    assert what != "read-freed" or line_of("frees") in done.stderr


@needs_nvcc
@only_with_everything
def test_refused_copies_and_frees_have_their_errors_and_are_findings(program: Path) -> None:
    done = lanewise("check", "--gpu", "H100", program, "--", "directions", "frees")
    assert done.returncode == 1
    value, success = "cudaErrorInvalidValue", "cudaSuccess"
    directions = [value, value, "cudaErrorInvalidMemcpyDirection", success, success, success, value]
    frees = [value, value, value, value, success, value, value, "cudaErrorHostMemoryNotRegistered"]
    assert [line for line in done.stdout.splitlines() if line.startswith("cuda")] == [*directions, *frees]
    assert f"{line_of('swapped')}: " in done.stdout
    for words in (
        "copy direction (advice): the source",
        "copy direction (advice): the target",
        "refused call: cudaMemcpy is refused (cudaErrorInvalidValue): the target",
        "it should be cudaMemcpyDeviceToHost",
        "a variable of the device is copied by cudaMemcpyToSymbol",
        "only the whole is freed",
        "is freed by cudaFreeHost",
        "is freed by cudaFree\n",
        "was freed already at",
    ):
        assert words in done.stdout, words


@needs_nvcc
@only_with_everything
@pytest.mark.parametrize(
    ("what", "status", "words"),
    [
        ("ignored-launch", 1, "the launch of add_one was refused (cudaErrorInvalidConfiguration)"),
        ("ignored-fault", 1, "a kernel was stopped (cudaErrorIllegalAddress)"),
        ("ignored-copy", 1, "cudaMemcpy was refused (cudaErrorInvalidValue)"),
        ("asked", 0, ""),
    ],
)
def test_a_program_that_never_asks_does_not_seem_to_have_succeeded(
    program: Path, what: str, status: int, words: str
) -> None:
    done = lanewise("run", "--gpu", "H100", program, "--", what)
    assert done.returncode == status
    assert (f"main() returned 0, but {words}" in done.stderr) == bool(status)


@needs_nvcc
@only_with_everything
def test_launches_that_a_gpu_refuses_are_refused(program: Path) -> None:
    done = lanewise("run", "--gpu", "H100", program, "--", "much-shared", "destroyed-stream", "reset")
    said = [line for line in done.stdout.splitlines() if line.startswith("cuda")]
    errors = [
        "cudaErrorInvalidValue",
        "cudaSuccess",
        "cudaErrorInvalidResourceHandle",
        "cudaErrorInvalidValue",
    ]
    assert said == errors
    attribute = "cudaFuncSetAttribute(shared_sum, cudaFuncAttributeMaxDynamicSharedMemorySize, 100000)"
    assert attribute in done.stderr and "any more: it was destroyed" in done.stderr


@needs_nvcc
@only_with_everything
@pytest.mark.parametrize(
    ("what", "where"),
    [
        ("stack", "the stack: a local variable"),
        ("heap", "the heap: malloc or new"),
        ("static", "a global or static variable"),
        ("pointer", "the heap: malloc or new"),
    ],
)
def test_host_memory_in_a_kernel_is_called_so(program: Path, what: str, where: str) -> None:
    for command, status in (("run", 0), ("check", 1)):
        done = lanewise(command, "--gpu", "H100", program, "--", what)
        assert done.returncode == status
        assert f"is memory of the host ({where}), which kernels cannot access" in done.stdout + done.stderr
        assert "allocate memory of the device with cudaMalloc" in done.stdout + done.stderr
        assert "bound the index" not in done.stdout


@needs_nvcc
@only_with_everything
def test_a_time_that_is_asked_for_too_early_is_found(program: Path) -> None:
    done = lanewise("check", "--gpu", "H100", program, "--", "early-time")
    assert done.returncode == 1
    assert f"{line_of('too early')}: " in done.stdout and done.stdout.count("missing wait: ") == 1


@needs_nvcc
@only_with_everything
@pytest.mark.parametrize(
    ("what", "comment", "words"),
    [
        ("managed-early", "managed before the wait", "host code reads byte 12 of the managed memory"),
        ("pinned-early", "pinned before the wait", "host code reads byte 12 of the pinned host memory"),
        ("pinned-again", "changed while it is copied", "host code writes byte 12 of the pinned host memory"),
    ],
)
def test_host_code_that_does_not_wait_is_found(program: Path, what: str, comment: str, words: str) -> None:
    done = lanewise("check", "--gpu", "H100", program, "--", what)
    assert done.returncode == 1
    assert f"{line_of(comment)}: " in done.stdout and f"missing wait: {words}" in done.stdout
    assert done.stdout.count("missing wait: ") == 1
    assert what != "managed-early" or "managed 1\nthen 1\n" in done.stdout  # the program goes on


@needs_nvcc
@only_with_everything
def test_host_code_that_need_not_wait_is_not_accused(program: Path) -> None:
    done = lanewise("check", "--gpu", "H100", program, "--", "good", "halves", "signals")
    assert "1 1 1\nhalves 2\nsignalled 7\n" in done.stdout
    assert "missing wait" not in done.stdout


def test_a_captured_stream_is_not_waited_for() -> None:
    driver = Driver(find_device("H100"))
    driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0))
    stream = driver.cuStreamCreate(0)
    for wait in (driver.cuStreamSynchronize, driver.cuStreamQuery):
        driver.cuStreamBeginCapture_v2(stream, 0)
        with pytest.raises(DriverError, match="wait after the launch") as refused:
            wait(stream)
        assert refused.value.result == Result.STREAM_CAPTURE_UNSUPPORTED
        assert driver.cuStreamIsCapturing(stream) == 2
        with pytest.raises(DriverError) as ended:
            driver.cuStreamEndCapture(stream)
        assert ended.value.result == Result.STREAM_CAPTURE_INVALIDATED
        wait(stream)
    driver.cuStreamBeginCapture_v2(stream, 0)
    assert driver.cuStreamEndCapture(stream)
