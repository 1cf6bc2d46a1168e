"""Planted mistakes with right twins: how the sources beside this file are read.

Each kernel of a `.cu` or `.ptx` source is a pair: one text holds the wrong kernel and its right twin. A
marker at the end of a line says what the line is:

    //-   the line stands in the wrong kernel only
    //+   the line stands in the right kernel only
    //!   a finding about the wrong kernel may name this line (also `//-!`); of functions above the first
          kernel, which all kernels share, a finding about any of them

A line that a version leaves out becomes an empty line, so that line numbers agree. Above each kernel one
comment describes the pair, its fields parted by bars:

    //@ cause | kinds of finding | launch | arguments | what a GPU does

A launch is `grid, block[, bytes of dynamic shared memory][, cluster 2x1]`. Kinds are parted by "/"; "-" says
that the kernel is right and has no wrong twin; "advice " before them says that the construct is undefined but
safe on today's hardware: a finding of severity "advice" is enough. The first line of a source may name its
arch: `//@arch sm_90`. Arguments are `f32[64]` (values), `f32[64]=0` (filled), `i32[64]%8` (0 to 7, repeated),
`i32[8x8]` (two axes), `i32:5` (a number), `null`, `readonly f32[64]`, `map f16[64x64] 8x64 128B` (a tensor
map of that array, its box and swizzle), or `@name`, a function of `arguments.py`. `hopper/` holds what only
sm_90a has; its sources share `hopper/instructions.cuh`. Those of `blackwell/` are for sm_100a, and share
`kernels/blackwell/tcgen05.cuh`. `language.py` holds pairs in the Python language,
where a constant decides which twin is traced; there the comment begins with `# @`, and `#!` marks a line.
"""

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import lanewise as lw
from everything import EVERYTHING
from lanewise.machine.checker.report import Report
from machine.mistakes import language
from machine.mistakes.arguments import ARGUMENTS

FOLDER = Path(__file__).parent
#: The causes of mistakes, in the order of the report.
CAUSES = {
    "small elements": "halves and bytes exchanged or raced inside a word",
    "registers": "a register that was never set",
    "warp order": "lanes of a warp that exchange data with nothing that orders them",
    "lanes collide": "lanes of one instruction that store different values to one place",
    "read-modify-write": "counters updated without atomics",
    "partial words": "words of which only some bytes were written",
    "scopes": "fences and atomics of too narrow a scope",
    "named barriers": "bar.sync and bar.arrive with a wrong id or count",
    "heap": "device malloc and free",
    "async copies": "cp.async not waited for, or its source overwritten",
    "matrix accesses": "ldmatrix, stmatrix and wmma: addresses, overlap, order",
    "views": "views of one array passed as several arguments",
    "mbarrier": "mbarrier, cuda::barrier and cuda::pipeline",
    "shuffles": "shuffles and votes that name lanes which are not there",
    "block barriers": "__syncthreads missing, too early, or once too few in a loop",
    "uninitialised memory": "shared and local memory that nothing wrote",
    "global races": "global memory raced between threads or blocks",
    "atomics": "atomics mixed with plain accesses",
    "cooperative groups": "tiles and coalesced groups",
    "divergence": "barriers that not all threads reach",
    "bounds": "addresses outside of what they belong to",
    "alignment": "addresses that are no multiple of the access",
    "endless": "loops that never end, waits that nobody ends",
    "calls": "recursion, null pointers, traps",
    "wgmma": "wgmma: registers in flight, fences, groups, warpgroups, descriptors",
    "proxies": "the generic and the asynchronous proxy with no fence between them",
    "TMA": "bulk and tensor copies: phases, bytes, groups, addresses, coordinates",
    "transactions": "mbarriers of TMA pipelines: init, parity, arrivals, bytes",
    "clusters": "distributed shared memory, remote barriers, multicast",
    "setmaxnreg": "registers moved between warpgroups",
    "tensor memory": "tcgen05: columns, products in flight, waits, fences",
    "launch control": "cluster launch control: answers read too early, overwritten, not expected, refused",
}

DTYPES = {
    "f32": np.float32,
    "f64": np.float64,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "i32": np.int32,
    "u32": np.uint32,
    "i64": np.int64,
    "u64": np.uint64,
    "i16": np.int16,
    "u16": np.uint16,
    "i8": np.int8,
    "u8": np.uint8,
}

