"""The table of tasks that connects the rooms: every task is provided, each room is loaded only when asked."""

import subprocess
import sys
from collections.abc import Callable
from typing import TypeVar

import pytest

import lanewise as lw
from lanewise import engines
from lanewise.engines import EntryPoint
from lanewise.errors import LanewiseError

TASKS = {name: each for name, each in vars(engines).items() if isinstance(each, EntryPoint)}


Function = TypeVar("Function")


def done_by(task: EntryPoint[Function], function: Function) -> EntryPoint[Function]:
    """The task, if a function does it; mypy holds the function against the type that the task declares."""
    assert task.function is function, task.task
    return task


def test_each_task_is_done_by_a_function_of_its_type() -> None:
    from lanewise import arith, draw, launch
    from lanewise.arith.moves import move
    from lanewise.arith.on_arrays import required_model
    from lanewise.atoms.lookup import instruction_of
    from lanewise.lang.frontend.kernel_html import shown
    from lanewise.lang.matrix.emit import emit
    from lanewise.lang.matrix.fragment import fragment_of_registers, full_fragment
    from lanewise.lang.tiles.partition import thread_slice
    from lanewise.lang.trace.convert import dtype_call
    from lanewise.machine.analysis.fidelity import of_entry
    from lanewise.module_globals import Globals
    from lanewise.providers import product_in_graph
    from lanewise.ptx.host_tensors import host_array
    from lanewise.ptx.sass_listing import listing

    done = [
        done_by(engines.ATOM_INSTRUCTION, instruction_of),
        done_by(engines.COMPUTE, arith.compute),
        done_by(engines.GEMM, arith.gemm),
        done_by(engines.MOVE, move),
        done_by(engines.INSTRUCTION_FIDELITY, arith.fidelity),
        done_by(engines.INSTRUCTION_MODEL, required_model),
        done_by(engines.DRAW_SVG, draw.svg),
        done_by(engines.PRINT_LATEX, draw.print_latex),
        done_by(engines.KERNEL_FIDELITY, of_entry),
        done_by(engines.LAUNCH, launch.launch),
        done_by(engines.DEVICE_ADDRESS, launch.device_address),
        done_by(engines.GLOBALS, Globals),
        done_by(engines.HOST_ARRAY, host_array),
        done_by(engines.SASS_LISTING, listing),
        done_by(engines.SHOW_HTML, shown),
        done_by(engines.EMIT, emit),
        done_by(engines.FULL_FRAGMENT, full_fragment),
        done_by(engines.FRAGMENT_OF_REGISTERS, fragment_of_registers),
        done_by(engines.THREAD_SLICE, thread_slice),
        done_by(engines.NUMBER, dtype_call),
        done_by(engines.PRODUCT_IN_GRAPH, product_in_graph),
    ]
    assert {id(task) for task in done} == {id(task) for task in TASKS.values()}


@pytest.mark.parametrize("name", TASKS)
def test_every_task_is_provided(name: str) -> None:
    assert callable(TASKS[name].function)


def test_a_task_without_a_provider_says_what_is_missing() -> None:
    alone: EntryPoint[Callable[[], int]] = EntryPoint("compute")
    with pytest.raises(LanewiseError, match="nothing that is loaded can compute: `import lanewise` loads it"):
        alone.function()


def test_a_provider_is_loaded_when_the_task_is_asked_for() -> None:
    loaded = []

    def load() -> Callable[[int], int]:
        loaded.append("now")
        return abs

    task: EntryPoint[Callable[[int], int]] = EntryPoint("count")
    assert task.provided_by(load) is load and not loaded
    assert task.function(-3) == 3 and loaded == ["now"]


def test_importing_lanewise_and_its_catalogue_loads_none_of_the_providers() -> None:
    code = (
        "import sys, lanewise.isa, lanewise.layout, lanewise.formats;"
        "print([room for room in ('jit', 'arith', 'atoms', 'draw', 'ptx', 'machine', 'gpu', 'launch', 'lang')"
        " if f'lanewise.{room}' in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_a_task_returns_is_what_the_method_returns() -> None:
    mma = lw.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    assert mma.fidelity("sm_90") == engines.INSTRUCTION_FIDELITY.function(mma, "sm_90")
    assert mma._repr_svg_() == engines.DRAW_SVG.function(mma)
