"""The rules of the house: who imports whom, how large folders and files are, what docstrings must say.

Each rule is a function that takes the folder of a package and returns its culprits, one message each. It is
run on `lanewise`, and on a small package with a culprit in it, which it must find.
"""

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "lanewise"

#: From the top of the house down; a room may import itself and any room before it.
ROOMS = (
    "errors",
    "hints",
    "numpy_types",
    "tracebacks",
    "engines",
    "disk_cache",
    "recently_used",
    "observers",
    "records",
    "formats",
    "layout",
    "isa",
    "jit",
    "arith",
    "atoms",
    "draw",
    "ptx",
    "machine",
    "gpu",
    "tensor_maps",
    "module_globals",
    "launch",
    "lang",
    "benchmarking",
    "autotuning",
    "linalg",
    "torch",
    "virtual_gpu",
    "traces",
    "debug",
    "explore",
    "pytest",
    "cli",
    "__main__",
)
#: What connects the rooms and is the public API: may import every room, and no room imports it.
FRONT_DOOR = ("__init__", "providers")
#: Engines that never know of each other, although one stands above the other.
NEVER = {("gpu", "machine")}

#: Inside a room: its packages (and files of their kind) in order, each of which may import itself and those
#: before it. Files that are not named here are the bottom of their room: all may import them, they import no
#: package. The room's `__init__` is its interface and may import all.
PACKAGES = {
    "ptx": (
        "tools",
        "model",
        "cplusplus",
        "device_compiler",
        "syntax",
        "launch_shape",
        "sass_listing",
        "arguments",
        "launch_text",
        "signatures",
        "textures",
        "tensor_maps",
        "compatibility",
        "cuda_source",
        "loading",
    ),
    "machine": (
        "program",
        "analysis",
        "codegen",
        "arithmetic",
        "tensor_core",
        "warp_ops",
        "bulk_copies",
        "tensor_memory",
        "textures",
        "compile",
        "runtime",
        "checker",
        "tracer",
    ),
    "lang": (
        "trace",
        "versions",
        "memory",
        "matrix",
        "intrinsics",
        "wmma",
        "hopper",
        "blackwell",
        "tiles",
        "frontend",
    ),
    "virtual_gpu": (
        "devices",
        "order",
        "driver",
        "runtime",
        "blas",
        "library",
        "programs",
        "frameworks",
        "checking",
        "session",
        "child_site",
    ),
    "cli": ("terminal", "input", "explanation", "launching", "commands", "app", "__main__"),
}

MOST_FILES = 24
MOST_LINES = 900
#: A docstring of so many words says no more than the name.
TOO_FEW_WORDS = 3

#: Rooms that are being rebuilt and are not held to the rules on packages, circles, sizes and docstrings yet.
UNDER_WAY: set[str] = set()


# reading the source -------------------------------------------------------------------------------------


@cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """The statements of a syntax tree at any depth, without a look into their expressions."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, ast.expr):
            yield node
            yield from statements(node)


def files_of(source: Path) -> list[Path]:
    """The Python files of a package, in order."""
    return sorted(source.rglob("*.py"))


def room_of(source: Path, path: Path) -> str:
    """The first folder or file below the package that a file lies in."""
    return path.relative_to(source).parts[0].removesuffix(".py")


@cache
def modules_of(source: Path) -> dict[str, Path]:
    """Each file of a package under its dotted name; a package stands for its `__init__.py`."""
    found = {}
    for path in files_of(source):
        names = path.relative_to(source.parent).with_suffix("").parts
        found[".".join(names[:-1] if names[-1] == "__init__" else names)] = path
    return found


@cache
def imported(source: Path, path: Path) -> tuple[tuple[int, str], ...]:
    """(line, dotted name) of every import of the package in a file, in functions and under TYPE_CHECKING too.

    `from a.b import c` gives `a.b.c`, whether c is a module or a name in one.
    """
    root = source.name
    package = path.relative_to(source.parent).parent.parts
    found: dict[tuple[int, str], None] = {}
    for node in statements(tree_of(path)):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        names = [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else ()
            base = ".".join((*above, *filter(None, [node.module])))
            names = [f"{base}.{name}" for name in names]
        for name in names:
            if name == root or name.startswith(f"{root}."):
                found[node.lineno, name] = None
    return tuple(found)


def imported_modules(source: Path, path: Path) -> list[tuple[int, str]]:
    """(line, module) of every import in a file, each once, the name taken from a module cut off."""
    modules = modules_of(source)
    found: dict[tuple[int, str], None] = {}
    for line, name in imported(source, path):
        while name != source.name and name not in modules:
            name = name.rpartition(".")[0]
        found[line, name] = None
    return list(found)


def is_under_way(source: Path, path: Path, under_way: set[str]) -> bool:
    """Whether a file or folder lies in a room that is not held to the rule yet."""
    return path != source and room_of(source, path) in under_way


# the rules ----------------------------------------------------------------------------------------------


def upward_imports(source: Path) -> list[str]:
    """Imports of a room that stands further down, or of one that must stay unknown."""
    culprits = []
    for path in files_of(source):
        room = room_of(source, path)
        if room in FRONT_DOOR:
            continue
        if room not in ROOMS:
            culprits.append(f"{room} is in no room of the house")
            continue
        allowed = ROOMS[: ROOMS.index(room) + 1]
        for line, name in imported(source, path):
            other = [*name.split("."), "__init__"][1]
            version_only = room == "cli" and other == "__version__"
            if (other not in allowed and not version_only) or (room, other) in NEVER:
                culprits.append(f"{path.relative_to(source)}:{line}: {room} imports {other}")
    return culprits


def disordered_packages(source: Path, under_way: set[str]) -> list[str]:
    """Inside a room with packages: folders that are not in its list, and imports of a later package."""
    culprits = []
    for room, order in PACKAGES.items():
        folder = source / room
        if room in under_way:
            continue
        for each in sorted(folder.glob("*/")):
            if any(each.rglob("*.py")) and each.name not in order:
                culprits.append(f"{room}/{each.name} is in no list of packages")
        for path in files_of(folder):
            own = room_of(folder, path)
            if own == "__init__":
                continue
            for line, name in imported_modules(source, path):
                # a room's own `__init__` is for other rooms; the program's start alone goes through it
                its_room, other = [*name.split("."), "__init__", "__init__"][1:3]
                if its_room != room or (own, other) == ("__main__", "__init__"):
                    continue
                if other == "__init__" or _rank(order, other) > _rank(order, own):
                    culprits.append(f"{path.relative_to(source)}:{line}: {own} imports {other}")
    return culprits


def _rank(order: tuple[str, ...], name: str) -> int:
    return order.index(name) if name in order else -1


def circles(source: Path, under_way: set[str]) -> list[str]:
    """Files that import each other, directly or through others (Tarjan's strongly connected components)."""
    modules = modules_of(source)
    edges = {
        module: {name for _, name in imported_modules(source, path) if name not in (module, source.name)}
        for module, path in modules.items()
    }
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in sorted(edges[module]):
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            place = stack.index(module)
            found.append(sorted(stack[place:]))
            del stack[place:]

    for module in modules:
        if module not in index:
            visit(module)
    return [
        f"circle of {', '.join(group)}"
        for group in found
        if len(group) > 1 and not all(is_under_way(source, modules[name], under_way) for name in group)
    ]


def wide_folders(source: Path, under_way: set[str]) -> list[str]:
    """Folders with more files than a reader takes in."""
    folders = [source, *(path for path in sorted(source.rglob("*")) if path.is_dir())]
    counts = {path: len(list(path.glob("*.py"))) for path in folders}
    return [
        f"{path.relative_to(source)} has {count} files"
        for path, count in counts.items()
        if count > MOST_FILES and not is_under_way(source, path, under_way)
    ]


def long_files(source: Path, under_way: set[str]) -> list[str]:
    """Files with too many lines for one idea."""
    counts = {path: path.read_text(encoding="utf-8").count("\n") for path in files_of(source)}
    return [
        f"{path.relative_to(source)} has {count} lines"
        for path, count in counts.items()
        if count > MOST_LINES and not is_under_way(source, path, under_way)
    ]


# the rules of the tests ---------------------------------------------------------------------------------


#: An import that may be one of a test module, on one line or in parentheses.
IMPORT_OF_A_TEST = re.compile(r"^\s*(from|import)\b([^\n(]*|[^\n(]*\([^)]*)\btest_", re.M)


def imports_of_tests(tests: Path) -> list[str]:
    """Imports of a test module: what several of them use stands in a module that is not a test."""
    culprits = []
    for path in sorted(tests.rglob("*.py")):
        if not IMPORT_OF_A_TEST.search(path.read_text(encoding="utf-8")):
            continue  # to read a file as Python takes a hundred times as long
        for node in ast.walk(tree_of(path)):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [f"{node.module or ''}.{alias.name}" for alias in node.names]
            culprits += [
                f"{path.relative_to(tests)}:{node.lineno}: imports {name}"  # type: ignore[attr-defined]  # of imports, which have lines
                for name in names
                if any(part in test_modules(tests) for part in name.split("."))
            ]
    return culprits


@cache
def test_modules(tests: Path) -> frozenset[str]:
    """The names of all test modules."""
    return frozenset(path.stem for path in tests.rglob("test_*.py"))


test_modules.__test__ = False  # type: ignore[attr-defined]  # it only begins like a test

#: Functions that read a clock.
CLOCKS = {"perf_counter", "monotonic", "time", "process_time", "thread_time"}
#: Files that may read a clock, and why.
WITH_A_CLOCK = {
    "growth.py": "compares processor times with each other",
    "lang/compare_kernels.py": "searches for as long as it is asked to",
    "machine/mutants.py": "notices a process that hangs",
    "machine/test_machine_fuzz.py": "searches for as long as it is asked to",
    "machine/mistakes/report.py": "is a program that says how long it took",
    "test_disk_cache.py": "gives files an age",
}
#: Limits below this are there to be met; others would be met on a busy machine.
MEANT_TO_END = 1.0


def clocks(tests: Path) -> list[str]:
    """What makes a test depend on the speed of the machine: clocks, time limits, deadlines of examples.

    Tests of a GPU measure it.
    """
    culprits = []
    for path in sorted(tests.rglob("*.py")):
        name = path.relative_to(tests).as_posix()
        if name.startswith("gpu/") or name in WITH_A_CLOCK:
            continue
        if not re.search(r"\btimeout=|\bdeadline=|\btime\b|_time\b|perf_counter|monotonic", path.read_text()):
            continue
        calls = [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call)]
        for node in sorted(calls, key=lambda call: call.lineno):
            called = ast.unparse(node.func)
            if called.rpartition(".")[2] in CLOCKS and called.rpartition(".")[0] in ("", "time"):
                culprits.append(f"{name}:{node.lineno}: reads a clock: {called}()")
            for keyword in node.keywords:
                if keyword.arg == "timeout" and _is_a_limit(keyword.value):
                    culprits.append(f"{name}:{node.lineno}: has a time limit: {called}(timeout=…)")
                if keyword.arg == "deadline" and ast.unparse(keyword.value) != "None":
                    culprits.append(f"{name}:{node.lineno}: has a deadline")
    return culprits


