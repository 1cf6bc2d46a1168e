"""`lanewise cache`: what was compiled and is kept on disk for the next process; shown, or cleared."""

from collections.abc import Callable, Iterable
from datetime import datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from lanewise.cli.input.options import AsJson, flag
from lanewise.cli.terminal.answer import Answer, Cell, Table, facts, show
from lanewise.disk_cache import (
    KINDS,
    MOST_BYTES,
    UNFINISHED,
    UNUSED_SECONDS,
    Kept,
    cache_directory,
    clear_files,
    kept_files,
)
from lanewise.errors import LanewiseError

_NOWHERE = "machine code is compiled anew in every process (LANEWISE_CACHE_DIR is empty)"


class Action(StrEnum):
    """What may be done with the cache, as a word instead of an option."""

    SHOW = "show"
    CLEAR = "clear"
    PATH = "path"


def cache(
    action: Annotated[
        Action, typer.Argument(help="Show what is kept, clear it, or print the folder.", show_default=False)
    ] = Action.SHOW,
    path: Annotated[bool, flag("--path", "Print the folder alone, for scripts.")] = False,
    clear: Annotated[
        bool, flag("--clear", "Remove the files that lanewise keeps there, and no others.")
    ] = False,
    json: AsJson = False,
) -> Callable[[], None]:
    """Show what was compiled and is kept on disk: the folder, the files and their size; or clear it.

    You need not clear it to get right answers: files of another or a changed lanewise are never read, and are
    removed after a month. LANEWISE_CACHE_DIR names another folder; if it is empty, nothing is kept.

    \b
    lanewise cache
    lanewise cache clear
    du -sh "$(lanewise cache path)"
    LANEWISE_CACHE_DIR=/scratch/lanewise lanewise run examples/hgemm.py
    """
    path, clear = path or action == Action.PATH, clear or action == Action.CLEAR
    folder = cache_directory()
    if path:
        if clear or json:
            raise LanewiseError("--path prints the folder alone: it goes with neither --clear nor --json")
        if folder is None:
            raise LanewiseError(f"there is no folder: {_NOWHERE}")
        return partial(print, folder)
    if folder is None:
        answer = Answer((), {"folder": None, "files": {}}, (_NOWHERE,))
    else:
        answer = _cleared(folder) if clear else _kept(folder)
    return partial(show, answer, "json" if json else "text")


def _kept(folder: Path) -> Answer:
    """Return what is in the folder, and what it may hold."""
    files = kept_files(folder)
    used = [datetime.fromtimestamp(file.used).strftime("%Y-%m-%d %H:%M") for file in files]
    total = sum(file.size for file in files)
    about: list[tuple[str, Cell]] = [
        ("folder", str(folder)),
        ("files", len(files)),
        ("size", f"{_size(total)} of at most {_size(MOST_BYTES)}"),
        ("last used", f"{min(used)} to {max(used)}" if used else ""),
        ("removed when unused for", f"{UNUSED_SECONDS // (24 * 3600)} days"),
    ]
    data = {
        "folder": str(folder),
        "bytes": total,
        "most_bytes": MOST_BYTES,
        "unused_seconds": UNUSED_SECONDS,
        "oldest": min(used, default=None),
        "newest": max(used, default=None),
        "files": _counted(files),
    }
    return Answer((facts("cache", about), *_table("files", files)), data)


def _cleared(folder: Path) -> Answer:
    """Remove what lanewise keeps in the folder; return what that was."""
    files = clear_files(folder)
    note = f"{len(files)} files, {_size(sum(file.size for file in files))}, removed from {folder}"
    return Answer(_table("removed", files), {"folder": str(folder), "removed": _counted(files)}, (note,))


def _counted(files: Iterable[Kept]) -> dict[str, dict[str, int]]:
    """Return how many files of each kind there are, and their bytes; kinds without files are left out."""
    counts = {}
    for suffix, kind in (KINDS | {UNFINISHED: "being written, or left unfinished"}).items():
        sizes = [file.size for file in files if file.path.suffix == suffix]
        if sizes:
            counts[kind] = {"files": len(sizes), "bytes": sum(sizes)}
    return counts


def _table(title: str, files: list[Kept]) -> tuple[Table, ...]:
    rows = [(kind, counts["files"], _size(counts["bytes"])) for kind, counts in _counted(files).items()]
    return (Table(title, ("kind", "files", "size"), rows),) if rows else ()


def _size(size: float) -> str:
    """Return a number of bytes as people read it.

    >>> _size(320), _size(19_520), _size(1 << 30)
    ('320 B', '19.5 kB', '1.1 GB')
    """
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.1f} {unit}" if unit != "B" else f"{size} B"
        size /= 1000
    return f"{size:.1f} GB"
