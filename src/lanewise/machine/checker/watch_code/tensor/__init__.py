"""Tensor memory under watch: its cells, loads, stores and waits of warps, operations of the pipe."""
