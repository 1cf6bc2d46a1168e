"""The compiled code of the checker: shadow memory, the order of accesses, and what requests cost."""
