"""The driver API of the virtual GPU, through its methods and as C calls it."""

import ctypes
import gc
import struct
from collections.abc import Callable

import numpy as np
import pytest

import lanewise as lw
from everything import EVERYTHING
from lanewise.isa.gpu_models import gpu_names
from lanewise.isa.tensor_map_fields import MAP_BYTES
from lanewise.machine.runtime.address_book import ADDRESSES
from lanewise.virtual_gpu.devices import find_device
from lanewise.virtual_gpu.driver import Driver, DriverError, Result
from lanewise.virtual_gpu.driver.arrays import CUBEMAP, LAYERED, TexelArray, TextureSettings
from lanewise.virtual_gpu.driver.devices import device_attributes
from lanewise.virtual_gpu.driver.driver import entry_points
from lanewise.virtual_gpu.driver.modules import lz4_block, ptx_in
from lanewise.virtual_gpu.programs.elf_file import registers_of
from lanewise.virtual_gpu.runtime.runtime import entry_points as runtime_entry_points
from virtual_gpu.programs import WRITE

SAXPY = """
.version 8.0
.target sm_80
.address_size 64
.global .align 4 .u32 launches;
.visible .entry saxpy(.param .f32 a, .param .u64 x, .param .u64 y, .param .u32 n) {
    .reg .b64 %rd<6>; .reg .b32 %r<6>; .reg .f32 %f<4>; .reg .pred %p<2>;
    mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x;
    mad.lo.u32 %r3, %r0, %r1, %r2;
    ld.param.u32 %r4, [n];
    setp.ge.u32 %p0, %r3, %r4;
    @%p0 bra DONE;
    ld.param.u64 %rd0, [x]; ld.param.u64 %rd1, [y]; ld.param.f32 %f0, [a];
    mul.wide.u32 %rd2, %r3, 4;
    add.u64 %rd3, %rd0, %rd2; add.u64 %rd4, %rd1, %rd2;
    ld.global.f32 %f1, [%rd3]; ld.global.f32 %f2, [%rd4];
    fma.rn.f32 %f3, %f0, %f1, %f2;
    st.global.f32 [%rd4], %f3;
    setp.ne.u32 %p0, %r3, 0;
    @%p0 bra DONE;
    mov.u64 %rd5, launches;
    red.global.add.u32 [%rd5], 1;
DONE:
    ret;
}
"""
#: Adds 1 to the number whose address lies at an address.
FOLLOW = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry follow(.param .u64 p) {
    .reg .b64 %rd<2>; .reg .b32 %r<2>;
    ld.param.u64 %rd0, [p];
    ld.global.u64 %rd1, [%rd0];
    ld.global.u32 %r0, [%rd1];
    add.u32 %r0, %r0, 1;
    st.global.u32 [%rd1], %r0;
    ret;
}
"""
ENDLESS = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry endless() {
AGAIN:
    bra AGAIN;
}
"""


Number = ctypes.c_float | ctypes.c_uint32 | ctypes.c_uint64


def driver_of(name: str = "A100", memory_gib: float | None = None) -> Driver:
    return Driver(find_device(name, memory_gib))


def upload(driver: Driver, array: np.ndarray) -> int:
    place = driver.cuMemAlloc_v2(array.nbytes)
    driver.cuMemcpyHtoD_v2(place, array.ctypes.data, array.nbytes)
    return place


def download(driver: Driver, place: int, like: np.ndarray) -> np.ndarray:
    array = np.empty_like(like)
    driver.cuMemcpyDtoH_v2(array.ctypes.data, place, array.nbytes)
    return array


def parameters(*values: Number) -> tuple[int, object]:
    """The array of pointers that cuLaunchKernel takes, and what keeps it."""
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(each) for each in values))
    return ctypes.addressof(pointers), (pointers, values)


def launch(driver: Driver, function: int, grid: int, block: int, *values: Number) -> None:
    place, kept = parameters(*values)
    driver.cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, 0, place, 0)
    del kept


def test_a_program_in_terms_of_the_driver_computes_what_numpy_does() -> None:
    driver = driver_of()
    rng = np.random.default_rng()
    x, y = (rng.standard_normal(1000).astype(np.float32) for _ in range(2))
    on_device = upload(driver, x), upload(driver, y)
    function = driver.cuModuleGetFunction(driver.load(SAXPY), "saxpy")
    values = (
        ctypes.c_float(1.5),
        ctypes.c_uint64(on_device[0]),
        ctypes.c_uint64(on_device[1]),
        ctypes.c_uint32(1000),
    )
    launch(driver, function, 4, 256, *values)
    exact = 1.5 * x.astype(np.float64) + y
    np.testing.assert_array_equal(download(driver, on_device[1], y), exact.astype(np.float32))


