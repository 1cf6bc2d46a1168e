"""Occupancy: held against what the driver of an H200 says, NVIDIA's own header, and published examples."""

import ctypes
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import lanewise as lw
from lanewise.isa import ARCHS, arch_number
from lanewise.isa.multiprocessor import known_multiprocessor, multiprocessor, shared_bytes_of
from lanewise.isa.occupancy import best_block, occupancy
from lanewise.ptx import ToolMissing
from lanewise.ptx.tools.toolkit import include_folders
from nvrtc import need_nvrtc

RECORD = Path(__file__).parents[2] / "benchmarks" / "results" / "h200_occupancy.json"
KNOWN = [arch for arch in ARCHS if known_multiprocessor(arch) is not None]


def test_the_record_of_an_h200() -> None:
    record = json.loads(RECORD.read_text())
    checked = 0
    for registers, shared_bytes, barriers, row in record["cases"]:
        for threads, blocks in zip(record["threads"], row, strict=True):
            given = occupancy("sm_90", threads, registers, shared_bytes, barriers)
            assert given.blocks == blocks, (given, barriers)
            checked += 1
    assert checked > 10_000


HEADER = """
#include <climits>
#include <cuda_occupancy.h>
extern "C" int blocks(int major, int minor, int warps, int shared, int block_shared, int reserved,
                      int threads, int registers, int bytes, int barriers) {
    cudaOccDeviceProp device;
    device.computeMajor = major; device.computeMinor = minor; device.maxThreadsPerBlock = 1024;
    device.maxThreadsPerMultiprocessor = warps * 32; device.regsPerBlock = 65536;
    device.regsPerMultiprocessor = 65536; device.warpSize = 32; device.sharedMemPerBlock = 49152;
    device.sharedMemPerMultiprocessor = shared; device.numSms = 100;
    device.reservedSharedMemPerBlock = reserved; device.sharedMemPerBlockOptin = block_shared;
    cudaOccFuncAttributes kernel;
    kernel.maxThreadsPerBlock = 1024; kernel.numRegs = registers; kernel.sharedSizeBytes = 0;
    kernel.partitionedGCConfig = PARTITIONED_GC_OFF; kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    kernel.maxDynamicSharedSizeBytes = block_shared; kernel.numBlockBarriers = barriers;
    cudaOccDeviceState state;
    state.cacheConfig = CACHE_PREFER_NONE; state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
    cudaOccResult result;
    if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, threads, bytes)) return -1;
    return result.activeBlocksPerMultiprocessor;
}
"""


@pytest.fixture(scope="module")
def header(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """NVIDIA's calculator, compiled from the header of the CUDA toolkit."""
    compiler = shutil.which("c++") or shutil.which("g++")
    include = next((each for each in include_folders() if (each / "cuda_occupancy.h").exists()), None)
    if compiler is None or include is None:
        pytest.skip("no C++ compiler, or no cuda_occupancy.h of the CUDA toolkit")
    folder = tmp_path_factory.mktemp("occupancy")
    (folder / "blocks.cpp").write_text(HEADER)
    library = folder / "blocks.so"
    command = [
        compiler,
        "-shared",
        "-fPIC",
        "-O1",
        f"-I{include}",
        str(folder / "blocks.cpp"),
        "-o",
        str(library),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"the header does not compile here: {done.stderr[:200]}")
    return ctypes.CDLL(str(library))


@pytest.mark.parametrize("number", sorted({arch_number(arch) for arch in KNOWN}))
def test_the_header_of_cuda_says_the_same(header: ctypes.CDLL, number: int) -> None:
    arch = f"sm_{number}"
    has = multiprocessor(arch)
    rng = np.random.default_rng(number)
    for _ in range(400):
        threads = int(rng.integers(1, 1025))
        registers = int(rng.integers(1, 256))
        shared = int(rng.integers(0, has.block_shared_bytes + 1)) if rng.random() < 0.8 else 0
        barriers = int(rng.integers(0, 17))
        said = header.blocks(
            number // 10, number % 10, has.warps, has.shared_bytes, has.block_shared_bytes,
            has.reserved_bytes, threads, registers, shared, barriers,
        )  # fmt: skip
        found = occupancy(arch, threads, registers, shared, barriers)
        assert found.blocks == max(said, 0), found


def test_words_and_limits() -> None:
    found = occupancy("sm_80", threads=256, registers=100, shared_bytes=20_000)
    assert found.limits == {"warps": 8, "blocks": 32, "registers": 2, "shared memory": 7}
    assert found.limited_by == ("registers",) and found.fraction == 0.25
    assert str(found) == "sm_80: 2 blocks of 256 threads, 16 of 64 warps (25 %), limited by registers"
    assert occupancy("sm_86", 1024, registers=168).blocks == 0
    assert best_block("sm_90", registers=32).warps == 64


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sm_90", 0), "a block has 1 to 1024 threads, not 0"),
        (("sm_90", 2048), "a block has 1 to 1024 threads, not 2048"),
        (("sm_90", 32, -1), "registers is not negative, as -1 is"),
        (("sm_88", 32), "how much a multiprocessor of sm_88 has is not published"),
        (("sm_17", 32), "unknown arch 'sm_17'"),
    ],
)
def test_wrong_questions(arguments: tuple[str, int], message: str) -> None:
    with pytest.raises(lw.LanewiseError, match=message):
        occupancy(*arguments)


def test_every_arch_has_more_than_one_block_may_have() -> None:
    for arch in KNOWN:
        has = multiprocessor(arch)
        assert shared_bytes_of(arch) == has.shared_bytes - has.reserved_bytes
        assert has.warps * 32 % 1024 in (0, 512) and has.blocks <= has.warps


KERNEL = """
extern "C" __global__ void __launch_bounds__(256) tiled(float* x) {
    __shared__ float tile[2048];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = tile[255 - threadIdx.x];
}
"""


def test_kernels_and_modules_know_theirs() -> None:
    need_nvrtc()
    kernel = lw.cuda(KERNEL)["tiled"]
    try:
        used = kernel.resources("sm_86")
    except ToolMissing:
        pytest.skip("no ptxas")
    assert used.arch == "sm_86"
    found = kernel.occupancy("sm_86", block=256, shared_bytes=16384)
    assert found == used.occupancy(256, 16384) == kernel[1, (16, 16), 16384].occupancy("sm_86")
    assert found.shared_bytes == 8192 + 16384 and found.limited_by == ("shared memory",)
    assert kernel.occupancy("sm_86").threads <= 256  # its launch bounds
