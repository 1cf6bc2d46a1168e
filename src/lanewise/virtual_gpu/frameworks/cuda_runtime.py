"""`cuda.bindings.runtime` under a virtual GPU: its functions are answered in Python.

The module has NVIDIA's CUDA runtime in it, which asks a driver for tables that are not documented. Functions
that take numbers and handles are answered by the runtime of this project; others raise an error with their
name.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

from lanewise.errors import LanewiseError
from lanewise.virtual_gpu.driver.results import DriverError
from lanewise.virtual_gpu.frameworks.patches import FrameworkState, Patches
from lanewise.virtual_gpu.runtime.runtime import Runtime, entry_points

#: The types in which the module returns handles, by the names that the runtime's table has for them.
_HANDLES = {
    "stream": "cudaStream_t",
    "event": "cudaEvent_t",
    "graph": "cudaGraph_t",
    "executable": "cudaGraphExec_t",
    "node": "cudaGraphNode_t",
    "pool": "cudaMemPool_t",
    "array": "cudaArray_t",
    "kernel": "cudaKernel_t",
    "library": "cudaLibrary_t",
}
#: Parameters that are numbers, addresses or handles; structures of the module are not supported.
_NUMBERS = ("i32", "u32", "u64", "handle")
#: Functions that ask NVIDIA's runtime for nothing but words and numbers.
_HARMLESS = ("cudaGetErrorName", "cudaGetErrorString", "cudaGetLastError", "cudaPeekAtLastError")


def _is_answered(name: str) -> bool:
    """Return whether the runtime answers a function of the module: one that takes numbers alone."""
    declared = entry_points().get(name)
    if declared is None or name in _HARMLESS:
        return False
    return all(parameter.type in _NUMBERS for parameter in declared.inputs)


def _answer(module: Any, runtime: Runtime, name: str) -> Callable[..., tuple[Any, ...]]:
    """Return a function of the runtime as the module has it: it returns an error and the results."""
    declared = entry_points()[name]
    kinds = [
        getattr(module, _HANDLES.get(result.name, ""), int) if result.type == "handle" else None
        for result in declared.results
    ]

    def function(*arguments: Any) -> tuple[Any, ...]:
        if len(arguments) != len(declared.inputs):
            names = ", ".join(parameter.name for parameter in declared.inputs)
            raise TypeError(f"{name} takes {len(declared.inputs)} arguments ({names}), not {len(arguments)}")
        try:
            values = runtime.answer(name, [int(argument or 0) for argument in arguments])
        except DriverError as error:
            print(f"lanewise gpu: {name}: {error.reason}", file=sys.stderr)
            return (module.cudaError_t(int(error.result)), *(None for _ in kinds))
        results = values if isinstance(values, tuple) else (values,)
        made = (
            result if kind is None else kind(result) for result, kind in zip(results, kinds, strict=False)
        )
        return (module.cudaError_t.cudaSuccess, *made)

    function.__name__ = name
    return function


def _gives_nodes(name: str) -> bool:
    """Return whether a function of the runtime writes nodes of a graph to memory, and how many there are."""
    declared = entry_points().get(name)
    return declared is not None and [parameter.name for parameter in declared.inputs[1:]] == [
        "nodes",
        "count",
    ]


def _nodes_answer(module: Any, runtime: Runtime, name: str) -> Callable[..., tuple[Any, ...]]:
    """Return such a function as the module has it: it returns a list of so many nodes, and their number."""

    def function(of: Any, numNodes: int = 0) -> tuple[Any, ...]:
        number, nodes = ctypes.c_uint64(numNodes), (ctypes.c_uint64 * numNodes)()
        try:
            address = ctypes.addressof(nodes) if numNodes else 0
            runtime.answer(name, [int(of or 0), address, ctypes.addressof(number)])
        except DriverError as error:
            print(f"lanewise gpu: {name}: {error.reason}", file=sys.stderr)
            return (module.cudaError_t(int(error.result)), None, None)
        return (module.cudaError_t.cudaSuccess, [*map(module.cudaGraphNode_t, nodes)], number.value)

    function.__name__ = name
    return function


def _refusal(name: str) -> Callable[..., object]:
    """Return a function that says that one of the runtime is not supported."""

    def function(*_: object) -> Any:
        raise LanewiseError(
            f"lanewise's virtual GPU does not answer {name} of cuda.bindings.runtime; call the function of "
            "cuda.bindings.driver that does the same"
        )

    return function


def install(gpu: FrameworkState, patches: Patches) -> None:
    """Let the functions of `cuda.bindings.runtime` ask the virtual GPU, until the patches are taken back."""
    from cuda.bindings import runtime

    own_runtime = Runtime(gpu.driver)
    for name in dir(runtime):
        own = getattr(runtime, name)
        if not name.startswith("cuda") or isinstance(own, type) or not callable(own) or name in _HARMLESS:
            continue
        if _gives_nodes(name):
            patches.set(runtime, name, _nodes_answer(runtime, own_runtime, name))
        else:
            answer = _answer(runtime, own_runtime, name) if _is_answered(name) else _refusal(name)
            patches.set(runtime, name, answer)
