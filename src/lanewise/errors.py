"""The library's own exceptions. Every complaint about input is one of these, and each is a ValueError."""


class LanewiseError(ValueError):
    """The error for wrong input; its message says what is wrong, what is allowed and what to do."""


class IllegalInstruction(LanewiseError):
    """The error for an instruction that no GPU has, or that the GPU asked about does not have."""


class InternalError(LanewiseError):
    """A mistake in lanewise itself, not in what it was given: the message says how to report it."""

    def __init__(self, what: str, error: BaseException | None = None) -> None:
        cause = f" ({type(error).__name__}: {error})" if error is not None else ""
        super().__init__(
            f"{what}{cause}\n    This is a mistake in lanewise, not in your kernel. Please report it "
            "with this message, the kernel, and what `lanewise doctor` prints."
        )
        self.what, self.error = what, error

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.what, self.error))
