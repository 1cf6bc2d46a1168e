"""Every example runs, says what it should, and takes seconds."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import only_with_everything

EXAMPLES = Path(__file__).parents[1] / "examples"
#: What an example prints, in part.
SAYS = {
    "run_ptx": "out of bounds",
    "run_cuda": "sm_90: largest error",
    "hgemm": "all equal to mma.gemm",
    "attention": "causal: largest error",
    "attention_hopper": "causal: largest error",
    "int8_gemm": "equal",
    "sparse_gemm": "largest error",
    "transpose": "nothing found",
    "bias_gelu": "nothing found",
    "softmax": "nothing found",
    "rms_norm": "nothing found",
    "pipelined_gemm": "equal to mma.gemm; nothing found",
    "block_scaled_gemm": "nothing found",
    "blackwell_tiles": "pairs: equal to tcgen05.mma.cta_group::2.kind::f16.gemm\nnothing found",
}


#: Examples whose kernels are compiled for seconds.
LONG = ("attention_hopper", "blackwell_tiles")
NAMES = [
    pytest.param(path.stem, marks=only_with_everything) if path.stem in LONG else path.stem
    for path in sorted(EXAMPLES.glob("*.py"))
]


@pytest.mark.parametrize("name", NAMES)
def test_an_example_runs(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # some save pictures
    from lanewise.ptx import ToolMissing

    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    try:
        module.main()
    except ToolMissing as error:
        pytest.skip(str(error))
    said = capsys.readouterr().out
    assert SAYS.get(name, "") in said and "NOT" not in said


@only_with_everything
@pytest.mark.parametrize("name", ["one_block", "pairs"])
def test_blackwells_tiles_are_silent_in_all_schedules(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a size whose tiles are cut at each end, and whose steps along K are more than the stages."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example: Any = importlib.import_module("blackwell_tiles")
    rng, (m, n, k) = np.random.default_rng(3), (300, 140, 224)
    a, b = (rng.normal(size=(rows, k)).astype(lw.bf16.dtype) for rows in (m, n))
    maps = [lw.tensor_map(each, (rows, 64), swizzle="128B") for each, rows in ((a, 128), (b, 64))]
    grid, mma = {"one_block": ((3, 3), example.ONE), "pairs": ((4, 1), example.TWO)}[name]
    launch, c = (
        getattr(example, name)[grid, 192, example.STAGES * example.BYTES],
        np.zeros((m, n), np.float32),
    )
    schedules = ["early", "late", "reverse", 1, 2, 3]
    assert lw.check(launch, *maps, c, m, n, k, arch="sm_100a", schedule=schedules).ok
    np.testing.assert_array_equal(c, mma.instruction.gemm(a, b.T, arch="sm_100a"))