def test_parameters_in_a_buffer_are_those_of_pointers() -> None:
    driver = driver_of()
    x, y = np.arange(8, dtype=np.float32), np.ones(8, np.float32)
    on_device = upload(driver, x), upload(driver, y)
    function = driver.cuModuleGetFunction(driver.load(SAXPY), "saxpy")
    raw = ctypes.create_string_buffer(struct.pack("<f4xQQI", 2.0, *on_device, 8))
    size = ctypes.c_uint64(len(raw))
    extra = (ctypes.c_uint64 * 5)(1, ctypes.addressof(raw), 2, ctypes.addressof(size), 0)
    driver.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, 0, 0, ctypes.addressof(extra))
    np.testing.assert_array_equal(download(driver, on_device[1], y), 2 * x + 1)


def test_a_variable_is_the_same_for_kernels_and_for_copies() -> None:
    driver = driver_of()
    module = driver.load(SAXPY)
    x = upload(driver, np.zeros(4, np.float32))
    place, size = driver.cuModuleGetGlobal_v2(module, "launches")
    driver.cuMemsetD32_v2(place, 40, 1)
    function = driver.cuModuleGetFunction(module, "saxpy")
    for _ in range(2):
        launch(
            driver,
            function,
            1,
            32,
            ctypes.c_float(1),
            ctypes.c_uint64(x),
            ctypes.c_uint64(x),
            ctypes.c_uint32(4),
        )
    assert size == 4
    assert download(driver, place, np.zeros(1, np.uint32)) == 42


def test_a_pointer_in_memory_is_followed() -> None:
    driver = driver_of()
    number = upload(driver, np.array([41], np.uint32))
    pointer = upload(driver, np.array([number], np.uint64))
    launch(driver, driver.cuModuleGetFunction(driver.load(FOLLOW), "follow"), 1, 1, ctypes.c_uint64(pointer))
    assert download(driver, number, np.zeros(1, np.uint32)) == 42


def test_memory_that_was_given_back_cannot_be_accessed() -> None:
    driver = driver_of()
    number = upload(driver, np.array([41], np.uint32))
    pointer = upload(driver, np.array([number], np.uint64))
    driver.cuMemFree_v2(number)
    function = driver.cuModuleGetFunction(driver.load(FOLLOW), "follow")
    with pytest.raises(DriverError, match="ILLEGAL_ADDRESS") as raised:
        launch(driver, function, 1, 1, ctypes.c_uint64(pointer))
    assert raised.value.result == Result.ILLEGAL_ADDRESS
    with pytest.raises(DriverError, match="no allocation begins"):
        driver.cuMemFree_v2(number)


def test_more_memory_than_the_device_has_is_refused_and_freed_memory_is_free() -> None:
    driver = driver_of(memory_gib=1 / 1024)
    first = driver.cuMemAlloc_v2(600_000)
    with pytest.raises(DriverError, match=r"OUT_OF_MEMORY: 600,000 bytes .* memory_gib") as raised:
        driver.cuMemAlloc_v2(600_000)
    assert raised.value.result == Result.OUT_OF_MEMORY
    driver.cuMemFree_v2(first)
    driver.cuMemAlloc_v2(600_000)
    assert driver.cuMemGetInfo_v2() == (2**20 - 600_000, 2**20)


def test_attributes_of_a_pointer_asked_for_together_are_those_asked_for_one_by_one() -> None:
    """Of memory that is none of the device, CUDA says zeros, and that no device has it."""
    memory_type, managed, ordinal, start, size = attributes = (2, 8, 9, 11, 12)
    with lw.virtual_gpu("A100") as gpu:
        driver = gpu.driver
        on_device, pinned = driver.cuMemAlloc_v2(48), driver.cuMemHostAlloc(16, 0)
        here = ctypes.create_string_buffer(16)
        for address in (on_device, on_device + 4, pinned, ctypes.addressof(here)):
            values = [ctypes.c_int64(0) for _ in attributes]
            asked = (ctypes.c_int32 * len(attributes))(*attributes)
            pointers = (ctypes.c_void_p * len(attributes))(*map(ctypes.addressof, values))
            driver.cuPointerGetAttributes(
                len(attributes), ctypes.addressof(asked), ctypes.addressof(pointers), address
            )
            said = dict(zip(attributes, (each.value for each in values), strict=True))
            if address == ctypes.addressof(here):
                assert said == {memory_type: 0, managed: 0, ordinal: 2**32 - 2, start: 0, size: 0}
                continue
            for attribute, number in said.items():
                one = ctypes.c_int64(0)
                driver.cuPointerGetAttribute(ctypes.addressof(one), attribute, address)
                assert one.value == number
            assert said[memory_type] == (1 if address == pinned else 2)
            assert said[start] + said[size] > address >= said[start]