#: How the name of a kernel is found below its description, by the ending of the source.
KERNEL_NAME = {
    ".cu": r"__global__ void (?:__\w+__\([^)]*\) )?(\w+)\(",
    ".ptx": r"\.entry (\w+)",
    ".py": r"^def (\w+)",
}
#: Bounds a block in each check, so that an endless kernel ends in a finding.
STEPS = 200_000


@dataclass(frozen=True)
class Pair:
    """A wrong kernel and its right twin; `kinds` is empty for a right kernel that has no wrong twin."""

    name: str
    cause: str
    kinds: frozenset[str]
    file: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    arguments: str
    lines: frozenset[int]
    hardware: str
    advice: bool = False
    cluster: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        assert self.cause in CAUSES, f"{self.file}: {self.name} names no cause of the table: {self.cause!r}"
        assert self.lines or not self.kinds, f"{self.file}: {self.name} marks no line"

    def make_arguments(self) -> list[Any]:
        """Return fresh arguments for one launch."""
        return make_arguments(self.arguments)

    def check(self, *, wrong: bool, schedule: Any = "in order") -> Report:
        """Run the wrong kernel or the right twin under watch, in the order that `schedule` names."""
        if self.file.endswith(".py"):
            kernel = getattr(language, self.name)[self.grid, self.block]
            return lw.check(kernel, *self.make_arguments(), WRONG=wrong, steps=STEPS, schedule=schedule)
        launch: Any = (self.grid, self.block, self.shared) if self.shared else (self.grid, self.block)
        kernel = module(self.file, wrong, compiled_together(self))[self.name][launch]
        options = {"steps": STEPS, "cluster": self.cluster, "schedule": schedule}
        return lw.check(kernel, *self.make_arguments(), **options)

    def found(self, report: Report) -> bool:
        """Say whether the report tells the mistake: an expected kind on an accepted line."""
        ptx = self.file.endswith(".ptx")
        told = (finding for finding in report.findings if finding.kind in self.kinds)
        return any(not self.lines.isdisjoint(lines_of(finding, ptx)) for finding in told)


def accusations(report: Report) -> list[Any]:
    """Return the findings that are no mere advice: a right kernel has none."""
    return [finding for finding in report.findings if getattr(finding, "severity", "error") != "advice"]


def lines_of(finding: Any, ptx: bool) -> set[int]:
    """Return the lines of both sides of a finding, in PTX or in the source that it was made from."""
    sides = [finding] + ([finding.other] if finding.other else [])
    if ptx:
        return {side.line for side in sides if side.line}
    numbers = (re.findall(r":(\d+)", side.source) for side in sides if side.source)
    return {int(number) for found in numbers for number in found}


def make_arguments(text: str) -> list[Any]:
    """Return the arguments that the description of a kernel names."""
    arguments: list[Any] = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        if word.startswith("@"):
            arguments += ARGUMENTS[word[1:]]()
        elif word == "null":
            arguments.append(0)
        elif word.startswith("map "):
            arguments.append(make_tensor_map(*word.split()[1:]))
        elif match := re.fullmatch(r"(\w+):(\S+)", word):
            arguments.append(DTYPES[match[1]](float(match[2]) if match[1][0] == "f" else int(match[2])))
        else:
            arguments.append(make_array(word))
    return arguments


def make_array(word: str) -> np.ndarray[Any, Any]:
    """Return the array that `f32[64]`, `f32[64]=0`, `i32[8x8]%8` or `readonly f32[64]` names."""
    match = re.fullmatch(r"(readonly )?(\w+)\[([\dx]+)\](?:=(-?\d+)|%(\d+))?", word)
    assert match, f"not an argument: {word!r}"
    shape, dtype = sizes(match[3]), DTYPES[match[2]]
    if match[4]:
        array = np.full(shape, int(match[4])).astype(dtype)
    else:
        array = (np.arange(np.prod(shape)) % int(match[5] or 97)).astype(dtype).reshape(shape)
    array.setflags(write=not match[1])
    return array


def make_tensor_map(array: str, box: str, swizzle: Any = "none") -> Any:
    """Return the tensor map that `map f16[64x64] 8x64 128B` names: of an array, with a box and a swizzle."""
    return lw.tensor_map(make_array(array), sizes(box), swizzle=swizzle)


def sizes(text: str) -> tuple[int, ...]:
    """Return the numbers of `8x64`."""
    return tuple(map(int, text.split("x")))


@functools.cache
def module(file: str, wrong: bool, names: frozenset[str]) -> Any:
    """Compile the wrong kernels of a source with these names, or the right twins, as one module."""
    text, arch = version(file, wrong), arch_of(file)
    if file.endswith(".ptx"):
        return lw.load(text)
    return lw.cuda(with_kernels(text, names), arch=arch, options=options_of(file))