def _is_a_limit(value: ast.expr) -> bool:
    """Whether the value of `timeout=` is a number of seconds that a busy machine may need."""
    return (
        isinstance(value, ast.Constant)
        and isinstance(value.value, int | float)
        and value.value >= MEANT_TO_END
    )


Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def public_parts(node: Documented) -> Iterator[Documented]:
    """A module or class, and the public classes and functions in it."""
    yield node
    for each in node.body:
        if isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if each.name.startswith("_"):
                continue
            yield from public_parts(each) if isinstance(each, ast.ClassDef) else (each,)


def short_docstrings(source: Path, under_way: set[str]) -> list[str]:
    """Docstrings of modules, public classes and public functions that are too short to help."""
    culprits = []
    for path in files_of(source):
        if is_under_way(source, path, under_way):
            continue
        for node in public_parts(tree_of(path)):
            text = ast.get_docstring(node)
            if text is not None and len(text.split()) <= TOO_FEW_WORDS:
                place = f"{path.relative_to(source)}:{getattr(node, 'lineno', 1)}"
                culprits.append(f"{place}: {getattr(node, 'name', 'module')}: {text}")
    return culprits


RULES = (disordered_packages, circles, wide_folders, long_files, short_docstrings)


# lanewise keeps them ------------------------------------------------------------------------------------


