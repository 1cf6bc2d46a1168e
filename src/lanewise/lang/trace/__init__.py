"""Tracing: the code of a kernel in the making, its dtypes, scalars and operators, and the PTX text of it."""
