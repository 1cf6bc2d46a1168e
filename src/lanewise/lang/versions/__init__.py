"""Versions of a kernel: its source, what it reads of Python, and whether that has changed since."""
