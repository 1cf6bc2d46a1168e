"""Random programs: the traced kernel gives what Python gives, for 32 inputs each."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from lang.random_programs import in_python, module_source


@pytest.mark.parametrize("first", [0])
def test_random_programs_do_what_python_does(first: int, tmp_path: Path) -> None:
    path = tmp_path / f"programs_{first}.py"
    path.write_text(module_source(range(first, first + 5)))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    out = np.zeros((5, 32), np.int32)
    module.run[1, 32](out, 5)
    for function, row in zip(module.FUNCTIONS, out, strict=True):
        assert row.tolist() == [in_python(module, function, x, 5) for x in range(32)], function.__name__
