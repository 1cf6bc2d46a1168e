"""Compilation of a resolved program into images of machine code."""
