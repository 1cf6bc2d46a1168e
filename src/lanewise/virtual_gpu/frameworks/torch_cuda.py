"""`torch.cuda` under a virtual GPU: questions about the device, streams, events, seeds."""

from __future__ import annotations

from collections.abc import Callable
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
    device, memory = gpu.device, gpu.driver.memory
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
        "mem_get_info": lambda *_: (memory.capacity - memory.used, memory.capacity),
        "memory_allocated": lambda *_: memory.used,
        "max_memory_allocated": lambda *_: memory.peak,
        "memory_reserved": lambda *_: memory.used,
        "max_memory_reserved": lambda *_: memory.peak,
        "get_rng_state": lambda *_: torch.get_rng_state(),
        "set_rng_state": lambda state, *_: torch.set_rng_state(state),
        "initial_seed": torch.initial_seed,
        "is_current_stream_capturing": lambda: False,
    }


#: Functions of `torch.cuda` that have nothing to do here.
_IDLE = (
    "init", "set_device", "empty_cache", "ipc_collect", "_lazy_init", "_lazy_call",
    "reset_peak_memory_stats", "reset_max_memory_allocated",
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
    patches.set(torch.version, "cuda", _CUDA_VERSION)
    patches.set(torch, "Generator", _Generator)
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is not None:
        patches.set(accelerator, "is_available", lambda: True)
        patches.set(accelerator, "current_accelerator", lambda *_, **__: torch.device("cuda"))
        patches.set(accelerator, "device_count", lambda: 1)
        patches.set(accelerator, "synchronize", lambda *_: gpu.driver.cuCtxSynchronize())
        for name in ("current_device_index", "current_device_idx"):
            patches.set(accelerator, name, lambda: 0)


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
