"""What was compiled, kept on disk between processes: each file whole or not at all.

The name of a file is a digest of the request (who compiles says everything that the result depends on) and of
every source file of this package, the version among them: after any change of the library, nothing that it
wrote before is found. What is compiled, and what a request says, is left to those who compile.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FOLDER = os.path.dirname(os.path.abspath(__file__))
#: When the library was imported, in nanoseconds: source that was changed later is not what this process runs.
IMPORTED = time.time_ns()
#: File systems stamp changes with a clock that is behind by some milliseconds.
_CLOCK_LAG = 20_000_000
#: A process that keeps many files looks for changes of the source once in so many seconds, or less often: it
#: spends no more than this share of its time with that.
_LOOK_SECONDS, _LOOK_SHARE = 0.1, 0.01
#: A stamp says for certain that a file is unchanged only once the change is older than this (nanoseconds).
_SETTLED = 2_000_000_000

#: The kinds of files in the folder, by their suffix.
KINDS = {
    ".o": "machine code of this processor",
    ".cubin": "machine code of GPUs",
    ".nvrtc": "PTX of CUDA C++",
    ".sass": "machine code of GPUs as nvdisasm writes it",
    ".registers": "what ptxas says of registers",
    ".tuned": "the fastest of the configurations that lw.autotune tried",
    ".launch": "launches on GPUs",
    ".kernel": "parameters of kernels, by the name of what is compiled in",
    ".program": "programs in CUDA C++, built by nvcc",
    ".digest": "digests of the library's source",
}
#: The kinds that are compiled programs.
PROGRAMS = (".o", ".cubin", ".nvrtc")
#: The digits of a digest that a file is called by.
_NAME_DIGITS = 40
#: Files that are being written; a process that was stopped leaves them behind.
UNFINISHED = ".lanewise-unfinished"
#: The file whose time says when the folder was last tidied up.
TIDIED = "tidied"

#: The most bytes that the folder keeps: the files that were not read for longest are removed first.
MOST_BYTES = 1 << 30
#: Files that no process has read for so many seconds are removed.
UNUSED_SECONDS = 30 * 24 * 3600
#: The folder is tidied up once a day, and each time that about so many bytes were written to it.
_TIDY_SECONDS, _TIDY_BYTES = 24 * 3600, 16 << 20


class Source(NamedTuple):
    """A source file of the package and how the file system says that it was last changed."""

    path: str
    size: int
    modified: int
    changed: int
    inode: int


def cache_directory() -> Path | None:
    """Return the folder where files are kept, or None where nothing is to be kept.

    It is $LANEWISE_CACHE_DIR, or `lanewise` in the user's cache directory; a variable that is set but empty
    means that nothing is kept.

    >>> from pathlib import Path
    >>> folder = cache_directory()
    >>> folder is None or isinstance(folder, Path)
    True
    """
    from pathlib import Path

    folder = _directory()
    return Path(folder) if folder else None


def _directory() -> str:
    """Return the folder as text, '' for none: a process that only reads here does not need pathlib."""
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


def read(request: str, suffix: str) -> bytes | None:
    """Return what was kept for a request, or None if it is not there, not whole, or of other source."""
    digest = package_digest() if _may_hold(suffix) else ""
    return _read_file(_file_name(request, digest, suffix)) if digest else None


def _may_hold(suffix: str) -> bool:
    """Return whether the folder may have what is asked for: without such files no source has to be read."""
    directory = _directory()
    if not directory or _first_sources.cache_info().currsize:  # read already
        return bool(directory)
    try:
        with os.scandir(directory) as listing:
            return any(entry.name.endswith(suffix) for entry in listing)
    except OSError:
        return False


def keep(request: str, suffix: str, content: bytes) -> None:
    """Keep the content of a request for other processes; a full disk or a read-only folder is no error.

    Nothing is kept if the source has been changed since this process read it: its result is then of neither
    the old source nor the new.
    """
    digest = package_digest() if _directory() else ""
    if digest and _is_unchanged():
        _write_file(_file_name(request, digest, suffix), content)


@contextmanager
def reading_source() -> Iterator[None]:
    """Look at the source in a thread, as `keep` would do, while machine code is made outside of Python.

    The PTX is there by then, so that the machine code is of the source that is looked at.
    """
    if not _directory():
        yield
        return
    import threading  # later than this module, as hashlib

    reader = threading.Thread(target=lambda: package_digest() and _is_unchanged())
    reader.start()
    try:
        yield
    finally:
        reader.join()


def _file_name(request: str, digest: str, suffix: str) -> str:
    return _sha256(f"{request}\0{digest}".encode())[:_NAME_DIGITS] + suffix


def _sha256(content: bytes) -> str:
    import hashlib  # later than this module: importing the library does not need it

    return hashlib.sha256(content).hexdigest()


# the digest of the source ---------------------------------------------------------------------------------


@cache
def package_digest() -> str:
    """Return a digest of the contents of every source file of the package, '' if there is none to trust.

    Reading all files takes longer than a small kernel. So the digest is kept in the cache folder under the
    files' stamp (paths, sizes, times, inodes), and the contents are read only when the stamp is a new one.
    There is no digest where the source cannot be found, or was changed after this process had imported it.

    >>> len(package_digest()) in (0, 64)
    True
    """
    sources = _first_sources()
    # Windows gives the time when the file was made in the place of the time of its last change.
    changes = (source.modified if sys.platform == "win32" else source.changed for source in sources)
    latest = max(changes, default=IMPORTED)
    if latest > IMPORTED - _CLOCK_LAG:
        return ""
    name = _first_stamp()[:_NAME_DIGITS] + ".digest"
    known = _read_file(name)
    if known is not None:
        return known.decode()
    try:
        digest = _sha256(
            "".join(f"{source.path}\0{_content_digest(source)}\n" for source in sources).encode()
        )
    except OSError:
        return ""
    if _stamp(_sources()) != _first_stamp():  # changed while it was read
        return ""
    # A file may be changed again within one tick of the file system's clock, and its stamp stays the same.
    if latest < time.time_ns() - _SETTLED:
        _write_file(name, digest.encode())
    return digest


@cache
def _first_sources() -> tuple[Source, ...]:
    """Return the source files as they were when this process first asked."""
    return _sources()


@cache
def _first_stamp() -> str:
    return _stamp(_first_sources())


def _stamp(sources: tuple[Source, ...]) -> str:
    """Return a digest of what the file system says of the source, where it lies included."""
    return _sha256(f"{_FOLDER}\0{sources}".encode())


#: When the source is to be looked at again.
_next_look = 0.0


def _is_unchanged() -> bool:
    """Return whether the source is still as this process first found it, as of a moment ago."""
    global _next_look
    begin = time.monotonic()
    if begin >= _next_look:
        if _stamp(_sources()) != _first_stamp():
            return False
        end = time.monotonic()
        _next_look = end + max(_LOOK_SECONDS, (end - begin) / _LOOK_SHARE)
    return True


def _sources() -> tuple[Source, ...]:
    """Return every source file below the package's folder, or the archive that the package lies in."""
    try:
        return tuple(_below(_FOLDER, ""))
    except OSError:
        archive = _FOLDER
        while not os.path.exists(archive):
            archive = os.path.dirname(archive)
        if not os.path.isfile(archive):
            return ()
        return (_source(os.path.relpath(archive, _FOLDER), os.stat(archive)),)


