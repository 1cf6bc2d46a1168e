"""Every example in a docstring runs."""

import doctest
import importlib
import pkgutil

import pytest

import lanewise

MODULES = sorted(module.name for module in pkgutil.walk_packages(lanewise.__path__, "lanewise."))


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name: str) -> None:
    if name == "lanewise.torch":
        pytest.importorskip("torch")
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert failed == 0
