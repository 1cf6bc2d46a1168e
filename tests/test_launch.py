"""Where a launch goes, and what reaches the driver: with a driver that only writes down what it is asked."""

from __future__ import annotations

import ctypes
import pickle
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from fake_gpu import FakeArray, FakeDriver, FakeTensor, fake
from lanewise import gpu
from lanewise.gpu import assemble, device, driver, plan, streams
from lanewise.ptx import Shape, parse

__all__ = ["fake"]  # the fixture

KERNEL = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x, .param .{type} value)
{{
    .reg .b64 %rd<2>;
    ld.param.u64 %rd0, [x];
    ld.param.b{bits} %rd1, [value];
    st.global.b{bits} [%rd0], %rd1;
    ret;
}}
"""
PLAIN = KERNEL.format(type="s32", bits=32)


def kernel(text: str = PLAIN) -> Any:
    return parse(text)["k"]


# where it goes -------------------------------------------------------------------------------------------


def test_numpy_arrays_run_on_the_machine(fake: FakeDriver) -> None:
    x = np.zeros(1, np.int32)
    kernel()[1, 1](x, -7)
    assert x[0] == -7 and not fake.launches


@pytest.mark.parametrize("array", [FakeArray, FakeTensor])
def test_cuda_arrays_go_to_their_device(array: type, fake: FakeDriver) -> None:
    fake.sizes = (8, 4)
    configured = kernel()[(2, 3), (32, 2), 512]
    for value in (1, -2, 3):
        configured(array(8192), value)
    for launch, value in zip(fake.launches, (1, -2, 3), strict=True):
        assert launch.shape == [2, 3, 1, 32, 2, 1] and launch.shared == 512
        assert launch.values == [(8192).to_bytes(8, "little"), value.to_bytes(4, "little", signed=True)]
        assert launch.context == 100


def test_the_device_of_the_data_is_made_current_and_left_again(fake: FakeDriver) -> None:
    fake.sizes, fake.current = (8, 4), 100
    configured = kernel()[1, 1]
    there = [FakeTensor(ordinal=1)] * 4
    for array in (*there, FakeArray((1 << 40) + 64), FakeTensor(), FakeTensor(), FakeTensor(), *there):
        configured(array, 1)
    assert [launch.context for launch in fake.launches] == [101] * 5 + [100] * 3 + [101] * 4
    assert fake.current == 100


def test_a_thread_without_a_context_gets_one(fake: FakeDriver) -> None:
    fake.sizes, fake.count = (8, 4), 1
    configured = kernel()[1, 1]
    for number in range(8):
        fake.current = 0 if number % 2 else 100
        configured(FakeTensor(), number)
        assert fake.current == 100 and fake.launches[-1].context == 100
        assert fake.launches[-1].values[1] == number.to_bytes(4, "little")


def test_two_arrays_two_devices_or_host_memory(fake: FakeDriver) -> None:
    text = PLAIN.replace(".param .s32 value", ".param .u64 value").replace("ld.param.b32", "ld.param.b64")
    configured = kernel(text)[1, 1]
    cases: list[tuple[Any, Any, str]] = [
        (FakeTensor(), np.zeros(3), r"0 \(x\) is on cuda:0 \(torch\); .* in host memory \(NumPy\)"),
        (FakeTensor(), FakeTensor(ordinal=-1), r"1 \(value\) is in host memory \(torch\)"),
        (FakeTensor(), FakeTensor(ordinal=1), r"on cuda:0 \(torch\); .* is on cuda:1 .* one device"),
        (FakeArray(), FakeTensor(ordinal=1), "one device"),
    ]  # fmt: skip
    for first, second, message in cases:
        with pytest.raises(lw.LanewiseError, match=message):
            configured(first, second)
    assert not fake.launches


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((FakeArray(),), {}, r"\(\.u64 x, \.s32 value\); 1 given: there is none for \.s32 value"),
        ((FakeArray(), 2**31), {}, "does not fit into .s32"),
        ((FakeArray(), 1.5), {}, "pass an integer"),
        ((FakeArray(), FakeArray()), {}, "takes a number; an array was given"),
        ((FakeArray(strides=(64, 4)), 1), {}, "must be contiguous"),
        ((FakeArray(mask=FakeArray()), 1), {}, "mask"),
        ((FakeArray(), 1), {"steps": 3}, "CPU machine"),
        ((FakeArray(), 1), {"arch": "sm_80"}, "which is sm_89"),
        ((FakeArray(), 1), {"stream": "fast"}, "is not a stream"),
        ((np.zeros(1, np.int32), 1), {"stream": 0}, "host memory"),
    ],
)
def test_what_is_wrong_is_said(
    arguments: tuple[Any, ...], options: dict[str, Any], message: str, fake: FakeDriver
) -> None:
    with pytest.raises(lw.LanewiseError, match=message):
        kernel()[1, 1](*arguments, **options)
    assert not fake.launches


def test_options_of_the_machine_are_refused_however_warm_the_launch(fake: FakeDriver) -> None:
    fake.sizes = (8, 4)
    configured = kernel()[1, 1]
    for _ in range(4):
        configured(FakeTensor(), 1)
    for options in ({"steps": 3}, {"arch": "sm_80"}, {"progress": print}, {"stream": "fast"}):
        with pytest.raises(lw.LanewiseError):
            configured(FakeTensor(), 1, **options)
    with pytest.raises(TypeError):
        configured(FakeTensor(), 1, step=3)
    assert len(fake.launches) == 4


def test_arrays_in_either_order_are_in_one_piece(fake: FakeDriver) -> None:
    fake.sizes = (8, 4)
    configured = kernel()[1, 1]
    for array in (FakeArray(strides=(32, 4)), FakeArray(strides=(4, 16)), FakeTensor(strides=(1, 4))):
        for _ in range(4):
            configured(array, 1)
    configured(FakeTensor(), 1)
    with pytest.raises(lw.LanewiseError, match="must be contiguous"):
        configured(FakeTensor(strides=(16, 1)), 1)
    assert len(fake.launches) == 13


def test_an_array_that_is_not_aligned_as_the_kernel_was_told(fake: FakeDriver) -> None:
    fake.sizes = (8, 4)
    configured = kernel(PLAIN.replace(".u64 x", ".u64 .ptr .global .align 16 x"))[1, 1]
    for _ in range(4):
        configured(FakeTensor(4096), 1)
    for _ in range(2):
        with pytest.raises(lw.LanewiseError, match="aligned to 16 bytes; the array begins 4 bytes after"):
            configured(FakeTensor(4100), 1)


# what reaches the driver ---------------------------------------------------------------------------------

NUMBERS = [
    *((f"{kind}{bits}", value) for kind in "sub" for bits in (8, 16, 32, 64) for value in (0, 1, 100, True)),
    *((f"s{bits}", -(1 << bits - 1)) for bits in (8, 16, 32, 64)),
    *((f"{kind}{bits}", (1 << bits) - 1) for kind in "ub" for bits in (8, 16, 32, 64)),
    *((f"{kind}{bits}", -1) for kind in "sub" for bits in (8, 16, 32, 64)),
    *(
        (f"{kind}{bits}", value)
        for kind in "fb"
        for bits in (16, 32, 64)
        for value in (1.5, -0.0, 1e300, 1 / 3, float("inf"))
    ),
    *((f"f{bits}", value) for bits in (32, 64) for value in (3, True)),
]


@pytest.mark.parametrize("type_", sorted({type_ for type_, _ in NUMBERS}))
def test_numbers_are_packed_as_numpy_packs_them(type_: str, fake: FakeDriver) -> None:
    """Cold and warm; tensors are prepared for, plain interfaces are not."""
    kind, bits = type_[0], int(type_[1:])
    text = PLAIN.replace(".s32 value", f".{type_} value")
    fake.sizes = (8, bits // 8)
    configured = kernel(text)[1, 1]
    for value in [value for name, value in NUMBERS if name == type_]:
        is_float = kind == "f" or isinstance(value, float)
        with np.errstate(over="ignore"):
            expected = (
                np.float64(value).astype(f"f{bits // 8}").tobytes()
                if is_float
                else (int(value) % (1 << bits)).to_bytes(bits // 8, "little")
            )
        fake.launches.clear()
        for array in (FakeArray(), FakeTensor(), FakeTensor(), FakeTensor(), FakeTensor()):
            configured(array, value)
        assert [launch.values[1] for launch in fake.launches] == [expected] * 5, value


def test_structs_arrive_whole(fake: FakeDriver) -> None:
    fake.sizes = (8, 24)
    configured = kernel(PLAIN.replace(".param .s32 value", ".param .align 8 .b8 value[24]"))[1, 1]
    raw = bytes(range(24))
    for value in (raw, bytearray(raw), np.frombuffer(raw, "V24")[0], np.frombuffer(raw, "u1")):
        configured(FakeTensor(), value)
    assert [launch.values[1] for launch in fake.launches] == [raw] * 4
    with pytest.raises(lw.LanewiseError, match="24 bytes; 23 were given"):
        configured(FakeTensor(), raw[1:])


def test_arrays_and_numbers_in_any_order(fake: FakeDriver) -> None:
    kinds = ["u64", "s32", "u64", "f64", "s32", "u64"]
    parameters = ", ".join(f".param .{kind} p{number}" for number, kind in enumerate(kinds))
    text = f".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k({parameters}) {{ ret; }}"
    fake.sizes = (8, 4, 8, 8, 4, 8)
    configured = kernel(text)[1, 1]
    for _ in range(6):
        configured(FakeTensor(16), -1, FakeTensor(32), 0.5, 9, FakeTensor(48))
    expected = [
        struct.pack(code, value) for code, value in zip("QiQdiQ", (16, -1, 32, 0.5, 9, 48), strict=True)
    ]
    assert [launch.values for launch in fake.launches] == [expected] * 6
    assert len(configured._plans) == 1
    assert fake.from_machine_code == (4 if plan.OFTEN == 1 else 0)


def test_none_is_a_null_pointer(fake: FakeDriver) -> None:
    fake.sizes = (8, 4)
    kernel()[1, 1](None, 5, stream=3)
    assert fake.launches[0].values[0] == bytes(8) and fake.launches[0].stream == 3


def write_scaled(x: lw.Ptr[lw.f32], n: lw.i32, factor: lw.f32, TIMES: lw.Constexpr = 1) -> None:
    x[n] = factor * lw.f32(TIMES)


def write_half(x: lw.Ptr[lw.f16], value: lw.f16) -> None:
    x[0] = value


def test_kernels_of_the_language_are_launched_warm_too(fake: FakeDriver) -> None:
    fake.sizes = (8, 4, 4)
    scaled, halves = map(lw.kernel, (write_scaled, write_half))  # type: ignore[arg-type]  # annotations of the kernel language are values
    for times in (1, 2):
        for number in range(5):
            scaled[1, 32](FakeTensor(64), number, 0.5 * number, TIMES=times)
            expected = [
                struct.pack(code, value)
                for code, value in zip("Qif", (64, number, 0.5 * number), strict=True)
            ]
            assert fake.launches[-1].values == expected
    assert len(fake.launches) == 10 and scaled[1, 32] is scaled[1, 32]
    assert len(scaled[1, 32]._launched) == 2
    fake.sizes = (8, 2)
    for value in (0, 1, 1.5, 0):
        halves[1, 1](FakeTensor(64), value)
        assert fake.launches[-1].values[1] == np.float16(value).tobytes()
    for wrong in ((FakeTensor(64), 2**31, 0.5), (FakeTensor(64), 1.5, 0.5), (FakeTensor(64), 1)):
        with pytest.raises(lw.LanewiseError):
            scaled[1, 32](*wrong, TIMES=1)
    with pytest.raises(lw.LanewiseError, match="aligned to 4 bytes"):
        scaled[1, 32](FakeTensor(66), 1, 0.5, TIMES=1)


def test_warm_launches_know_constants_by_their_type_and_see_what_python_changes(fake: FakeDriver) -> None:
    number = 1

    @lw.kernel
    def typed(x: lw.Ptr[lw.f32], C: lw.Constexpr):  # type: ignore[no-untyped-def]  # a kernel may have no result type
        x[number] = 1.0 if isinstance(C, float) else 2.0

    fake.sizes = (8,)
    for constant in (1, 1.0, 1, 1.0, True):
        for number in (1, 2):  # noqa: B007  # the kernel reads it
            typed[1, 32](FakeTensor(64), C=constant)
    assert len(typed[1, 32]._launched) == 3
    constants = [(version.module.text, configured) for version, configured in typed[1, 32]._launched.values()]
    assert len({text for text, _ in constants}) == 2  # of 1.0, and of 1 and True, for the last number
    kept = len(fake.launches)
    typed[1, 32](FakeTensor(64), C=1.0)
    assert len(fake.launches) == kept + 1


def test_warm_launches_know_constants_by_their_bits_and_parts(fake: FakeDriver) -> None:
    @lw.kernel
    def stored(x: lw.Ptr[lw.f32], C: lw.Constexpr):  # type: ignore[no-untyped-def]  # a kernel may have no result type
        x[0] = C[0]

    fake.sizes = (8,)
    for _ in range(3):
        for constant in ((0.0,), (-0.0,)):
            stored[1, 32](FakeTensor(64), C=constant)
    texts = [version.module.text for version, _ in stored[1, 32]._launched.values()]
    assert len(texts) == len(set(texts)) == 2 and len(fake.launches) == 6


# streams -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stream", "handle"),
    [
        (None, 51),
        (0, 0),
        (77, 77),
        (SimpleNamespace(cuda_stream=78), 78),
        (SimpleNamespace(ptr=79), 79),
        (SimpleNamespace(handle=ctypes.c_void_p(80)), 80),
        (SimpleNamespace(__cuda_stream__=lambda: (0, 81)), 81),
        (SimpleNamespace(__cuda_stream__=(0, 82)), 82),
    ],
    ids=["torch's", "0", "77", "cuda_stream", "ptr", "handle", "protocol", "attribute"],
)
def test_the_stream_is_the_callers(stream: Any, handle: int, fake: FakeDriver) -> None:
    fake.sizes = (8, 4)
    configured = kernel()[1, 1]
    fake.current = 101
    for _ in range(4):
        configured(FakeTensor(ordinal=1), 1, stream=stream)
    assert [launch.stream for launch in fake.launches] == [handle] * 4


@pytest.mark.parametrize(
    "stream",
    [-1, True, "s", object(), SimpleNamespace(__cuda_stream__=lambda: (1, 81))],
    ids=["negative", "bool", "text", "object", "version"],
)
def test_what_is_no_stream_is_refused(stream: Any) -> None:
    with pytest.raises(lw.LanewiseError):
        streams.stream_handle(stream)


def test_work_on_the_stream_of_an_array_is_waited_for(fake: FakeDriver) -> None:
    fake.sizes = (8, 4)
    kernel()[1, 1](FakeArray(stream=9), 1, stream=5)
    names = [call[0] for call in fake.calls]
    assert ("cuEventRecord", 7, 9) in fake.calls and ("cuStreamWaitEvent", 5, 7, 0) in fake.calls
    assert names.index("cuEventRecord") < names.index("cuStreamWaitEvent") < names.index("cuEventDestroy_v2")
    fake.calls.clear()
    kernel()[1, 1](FakeArray(stream=5), 1, stream=5)
    kernel()[1, 1](FakeArray(stream=1), 1)
    assert not any(call[0] == "cuEventRecord" for call in fake.calls)


# what the device can do ----------------------------------------------------------------------------------


def test_shared_memory_is_asked_for_where_it_is_much(fake: FakeDriver) -> None:
    fake.sizes = (8, 4)
    entry = kernel()
    for size in (0, 48 * 1024 - 1024, 60_000, 50_000, 100_352):
        entry[1, 1, size](FakeTensor(), 1)
    asked = [call[1:] for call in fake.calls if call[0] == "cuFuncSetAttribute"]
    assert asked == [(7, 8, 60_000), (7, 8, 100_352)]
    with pytest.raises(gpu.GpuError, match=r"k: 101377 bytes of shared memory .* Fake GPU has 101376"):
        entry[1, 1, 100_353](FakeTensor(), 1)


def test_more_threads_than_the_registers_allow(fake: FakeDriver) -> None:
    fake.most_threads = 640
    with pytest.raises(
        gpu.GpuError, match="k: 768 threads a block are too many: with its 77 registers"
    ) as caught:
        kernel()[1, 768](FakeTensor(), 1)
    assert caught.value.kernel == "k" and not caught.value.lost


def test_errors_of_a_launch_name_the_kernel(fake: FakeDriver) -> None:
    fake.sizes, configured = (8, 4), kernel()[1, 1]
    for _ in range(4):
        configured(FakeTensor(), 1)
    for status, lost in ((1, False), (700, True)):
        fake.status = status
        for array in (FakeTensor(), FakeArray()):
            with pytest.raises(gpu.GpuError, match=r"^k: CUDA_ERROR") as caught:
                configured(array, 1)
            assert caught.value.lost is lost
            assert ("context is lost" in str(caught.value)) is lost
    fake.status = 0
    configured(FakeTensor(), 1)


# assembling ----------------------------------------------------------------------------------------------


def context_of(release: tuple[int, int], arch: str = "sm_89") -> Any:
    return SimpleNamespace(
        driver=SimpleNamespace(version=release),
        device=SimpleNamespace(arch=arch, cuda=f"{release[0]}.{release[1]}"),
    )


def test_machine_code_is_made_once_and_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made: list[str] = []

    def assembled(module: Any, text: str, arch: str, context: Any, kernel: str) -> bytes:
        made.append(arch)
        return f"{arch} {text}".encode()

    monkeypatch.setattr(assemble, "assemble", assembled)
    monkeypatch.setenv("LANEWISE_CACHE_DIR", str(tmp_path))
    newer = PLAIN.replace("sm_80", "sm_90a").replace("8.0", "8.1")
    asked = [
        (PLAIN, (13, 0), "sm_89", "sm_89"),
        (PLAIN, (13, 0), "sm_89", None),
        (PLAIN, (13, 0), "sm_90", "sm_90"),
        (PLAIN, (13, 1), "sm_90", "sm_90"),
        (newer, (13, 0), "sm_90", "sm_90a"),
        (PLAIN, (13, 0), "sm_90", None),
    ]
    for text, release, arch, expected in asked:
        made.clear()
        image = assemble.cubin(parse(text), context_of(release, arch), "k")
        assert image.endswith(text.encode()) and made == ([expected] if expected else [])
    with pytest.raises(
        lw.LanewiseError, match=r"for sm_90a, which runs on compute capability 9\.0 alone, not on sm_100"
    ):
        assemble.cubin(parse(newer), context_of((13, 0), "sm_100"), "k")


def test_ptx_newer_than_the_driver_is_lowered_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    linked: list[str] = []
    monkeypatch.setattr(assemble, "_link", lambda text, context, kernel: linked.append(text) or b"")  # type: ignore[func-returns-value]  # append gives None, so the bytes are returned
    there = context_of((12, 4))
    there.current = lambda: __import__("contextlib").nullcontext()

    def lowered(text: str) -> str:
        assemble.by_driver(parse(text), text, there, "k")
        return linked[-1].split(".version ")[1].split()[0]

    assert lowered(PLAIN.replace("8.0", "9.2")) == "8.4"
    assert lowered(PLAIN) == "8.0"
    newer = PLAIN.replace("8.0", "9.2").replace("ret;", "max.f32 %f0, %f1, %f2, %f3; ret;")
    with pytest.raises(
        gpu.GpuError, match=r"k: the PTX is of version 9\.2 and its instructions need 8\.8.* up to 8\.4"
    ):
        lowered(newer.replace(".reg .b64", ".reg .f32 %f<4>; .reg .b64"))


# without a driver ----------------------------------------------------------------------------------------


def test_without_a_driver_that_is_what_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_LIBRARIES", ("libnothing_of_the_kind.so",))
    driver.load.cache_clear()
    device.context.cache_clear()
    assert gpu.devices() == [] and not gpu.available()
    with pytest.raises(gpu.GpuError, match="no NVIDIA driver is installed here"):
        kernel()[1, 1](FakeArray(), 1)
    driver.load.cache_clear()


def test_a_check_takes_a_grid_and_a_block() -> None:
    for wrong in (kernel(), None):
        with pytest.raises(lw.LanewiseError, match=r"lw\.check\(kernel\[grid, block\], a, b"):
            lw.check(wrong, FakeArray(), 1)


def test_a_configuration_is_made_once() -> None:
    entry = kernel()
    assert entry[1, 32] is entry[1, 32] and entry[1, 32] is not entry[1, 64]
    assert entry[[1, 2], 32].shape == entry[(1, 2), 32].shape
    configured, arguments = entry[1, 32].bind(1, 2)
    assert configured is entry[1, 32] and arguments == (1, 2)
    for number in range(2000):
        entry[number + 1, 32]
    assert len(entry._configured) <= 1024


def test_a_launch_that_overlaps_says_so() -> None:
    """The attributes of a launch say its cluster and that it may begin early: kinds 4 and 6, 72 bytes."""
    shape = Shape((1, 1, 1), (32, 1, 1), cluster=(2, 1, 1), overlap=True)
    *_, attributes, count = struct.unpack("<7I4xQQI4x", plan.launch_config(shape))
    kinds = [struct.unpack("<I4xI", ctypes.string_at(attributes + 72 * i, 12)) for i in range(count)]
    assert kinds == [(4, 2), (6, 1)]
    entry = kernel()[1, 1]
    assert entry.overlapping().shape.overlap and entry.overlapping() is entry.overlapping()


def test_a_kernel_asked_for_as_an_attribute() -> None:
    module = lw.load(".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }")
    with pytest.raises(AttributeError, match=r"no attribute 'k'; module\['k'\] is the kernel"):
        getattr(module, next(iter(module.entries)))
    assert not hasattr(module, "other")
    assert list(pickle.loads(pickle.dumps(module)).entries) == ["k"]
