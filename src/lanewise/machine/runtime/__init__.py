"""A launch: arguments, memory, threads that run blocks, faults in words, blocks on an executor."""
