"""What was compiled, kept on disk between processes: whole or not at all, by the name of its content.

What is kept, and what its name is made of, is the business of those who compile.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import time
from pathlib import Path

#: Of the files kept here: machine code of this processor, and of GPUs.
SUFFIXES = (".o", ".cubin")


def cache_directory() -> Path | None:
    """Where things are kept: $LANEWISE_CACHE_DIR, or the user's cache directory. Empty means nowhere.

    >>> place = cache_directory()
    >>> place is None or isinstance(place, Path)
    True
    """
    named = os.environ.get("LANEWISE_CACHE_DIR")
    if named is not None:
        return Path(named) if named else None
    try:
        if sys.platform == "darwin":
            base = Path.home() / "Library" / "Caches"
        elif sys.platform == "win32":
            base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
        else:
            base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # no home directory
        return None
    return base / "lanewise"


def read(name: str) -> bytes | None:
    """The content of that name, if it is there and whole."""
    directory = cache_directory()
    if directory is None:
        return None
    try:
        content = (directory / name).read_bytes()
    except OSError:
        return None
    digest, image = content[:32], content[32:]
    return image if hashlib.sha256(image).digest() == digest else None


def keep(name: str, image: bytes) -> None:
    """Put a content on disk, whole or not at all, however many processes do so; a full disk is no error."""
    directory = cache_directory()
    if directory is None:
        return
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=directory, delete=False) as file:
            try:
                file.write(hashlib.sha256(image).digest() + image)
                file.flush()
                Path(file.name).replace(directory / name)
            except OSError:
                Path(file.name).unlink(missing_ok=True)
        _drop_unused(directory)
    except OSError:
        return


def _drop_unused(directory: Path) -> None:
    """Remove what no process has read for a month: of older versions and other processors."""
    oldest = time.time() - 30 * 24 * 3600
    for path in directory.iterdir():
        if path.suffix in SUFFIXES:
            status = path.stat()
            if max(status.st_atime, status.st_mtime) < oldest:
                path.unlink(missing_ok=True)
