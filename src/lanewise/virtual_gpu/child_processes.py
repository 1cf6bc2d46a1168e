"""Processes that a program on a virtual GPU starts: they have the same GPU, and their launches are reported.

A folder holds what children need to know, and the records of their launches. Children find it by an
environment variable; `child_site/sitecustomize.py`, which is on their PYTHONPATH, enters the virtual GPU.
"""

import os
import pickle
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

#: Names the folder in the environment of children; sitecustomize.py reads it.
FOLDER_VARIABLE = "LANEWISE_CHILD_OF"
#: Files in the folder: packages whose import needs the GPU, options of the GPU, records of launches.
FRAMEWORKS, SETTINGS, LAUNCHES = "frameworks", "settings", "launches"
SITE = Path(__file__).parent / "child_site"


@contextmanager
def inherited_by_children(settings: dict[str, Any], frameworks: Iterable[str]) -> Iterator[Path]:
    """Within it, processes that this one starts have a virtual GPU with these settings; give the folder."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lanewise-gpu-")))
        (folder / FRAMEWORKS).write_text("\n".join(frameworks))
        (folder / SETTINGS).write_bytes(pickle.dumps(settings))
        path = os.pathsep.join(filter(None, (str(SITE), os.environ.get("PYTHONPATH", ""))))
        for name, value in ((FOLDER_VARIABLE, str(folder)), ("PYTHONPATH", path)):
            stack.callback(_put_back, name, os.environ.get(name))
            os.environ[name] = value
        yield folder


def _put_back(name: str, value: str | None) -> None:
    """Restore a variable of the environment."""
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def settings_in(folder: Path) -> dict[str, Any] | None:
    """Return the settings of the virtual GPU that a process inherits; None if its parent has ended."""
    try:
        settings: dict[str, Any] = pickle.loads((folder / SETTINGS).read_bytes())
    except OSError:
        return None
    return settings


def report_launch(folder: Path, record: object) -> None:
    """Add the record of a launch to those that the parent reads at its end."""
    content = pickle.dumps(record)
    with suppress(OSError), (folder / LAUNCHES).open("ab", buffering=0) as file:
        file.write(len(content).to_bytes(8, "little") + content)  # one write: processes do not mix theirs


def reported_launches(folder: Path) -> list[Any]:
    """Return the records of the launches of all children; one that was cut off is left out."""
    try:
        content = (folder / LAUNCHES).read_bytes()
    except OSError:
        return []
    records, place = [], 0
    while place + 8 <= len(content):
        start, place = place + 8, place + 8 + int.from_bytes(content[place : place + 8], "little")
        if place <= len(content):
            records.append(pickle.loads(content[start:place]))
    return records
