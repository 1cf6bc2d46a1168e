"""Kernels of matrix products, one module for each family of plans."""
