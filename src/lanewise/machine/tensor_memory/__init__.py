"""Tensor memory: allocation, loads, stores, copies, and the pipe of tcgen05 operations."""
