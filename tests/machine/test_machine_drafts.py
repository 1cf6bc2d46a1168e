"""A kernel's first launches run a draft; one that runs for long is optimised, with the same results."""

from pathlib import Path

import numpy as np
import pytest

import lanewise as lw
from lanewise.jit import machine_code
from lanewise.machine.compile.compiled import WORTH_OPTIMISING, Compiled
from lanewise.machine.runtime.launch import Launch
from lanewise.ptx import Shape

SOURCE = (Path(__file__).parents[2] / "benchmarks" / "kernels" / "machine.ptx").read_text()


def kernel(text: str) -> Compiled:
    module = lw.load(text)
    return Compiled(module, module.entries["polynomial"], "sm_80")


def result(compiled: Compiled) -> bytes:
    x = np.linspace(-1, 1, 512, dtype=np.float32)
    out = np.zeros_like(x)
    Launch(compiled, Shape((2, 1, 1), (256, 1, 1)), (x, out, 3)).run()
    return out.tobytes()


def test_a_draft_is_optimised_once_it_has_run_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(machine_code.COMPILE_QUICKLY)
    text = f"{SOURCE}\n// {monkeypatch}"
    compiled = kernel(text)
    first, draft = result(compiled), compiled.native
    took = compiled.launch_info.draft_seconds
    assert took > 0
    compiled._launched_seconds = WORTH_OPTIMISING * took  # a little less than what is worth it
    assert compiled.native_for_launch() is draft
    compiled.launched(took)
    assert result(compiled) == first
    assert compiled.native is not draft
    assert compiled.launch_info.draft_seconds == 0
    again = kernel(text)
    assert again.native is compiled.native  # the draft is no longer used
    assert again.launch_info.draft_seconds == 0


@pytest.mark.parametrize("quickly", ["1", ""])
def test_the_environment_asks_for_drafts_alone_or_for_none(
    quickly: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(machine_code.COMPILE_QUICKLY, quickly)
    compiled = kernel(f"{SOURCE}\n// {monkeypatch} {quickly}")
    first = compiled.native
    assert (compiled.launch_info.draft_seconds > 0) == (quickly == "1")
    compiled.launched(1e6)
    assert compiled.native_for_launch() is first