def _below(folder: str, prefix: str) -> Iterator[Source]:
    """Yield the files of a folder and of all folders in it, in the order of their names."""
    with os.scandir(folder) as listing:
        entries = sorted(listing, key=lambda entry: entry.name)
    for entry in entries:
        if entry.is_dir():
            if entry.name != "__pycache__":
                yield from _below(entry.path, f"{prefix}{entry.name}/")
        else:
            try:
                yield _source(prefix + entry.name, entry.stat())
            except FileNotFoundError:  # a link to nothing, such as an editor's lock
                continue


def _source(path: str, status: os.stat_result) -> Source:
    return Source(path, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def _content_digest(source: Source) -> str:
    # normpath: an archive lies above a folder that does not exist.
    with open(os.path.normpath(os.path.join(_FOLDER, source.path)), "rb") as file:
        return _sha256(file.read())


# files ----------------------------------------------------------------------------------------------------


def _read_file(name: str) -> bytes | None:
    """Return the content of a file if it is there and whole."""
    import hashlib

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


def _write_file(name: str, image: bytes) -> None:
    """Put a file into the folder, whole or not at all, however many processes do so."""
    import hashlib

    directory = cache_directory()
    if directory is None:
        return
    try:
        write_whole(directory / name, hashlib.sha256(image).digest() + image)
        if _is_due(directory, name, len(image)):
            tidy_up(directory)
    except OSError:
        return


def write_whole(path: Path, content: bytes) -> None:
    """Write a file of the folder, which is made if need be; a full disk leaves what was there."""
    import tempfile

    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, unfinished = tempfile.mkstemp(suffix=UNFINISHED, dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.replace(unfinished, path)
    except OSError:
        os.unlink(unfinished)


class Kept(NamedTuple):
    """A file of the cache: where it is, its bytes, and when it was last read or written (seconds)."""

    path: Path
    size: int
    used: float


def kept_files(directory: Path) -> list[Kept]:
    """Return the files of a folder that are the cache's own, finished or not; none if there is no folder.

    Others may have files in a folder that LANEWISE_CACHE_DIR names: an object file is ours only if it is
    called by a digest.
    """
    files = []
    for path in directory.iterdir() if directory.is_dir() else ():
        if path.suffix == UNFINISHED or (path.suffix in KINDS and _is_digest(path.stem)):
            try:
                status = path.stat()
            except OSError:  # removed by another process
                continue
            files.append(Kept(path, status.st_size, max(status.st_atime, status.st_mtime)))
    return files


def _is_digest(name: str) -> bool:
    return len(name) == _NAME_DIGITS and set(name) <= set("0123456789abcdef")


def _is_due(directory: Path, name: str, size: int) -> bool:
    """Return whether to tidy up after writing a file of this name and size.

    To look through the folder after each file would take longer than to write it. The name is a digest, so
    that its first digits are as good as dice: they fall so that all processes together tidy up about once in
    `_TIDY_BYTES` that they write, without having to count.
    """
    if int(name[:8], 16) * _TIDY_BYTES < size << 32:
        return True
    try:
        return time.time() - (directory / TIDIED).stat().st_mtime > _TIDY_SECONDS
    except OSError:
        return True


def tidy_up(directory: Path, most_bytes: int = MOST_BYTES) -> None:
    """Remove what no process has read for a month, then the oldest files until the rest fits the bound."""
    (directory / TIDIED).touch()
    now, total = time.time(), 0
    for file in sorted(kept_files(directory), key=lambda file: file.used, reverse=True):
        total += file.size
        lasts = _TIDY_SECONDS if file.path.suffix == UNFINISHED else UNUSED_SECONDS
        if total > most_bytes or now - file.used > lasts:
            try:
                file.path.unlink(missing_ok=True)
            except OSError:  # another process has it open, on Windows
                continue
            total -= file.size


def clear_files(directory: Path) -> list[Kept]:
    """Remove all files that are the cache's own; returns those that were removed."""
    removed = []
    for file in kept_files(directory):
        try:
            file.path.unlink(missing_ok=True)
        except OSError:
            continue
        removed.append(file)
    (directory / TIDIED).unlink(missing_ok=True)
    return removed
