"""`torch.cuda` under a virtual GPU: questions about the device, streams, events, seeds and graphs.

Streams and events are those of the driver. What a capture into a graph runs is recorded, and a replay runs it
again. Work that is captured runs at once, unlike on a GPU, where a replay runs it first. A replay repeats the
launches of kernels and torch's own operators in their order, and writes results to the same memory.
"""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves

from lanewise.errors import LanewiseError
from lanewise.virtual_gpu.driver.streams import DEFAULT, NON_BLOCKING
from lanewise.virtual_gpu.frameworks.patches import FrameworkState, Patches

if TYPE_CHECKING:
    from lanewise.virtual_gpu.driver.driver import Driver

#: The streams that each thread has entered, by the driver that they are of; the last is the current one.
_ENTERED = threading.local()


def _driver() -> Driver:
    """Return the driver of the virtual GPU that torch's streams are of."""
    assert _DRIVERS, "no virtual GPU is in use"
    return _DRIVERS[-1]


_DRIVERS: list[Driver] = []


class Stream:
    """A stream of torch's: one of the driver's that does not wait for the default stream."""

    def __init__(
        self, device: object = None, priority: int = 0, stream_ptr: int | None = None, **_: object
    ) -> None:
        self.device, self.priority = torch.device("cuda", 0), priority
        self.cuda_stream = (
            _driver().cuStreamCreateWithPriority(NON_BLOCKING, priority) if stream_ptr is None else stream_ptr
        )
        self.stream_id = self.cuda_stream
        self.device_index = 0
        self.device_type = 1

    def synchronize(self) -> None:
        """Wait for the work of the stream."""
        _driver().cuStreamSynchronize(self.cuda_stream)

    def wait_event(self, event: Event) -> None:
        """Let the stream wait for an event."""
        event.wait(self)

    def wait_stream(self, other: Stream) -> None:
        """Let the stream wait for the work of another one so far."""
        self.wait_event(other.record_event())

    def query(self) -> bool:
        """Return that all work has been done."""
        _driver().cuStreamQuery(self.cuda_stream)
        return True

    def is_capturing(self) -> bool:
        """Return whether work of the stream is captured into a graph."""
        return bool(torch.cuda.is_current_stream_capturing())

    def record_event(self, event: Event | None = None) -> Event:
        """Return an event that is recorded now."""
        event = event if event is not None else Event()
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        _entered().append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _entered().pop()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.cuda_stream == self.cuda_stream

    def __hash__(self) -> int:
        return hash(self.cuda_stream)

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device=cuda:0 cuda_stream={self.cuda_stream:#x}>"


class ExternalStream(Stream):
    """A stream that somebody else made, by its handle."""

    def __init__(self, stream_ptr: int, device: object = None, **_: object) -> None:
        super().__init__(device, stream_ptr=stream_ptr)


class Event:
    """An event of torch's: one of the driver's, which keeps the time of the host."""

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, **_: object
    ) -> None:
        self.cuda_event = _driver().cuEventCreate(0)
        self._is_recorded = False

    def record(self, stream: Stream | None = None) -> None:
        """Record what has been done on a stream so far, the current one by default."""
        _driver().cuEventRecord(self.cuda_event, _handle(stream))
        self._is_recorded = True

    def wait(self, stream: Stream | None = None) -> None:
        """Let a stream, the current one by default, wait for the event."""
        _driver().cuStreamWaitEvent(_handle(stream), self.cuda_event, 0)

    def elapsed_time(self, other: Event) -> float:
        """Return the milliseconds of the host from this event to another."""
        if not (self._is_recorded and other._is_recorded):
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return _driver().cuEventElapsedTime(self.cuda_event, other.cuda_event)

    def synchronize(self) -> None:
        """Wait for the event."""
        _driver().cuEventSynchronize(self.cuda_event)

    def query(self) -> bool:
        """Return that the event is over."""
        _driver().cuEventQuery(self.cuda_event)
        return True


def _entered() -> list[Stream]:
    """Return the streams that this thread has entered."""
    if getattr(_ENTERED, "driver", None) is not _driver():
        _ENTERED.driver, _ENTERED.streams = _driver(), [ExternalStream(DEFAULT)]
    streams: list[Stream] = _ENTERED.streams
    return streams


def _handle(stream: Stream | None) -> int:
    return int((stream if stream is not None else _entered()[-1]).cuda_stream)


def current_handle() -> int:
    """Return the handle of torch's current stream; the default one if torch is not in use."""
    return _handle(None) if _DRIVERS else DEFAULT


def answers(driver: Driver) -> dict[str, Callable[..., object]]:
    """Return what `torch.cuda` has of streams, by name."""

    @contextmanager
    def stream(chosen: Stream | None) -> Iterator[None]:
        if chosen is None:
            yield
        else:
            with chosen:
                yield

    def set_stream(chosen: Stream) -> None:
        _entered()[-1] = chosen

    return {
        "Stream": Stream,
        "ExternalStream": ExternalStream,
        "Event": Event,
        "StreamContext": stream,
        "stream": stream,
        "set_stream": set_stream,
        "current_stream": lambda *_: _entered()[-1],
        "default_stream": lambda *_: ExternalStream(DEFAULT),
        "synchronize": lambda *_: driver.cuCtxSynchronize(),
    }