def test_addresses_of_no_memory_are_refused_and_no_crash() -> None:
    """Such as a pointer that cudaMalloc did not set because there was no memory left."""
    with lw.virtual_gpu("A100") as gpu:
        driver = gpu.driver
        memory, here = driver.cuMemAlloc_v2(64), ctypes.create_string_buffer(64)
        nowhere = 0x5A5A5A5A5000  # in the half that user programs have, and mapped by nobody
        for target, source in ((nowhere, memory), (memory, nowhere), (nowhere, ctypes.addressof(here))):
            with pytest.raises(DriverError, match="0x5a5a5a5a5000 is the address of no memory"):
                driver.cuMemcpy(target, source, 64)
        for address in (nowhere, ctypes.addressof(here)):
            with pytest.raises(DriverError, match="lies in no memory of the device"):
                driver.cuMemsetD8_v2(address, 0, 64)
        driver.cuMemcpyDtoH_v2(ctypes.addressof(here), memory, 64)


def test_copies_do_not_reach_beyond_an_allocation() -> None:
    driver = driver_of()
    place, host = driver.cuMemAlloc_v2(100), np.zeros(200, np.uint8)
    with pytest.raises(DriverError, match="beyond the allocation of 100 bytes"):
        driver.cuMemcpyHtoD_v2(place + 50, host.ctypes.data, 51)
    with pytest.raises(DriverError, match="beyond the allocation"):
        driver.cuMemsetD8_v2(place, 1, 101)
    with pytest.raises(DriverError, match="the address of no memory"):
        driver.cuMemcpyDtoH_v2(0, place, 8)


def test_copies_of_memory_that_was_freed_are_refused() -> None:
    driver, host = driver_of(), np.zeros(64, np.uint8)
    place, freed = driver.cuMemAlloc_v2(64), driver.cuMemAlloc_v2(64)
    driver.cuMemFree_v2(freed)
    calls: list[Callable[[], object]] = [
        lambda: driver.cuMemcpyHtoD_v2(freed, host.ctypes.data, 64),
        lambda: driver.cuMemcpyDtoH_v2(host.ctypes.data, freed, 64),
        lambda: driver.cuMemcpyDtoD_v2(place, freed, 64),
        lambda: driver.cuMemcpyHtoDAsync_v2(freed, host.ctypes.data, 64, 0),
        lambda: driver.cuMemcpyHtoD_v2(host.ctypes.data, host.ctypes.data, 64),
    ]
    for call in calls:
        with pytest.raises(DriverError, match="lies in no memory of the device"):
            call()


@pytest.mark.parametrize("size", [1, 2, 4])
def test_fills_are_those_of_numpy(size: int) -> None:
    driver = driver_of()
    place = driver.cuMemAlloc_v2(64)
    fill = {1: driver.cuMemsetD8_v2, 2: driver.cuMemsetD16_v2, 4: driver.cuMemsetD32_v2}[size]
    fill(place + 8, 0x12345678, 5)
    expected = np.zeros(64, np.uint8)
    expected[8 : 8 + 5 * size].view(f"u{size}")[:] = 0x12345678 % (1 << 8 * size)
    np.testing.assert_array_equal(download(driver, place, expected), expected)


def test_a_target_that_the_device_has_not_is_refused_by_name() -> None:
    hopper = SAXPY.replace("sm_80", "sm_90a")
    with pytest.raises(DriverError, match=r"for sm_90a, and the virtual A100 is sm_80") as raised:
        driver_of("A100").load(hopper)
    assert raised.value.result == Result.NO_BINARY_FOR_GPU
    driver_of("H100").load(hopper)
    with pytest.raises(DriverError, match="for sm_90a"):  # arch-specific code runs on its own arch alone
        driver_of("B200").load(hopper)
    driver_of("B200").load(SAXPY)


def test_machine_code_without_ptx_is_refused_with_the_option_that_adds_it() -> None:
    with pytest.raises(DriverError, match=r"no PTX.*code=compute_90"):
        ptx_in(b"\x7fELF" + bytes(60))
    only_machine_code = _fatbin([(2, 90, b"\x7fELF" + bytes(60), 0, 64)])
    with pytest.raises(DriverError, match="no PTX"):
        ptx_in(only_machine_code)
    with pytest.raises(DriverError, match="neither PTX nor a fatbin"):
        ptx_in(b"\xff\xfe\x00\x01")


