"""`lw.tensor_map` on a GPU: the driver's bytes, the ways into a kernel, and boxes that TMA copies by it."""

import ctypes
import random
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from gpu.device import torch_here
from lanewise.isa.tensor_map_fields import FILLS, INTERLEAVES, L2_PROMOTIONS, MAP_BYTES, SWIZZLES
from tensor_map_cases import random_tensor

torch = torch_here("tensor maps need sm_90", lambda capability: capability >= (9, 0))

SOURCE = """
__device__ CUtensorMap in_global;
__constant__ CUtensorMap in_constant;
extern "C" __global__ void by_value(const __grid_constant__ CUtensorMap map, unsigned* out) {
    out[threadIdx.x] = reinterpret_cast<const unsigned*>(&map)[threadIdx.x];
}
extern "C" __global__ void by_pointer(const CUtensorMap* map, unsigned* out) {
    out[threadIdx.x] = reinterpret_cast<const unsigned*>(map)[threadIdx.x];
}
extern "C" __global__ void from_variables(unsigned* out) {
    out[threadIdx.x] = reinterpret_cast<const unsigned*>(&in_global)[threadIdx.x];
    out[32 + threadIdx.x] = reinterpret_cast<const unsigned*>(&in_constant)[threadIdx.x];
}
__device__ void copy(const CUtensorMap* map, int x, int y, int bytes, unsigned* out) {
    extern __shared__ __align__(1024) unsigned char box[];
    __shared__ unsigned long long barrier;
    unsigned at = __cvta_generic_to_shared(&barrier), to = __cvta_generic_to_shared(box);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(at));
        asm volatile("fence.proxy.async.shared::cta;");
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(at), "r"(bytes) : "memory");
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
            "[%0], [%1, {%2, %3}], [%4];"
            :: "r"(to), "l"(map), "r"(x), "r"(y), "r"(at) : "memory");
    }
    __syncthreads();
    asm volatile(
        "{ .reg .pred p; L: mbarrier.try_wait.parity.shared.b64 p, [%0], 0; @!p bra L; }"
        :: "r"(at) : "memory");
    for (int i = threadIdx.x; i < bytes / 4; i += blockDim.x) out[i] = reinterpret_cast<unsigned*>(box)[i];
}
extern "C" __global__ void load(
    const __grid_constant__ CUtensorMap map, int x, int y, int bytes, unsigned* out
) {
    copy(&map, x, y, bytes, out);
}
extern "C" __global__ void load_by_pointer(const CUtensorMap* map, int x, int y, int bytes, unsigned* out) {
    copy(map, x, y, bytes, out);
}
"""


@pytest.fixture(scope="module")
def kernels() -> Any:
    return lw.cuda(SOURCE, arch="sm_90a")


def words(count: int) -> Any:
    return torch.zeros(count, dtype=torch.int32, device="cuda")


def raw(tensor: Any) -> bytes:
    return bytes(tensor.cpu().numpy().tobytes())


def test_the_bytes_are_the_drivers() -> None:
    torch.zeros(1, device="cuda")  # makes a context current
    encode = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled
    memory = (ctypes.c_uint8 * (MAP_BYTES + 64))()
    place = ctypes.addressof(memory) + -ctypes.addressof(memory) % 64
    chance = random.Random(7)
    for _ in range(500):
        tensor, address = random_tensor(chance)
        status = encode(
            ctypes.c_void_p(place),
            tensor.element.driver_code,
            ctypes.c_uint32(tensor.rank),
            ctypes.c_void_p(address),
            (ctypes.c_uint64 * 5)(*tensor.dims),
            (ctypes.c_uint64 * 5)(*tensor.strides),
            (ctypes.c_uint32 * 5)(*tensor.box),
            (ctypes.c_uint32 * 5)(*tensor.element_strides),
            INTERLEAVES[tensor.interleave].code,
            SWIZZLES[tensor.swizzle].code,
            L2_PROMOTIONS[tensor.l2_promotion],
            FILLS[tensor.fill],
        )
        assert status == 0, tensor
        assert tensor.encode(address) == ctypes.string_at(place, MAP_BYTES), tensor


def test_a_map_comes_by_value_by_pointer_and_in_variables(kernels: Any) -> None:
    array = torch.zeros((64, 128), dtype=torch.bfloat16, device="cuda")[::2, 32:96]
    tensor_map = lw.tensor_map(array, (8, 64), swizzle="128B", l2_promotion="256B")
    expected = tensor_map.encode(array.data_ptr())
    for name in ("by_value", "by_pointer"):
        out = words(32)
        for _ in range(20):  # the first launch, warm ones
            kernels[name][1, 32](tensor_map, out)
        assert raw(out) == expected, name
    kernels.globals["in_global"] = tensor_map
    kernels.globals["in_constant"] = tensor_map
    out = words(64)
    kernels["from_variables"][1, 32](out)
    assert raw(out) == 2 * expected


def test_a_warm_launch_takes_the_map_that_it_is_given(kernels: Any) -> None:
    arrays = [torch.zeros((64, 64), device="cuda") for _ in range(2)]
    maps = [lw.tensor_map(array, (8, 32)) for array in arrays]
    out = words(32)
    for turn in range(40):
        kernels["by_value"][1, 32](maps[turn % 2], out)
        assert raw(out) == maps[turn % 2].encode(arrays[turn % 2].data_ptr())


@pytest.mark.parametrize("name", ["load", "load_by_pointer"])
@pytest.mark.parametrize("swizzle", ["none", "32B", "64B", "128B"])
def test_tma_copies_boxes_by_it(kernels: Any, name: str, swizzle: Any) -> None:
    mode = SWIZZLES[swizzle]
    columns = (mode.row_bytes or 128) // 2
    host = np.arange(64 * 256, dtype=np.uint16).reshape(64, 256)
    array = torch.from_numpy(host.view(np.int16)).cuda()[::2, 64:192]
    tensor_map = lw.tensor_map(array, (16, columns), swizzle=swizzle)
    out = words(tensor_map.box_bytes // 4)
    kernels[name][1, 128, 32 << 10](tensor_map, 8, 4, tensor_map.box_bytes, out)
    box = host[::2, 64:192][4:20, 8 : 8 + columns]
    expected = np.zeros(tensor_map.box_bytes, np.uint8)
    bits = {"none": 0, "32B": 1, "64B": 2, "128B": 3}[swizzle]
    places = np.array([lw.Swizzle(bits, 4, 3)(byte) for byte in range(tensor_map.box_bytes)])
    expected[places] = np.frombuffer(box.tobytes(), np.uint8)
    assert raw(out) == expected.tobytes()


def test_arrays_of_cupy(kernels: Any) -> None:
    cupy = pytest.importorskip("cupy")
    array = cupy.arange(32 * 64, dtype=cupy.float32).reshape(32, 64)
    tensor_map = lw.tensor_map(array, (4, 32))
    out = cupy.zeros(4 * 32, cupy.float32)
    kernels["load"][1, 128, 32 << 10](tensor_map, 32, 8, tensor_map.box_bytes, out)
    assert (out.reshape(4, 32) == array[8:12, 32:]).all()
