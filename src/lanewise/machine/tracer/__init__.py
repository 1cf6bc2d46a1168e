"""Traces of a launch: compiled steps that log every instruction of chosen thread blocks, and the log itself."""