def _fatbin(images: list[tuple[int, int, bytes, int, int]]) -> bytes:
    """A fatbin of images: kind, arch, bytes, flags, and the bytes of what was compressed."""
    body = b""
    for kind, arch, data, flags, plain in images:
        padded = data + bytes(-len(data) % 8)
        header = struct.pack(
            "<HHIQIIIIIIQQQ", kind, 0x101, 64, len(padded), len(data), 64, 0, arch, 64, 0, flags, 0, plain
        )
        body += header[:64].ljust(64, b"\0") + padded
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def _lz4(data: bytes) -> bytes:
    """An LZ4 block of literals alone."""
    assert len(data) >= 15
    rest, lengths = len(data) - 15, b""
    while rest >= 255:
        lengths, rest = lengths + b"\xff", rest - 255
    return b"\xf0" + lengths + bytes([rest]) + data


def test_the_ptx_of_the_highest_arch_in_a_fatbin_is_taken_compressed_or_not() -> None:
    old, new = SAXPY.encode() + b"\0", SAXPY.replace("sm_80", "sm_90").encode() + b"\0"
    plain = _fatbin([(1, 80, old, 0, 0), (1, 90, new, 0, 0), (2, 90, bytes(64), 0, 0)])
    packed = _fatbin([(1, 80, old, 0, 0), (1, 90, _lz4(new), 0x2000, len(new))])
    for image in (plain, packed):
        assert ".target sm_90" in ptx_in(image)
        kept = ctypes.create_string_buffer(image, len(image))
        driver = driver_of("H100")
        driver.cuModuleGetFunction(driver.cuModuleLoadData(ctypes.addressof(kept)), "saxpy")


def test_lz4_repeats_what_overlaps_itself() -> None:
    # 4 literals, then 19 + 5 bytes from 2 back, then a last literal
    block = bytes([0x4F]) + b"abcd" + bytes([2, 0, 5]) + bytes([0x10]) + b"!"
    assert lz4_block(block, 29) == b"abcd" + b"cd" * 12 + b"!"


def test_a_kernel_that_is_not_there_and_handles_of_another_kind() -> None:
    driver = driver_of()
    module = driver.load(SAXPY)
    with pytest.raises(DriverError, match="no kernel 'mm'; it has: saxpy"):
        driver.cuModuleGetFunction(module, "mm")
    with pytest.raises(DriverError, match="no handle of a LoadedFunction"):
        launch(driver, module, 1, 32)
    with pytest.raises(DriverError, match="takes 4 parameters; none was passed"):
        driver.cuLaunchKernel(driver.cuModuleGetFunction(module, "saxpy"), *[1] * 6, 0, 0, 0, 0)
    driver.cuModuleUnload(module)
    with pytest.raises(DriverError, match="INVALID_HANDLE"):
        driver.cuModuleGetFunction(module, "saxpy")


def test_tensor_maps_are_those_of_the_encoder() -> None:
    driver = driver_of("H100")
    array = np.zeros((64, 128), np.float16)
    place = upload(driver, array)
    dims, strides = (ctypes.c_uint64 * 2)(128, 64), (ctypes.c_uint64 * 1)(256)
    box, steps = (ctypes.c_uint32 * 2)(64, 32), (ctypes.c_uint32 * 2)(1, 1)
    raw = ctypes.create_string_buffer(MAP_BYTES)
    a, b, c, d = (ctypes.addressof(each) for each in (dims, strides, box, steps))
    driver.cuTensorMapEncodeTiled(ctypes.addressof(raw), 6, 2, place, a, b, c, d, 0, 3, 2, 0)
    expected = lw.encode_tiled("f16", place, (128, 64), (256,), (64, 32), swizzle="128B", l2_promotion="128B")
    assert raw.raw == expected
    driver.cuTensorMapReplaceAddress(ctypes.addressof(raw), place + 128)
    assert raw.raw != expected
    driver.cuTensorMapReplaceAddress(ctypes.addressof(raw), place)
    assert raw.raw == expected
    with pytest.raises(DriverError, match="INVALID_VALUE"):
        driver.cuTensorMapEncodeTiled(ctypes.addressof(raw), 6, 2, place + 2, a, b, c, d, 0, 3, 2, 0)


