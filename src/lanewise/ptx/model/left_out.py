"""What of a source was not compiled."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LeftOut:
    """A declaration or a header of a source that was not compiled: what it is, its name, its file and line.

    >>> print(LeftOut("function", "main", "gemm.cu", 40))
    function main (gemm.cu:40)
    """

    what: str
    name: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.what} {self.name} ({self.file}:{self.line})"
