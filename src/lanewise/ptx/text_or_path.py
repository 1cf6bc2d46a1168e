"""One argument that is a path, or text: which of them it is, and what stands there."""

import os
from pathlib import Path

from lanewise.errors import LanewiseError
from lanewise.hints import missing_file


def read_text_or_path(given: str | Path, *, suffixes: tuple[str, ...], what: str) -> tuple[str, str | None]:
    """The text, and the path it was read from; None if the text itself was given.

    A string of one line that ends like a file name, or that names a file, is a path.
    """
    if isinstance(given, str):
        stripped = given.strip()
        if not stripped:
            raise LanewiseError(f"empty text where {what} or the path of a file was expected")
        if "\n" in stripped or len(stripped) > 4096 or "\0" in stripped:
            return given, None
        if not stripped.endswith(suffixes) and not os.path.isfile(stripped):
            return given, None
        given = stripped
    elif not isinstance(given, os.PathLike):
        raise LanewiseError(
            f"{what} is given as text or as the path of a file, not as {type(given).__name__}"
        )
    try:
        with open(given, encoding="utf-8", errors="replace") as file:
            return file.read(), os.fsdecode(given)
    except FileNotFoundError:
        raise missing_file(Path(given)) from None
    except OSError as error:
        raise LanewiseError(f"{given}: {error.strerror or error}") from None