def test_maps_of_columns_of_pixels_are_those_of_the_encoder() -> None:
    """As a program passes them: arrays in host memory, negative corners among them."""
    driver = driver_of("H100")
    place = upload(driver, np.zeros((2, 9, 7, 64), np.float16))
    numbers = (ctypes.c_uint64 * 4)(64, 7, 9, 2), (ctypes.c_uint64 * 3)(128, 896, 8064)
    corners = (ctypes.c_int32 * 2)(-1, -2), (ctypes.c_int32 * 2)(0, -1)
    raw, steps = ctypes.create_string_buffer(MAP_BYTES), (ctypes.c_uint32 * 4)(1, 2, 1, 1)
    every = (raw, *numbers, *corners, steps)
    map, dims, strides, lower, upper, between = (ctypes.addressof(each) for each in every)

    def encode(axes: int) -> None:
        driver.cuTensorMapEncodeIm2col(
            map, 6, axes, place, dims, strides, lower, upper, 64, 96, between, 0, 3, 2, 0
        )

    encode(4)
    expected = lw.encode_im2col(
        "f16", place, (64, 7, 9, 2), (128, 896, 8064), (-1, -2), (0, -1), 64, 96,
        element_strides=(1, 2, 1, 1), swizzle="128B", l2_promotion="128B",
    )  # fmt: skip
    assert raw.raw == expected
    with pytest.raises(DriverError, match="images have 3 to 5 axes, not 2"):
        encode(2)


def test_events_have_an_order_and_streams_are_known() -> None:
    driver = driver_of()
    stream = driver.cuStreamCreate(0)
    first, last = driver.cuEventCreate(0), driver.cuEventCreate(0)
    with pytest.raises(DriverError, match="not recorded"):
        driver.cuEventElapsedTime(first, last)
    driver.cuEventRecord(first, stream)
    driver.cuEventRecord(last, 0)
    assert driver.cuEventElapsedTime(first, last) >= 0
    driver.cuStreamDestroy_v2(stream)
    with pytest.raises(DriverError, match="INVALID_HANDLE"):
        driver.cuStreamSynchronize(stream)


def test_contexts_are_a_stack() -> None:
    driver = driver_of()
    assert driver.cuCtxGetCurrent() == 0
    primary = driver.cuDevicePrimaryCtxRetain(0)
    driver.cuCtxSetCurrent(primary)
    own = driver.cuCtxCreate_v2(0, 0)
    assert driver.cuCtxGetCurrent() == own
    assert driver.cuCtxPopCurrent_v2() == own
    assert driver.cuCtxGetCurrent() == primary
    driver.cuCtxSetLimit(2, 1 << 20)
    assert driver.cuCtxGetLimit(2) == 1 << 20
    with pytest.raises(DriverError, match="no device 1"):
        driver.cuDeviceGet(1)


# as C calls it --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("cuInit", "u32 flags"),
        ("cuDeviceGet", "out i32 device, i32 ordinal"),
        ("cuMemGetInfo_v2", "out u64 free, out u64 total"),
        ("cuMemcpyHtoD_v2", "u64 target, u64 source, u64 bytes"),
        ("cuStreamGetCtx", "handle stream, out handle context"),
        ("cuFuncGetParamInfo", "handle function, u64 index, out u64 offset, out u64 bytes"),
        ("cuModuleGetFunction", "out handle function, handle module, text name"),
        ("cuEventElapsedTime", "out f32 milliseconds, handle start, handle end"),
        ("cuLinkAddFile_v2", "handle state, i32 type, text path, u32 count, pointer options, pointer values"),
        ("cudaArrayGetInfo", "pointer format, pointer extent, out u32 flags, handle array"),
        ("cudaFree", "u64 address"),
        ("cudaMemset3D", "pitched pitched, i32 value, extent extent"),
        (
            "__cudaPopCallConfiguration",
            "pointer grid, pointer block, out u64 shared_bytes, out handle stream",
        ),
    ],
)
def test_entry_points_are_declared_as_in_cuda_h(name: str, parameters: str) -> None:
    declared = {**entry_points(), **runtime_entry_points()}[name].parameters
    assert ", ".join(f"{'out ' * own.is_result}{own.type} {own.name}" for own in declared) == parameters


def test_every_entry_point_has_a_method_that_takes_its_parameters() -> None:
    import inspect

    for name, declared in entry_points().items():
        if not name.startswith("cuGetProcAddress"):  # answered by the library
            inspect.signature(getattr(Driver, name)).bind(None, *declared.inputs)


