"""Traces of a launch: compiled steps that log every instruction of chosen blocks, and the log itself."""