def options_of(file: str) -> list[str]:
    """Return the compiler's options for a source: the folders of its headers."""
    folders = {
        "hopper": [FOLDER / "hopper"],
        "blackwell": [FOLDER / "blackwell", FOLDER.parent / "kernels" / "blackwell"],
    }
    return [f"-I{each}" for each in folders.get(file.split("/")[0], [])]


def with_kernels(text: str, names: frozenset[str]) -> str:
    """Return CUDA C++ with the lines of all other kernels blanked."""

    def kept(match: re.Match[str]) -> str:
        return match[0] if match[1] in names else "\n" * match[0].count("\n")

    return re.sub(rf"^[^\n]*{KERNEL_NAME['.cu']}.*?^}}[^\n]*\n", kept, text, flags=re.MULTILINE | re.DOTALL)


def arch_of(file: str) -> str:
    """Return the arch that a source asks for in its first line, else sm_80."""
    match = re.match(r"//@arch (sm_\w+)", (FOLDER / file).read_text())
    return match[1] if match else "sm_80"


@functools.cache
def version(file: str, wrong: bool) -> str:
    """Return the source with the lines of the other version blanked."""
    other = "+" if wrong else "-"
    lines = (FOLDER / file).read_text().splitlines()
    marks = (f"//{other}", f"//{other}!")
    return "\n".join("" if line.endswith(marks) else line for line in lines) + "\n"


def read(file: str) -> Iterator[Pair]:
    """Yield the pairs of one source."""
    comment, header = ("#", "# @ ") if file.endswith(".py") else ("//", "//@ ")
    pattern = re.compile(KERNEL_NAME[Path(file).suffix])
    fields: list[str] = []
    name, marked, common = "", set[int](), set[int]()

    def pair() -> Pair:
        cause, kinds, launch, arguments, *hardware = (field.strip() for field in fields)
        advice = kinds.startswith("advice ")
        grid, block, *more = (part.strip() for part in launch.split(","))
        clusters = [part.removeprefix("cluster ") for part in more if part.startswith("cluster ")]
        shared = [part for part in more if part.isdigit()]
        return Pair(
            name,
            cause,
            frozenset() if kinds == "-" else frozenset(kinds.removeprefix("advice ").split("/")),
            file,
            sizes(grid),
            sizes(block),
            int(shared[0]) if shared else 0,
            arguments,
            frozenset(marked | common) if kinds != "-" else frozenset(),
            hardware[0] if hardware else "",
            advice,
            sizes(clusters[0]) if clusters else None,
        )

    for number, line in enumerate((FOLDER / file).read_text().splitlines(), 1):
        if line.startswith(header):
            if name:
                yield pair()
            fields, name, marked = line[len(header) :].split("|"), "", set()
        elif fields and not name and (match := pattern.search(line)):
            name = match[1]
        if re.search(rf"{comment}[-+]?!$", line):
            (marked if fields else common).add(number)
    if name:
        yield pair()


def read_all() -> list[Pair]:
    """Return every pair of every source, in the order of file names."""
    paths = (path.relative_to(FOLDER) for path in FOLDER.rglob("*") if path.suffix in (".cu", ".ptx"))
    files = sorted(map(str, paths))
    pairs = [pair for file in [*files, "language.py"] for pair in read(file)]
    names = [pair.name for pair in pairs]
    assert len(set(names)) == len(names), f"used twice: {sorted({n for n in names if names.count(n) > 1})}"
    return pairs


PAIRS: list[Pair] = read_all()


@functools.cache
def in_the_suite() -> frozenset[str]:
    """Return the names of the pairs that are tried each time: one of each cause, one advice in each folder.

    With LANEWISE_EVERYTHING in the environment, as in a step of CI, all are; `report.py` tries all, too.
    """
    if EVERYTHING:
        return frozenset(pair.name for pair in PAIRS)
    first_of_cause = {pair.cause: pair.name for pair in reversed(PAIRS)}
    advice = {Path(pair.file).parent: pair.name for pair in reversed(PAIRS) if pair.advice}
    return frozenset(first_of_cause.values()) | frozenset(advice.values())


def compiled_together(pair: Pair) -> frozenset[str]:
    """Return the kernels that are compiled with one: those of its source in the suite if it is, else all."""
    names = frozenset(each.name for each in PAIRS if each.file == pair.file)
    return names & in_the_suite() if pair.name in in_the_suite() else names