def test_a_call_from_c_writes_its_results_and_returns_a_number() -> None:
    driver = driver_of("H100")
    place, value = ctypes.c_uint64(), ctypes.c_int32()
    assert driver.call("cuMemAlloc_v2", [ctypes.addressof(place), 4096]) == Result.SUCCESS
    assert driver.memory.find(place.value) is not None
    assert driver.call("cuDeviceGetAttribute", [ctypes.addressof(value), 16, 0]) == Result.SUCCESS
    assert value.value == 132
    name = ctypes.create_string_buffer(8)
    assert driver.call("cuDeviceGetName", [ctypes.addressof(name), 8, 0]) == Result.SUCCESS
    assert name.value == b"NVIDIA "
    assert driver.call("cuMemFree_v2", [place.value + 8]) == Result.INVALID_VALUE


def test_what_is_not_supported_says_so_with_its_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = driver_of()
    assert driver.call("cuGraphicsMapResources", [0, 0, 0]) == Result.NOT_SUPPORTED
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("LANEWISE_GPU_LOG", "1")
    driver.call("cuGraphicsMapResources", [0, 0, 0])
    driver.call("cuInit", [0])
    assert capsys.readouterr().err.splitlines() == [
        "lanewise gpu: cuGraphicsMapResources(…) = CUDA_ERROR_NOT_SUPPORTED: "
        "cuGraphicsMapResources is not supported",
        "lanewise gpu: cuInit(flags=0x0) = CUDA_SUCCESS",
    ]
    assert driver.calls["cuGraphicsMapResources"] == 2


@pytest.mark.parametrize("is_blocking", [False, True])
def test_a_fault_is_a_result_in_c_and_a_sentence_on_stderr(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, is_blocking: bool
) -> None:
    """A launch succeeds, and the next call that waits for the GPU answers; not so if launches block."""
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", str(int(is_blocking)))
    driver = driver_of()
    function = driver.cuModuleGetFunction(driver.load(FOLLOW), "follow")
    place, kept = parameters(ctypes.c_uint64(upload(driver, np.array([8], np.uint64))))
    result = driver.call("cuLaunchKernel", [function, 1, 1, 1, 1, 1, 1, 0, 0, place, 0])
    assert result == (Result.ILLEGAL_ADDRESS if is_blocking else Result.SUCCESS)
    assert driver.call("cuDriverGetVersion", [0]) == Result.SUCCESS
    for expected in [Result.SUCCESS] if is_blocking else [Result.ILLEGAL_ADDRESS, Result.SUCCESS]:
        assert driver.call("cuCtxSynchronize", []) == expected
    assert "global read of 4 bytes out of bounds" in capsys.readouterr().err
    del kept


# devices --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for names in gpu_names().values() for name in names])
def test_every_gpu_of_the_table_can_be_a_virtual_one(name: str) -> None:
    device = find_device(name)
    assert device.name == name
    attributes = device_attributes(device)
    assert (attributes[75], attributes[76]) == device.capability
    assert attributes[16] == device.multiprocessors > 0
    assert attributes[8] <= attributes[97] <= attributes[81]


def test_names_that_no_gpu_has() -> None:
    with pytest.raises(lw.LanewiseError, match="did you mean H100"):
        find_device("H1000")
    with pytest.raises(lw.LanewiseError, match=r"sm_80 .*sm_86"):
        find_device("Ampere")
    assert find_device("sm_90").name == find_device("nvidia h100 pcie").name == "H100"
    with pytest.raises(lw.LanewiseError, match="at least one multiprocessor"):
        find_device("H100", multiprocessors=0)


