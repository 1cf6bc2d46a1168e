"""Every example runs, says what it should, and takes seconds."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

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
    "blackwell_tiles": "pairs: equal to tcgen05.mma.cta_group::2.kind::f16.gemm; nothing found",
}


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.py")))
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
