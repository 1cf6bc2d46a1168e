"""LLVM for every room: IR as text, vectors of lanes, machine code and its memory, threads, the float mode.

Knows nothing of what is computed with it.
"""
