"""Launches of compiled kernels: arguments, device memory, host threads, fault reports, executors."""