@contextmanager
def streams_of(driver: Driver) -> Iterator[None]:
    """Within it, torch's streams are those of a driver."""
    _DRIVERS.append(driver)
    try:
        yield
    finally:
        _DRIVERS.remove(driver)


#: Operators that build on what was computed before a capture, and cannot be repeated by themselves.
_NOT_REPEATED = ("backward", "grad")


class Recording:
    """Work in its order, each as a function that does it again."""

    def __init__(self) -> None:
        self.work: list[Callable[[], None]] = []

    def add_launch(self, launch: Callable[..., None], arguments: tuple[object, ...]) -> None:
        """Record the launch of a kernel."""
        self.work.append(lambda: launch(*arguments))

    def add_operator(
        self,
        function: Callable[..., object],
        args: tuple[object, ...],
        kwargs: dict[str, object],
        result: object,
    ) -> None:
        """Record an operator of torch's, whose arguments name host memory."""
        name = getattr(function, "__name__", "")
        if name in _NOT_REPEATED:
            raise LanewiseError(
                f"lanewise's virtual GPU captures no {name} into a CUDA graph; capture the forward pass, or "
                "run without a graph"
            )
        kept = tensors_among(result)
        if not kept and name not in ("__setitem__", "set_"):
            return

        def again() -> None:
            with torch._C.DisableTorchFunction(), torch.no_grad():
                for old, tensor in zip(kept, tensors_among(function(*args, **kwargs)), strict=True):
                    if old.untyped_storage()._cdata != tensor.untyped_storage()._cdata:
                        old.copy_(tensor)

        self.work.append(again)

    def repeat(self) -> None:
        """Do all work again."""
        for replay in self.work:
            replay()


def tensors_among(values: object) -> list[torch.Tensor]:
    """Return the tensors among values, in lists, tuples and dicts as well."""
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def _graph_classes(gpu: FrameworkState) -> tuple[type, type]:
    """Return the classes of graphs of a virtual GPU, and of blocks that capture one."""
    driver, storages = gpu.driver, gpu.torch

    class CUDAGraph:
        """Work that was captured, as torch's own class has it."""

        def __init__(self, keep_graph: bool = False) -> None:
            self._recording: Recording | None = None

        def capture_begin(self, *_: object, **__: object) -> None:
            """Record work from now on; it also runs."""
            if storages.recording is not None:
                raise RuntimeError("a CUDA graph is being captured already")
            self._recording = recording = storages.recording = Recording()
            own = driver.launch

            def launch(*arguments: Any) -> None:
                recording.add_launch(own, arguments)
                own(*arguments)

            vars(driver)["launch"] = launch

        def capture_end(self) -> None:
            """Record no more."""
            storages.recording = None
            vars(driver).pop("launch", None)

        def instantiate(self) -> None:
            """Do nothing: a recording can be replayed as it is."""

        def replay(self) -> None:
            """Do the captured work again, on the same memory."""
            if self._recording is None:
                raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
            self._recording.repeat()

        def reset(self) -> None:
            """Forget the captured work."""
            self._recording = None

        def pool(self) -> tuple[int, int]:
            """Return the number of a memory pool; all pools are one."""
            return (0, 0)

        def enable_debug_mode(self) -> None:
            """Do nothing: there is nothing to be dumped."""

    class graph:
        """`torch.cuda.graph(g)`: captures what runs within it."""

        def __init__(
            self, cuda_graph: CUDAGraph, pool: object = None, stream: object = None, **_: object
        ) -> None:
            self.cuda_graph = cuda_graph

        def __enter__(self) -> None:
            self.cuda_graph.capture_begin()

        def __exit__(self, *_: object) -> None:
            self.cuda_graph.capture_end()

    return CUDAGraph, graph


def _graphed_callables(callables: Any, sample_args: object, *_: object, **__: object) -> Any:
    """Return the callables as they are: they compute what their graphs would."""
    return callables


def _install_graphs(gpu: FrameworkState, patches: Patches) -> None:
    """Let `torch.cuda` capture graphs, until the patches are taken back."""
    graphs, capture = _graph_classes(gpu)
    patches.set(torch.cuda, "CUDAGraph", graphs)
    patches.set(torch.cuda, "graph", capture)
    patches.set(torch.cuda, "graph_pool_handle", lambda: (0, 0))
    patches.set(torch.cuda, "make_graphed_callables", _graphed_callables)
    patches.set(torch.cuda, "is_current_stream_capturing", lambda: gpu.torch.recording is not None)


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
    _install_graphs(gpu, patches)
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
