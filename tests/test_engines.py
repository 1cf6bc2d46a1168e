"""The table of tasks that connects the rooms: every task is provided, each room is loaded only when asked."""

import subprocess
import sys
from collections.abc import Callable

import pytest

import lanewise as lw
from lanewise import engines
from lanewise.engines import EntryPoint
from lanewise.errors import LanewiseError

TASKS = {name: each for name, each in vars(engines).items() if isinstance(each, EntryPoint)}


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