def test_imports_only_rooms_above() -> None:
    assert upward_imports(SOURCE) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_house_keeps(rule: Callable[[Path, set[str]], list[str]]) -> None:
    assert rule(SOURCE, UNDER_WAY) == []


@pytest.mark.parametrize("rule", [imports_of_tests, clocks], ids=lambda rule: rule.__name__)
def test_the_tests_keep(rule: Callable[[Path], list[str]]) -> None:
    assert rule(TESTS) == []


def test_rooms_under_way_are_rooms() -> None:
    assert set(ROOMS) >= UNDER_WAY


# each rule finds its culprit ----------------------------------------------------------------------------


def house(folder: Path, files: dict[str, str]) -> Path:
    """A package `lanewise` with the files given, by path."""
    source = folder / "lanewise"
    for name, text in files.items():
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return source


def test_an_upward_import_is_found_in_a_function_and_for_types(tmp_path: Path) -> None:
    source = house(
        tmp_path,
        {
            "layout/deferred.py": "def f():\n    from lanewise.isa import instruction\n",
            "layout/typed.py": "if TYPE_CHECKING:\n    from lanewise import isa\n",
            "layout/relative.py": "from ..isa import instruction\n",
            "layout/right.py": "from lanewise.errors import LanewiseError\n",
            "layout/front.py": "import lanewise\n",
            "layout/wired.py": "import lanewise.providers\n",
            "cli/version.py": "from lanewise import __version__\n",
            "providers.py": "def f():\n    from lanewise.isa import instruction\n",
            "isa/__init__.py": "",
        },
    )
    assert upward_imports(source) == [
        "layout/deferred.py:2: layout imports isa",
        "layout/front.py:1: layout imports __init__",
        "layout/relative.py:1: layout imports isa",
        "layout/typed.py:2: layout imports isa",
        "layout/wired.py:1: layout imports providers",
    ]


def test_an_engine_that_must_stay_unknown_and_a_folder_of_no_room(tmp_path: Path) -> None:
    source = house(tmp_path, {"gpu/a.py": "import lanewise.machine\n", "attic/b.py": ""})
    assert upward_imports(source) == [
        "attic is in no room of the house",
        "gpu/a.py:1: gpu imports machine",
    ]


def test_a_package_that_imports_a_later_one_or_is_not_in_the_list(tmp_path: Path) -> None:
    source = house(
        tmp_path,
        {
            "machine/__init__.py": "from lanewise.machine.checker.clocks import tick\n",
            "machine/abi.py": "from lanewise.machine.program import ops\n",
            "machine/errors.py": "from lanewise.machine import abi\n",
            "machine/program/__init__.py": "",
            "machine/program/ops.py": "def f():\n    from lanewise.machine.checker.clocks import tick\n",
            "machine/checker/clocks.py": "from lanewise.machine.program.ops import f\n",
            "machine/checker/report.py": "from lanewise.machine import launch\n",
            "machine/stuff/a.py": "",
        },
    )
    assert disordered_packages(source, set()) == [
        "machine/stuff is in no list of packages",
        "machine/abi.py:1: abi imports program",
        "machine/checker/report.py:1: checker imports __init__",
        "machine/program/ops.py:2: program imports checker",
    ]
    assert disordered_packages(source, {"machine"}) == []


