"""The library's own exceptions. Every complaint about input is one of these, and each is a ValueError."""


class LanewiseError(ValueError):
    """Wrong input: the message says what is wrong, what is allowed and what to do."""


class IllegalInstruction(LanewiseError):
    """An instruction that no GPU, or not the GPU asked about, has."""
