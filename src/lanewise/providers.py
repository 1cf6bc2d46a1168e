"""Which function of which room does each task of `lanewise.engines`: the one file that connects the rooms.

A room is imported only when a task that it does is asked for. mypy holds each function against the type that
its task declares in `tests/test_engines.py`.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from lanewise import engines
from lanewise.engines import EntryPoint

_FUNCTIONS: dict[EntryPoint[Any], str] = {
    engines.ATOM_INSTRUCTION: "lanewise.atoms.lookup.instruction_of",
    engines.COMPUTE: "lanewise.arith.compute",
    engines.GEMM: "lanewise.arith.gemm",
    engines.MOVE: "lanewise.arith.moves.move",
    engines.INSTRUCTION_FIDELITY: "lanewise.arith.fidelity",
    engines.INSTRUCTION_MODEL: "lanewise.arith.on_arrays.required_model",
    engines.DRAW_SVG: "lanewise.draw.svg",
    engines.PRINT_LATEX: "lanewise.draw.print_latex",
    engines.KERNEL_FIDELITY: "lanewise.machine.analysis.fidelity.of_entry",
    engines.LAUNCH: "lanewise.launch.launch",
    engines.DEVICE_ADDRESS: "lanewise.launch.device_address",
    engines.GLOBALS: "lanewise.module_globals.Globals",
    engines.HOST_ARRAY: "lanewise.ptx.host_tensors.host_array",
    engines.SASS_LISTING: "lanewise.ptx.sass_listing.listing",
    engines.SHOW_HTML: "lanewise.lang.frontend.kernel_html.shown",
    engines.EMIT: "lanewise.lang.matrix.emit.emit",
    engines.FULL_FRAGMENT: "lanewise.lang.matrix.fragment.full_fragment",
    engines.FRAGMENT_OF_REGISTERS: "lanewise.lang.matrix.fragment.fragment_of_registers",
    engines.THREAD_SLICE: "lanewise.lang.tiles.partition.thread_slice",
    engines.NUMBER: "lanewise.lang.trace.convert.dtype_call",
    engines.PRODUCT_IN_GRAPH: "lanewise.providers.product_in_graph",
}


def _loading(path: str) -> Callable[[], Any]:
    """Return what imports a function and returns it."""
    module, _, name = path.rpartition(".")
    return lambda: getattr(import_module(module), name)


def product_in_graph(*arrays: object, **keywords: object) -> object:
    """Return a product by torch's operator; torch.compile, which traces this, follows an import statement."""
    from lanewise.torch import matmul_in_graph

    return matmul_in_graph(*arrays, **keywords)


for _task, _path in _FUNCTIONS.items():
    _task.provided_by(_loading(_path))
