"""Record what NVIDIA's pycute answers for random layouts: test_layout_pycute.py compares with the record.

pycute comes with the package nvidia-cutlass, whose other dependencies are not needed for it:

    pip install --no-deps nvidia-cutlass==4.2.0.0
    PYTHONPATH=src:tests python tests/data/pycute/make.py

The record has one line for a call, `operation layout … = answer`. The answer is a layout, a number, or the
name of the exception that pycute raised. The first line, which starts with #, says from what and when the
record was made.
"""

import datetime
import gzip
import importlib
import random
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lanewise.layout import Layout
from layout.layout_strategies import random_layout

RECORD = Path(__file__).parent / "answers.txt.gz"
OF_ONE = ("coalesce", "filter", "complement", "size", "cosize", "left_inverse")
OF_TWO = (
    "composition",
    "logical_divide",
    "zipped_divide",
    "tiled_divide",
    "logical_product",
    "tiled_product",
)
CALLS = 1000


def written(value: Any) -> str:
    """A layout as shape:stride, and a number as it is; no spaces."""
    pair = getattr(value, "shape", None), getattr(value, "stride", None)
    text = str(value) if pair == (None, None) else f"{pair[0]}:{pair[1]}"
    return text.replace(" ", "")


def answer(pycute: Any, operation: str, layouts: list[Layout]) -> str:
    """What pycute answers for an operation on layouts, or the name of the exception that it raises."""
    try:
        theirs = [pycute.Layout(layout.shape, layout.stride) for layout in layouts]
        return written(getattr(pycute, operation)(*theirs))
    except (AssertionError, ZeroDivisionError) as error:
        return type(error).__name__


def main() -> None:
    """Ask pycute and write the record."""
    pycute = importlib.import_module("pycute")
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    lines = [f"# pycute of nvidia-cutlass {version('nvidia-cutlass')}, recorded on {today}"]
    for operation in (*OF_ONE, *OF_TWO):
        generator = random.Random(operation)
        for _ in range(CALLS):
            layouts = [random_layout(generator)]
            if operation in OF_TWO:
                layouts.append(random_layout(generator, depth=1))
            arguments = " ".join(map(written, layouts))
            lines.append(f"{operation} {arguments} = {answer(pycute, operation, layouts)}")
    # Without a time stamp the same answers give the same bytes.
    RECORD.write_bytes(gzip.compress("\n".join([*lines, ""]).encode(), mtime=0))


if __name__ == "__main__":
    main()
