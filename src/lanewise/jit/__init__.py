"""LLVM for every room: IR as text, vectors of lanes, machine code and its memory, threads, the float mode.

Knows nothing of what is computed with it.
"""

from lanewise.hints import not_called

not_called(__name__, "@lanewise.kernel marks a kernel, @lanewise.device a function that kernels call")
