"""Whole programs in CUDA C++ on the virtual GPU: source that nvcc builds, or an executable.

Device addresses are host addresses, so `main()` is called in the process of the machine: `building.py` lets
nvcc make a shared library of a source file, `executable.py` makes one of an executable that is there already,
and `running.py` loads it and calls main() in a thread of a child process: its parent says in a sentence how
the program ended if it crashed.
"""

from lanewise.virtual_gpu.programs.building import library_of
from lanewise.virtual_gpu.programs.running import run_program

__all__ = ["library_of", "run_program"]
