"""How fast PTX is read and printed: python benchmarks/ptx_parser.py [files…] [--json FILE]

Without files: the samples of the tests, and one of them repeated to megabytes, to show that time is linear.
Times are of the processor, the best of five runs.
"""

import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

from lanewise.ptx import parse

SAMPLES = Path(__file__).parent.parent / "tests" / "data" / "ptx"


def best(work: Callable[[], object], runs: int = 5) -> float:
    """Seconds of processor time, the least of several runs."""
    times = []
    for _ in range(runs):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def repeated(text: str, size: int) -> str:
    """A module with the functions of another over and over, under new names."""
    header, _, rest = text.partition(".address_size 64")
    parts = [header, ".address_size 64\n"]
    length = copies = 0
    while length < size:
        parts.append(rest.replace("_Z", f"_Z{copies}x"))
        length += len(rest)
        copies += 1
    return "".join(parts)


def measure(name: str, text: str) -> dict[str, object]:
    """What one text takes, also as a line on the terminal."""
    module = parse(text)
    functions = (*module.entries.values(), *module.functions.values())
    statements = sum(len(function.body or ()) for function in functions)
    reading, printing = best(lambda: parse(text)), best(lambda: str(module))
    row: dict[str, object] = {
        "name": name, "bytes": len(text), "statements": statements, "read_seconds": reading,
        "read_MB_per_second": len(text) / reading / 1e6, "print_MB_per_second": len(text) / printing / 1e6,
    }  # fmt: skip
    print(
        f"{name:28} {len(text) / 1e3:9.1f} kB {statements:8} statements"
        f"  read {len(text) / reading / 1e6:5.2f} MB/s  print {len(text) / printing / 1e6:5.2f} MB/s"
    )
    return row


def main(arguments: list[str]) -> None:
    """Measure the files named, or the samples."""
    target = None
    if "--json" in arguments:
        place = arguments.index("--json")
        target = Path(arguments[place + 1])
        arguments = arguments[:place] + arguments[place + 2 :]
    paths = [Path(argument) for argument in arguments] or sorted(SAMPLES.glob("*.ptx"))
    rows = [measure(path.stem, path.read_text()) for path in paths]
    if not arguments:
        sample = (SAMPLES / "tensor_sm80.ptx").read_text()
        rows += [
            measure(f"tensor × {size / 1e6:g} MB", repeated(sample, size))
            for size in (100_000, 1_000_000, 10_000_000)
        ]
    if target is not None:
        machine = {
            "machine": platform.machine(),
            "python": platform.python_version(),
            "date": time.strftime("%F"),
        }
        target.write_text(json.dumps({**machine, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
