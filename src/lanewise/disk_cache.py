"""What was compiled, kept on disk between processes: whole or not at all, by the name of its content.

What is kept, and what its name is made of, is the business of those who compile.
"""

from __future__ import annotations

import hashlib
import os
import sys
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

#: Of the files kept here: machine code of this processor, and of GPUs.
SUFFIXES = (".o", ".cubin")


def cache_directory() -> Path | None:
    """Where things are kept: $LANEWISE_CACHE_DIR, or the user's cache directory. Empty means nowhere.

    >>> from pathlib import Path
    >>> place = cache_directory()
    >>> place is None or isinstance(place, Path)
    True
    """
    from pathlib import Path

    place = _directory()
    return Path(place) if place else None


def _directory() -> str:
    """Where things are kept, or nothing. As text: who only reads here does not need pathlib."""
    named = os.environ.get("LANEWISE_CACHE_DIR")
    if named is not None:
        return named
    home = os.path.expanduser("~")
    if sys.platform == "darwin":
        base = os.path.join(home, "Library", "Caches")
    elif sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or os.path.join(home, "AppData", "Local")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    return "" if base.startswith("~") else os.path.join(base, "lanewise")  # ~: no home directory


def read(name: str) -> bytes | None:
    """The content of that name, if it is there and whole."""
    directory = _directory()
    if not directory:
        return None
    try:
        with open(os.path.join(directory, name), "rb") as file:
            content = file.read()
    except OSError:
        return None
    digest, image = content[:32], content[32:]
    return image if hashlib.sha256(image).digest() == digest else None


def keep(name: str, image: bytes) -> None:
    """Put a content on disk, whole or not at all, however many processes do so; a full disk is no error."""
    import tempfile
    from pathlib import Path

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
    import time

    oldest = time.time() - 30 * 24 * 3600
    for path in directory.iterdir():
        if path.suffix in SUFFIXES:
            status = path.stat()
            if max(status.st_atime, status.st_mtime) < oldest:
                path.unlink(missing_ok=True)


@cache
def source_digest(path: str) -> str:
    """The Python source in the folder of a file: what it wrote is worthless once it changes.

    >>> len(source_digest(__file__)), source_digest("no such folder/of.py")
    (64, '')
    """
    folder, digest = os.path.dirname(__file__), hashlib.sha256()
    try:
        os.stat(path)
        for below, _, names in sorted(os.walk(folder)):
            for name in sorted(names):
                if name.endswith(".py"):
                    with open(os.path.join(below, name), "rb") as file:
                        digest.update(file.read())
    except OSError:  # in an archive, which does not change
        return ""
    return digest.hexdigest()
