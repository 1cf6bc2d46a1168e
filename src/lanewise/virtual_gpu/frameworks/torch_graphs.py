"""`torch.cuda.CUDAGraph` under a virtual GPU: what a capture runs is recorded, and a replay runs it again.

Work that is captured runs at once, unlike on a GPU, where a replay runs it first. A replay repeats the
launches of kernels and torch's own operators in their order, and writes results to the same memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves

from lanewise.errors import LanewiseError
from lanewise.virtual_gpu.frameworks.patches import Patches

if TYPE_CHECKING:
    from lanewise.virtual_gpu.frameworks.framework_state import FrameworkState

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
        kept = _tensors(result)
        if not kept and name not in ("__setitem__", "set_"):
            return

        def again() -> None:
            with torch._C.DisableTorchFunction(), torch.no_grad():
                for old, tensor in zip(kept, _tensors(function(*args, **kwargs)), strict=True):
                    if old.untyped_storage()._cdata != tensor.untyped_storage()._cdata:
                        old.copy_(tensor)

        self.work.append(again)

    def repeat(self) -> None:
        """Do all work again."""
        for replay in self.work:
            replay()


def _tensors(values: object) -> list[torch.Tensor]:
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


def install_torch_graphs(gpu: FrameworkState, patches: Patches) -> None:
    """Let `torch.cuda` capture graphs, until the patches are taken back."""
    graphs, capture = _graph_classes(gpu)
    patches.set(torch.cuda, "CUDAGraph", graphs)
    patches.set(torch.cuda, "graph", capture)
    patches.set(torch.cuda, "graph_pool_handle", lambda: (0, 0))
    patches.set(torch.cuda, "make_graphed_callables", _graphed_callables)
    patches.set(torch.cuda, "is_current_stream_capturing", lambda: gpu.torch.recording is not None)
