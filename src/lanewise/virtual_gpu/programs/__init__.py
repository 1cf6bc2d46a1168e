"""Whole programs in CUDA C++ on the virtual GPU: source that nvcc builds, or an executable.

The machine has the memory of the device in its own process, so `main()` is called there: `building.py` lets
nvcc make a shared library of a source file, `executable.py` makes one of an executable that is there already,
and `running.py` loads it and calls main() in a thread of a child process: its parent says in a sentence how
the program ended if it crashed.
"""

from lanewise.virtual_gpu.programs.building import library_of
from lanewise.virtual_gpu.programs.running import run_program

__all__ = ["library_of", "run_program"]
