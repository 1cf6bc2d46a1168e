"""Mistakes planted in examples/blackwell_tiles.py: the first finding names the cause and what mends it."""

import importlib.util
import re
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import lanewise as lw
from everything import sampled

EXAMPLE = Path(__file__).parents[2] / "examples/blackwell_tiles.py"
SCHEDULES = ("in order", "late", "reverse")
#: By the mistake: lines of the example and what stands in their place, the kernels that have it, the line of
#: the first finding, its kind, and the begin of its mend.
MISTAKES = {
    "a load left out": (
        {"        lw.copy(load_b.with_(barrier), from_b[None, step], to_b[None, state.stage])\n": ""},
        ("one_block", "pairs"),
        "full.wait(state)",
        "barrier",
        r"issue the copies that bring the other \d+ bytes \(copies: [^)]+:\d+\)"
        "(, or announce|: those of other blocks)",
    ),
    "both blocks of a pair issue": (
        {"if (rank == 0) & (warp == MULTIPLIER)": "if (warp == MULTIPLIER)"},
        ("pairs",),
        "full.wait(state)",
        "barrier",
        r"let the first block of the pair \(even rank\) alone wait for its full\[0\] and issue what follows",
    ),
    "an epilogue that does not wait": (
        {"        done.wait(done.consumer_state())\n": "", "            done.wait(reading)\n": ""},
        ("one_block", "pairs"),
        "lw.copy(copy, source[None, part, 0, 0], sums)",
        "tensor memory",
        r"`lw.tcgen05.commit` to an mbarrier after line \d+.* and a wait for that mbarrier before line \d+",
    ),
    "none": ({}, ("one_block", "pairs"), "", "", ""),
}
CASES = [(name, kernel) for name, (_, kernels, *_) in MISTAKES.items() for kernel in kernels]


@cache
def example(name: str, folder: Path) -> ModuleType:
    """Return the example with a mistake."""
    text = EXAMPLE.read_text()
    for line, other in MISTAKES[name][0].items():
        assert text.count(line) == 1
        text = text.replace(line, other)
    file = folder / f"tiles_{len(name)}.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@sampled(12)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("name", "kernel"), CASES)
def test_the_first_finding_names_the_cause(
    name: str, kernel: str, schedule: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    module = example(name, tmp_path_factory.getbasetemp())
    m, n, k = 256, 128, 128
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=(rows, k)).astype(lw.bf16.dtype) for rows in (m, n))
    maps = [
        lw.tensor_map(each, (rows, module.BK), swizzle="128B")
        for each, rows in ((a, module.BM), (b, module.BN))
    ]
    grid = (2, 2) if kernel == "one_block" else (2, 1)
    launch = getattr(module, kernel)[grid, 192, module.STAGES * module.BYTES]
    c = np.zeros((m, n), np.float32)
    findings = lw.check(launch, *maps, c, m, n, k, arch="sm_100a", schedule=schedule).findings
    *_, line, kind, mend = MISTAKES[name]
    if not mend:
        assert not findings
        return
    first = findings[0]
    assert (first.kind, first.quote) == (kind, line), first
    assert re.match(mend, first.mend), first
    if kind == "tensor memory":
        assert first.message.startswith("tcgen05.ld reads tensor memory before its tcgen05.mma is complete")
