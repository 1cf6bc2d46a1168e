"""A CUDA driver that notes what is asked of it, and arrays that say they lie on its GPU."""

import ctypes
import struct
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from lanewise import gpu
from lanewise.gpu import arrays, device, driver, loading, plan


class FakeDriver:
    """Two devices; every call is written down, and what a launch is given is read from its memory."""

    version = (12, 4)

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.launches: list[SimpleNamespace] = []
        self.current = 0
        self.status = 0
        self.most_threads = 1024
        self.sizes: tuple[int, ...] = ()
        self.count = 2
        self.from_machine_code = 0
        self._kept = (
            ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)(self._launch_from_machine_code),
            ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self._current_from_machine_code),
        )
        self.places = tuple(ctypes.cast(function, ctypes.c_void_p).value for function in self._kept)

    def _launch_from_machine_code(self, *arguments: Any) -> int:
        self.from_machine_code += 1
        config, function, parameters, extra = arguments
        return self.launch(*map(ctypes.c_void_p, (config, function, parameters)), extra)  # type: ignore[call-arg]  # mypy loses the number of arguments behind a star

    def _current_from_machine_code(self, place: int) -> int:
        ctypes.c_uint64.from_address(place).value = self.current
        return 0

    def __call__(self, name: str, *arguments: Any, kernel: str = "") -> None:
        self.calls.append((name, *arguments))
        if name == "cuCtxSetCurrent" or name == "cuCtxPushCurrent_v2":
            self.current = arguments[0]
        if name == "cuPointerGetAttribute":
            arguments[0]._obj.value = arguments[2] >> 40
        if name == "cuDeviceGetName":
            arguments[0].value = b"Fake GPU"

    def number(self, name: str, *arguments: Any) -> int:
        if name == "cuDeviceGetAttribute":
            return {75: 8, 76: 9, 97: 101_376}.get(arguments[0], 100)
        if name == "cuFuncGetAttribute":
            return {0: self.most_threads, 1: 1024, 4: 77}[arguments[0]]
        return {"cuDeviceGetCount": self.count, "cuDeviceGet": arguments[0] if arguments else 0}[name]

    def handle(self, name: str, *arguments: Any, kernel: str = "") -> int:
        self.calls.append((name, *arguments))
        if name == "cuCtxGetCurrent":
            return self.current
        if name == "cuCtxPopCurrent_v2":
            self.current = 100
        return 100 + arguments[0] if name == "cuDevicePrimaryCtxRetain" else 7

    def error(self, status: int, kernel: str = "") -> gpu.GpuError:
        return driver.fault(
            {700: "CUDA_ERROR_ILLEGAL_ADDRESS", 1: "CUDA_ERROR_INVALID_VALUE"}[status], "", kernel
        )

    def launch(self, config: Any, function: Any, parameters: Any, extra: Any) -> int:
        *shape, shared, stream, attributes, count = struct.unpack(
            "<7I4xQQI4x", ctypes.string_at(config.value, 56)
        )
        places = struct.unpack(
            f"<{len(self.sizes)}Q", ctypes.string_at(parameters.value, 8 * len(self.sizes))
        )
        values = [ctypes.string_at(place, size) for place, size in zip(places, self.sizes, strict=True)]
        assert extra is None and count == 0 and attributes == 0 and function.value == 7
        self.launches.append(
            SimpleNamespace(
                shape=shape[:6], shared=shape[6] if len(shape) > 6 else shared, stream=stream, values=values,
                context=self.current,
            )
        )  # fmt: skip
        return self.status if self.current else 201  # CUDA_ERROR_INVALID_CONTEXT


class FakeArray:
    """CUDA memory as `__cuda_array_interface__` tells of it: device 0 below 2**40, device 1 above."""

    def __init__(self, address: int = 4096, strides: tuple[int, ...] | None = None, **more: Any) -> None:
        self.__cuda_array_interface__ = {
            "shape": (4, 8),
            "typestr": "<f4",
            "data": (address, False),
            "strides": strides,
            "version": 3,
            **more,
        }


class FakeTensor:
    """As much of torch.Tensor as a launch asks for."""

    def __init__(self, address: int = 4096, ordinal: int = 0, strides: tuple[int, ...] = (8, 1)) -> None:
        self.address, self.ordinal, self.strides = address, ordinal, strides
        self.shape = (4, 8)

    @property
    def is_cuda(self) -> bool:
        return self.ordinal >= 0

    def data_ptr(self) -> int:
        return self.address

    def get_device(self) -> int:
        return self.ordinal

    def stride(self) -> tuple[int, ...]:
        return self.strides

    def is_contiguous(self) -> bool:
        return self.strides == (8, 1)


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)  # type: ignore[untyped-decorator]  # ctypes' decorator has no types
def read_tensor(tensor: Any, place: int) -> int:
    """DLPack's `dltensor_from_py_object_no_sync`."""
    tensor.kept = [(ctypes.c_int64 * 2)(*numbers) for numbers in (tensor.shape, tensor.strides)]
    out = arrays._Tensor.from_address(place)
    out.data, out.byte_offset = tensor.address - 16, 16
    out.device_type, out.device_id = (2, tensor.ordinal) if tensor.is_cuda else (1, 0)
    out.ndim, out.code, out.bits, out.lanes = 2, 2, 32, 1
    out.shape, out.strides = (ctypes.cast(each, ctypes.POINTER(ctypes.c_int64)) for each in tensor.kept)
    return 0


#: Version 1.3, no older interface, four functions of which the last reads a tensor, and the stream's.
EXCHANGE = (ctypes.c_uint64 * 7)(1 | 3 << 32, 0, 0, 0, 0, ctypes.cast(read_tensor, ctypes.c_void_p).value, 0)


def capsule() -> Any:
    make = ctypes.pythonapi.PyCapsule_New
    make.argtypes, make.restype = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p), ctypes.py_object
    return make(ctypes.addressof(EXCHANGE), b"dlpack_exchange_api", None)


@pytest.fixture(params=["Python", "machine code"])
def fake(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    """A driver; warm launches are Python's, or from the third on machine code's."""
    made = FakeDriver()
    if request.param == "machine code":
        monkeypatch.setattr(FakeTensor, "__dlpack_c_exchange_api__", capsule(), raising=False)
        monkeypatch.setattr(plan, "OFTEN", 1)
    torch = ModuleType("torch")
    torch.Tensor = FakeTensor  # type: ignore[attr-defined]  # a stand-in
    torch._C = SimpleNamespace(_cuda_getCurrentRawStream=lambda ordinal: 50 + ordinal)  # type: ignore[attr-defined]  # a stand-in for a library without annotations
    torch.cuda = SimpleNamespace()  # type: ignore[attr-defined]  # a stand-in for a library without annotations
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(driver, "load", lambda: made)
    monkeypatch.setattr(loading, "cubin", lambda module, context, kernel: b"\x7fELF")
    device.context.cache_clear()
    arrays._torch.cache_clear()
    yield made
    device.context.cache_clear()
    arrays._torch.cache_clear()
