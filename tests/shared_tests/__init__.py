"""Tests that several test files run: on the machine, under the checker, on a GPU.

A module here holds tests as a test file does. Test files import no other test files; they take the tests of
such a module with `collected_from`, or call them.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any


def collected_from(module: ModuleType) -> dict[str, Callable[..., Any]]:
    """Return all tests of a module by their names, for the globals of the test file that runs them."""
    return {name: value for name, value in vars(module).items() if name.startswith("test_")}
