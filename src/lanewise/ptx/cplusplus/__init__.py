"""CUDA C++ before it is compiled: tokens, top-level declarations, which of them are device code, headers."""
