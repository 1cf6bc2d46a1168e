"""Every example in a docstring runs."""

import doctest
import importlib
import inspect
import pkgutil
from types import ModuleType
from typing import Any

import pytest

import lanewise

MODULES = sorted(module.name for module in pkgutil.walk_packages(lanewise.__path__, "lanewise."))


class Finder(doctest.DocTestFinder):
    """Finds the examples of a function where it is defined, not in the package that exports it."""

    def _from_module(self, module: ModuleType | None, object: Any) -> bool:
        return bool(super()._from_module(module, inspect.unwrap(object)))  # type: ignore[misc]  # not in its stub


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name: str) -> None:
    if "torch" in name:
        pytest.importorskip("torch")
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for found in Finder().find(importlib.import_module(name), name):
        if found.examples:  # the runner takes its time for a docstring that has none, too
            runner.run(found)
    assert runner.summarize().failed == 0
