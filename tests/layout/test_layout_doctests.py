"""Every example in the docstrings of lanewise.layout runs and shows what it says."""

import doctest
import importlib
import pkgutil

import pytest

import lanewise.layout


@pytest.mark.parametrize("name", [m.name for m in pkgutil.iter_modules(lanewise.layout.__path__)])
def test_examples(name: str) -> None:
    module = importlib.import_module(f"lanewise.layout.{name}")
    result = doctest.testmod(module)
    assert result.failed == 0 and result.attempted > 0
