"""Every example in a docstring runs."""

import doctest
import importlib
import pkgutil

import pytest

import lanewise

MODULES = sorted(module.name for module in pkgutil.walk_packages(lanewise.__path__, "lanewise."))


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name: str) -> None:
    if "torch" in name:
        pytest.importorskip("torch")
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for found in doctest.DocTestFinder().find(importlib.import_module(name), name):
        if found.examples:  # the runner takes its time for a docstring that has none, too
            runner.run(found)
    assert runner.summarize().failed == 0
