"""Hold two records of a benchmark side by side: each figure before, after, and the ratio, worst first.

Run `python benchmarks/compare.py BEFORE.json AFTER.json [--at-least 0.97]` on two files that one benchmark of
this folder wrote with `--json`, or on two folders of such files: then each figure is the median of a folder's
records, which a busy machine sways less (`by_turns.py` less still). A ratio is a ratio of speeds: 2.0 means
twice as fast as before, whether the figure is a time, which should be small, or a rate, which should be
large. The exit status is 1 if a ratio is below the threshold or if a figure of BEFORE is missing from AFTER,
and 2 if the records share no figure.
"""

import argparse
import json
import math
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Ends of names: such a figure is a rate or a share, and larger is better.
LARGER = (
    "gflops",
    "tflops",
    "millions_a_second",
    "millions_a_processor_second",
    "MB_per_second",
    "share",
    "share_of_torch",
)
#: Ends of names: such a figure is a time, and smaller is better.
SMALLER = ("seconds",)
#: Sections whose every number is a time, or a cost in multiples of a plain run: smaller is better.
SECTIONS_OF_COSTS = (
    "start",
    "linear",
    "large",
    "check",
    "microseconds_a_warm_launch",
    "milliseconds_of_a_first_launch",
)
#: Beginnings of names that hold no figure of lanewise, but what another library reached on the same machine.
OF_OTHERS = ("peer_", "torch_", "ratio_")


@dataclass(frozen=True)
class Comparison:
    """One figure of two records."""

    name: str
    before: float
    after: float
    smaller_is_better: bool

    @property
    def ratio(self) -> float:
        """How many times as fast as before."""
        old, new = (self.after, self.before) if self.smaller_is_better else (self.before, self.after)
        if old == new:
            return 1.0
        return new / old if old else math.inf


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], float]]:
    """Every number of a record with the names that lead to it. A list's records are named by their texts."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from leaves(each, (*path, name))
    elif isinstance(value, list):
        for name, each in zip(labels(value), value, strict=True):
            yield from leaves(each, (*path, name))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, value


def labels(elements: list[Any]) -> list[str]:
    """Names for the elements of a list: their own texts where these tell them apart, else their indices."""
    texts = [
        " ".join(each for each in element.values() if isinstance(each, str))
        if isinstance(element, dict)
        else ""
        for element in elements
    ]
    apart = len(set(texts)) == len(texts) and all(texts)
    return texts if apart else [str(index) for index in range(len(elements))]


def smaller_is_better(path: tuple[str, ...]) -> bool | None:
    """Whether the number that these names lead to should be small. None: it is no figure to compare."""
    section, name = path[0], path[-1]
    if section == "machine" or name.startswith(OF_OTHERS):
        return None
    if name.endswith(LARGER):
        return False
    return True if name.endswith(SMALLER) or section in SECTIONS_OF_COSTS else None


def figures(*records: Any) -> dict[str, tuple[float, bool]]:
    """The figures of one benchmark by name: the median of its records, and whether smaller is better."""
    found: dict[str, tuple[list[float], bool]] = {}
    for record in records:
        for path, number in leaves(record):
            direction = smaller_is_better(path)
            if direction is not None:
                found.setdefault(" / ".join(path), ([], direction))[0].append(number)
    return {name: (statistics.median(numbers), direction) for name, (numbers, direction) in found.items()}


def compare(before: list[Any], after: list[Any]) -> tuple[list[Comparison], list[str], list[str]]:
    """The figures that both sides have, worst first; the names that only the one or the other has."""
    old, new = figures(*before), figures(*after)
    both = [Comparison(name, old[name][0], new[name][0], old[name][1]) for name in old if name in new]
    both.sort(key=lambda each: each.ratio)
    return both, [name for name in old if name not in new], [name for name in new if name not in old]


def records(path: Path) -> list[Any]:
    """The records of a file, or of every JSON file of a folder."""
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    return [json.loads(file.read_text()) for file in files]


def where(record: Any) -> str:
    """The processor or the GPU of a record, as far as it is named."""
    named = record.get("machine", record)
    if not isinstance(named, dict):
        return str(named)
    known = [named[key] for key in ("processor", "llvm_processor", "processors", "device") if key in named]
    return ", ".join(map(str, known))


def main(arguments: list[str] | None = None) -> int:
    """Print the comparison and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("before", type=Path, help="the record to compare with, or a folder of records")
    parser.add_argument("after", type=Path, help="the record to judge, or a folder of records")
    parser.add_argument("--at-least", type=float, default=0.97, help="the lowest ratio that is no loss")
    options = parser.parse_args(arguments)
    before, after = records(options.before), records(options.after)
    both, gone, added = compare(before, after)
    if not both:
        print("the records have no figure in common", file=sys.stderr)
        return 2
    machines = sorted({where(record) for record in (*before, *after)})
    if len(machines) > 1:
        print(f"measured on different machines: {'; '.join(machines)}")
    width = max(len(each.name) for each in both)
    print(f"{'figure':{width}} {'better':>7} {'before':>11} {'after':>11} {'ratio':>7}")
    for each in both:
        better = "smaller" if each.smaller_is_better else "larger"
        mark = "  below" if each.ratio < options.at_least else ""
        print(
            f"{each.name:{width}} {better:>7} {each.before:11.4g} {each.after:11.4g} {each.ratio:7.3f}{mark}"
        )
    for title, names in (("missing from the second record", gone), ("new in the second record", added)):
        for name in names:
            print(f"{title}: {name}")
    losses = sum(each.ratio < options.at_least for each in both)
    print(f"{len(both)} figures, {losses} below {options.at_least:g}, {len(gone)} missing")
    return 1 if losses or gone else 0


if __name__ == "__main__":
    sys.exit(main())
