"""Checks of what allocations are: blocks of the heap, bounds of views and of the kernel's shared memory."""