def test_a_circle_is_found_through_deferred_typed_and_relative_imports(tmp_path: Path) -> None:
    source = house(
        tmp_path,
        {
            "__init__.py": "",
            "isa/__init__.py": "from lanewise.isa.a import f\n",
            "isa/a.py": "def f():\n    from lanewise.isa.b import g\n",
            "isa/b.py": "if TYPE_CHECKING:\n    from lanewise.isa import c\n",
            "isa/c.py": "from .a import f\n",
            "isa/d.py": "from lanewise.isa.a import f\n",
            "arith/__init__.py": "",
            "arith/x.py": "import lanewise.arith.y\n",
            "arith/y.py": "from lanewise.arith import x\n",
        },
    )
    assert circles(source, set()) == [
        "circle of lanewise.arith.x, lanewise.arith.y",
        "circle of lanewise.isa.a, lanewise.isa.b, lanewise.isa.c",
    ]
    assert circles(source, {"arith", "isa"}) == []


def test_a_circle_through_an_interface_is_one(tmp_path: Path) -> None:
    source = house(
        tmp_path,
        {"isa/__init__.py": "from lanewise.isa.a import f\n", "isa/a.py": "from lanewise.isa import f\n"},
    )
    assert circles(source, set()) == ["circle of lanewise.isa, lanewise.isa.a"]


def test_a_wide_folder_and_a_long_file(tmp_path: Path) -> None:
    files = {f"isa/a{number}.py": "" for number in range(MOST_FILES)}
    source = house(
        tmp_path, {**files, "isa/long.py": "\n" * (MOST_LINES + 1), "arith/fits.py": "\n" * MOST_LINES}
    )
    assert wide_folders(source, set()) == [f"isa has {MOST_FILES + 1} files"]
    assert long_files(source, set()) == [f"isa/long.py has {MOST_LINES + 1} lines"]
    assert wide_folders(source, {"isa"}) == long_files(source, {"isa"}) == []


def test_a_docstring_that_says_too_little(tmp_path: Path) -> None:
    code = '''"""The words."""
class Word:
    """A word of PTX text."""
    def read(self):
        """Read it."""
    def _own(self):
        """Own."""
def cut():
    """Cut the text."""
def without():
    pass
'''
    source = house(tmp_path, {"ptx/words.py": code})
    assert short_docstrings(source, set()) == [
        "ptx/words.py:1: module: The words.",
        "ptx/words.py:4: read: Read it.",
        "ptx/words.py:8: cut: Cut the text.",
    ]
    assert short_docstrings(source, {"ptx"}) == []


def test_an_import_of_a_test_is_found_in_a_function_too(tmp_path: Path) -> None:
    tests = house(
        tmp_path,
        {
            "test_a.py": "from ptxas import assemble\nfrom machine import kernels\n",
            "ptxas.py": "",
            "machine/kernels.py": "def f():\n    from machine import test_b as b\n",
            "machine/long.py": "from machine import (\n    kernels,\n    test_b,\n)\n",
            "machine/test_b.py": "from test_a import x\nimport machine.test_b\nfrom pytest import test_x\n",
        },
    )
    assert imports_of_tests(tests) == [
        "machine/kernels.py:2: imports machine.test_b",
        "machine/long.py:1: imports machine.test_b",
        "machine/test_b.py:1: imports test_a.x",
        "machine/test_b.py:2: imports machine.test_b",
    ]


def test_a_clock_a_time_limit_and_a_deadline_are_found(tmp_path: Path) -> None:
    code = """
import time
from time import perf_counter
begin = time.monotonic()
assert perf_counter() - begin < 5
run(command, timeout=60)
run(command, timeout=0.1)
run(command, timeout=None)
queue.get(timeout=PATIENCE)
settings(deadline=200)
settings(deadline=None)
driver.time()
time.sleep(0.001)
"""
    tests = house(tmp_path, {"machine/test_a.py": code, "gpu/test_b.py": code, "growth.py": code})
    assert clocks(tests) == [
        "machine/test_a.py:4: reads a clock: time.monotonic()",
        "machine/test_a.py:5: reads a clock: perf_counter()",
        "machine/test_a.py:6: has a time limit: run(timeout=…)",
        "machine/test_a.py:10: has a deadline",
    ]
