"""`torch.cuda` under a virtual GPU: questions about the device, streams, events, seeds."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from lanewise.virtual_gpu.frameworks.patches import Patches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lanewise.virtual_gpu.frameworks.framework_state import FrameworkState

_CUDA_VERSION = "13.0"


class Stream:
    """A stream of torch's: work on it is done when the call that made it returns."""

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        self.device, self.priority = torch.device("cuda", 0), priority
        self.cuda_stream = 0
        self.stream_id = 0
        self.device_index = 0

    def synchronize(self) -> None:
        """Do nothing: all work has been done."""

    wait_stream = wait_event = lambda self, other: None

    def query(self) -> bool:
        """Return that all work has been done."""
        return True

    def record_event(self, event: Any = None) -> Any:
        """Return an event that is recorded now."""
        event = event if event is not None else Event()
        event.record()
        return event

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.cuda_stream == self.cuda_stream

    def __hash__(self) -> int:
        return hash(self.cuda_stream)


class Event:
    """An event of torch's, which keeps the time of the host."""

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        self.time: float | None = None

    def record(self, stream: Any = None) -> None:
        """Note the time of the host."""
        self.time = time.perf_counter()

    def elapsed_time(self, other: Event) -> float:
        """Return the milliseconds of the host from this event to another."""
        if self.time is None or other.time is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return (other.time - self.time) * 1e3

    def wait(self, stream: Any = None) -> None:
        """Do nothing: the event is over."""

    def synchronize(self) -> None:
        """Do nothing: the event is over."""

    def query(self) -> bool:
        """Return that the event is over."""
        return True


class _DeviceContext:
    """`torch.cuda.device(0)`: a context that changes nothing, for there is one device."""

    def __init__(self, device: Any = None) -> None:
        self.idx = self.prev_idx = 0

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        pass


def _questions(gpu: FrameworkState) -> dict[str, Callable[..., Any]]:
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
    "init", "set_device", "synchronize", "empty_cache", "ipc_collect", "set_stream", "_lazy_init",
    "_lazy_call", "reset_peak_memory_stats", "reset_max_memory_allocated",
)  # fmt: skip


def install_torch_cuda(gpu: FrameworkState, patches: Patches) -> None:
    """Let `torch.cuda` answer for the virtual GPU, until the patches are taken back."""
    cuda = torch.cuda
    current = Stream()

    @contextmanager
    def stream(chosen: Any) -> Iterator[None]:
        yield

    def seed(number: int) -> None:
        torch.default_generator.manual_seed(int(number))

    answers = {
        **_questions(gpu),
        **dict.fromkeys(_IDLE, _nothing),
        "current_stream": lambda *_: current,
        "default_stream": lambda *_: current,
        "Stream": Stream,
        "ExternalStream": Stream,
        "Event": Event,
        "stream": stream,
        "device": _DeviceContext,
        "manual_seed": seed,
        "manual_seed_all": seed,
        "CUDAGraph": _NoGraph,
        "graph": _NoGraph,
    }
    for name, answer in answers.items():
        patches.set(cuda, name, answer)
    patches.set(torch.version, "cuda", _CUDA_VERSION)
    patches.set(torch, "Generator", _Generator)
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is not None:
        patches.set(accelerator, "is_available", lambda: True)
        patches.set(accelerator, "current_accelerator", lambda *_, **__: torch.device("cuda"))
        patches.set(accelerator, "device_count", lambda: 1)
        patches.set(accelerator, "synchronize", _nothing)
        for name in ("current_device_index", "current_device_idx"):
            patches.set(accelerator, name, lambda: 0)


def _nothing(*_: Any, **__: Any) -> None:
    """Do nothing: there is one device, and all work has been done."""


class _NoGraph:
    """A graph, which cannot be captured yet."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError(
            "lanewise's virtual GPU does not capture CUDA graphs yet; launch without a graph"
        )


class _GeneratorType(type):
    """The type of torch's generators: one for "cuda" is one for the CPU, and torch's own are instances."""

    def __call__(cls, device: Any = "cpu") -> Any:
        return _OwnGenerator("cpu" if str(device).startswith("cuda") else device)

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _OwnGenerator)


_OwnGenerator = torch.Generator


class _Generator(metaclass=_GeneratorType):
    """torch's generator of random numbers, in programs and in their annotations."""
