"""Python runs this file when it starts in a process that a program on a virtual GPU has started.

`child_processes.py` puts its folder on the PYTHONPATH of such processes. lanewise is imported when a process
imports a framework that uses a GPU, so that all others start as before.
"""

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType


class _Finder:
    """A finder of modules that enters the virtual GPU of the parent before a framework is imported."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.frameworks = set((folder / "frameworks").read_text().split())

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a framework, once the virtual GPU is there; None for any other module."""
        if name not in self.frameworks:
            return None
        sys.meta_path.remove(self)
        try:
            from lanewise.virtual_gpu.session import inherit
        except ImportError:  # another interpreter, which does not have lanewise
            return None
        inherit(self.folder)
        return importlib.util.find_spec(name)


def _install() -> None:
    """Install the finder, then run the sitecustomize.py that this one hides, if there is one."""
    folder = Path(os.environ.get("LANEWISE_CHILD_OF", ""))
    if (folder / "frameworks").is_file():
        sys.meta_path.insert(0, _Finder(folder))
    own = Path(__file__).resolve().parent
    sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != own]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = sys.modules["sitecustomize"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


_install()
