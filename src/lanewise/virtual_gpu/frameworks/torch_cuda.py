"""`torch.cuda` under a virtual GPU: questions about the device, streams, events, seeds."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING

import torch

from lanewise.virtual_gpu.frameworks.patches import Patches
from lanewise.virtual_gpu.frameworks.torch_streams import answers, current_handle, streams_of

if TYPE_CHECKING:
    from lanewise.virtual_gpu.frameworks.framework_state import FrameworkState

_CUDA_VERSION = "13.0"


class _DeviceContext:
    """`torch.cuda.device(0)`: a context that changes nothing, for there is one device."""

    def __init__(self, device: object = None) -> None:
        self.idx = self.prev_idx = 0

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        pass


def _questions(gpu: FrameworkState) -> dict[str, Callable[..., object]]:
    """Return what answers for the device, by its name in `torch.cuda`."""
    device = gpu.device
    unit = device.multiprocessor
    properties = SimpleNamespace(
        name=device.title,
        major=device.capability[0],
        minor=device.capability[1],
        total_memory=device.memory_bytes,
        multi_processor_count=device.multiprocessors,
        is_integrated=0,
        is_multi_gpu_board=0,
        max_threads_per_multi_processor=unit.warps * 32,
        max_threads_per_block=1024,
        warp_size=32,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=48 * 1024,
        shared_memory_per_block_optin=device.shared_bytes,
        shared_memory_per_multiprocessor=unit.shared_bytes,
        L2_cache_size=device.l2_bytes,
        clock_rate=device.clock_khz,
        memory_clock_rate=device.memory_clock_khz,
        memory_bus_width=device.bus_bits,
        gcnArchName="",
    )
    return {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_name": lambda *_: device.title,
        "get_device_capability": lambda *_: device.capability,
        "get_device_properties": lambda *_: properties,
        "get_arch_list": lambda: [device.arch],
        "is_bf16_supported": lambda *_, **__: device.capability[0] >= 8,
        "can_device_access_peer": lambda *_: False,
        **_memory_questions(gpu),
        "get_rng_state": lambda *_: torch.get_rng_state(),
        "set_rng_state": lambda state, *_: torch.set_rng_state(state),
        "initial_seed": torch.initial_seed,
        "is_current_stream_capturing": lambda: False,
    }


def _memory_questions(gpu: FrameworkState) -> dict[str, Callable[..., object]]:
    """Return what answers for the memory of the device, by its name in `torch.cuda`."""
    memory = gpu.driver.memory

    def used(*_: object, **__: object) -> int:
        return int(gpu.torch.allocated())

    def peak(*_: object, **__: object) -> int:
        used()  # it is not less than what is in use now
        return memory.peak

    def forget_peak(*_: object, **__: object) -> None:
        memory.peak = 0
        used()

    def stats(*_: object, **__: object) -> dict[str, int]:
        now, most = used(), peak()
        kinds = ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes")
        known = {f"{kind}.all.{name}": n for kind in kinds for name, n in (("current", now), ("peak", most))}
        return defaultdict(int, known | {"num_ooms": 0, "num_alloc_retries": 0})

    return {
        "mem_get_info": lambda *_, **__: (memory.capacity - used(), memory.capacity),
        **dict.fromkeys(("memory_allocated", "memory_reserved"), used),
        **dict.fromkeys(("max_memory_allocated", "max_memory_reserved"), peak),
        **dict.fromkeys(("reset_peak_memory_stats", "reset_max_memory_allocated"), forget_peak),
        "memory_stats": stats,
        "memory_snapshot": lambda *_, **__: [],
    }


def _one_device(devices: Sequence[object]) -> None:
    """Raise an error if work is to be spread over several devices."""
    if len(devices) > 1:
        raise RuntimeError(f"the virtual GPU is one device, cuda:0; {len(devices)} are asked for")


def _scatter(tensor: torch.Tensor, devices: Sequence[object], *_: object) -> list[torch.Tensor]:
    """Return the parts of a tensor for one device, as DataParallel asks for them: the whole."""
    _one_device(devices)
    return [tensor.to("cuda")]


def _broadcast(tensor: object, devices: Sequence[object], *_: object) -> list[object]:
    """Return a tensor, or a list of some, for each of the devices, of which there is one."""
    _one_device(devices)
    return [tensor]


def _gather(tensors: Sequence[torch.Tensor], dim: int, *_: object) -> torch.Tensor:
    """Return tensors of several devices as one."""
    return torch.cat(list(tensors), dim)


#: What `torch.cuda.nvtx` asks of NVIDIA's library for marks in profiles, which nobody reads here.
_MARKS = ("rangePushA", "rangePop", "rangeStartA", "rangeEnd", "markA", "deviceRangeStart", "deviceRangeEnd")

#: What torch's library spreads over devices, by its name in `torch._C`; a build for CPUs has none of it.
_SPREADING: dict[str, Callable[..., object]] = {
    "_scatter": _scatter,
    "_broadcast": _broadcast,
    "_broadcast_coalesced": _broadcast,
    "_gather": _gather,
}

#: Functions of `torch.cuda` that have nothing to do here.
_IDLE = (
    "init", "set_device", "empty_cache", "ipc_collect", "_lazy_init", "_lazy_call",
)  # fmt: skip


def install_torch_cuda(gpu: FrameworkState, patches: Patches) -> None:
    """Let `torch.cuda` answer for the virtual GPU, until the patches are taken back."""
    cuda = torch.cuda
    patches.enter_context(streams_of(gpu.driver))
    gpu.current_stream = current_handle

    def seed(number: int) -> None:
        torch.default_generator.manual_seed(int(number))

    all_answers: dict[str, Callable[..., object]] = {
        **_questions(gpu),
        **{name: _nothing() for name in _IDLE},
        **answers(gpu.driver),
        "device": _DeviceContext,
        "manual_seed": seed,
        "manual_seed_all": seed,
    }
    for name, answer in all_answers.items():
        patches.set(cuda, name, answer)
    for name, answer in _SPREADING.items():
        patches.set(torch._C, name, answer)
    for name in ("memory_allocated", "max_memory_allocated", "memory_stats", "reset_peak_memory_stats"):
        patches.set(cuda.memory, name, all_answers[name])  # memory_summary is made of these
    patches.set(cuda.nvtx, "_nvtx", SimpleNamespace(**{name: lambda *_: 0 for name in _MARKS}))
    patches.set(torch.version, "cuda", _CUDA_VERSION)
    patches.set(torch, "Generator", _Generator)
    patches.set(torch, "compile", _uncompiled)
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is not None:
        patches.set(accelerator, "is_available", lambda: True)
        patches.set(accelerator, "current_accelerator", lambda *_, **__: torch.device("cuda"))
        patches.set(accelerator, "device_count", lambda: 1)
        patches.set(accelerator, "synchronize", lambda *_: gpu.driver.cuCtxSynchronize())
        for name in ("current_device_index", "current_device_idx"):
            patches.set(accelerator, name, lambda: 0)
        for name in ("current_stream", "set_stream"):
            patches.set(accelerator, name, all_answers[name])
        for name in ("set_device_index", "set_device_idx"):
            patches.set(accelerator, name, _nothing())


def _uncompiled(model: object = None, **_: object) -> object:
    """Return a function or a module as it is, in place of `torch.compile`, and say so once."""
    if model is None:
        return _uncompiled
    print(
        "lanewise: torch.compile does not compile for a virtual GPU; functions run as they are",
        file=sys.stderr,
    )
    return model


def _nothing() -> Callable[..., None]:
    """Return a function that does nothing: there is one device. torch.compile wants one for each name."""
    return lambda *_, **__: None


class _GeneratorType(type):
    """The type of torch's generators: one for "cuda" is one for the CPU, and torch's own are instances."""

    def __call__(cls, device: str | torch.device = "cpu") -> torch.Generator:
        return _OwnGenerator("cpu" if str(device).startswith("cuda") else device)

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _OwnGenerator)


_OwnGenerator = torch.Generator


class _Generator(metaclass=_GeneratorType):
    """torch's generator of random numbers, in programs and in their annotations."""
