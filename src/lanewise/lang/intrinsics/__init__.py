"""Intrinsics: functions of the language that are one PTX instruction, or a few."""
