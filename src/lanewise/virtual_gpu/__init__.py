"""A CUDA device made of the CPU machine, for programs of other frameworks: `lw.virtual_gpu("H100")`.

How it is built:

- `devices.py` is the table of GPUs by name: memory, multiprocessors, clocks. Limits of a block and of a
  multiprocessor come from `isa/`, so that they stand once.
- `driver/` is the CUDA driver API in Python. An entry point is a method of `Driver`, whose annotations say
  what C knows of it (`entry_points.py` explains them); every other one answers CUDA_ERROR_NOT_SUPPORTED. The
  log (`LANEWISE_GPU_LOG=1`), the decoding of C arguments and the exported names of the shared library derive
  from the methods.
- Device addresses are host addresses. Memory that a kernel may access is entered into the machine's address
  book under its own address: nothing is copied, and a pointer inside a struct or in another array is valid on
  both sides. Bounds are checked as in every launch. Programs in C get other addresses for device memory,
  which host code cannot follow (`driver/reserved_addresses.py`); the book leads from them to the bytes.
- A launch is `module["k"][grid, block](…)`, as `launch.py` makes it. So the commands `run` and `check`, the
  pytest plugin and every other watcher of launches see those of the virtual GPU as well.
- Work on a stream runs at once, in the thread of the caller: one of the orders that CUDA allows.
- `frameworks/` has what a framework needs beyond the driver: Triton's driver class, and torch's "cuda"
  tensors, which lie in host memory. They are installed when a program imports the framework, and removed at
  the end.
- `library/` is the shared library with the driver's name, for programs that call it from C. Python writes it
  as an ELF file, with a few instructions for each entry point: no compiler and no linker are needed.
- `runtime/` is the CUDA runtime API over the driver, for programs in CUDA C++; its table of entry points is
  like the driver's, and `library/` has it under the runtime's name.
- `programs/` runs whole programs: nvcc builds a source file as a shared library, an executable is loaded from
  a copy without NVIDIA's runtime, and main() is called in a thread of this process.
- `session.py` is the context manager that connects them, with the list of launches and their findings.
"""

import sys
from typing import Any

from lanewise.hints import Room
from lanewise.tracebacks import short_traceback
from lanewise.virtual_gpu.session import LaunchRecord, VirtualGPU, virtual_gpu

__all__ = ["LaunchRecord", "VirtualGPU", "virtual_gpu"]


class _Room(Room):
    """This package as a module that can be called: `lw.virtual_gpu` is the room and makes a virtual GPU."""

    @short_traceback
    def __call__(self, *name: Any, **options: Any) -> VirtualGPU:
        """Return a virtual GPU, to be used as a context manager."""
        return virtual_gpu(*name, **options)


sys.modules[__name__].__class__ = _Room