def test_registers_of_a_cubin_are_those_that_ptxas_counts() -> None:
    pytest.importorskip("nvidia", reason="NVIDIA's compilers are not installed")
    loads = "".join(f"ld.volatile.global.u32 %r{i}, [%rd0+{4 * i}];" for i in range(50))
    stores = "".join(f"st.volatile.global.u32 [%rd0+{4 * i}], %r{i};" for i in reversed(range(50)))
    text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p) {"
    text += f".reg .b64 %rd<1>; .reg .b32 %r<50>; ld.param.u64 %rd0, [p]; {loads} {stores} ret; }}"
    try:
        cubin = lw.ptx.ptxas(lw.load(text), "sm_90")
    except lw.ptx.ToolMissing as missing:
        pytest.skip(str(missing))
    assert registers_of(cubin.image) == cubin.resources["k"].registers > 50


def test_registers_of_what_is_no_cubin() -> None:
    assert registers_of(b"") == registers_of(b"\x7fELF" + bytes(200)) == 0


def test_memory_that_is_mapped_twice_is_the_same_memory() -> None:
    driver = Driver(find_device("A100"))
    size = driver.cuMemGetAllocationGranularity(0, 0)
    first, second = (driver.cuMemAddressReserve(2 * size, 0, 0, 0) for _ in range(2))
    memory = driver.cuMemCreate(size, 0, 0)
    for place in (first, second + size):
        driver.cuMemMap(place, size, 0, memory, 0)
        driver.cuMemSetAccess(place, size, 0, 1)
    driver.cuMemRelease(memory)  # it stays while it is mapped
    driver.cuMemsetD32_v2(first + 8, 77, 1)
    assert ctypes.c_uint32.from_address(second + size + 8).value == 77
    assert driver.memory.used == size
    driver.cuMemUnmap(first, 2 * size)
    driver.cuMemUnmap(second, 2 * size)
    assert driver.memory.used == 0
    # Nothing is there any more: a launch that looked at it would end the process.
    assert driver.memory.find(first) is None and driver.memory.find(second + size) is None
    with pytest.raises(DriverError, match="no multiple"):
        driver.cuMemCreate(size + 1, 0, 0)


def test_what_is_left_of_mapped_memory_is_still_one_allocation() -> None:
    driver = Driver(find_device("A100"))
    size = driver.cuMemGetAllocationGranularity(0, 0)
    start = driver.cuMemAddressReserve(4 * size, 0, 0, 0)
    memory = driver.cuMemCreate(size, 0, 0)
    for number in (3, 1, 2, 0):
        driver.cuMemMap(start + number * size, size, 0, memory, 0)
    driver.cuMemSetAccess(start + size, 3 * size, 0, 1)
    assert driver.memory.find(start) is None
    driver.cuMemSetAccess(start, size, 0, 1)
    whole = driver.memory.find(start + size)
    assert whole is not None and (whole.first, whole.size) == (start, 4 * size)
    driver.cuMemUnmap(start + size, size)
    left = [driver.memory.find(start + number * size) for number in range(4)]
    sizes = [each and each.size for each in left]
    assert sizes == [size, None, 2 * size, 2 * size]


def test_addresses_that_were_not_reserved_stay_as_they_are() -> None:
    driver = Driver(find_device("A100"))
    size = driver.cuMemGetAllocationGranularity(0, 0)
    start = driver.cuMemAddressReserve(2 * size, 0, 0, 0)
    memory = driver.cuMemCreate(size, 0, 0)
    own = driver.cuMemAlloc_v2(4 * size)
    for place in (0, own + -own % size, start + 2 * size):
        with pytest.raises(DriverError, match="lie in no reservation"):
            driver.cuMemMap(place, size, 0, memory, 0)
        with pytest.raises(DriverError, match="no reservation of"):
            driver.cuMemAddressFree(place, size)
    driver.cuMemMap(start, size, 0, memory, 0)
    with pytest.raises(DriverError, match=r"mapped at 0x\w+ already"):
        driver.cuMemMap(start, size, 0, memory, 0)
    with pytest.raises(DriverError, match="only a part"):
        driver.cuMemUnmap(start + size // 2, size)
    with pytest.raises(DriverError, match=r"still mapped at \w+: cuMemUnmap first"):
        driver.cuMemAddressFree(start, 2 * size)
    driver.cuMemUnmap(start, size)
    driver.cuMemAddressFree(start, 2 * size)
    with pytest.raises(DriverError, match="no reservation of"):
        driver.cuMemAddressFree(start, 2 * size)


def test_memory_stays_while_a_launch_has_it() -> None:
    driver = driver_of()
    places = [driver.cuMemAlloc_v2(1 << 22), driver.cuModuleGetGlobal_v2(driver.load(SAXPY), "launches")[0]]
    for place in places:
        driver.cuMemsetD32_v2(place, 0x07070707, 1)
    # What a launch keeps until it has ended, while the collector may run.
    kept = {memory.first: owner for owner, memory in ADDRESSES.living()}
    del driver
    gc.collect()
    assert [kept[place][:4].tolist() for place in places] == [[7] * 4] * 2


def test_variables_of_a_module_that_is_unloaded_are_out_of_reach() -> None:
    driver = driver_of()
    module, other = driver.load(SAXPY), driver.load(SAXPY)
    places = [driver.cuModuleGetGlobal_v2(each, "launches")[0] for each in (module, other)]
    driver.cuModuleUnload(module)
    assert [driver.memory.find(each) is not None for each in places] == [False, True]
    assert places[0] not in {memory.first for _, memory in ADDRESSES.living()}


def test_memory_has_the_properties_that_were_asked_for() -> None:
    driver = Driver(find_device("H100"))
    assert driver.cuDeviceGetAttribute(107, 0) == 1  # compressible memory
    asked = (ctypes.c_uint8 * 32)(1, *[0] * 23, 1, *[0] * 7)  # pinned, compressible
    handle = driver.cuMemCreate(driver.cuMemGetAllocationGranularity(0, 0), ctypes.addressof(asked), 0)
    told = (ctypes.c_uint8 * 32)()
    driver.cuMemGetAllocationPropertiesFromHandle(ctypes.addressof(told), handle)
    assert bytes(told) == bytes(asked)
    driver.cuMemRelease(handle)
    assert driver.memory.used == 0


def test_rectangles_are_copied_and_filled_row_by_row() -> None:
    driver = Driver(find_device("A100"))
    place = driver.cuMemAlloc_v2(4 * 16)
    driver.cuMemsetD2D16_v2(place, 16, 0x102, 3, 4)  # 3 words of 2 bytes in each of 4 rows
    rows = [ctypes.string_at(place + 16 * row, 8) for row in range(4)]
    assert rows == [b"\x02\x01" * 3 + b"\0\0"] * 4
    with pytest.raises(DriverError, match="reach beyond"):
        driver.cuMemsetD2D8_v2(place, 16, 0, 17, 4)


@pytest.mark.parametrize("channels", [1, 4])
def test_texels_of_memory_at_a_pitch_leave_out_the_gaps(channels: int) -> None:
    """A texture of pitched memory has the rows that numpy sees at the same strides."""
    driver = Driver(find_device("A100"))
    place, pitch = driver.cuMemAllocPitch_v2(5 * 4 * channels, 3, 4)
    memory = np.ctypeslib.as_array((ctypes.c_float * (pitch * 3 // 4)).from_address(place))
    memory[:] = np.arange(len(memory))
    texels = driver.linear_texels(place, "f4", channels, 5, 3, pitch)
    expected = memory.reshape(3, pitch // 4)[:, : 5 * channels]
    assert (texels.reshape(3, -1) == expected).all()
    handle = driver.texture_of(texels, channels, 0, TextureSettings())
    image = driver.images[handle]
    assert image is not None
    assert (image.row_texels, image.size) == (pitch // 4 // channels, (5, 3, 1))
    with pytest.raises(DriverError, match="does not fit rows"):
        driver.linear_texels(place, "f4", channels, 5, 3, 16)


def test_a_cube_map_is_an_array_of_faces() -> None:
    driver = Driver(find_device("A100"))
    for flags, depth, geometry in (
        (CUBEMAP, 6, "cube"),
        (CUBEMAP | LAYERED, 12, "acube"),
        (LAYERED, 6, "a2d"),
    ):
        array = driver.known(driver.create_array((4, 4, depth), "f4", 1, flags), TexelArray)
        handle = driver.texture_of(array.texels, 1, flags, TextureSettings(is_normalized=True))
        image, written = driver.images[handle], driver.images[driver.surface_of(array)]
        assert image is not None and (image.geometry, image.layers) == (geometry, depth)
        assert written is not None and (written.geometry, written.layers) == ("a2d", depth)
    seamless = TextureSettings(is_normalized=True, is_linear=True, is_seamless=True)
    with pytest.raises(DriverError, match="across the edges"):
        driver.texture_of(array.texels, 1, CUBEMAP, seamless)
    with pytest.raises(DriverError, match="six square faces"):
        driver.texture_of(np.zeros((5, 4, 4), "f4"), 1, CUBEMAP, TextureSettings(is_normalized=True))


def test_the_best_block_occupies_most_threads() -> None:
    """The law of cuOccupancyMaxPotentialBlockSize: no other block of whole warps occupies more threads."""
    driver = Driver(find_device("H100"))
    module = driver.load(WRITE)
    count = driver.cuModuleGetFunctionCount(module)
    handles = (ctypes.c_uint64 * count)()
    driver.cuModuleEnumerateFunctions(ctypes.addressof(handles), count, module)
    function = handles[0]
    for shared in (0, 40_000) if EVERYTHING else (40_000,):
        blocks, threads = driver.cuOccupancyMaxPotentialBlockSize(function, 0, shared, 0)
        occupied = [
            each * driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, each, shared)
            for each in range(32, 1025, 32)
        ]
        assert blocks // 132 * threads == max(occupied)
    assert driver.cuOccupancyMaxPotentialBlockSize(function, 0, 0, 96)[1] <= 96


def test_host_memory_that_no_call_registered_is_not_promised() -> None:
    """A kernel may access memory that the driver knows and no other: the attribute must say so."""
    assert device_attributes(find_device("H100"))[88] == 0
