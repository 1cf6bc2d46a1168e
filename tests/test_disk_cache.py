"""The cache on disk cannot lie: what was written by other source of the library is not found."""

import hashlib
import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

import lanewise.disk_cache as disk_cache
from everything import only_with_everything, sampled

PACKAGE = Path(disk_cache.__file__).parent

#: A kernel whose answer needs every room: a literal, a difference, and a product of fragments.
SCRIPT = '''
import numpy as np
import lanewise as lw
from lanewise.jit import machine_code

compilations = []
compile = machine_code._compile
def counted(text, *how):
    compilations.append(text)
    return compile(text, *how)
machine_code._compile = counted

module = lw.load("""
.version 8.4
.target sm_89
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 out) {
    .reg .b64 %d<9>;
    .reg .b32 %r<20>;
    ld.param.u64 %d0, [a];
    ld.param.u64 %d1, [b];
    ld.param.u64 %d2, [out];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %d3, %r0, 16;
    mul.wide.u32 %d4, %r0, 8;
    add.s64 %d0, %d0, %d3;
    add.s64 %d1, %d1, %d4;
    add.s64 %d2, %d2, %d3;
    ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d0];
    ld.global.v2.u32 {%r5, %r6}, [%d1];
    mov.u32 %r7, 0;
    mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32
        {%r8, %r9, %r10, %r11}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%r7, %r7, %r7, %r7};
    mov.u32 %r12, 40;
    mov.u32 %r13, 2;
    sad.u32 %r12, %r12, %r13, 4;
    xor.b32 %r8, %r8, %r12;
    st.global.v4.u32 [%d2], {%r8, %r9, %r10, %r11};
    ret;
}""")
a = (np.arange(32 * 16) % 97).astype(np.uint8)
b = (np.arange(32 * 8) % 89).astype(np.uint8)
out = np.zeros(32 * 4, np.uint32)
module["k"][1, 32](a, b, out)
print(out.tobytes().hex())
print(len(compilations))
'''

#: One change of the source for each room, after which the kernel has another answer.
CHANGES = {
    "ptx": (
        "ptx/syntax/operand_parser.py",
        "int(digits, base) if",
        'int(digits, base) + (digits == "40") if',
    ),
    "isa": ("isa/fragments.py", "[(2, m), pair, stripes, (n // 8", "[pair, (2, m), stripes, (n // 8"),
    "layout": (  # a linear coordinate counts along the last mode first
        "layout/coordinates.py",
        "        for s, d in zip(shape[:-1]",
        "        shape, stride = shape[::-1], stride[::-1]\n        for s, d in zip(shape[:-1]",
    ),
    "arith": ("arith/decoding.py", "(127 - fmt.bias)", "(128 - fmt.bias)"),
    "machine": ("machine/arithmetic/integer.py", "c + (a > b).select(", "c - (a > b).select("),
    "formats": ("formats.py", "2 ** (exponent - 1) - 1,", "2 ** (exponent - 1) - 2,"),
}


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A folder with a copy of the package, without the bytecode that Python would take in place of source."""
    folder = tmp_path / "library"
    shutil.copytree(PACKAGE, folder / "lanewise", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def run(library: Path, cache: Path | str, script: str = SCRIPT) -> list[str]:
    """The lines that a script prints in a new process, with the library from a folder or an archive."""
    environment = os.environ | {"LANEWISE_CACHE_DIR": str(cache), "PYTHONPATH": str(library)}
    done = subprocess.run(
        [sys.executable, "-B", "-c", script], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def change(library: Path, name: str, old: str, new: str) -> None:
    path = library / "lanewise" / name
    text = path.read_text()
    assert text.count(old) == 1, f"{name} has changed: the test looks for {old!r} once"
    path.write_text(text.replace(old, new))


class Kept(NamedTuple):
    """What the unchanged library left: a cache, the kernel's answer, and how many modules it compiled."""

    cache: Path
    answer: str
    compilations: str


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """One cache for the whole file: each test changes the source, so it finds nothing that another left."""
    cache = tmp_path_factory.mktemp("kept") / "cache"
    answer, compilations = run(PACKAGE.parent, cache)
    assert int(compilations) > 0
    return Kept(cache, answer, compilations)


@only_with_everything
def test_an_unchanged_library_compiles_nothing_the_second_time(kept: Kept, library: Path) -> None:
    assert run(PACKAGE.parent, kept.cache) == [kept.answer, "0"]
    # The same source at another path, with other times.
    assert run(library, kept.cache) == [kept.answer, "0"]


@only_with_everything
@sampled(14)
@pytest.mark.parametrize("room", CHANGES)
def test_a_changed_source_gives_the_new_answer(room: str, kept: Kept, library: Path) -> None:
    """All of it is compiled anew, so that nothing in the new answer can come from the old source."""
    change(library, *CHANGES[room])
    answer, compilations = run(library, kept.cache)
    assert answer != kept.answer and compilations == kept.compilations


@only_with_everything
def test_size_and_time_of_a_file_do_not_hide_a_change(kept: Kept, library: Path, tmp_path: Path) -> None:
    cache, path = tmp_path / "cache", library / "lanewise/arith/decoding.py"
    shutil.copytree(kept.cache, cache)
    for digest in cache.glob("*.digest"):
        digest.unlink()
    settle(library)
    assert run(library, cache) == [kept.answer, "0"]
    assert list(cache.glob("*.digest")), "the digest of settled source is kept under its stamp"
    status = path.stat()
    change(library, *CHANGES["arith"])
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (status.st_size, status.st_mtime_ns)
    after = run(library, cache)[0]
    assert after != kept.answer and after == run(library, "")[0]


def settle(library: Path) -> None:
    """Wait until the library's source counts as settled, so that its digest is kept under its stamp."""
    newest = max(path.stat().st_ctime_ns for path in library.rglob("*"))
    time.sleep(max(0, (newest + disk_cache._SETTLED - time.time_ns()) / 1e9) + 0.1)


@only_with_everything
def test_another_version_finds_nothing_of_the_last(kept: Kept, library: Path) -> None:
    init = (library / "lanewise/__init__.py").read_text()
    (version,) = (line for line in init.splitlines() if line.startswith("__version__"))
    change(library, "__init__.py", version, '__version__ = "1000.0"')
    assert run(library, kept.cache) == [kept.answer, kept.compilations]


@only_with_everything
def test_a_new_file_and_a_removed_one_count(kept: Kept, library: Path) -> None:
    new = library / "lanewise/arith/tables/more.json"
    new.parent.mkdir()
    new.write_text("{}")
    assert run(library, kept.cache) == [kept.answer, kept.compilations]
    shutil.rmtree(new.parent)
    assert run(library, kept.cache) == [kept.answer, "0"]


DIGEST = "import lanewise.disk_cache as disk_cache; print(disk_cache.package_digest())"


@only_with_everything
def test_a_library_in_an_archive(library: Path, tmp_path: Path) -> None:
    archive = tmp_path / "library.zip"

    def pack() -> str:
        with zipfile.ZipFile(archive, "w") as file:
            for path in sorted(library.rglob("*.py")):
                file.write(path, path.relative_to(library))
        time.sleep(0.1)  # a process that starts at once cannot tell whether it was changed meanwhile
        return run(archive, tmp_path / "cache", DIGEST)[0]

    first = pack()
    assert len(first) == 64 and run(archive, tmp_path / "cache", DIGEST) == [first]
    change(library, *CHANGES["arith"])
    assert pack() != first


@only_with_everything
def test_without_a_folder_the_contents_are_read(library: Path, tmp_path: Path) -> None:
    settle(library)
    first = run(library, tmp_path / "cache", DIGEST)
    assert run(library, "", DIGEST) == run(library, tmp_path / "cache", DIGEST) == first
    change(library, *CHANGES["arith"])
    assert run(library, "", DIGEST) != first


ASKED_FIRST = """
import lanewise.disk_cache as disk_cache
print(disk_cache.read("request", ".o"), disk_cache._first_sources.cache_info().currsize)
with disk_cache.reading_source():
    pass
print(disk_cache._first_sources.cache_info().currsize)
disk_cache.keep("request", ".o", b"kept")
print(disk_cache.read("request", ".o"))
"""


def test_an_empty_folder_is_asked_without_reading_the_source(library: Path, tmp_path: Path) -> None:
    settle(library)
    assert run(library, tmp_path / "cache", ASKED_FIRST) == ["None 0", "1", "b'kept'"]
    assert run(library, tmp_path / "cache", ASKED_FIRST)[0] == "b'kept' 1"


CHANGED_MEANWHILE = """
import pathlib
import lanewise, lanewise.disk_cache as disk_cache
path = pathlib.Path(lanewise.__file__).with_name("formats.py")
{first}
path.write_text(path.read_text() + "# changed\\n")
disk_cache.keep("request", ".o", b"of the old source")
print(disk_cache.read("request", ".o"))
"""


@pytest.mark.parametrize("first", ["disk_cache.package_digest()", "import time; time.sleep(0.1)"])
def test_nothing_is_kept_once_the_source_was_changed(first: str, library: Path, tmp_path: Path) -> None:
    script = CHANGED_MEANWHILE.format(first=first)
    assert run(library, tmp_path / "cache", script) == ["None"]
    assert not list(tmp_path.glob("cache/*.o"))


@pytest.mark.parametrize(("cost", "looks"), [(0.01, 20), (0.1, 2), (1e-6, 200)])
def test_the_source_is_looked_at_for_a_hundredth_of_the_time(
    cost: float, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In 20 seconds: once in a hundred times what a look costs, or ten times a second."""
    first, now, seen = disk_cache._sources(), 0.0, 0

    def sources() -> tuple[disk_cache.Source, ...]:
        nonlocal now, seen
        now, seen = now + cost, seen + 1
        return first

    monkeypatch.setattr(disk_cache, "_sources", sources)
    monkeypatch.setattr(disk_cache, "_stamp", len)
    monkeypatch.setattr(disk_cache, "_first_stamp", lambda: len(first))
    monkeypatch.setattr(disk_cache, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(disk_cache, "_next_look", 0.0)
    while now < 20:
        assert disk_cache._is_unchanged()
        now += 0.01
    assert looks * 0.8 <= seen <= looks * 1.2 + 1


# the folder -----------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder for a library that nobody changes while the tests run."""
    monkeypatch.setenv("LANEWISE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(disk_cache, "package_digest", lambda: "a digest")
    monkeypatch.setattr(disk_cache, "_is_unchanged", lambda: True)
    return tmp_path


def called(title: str) -> str:
    """A file name as the cache gives it: a digest in front of the suffix."""
    stem, dot, suffix = title.partition(".")
    return hashlib.sha256(stem.encode()).hexdigest()[:40] + dot + suffix


def write(folder: Path, name: str, size: int, age: float) -> None:
    (folder / name).write_bytes(bytes(size))
    then = time.time() - age
    os.utime(folder / name, (then, then))


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {disk_cache.TIDIED}


def test_the_cache_is_the_users_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LANEWISE_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if sys.platform == "linux":
        assert disk_cache.cache_directory() == tmp_path / "lanewise"
    monkeypatch.setenv("LANEWISE_CACHE_DIR", "")
    assert disk_cache.cache_directory() is None


def test_what_is_kept_is_read_by_its_request(folder: Path) -> None:
    disk_cache.keep("a request", ".o", b"content")
    assert disk_cache.read("a request", ".o") == b"content"
    assert disk_cache.read("a request", ".cubin") is None
    assert disk_cache.read("another request", ".o") is None
    (path,) = folder.glob("*.o")
    path.write_bytes(path.read_bytes()[:-1] + b"!")  # damaged
    assert disk_cache.read("a request", ".o") is None


def test_what_nobody_read_for_a_month_goes(folder: Path) -> None:
    day = 24 * 3600
    for name, age in {"new.o": 0, "weeks.cubin": 29, "old.o": 31, "old.digest": 31}.items():
        write(folder, called(name), 10, age * day)
    write(folder, "theirs.txt", 10, 99 * day)
    write(folder, "theirs.o", 10, 99 * day)
    write(folder, "left" + disk_cache.UNFINISHED, 10, 2 * day)
    write(folder, "writing" + disk_cache.UNFINISHED, 10, 0)
    disk_cache.tidy_up(folder)
    ours = {called("new.o"), called("weeks.cubin"), "writing" + disk_cache.UNFINISHED}
    assert names(folder) == ours | {"theirs.txt", "theirs.o"}


def test_the_folder_is_bounded_and_the_oldest_goes_first(folder: Path) -> None:
    for number in range(10):
        write(folder, called(f"{number}.o"), 100, 3600 * number)
    disk_cache.tidy_up(folder, most_bytes=350)
    assert names(folder) == {called(f"{number}.o") for number in range(3)}


def test_the_folder_is_tidied_once_a_day_and_after_many_bytes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Path] = []
    tidy_up = disk_cache.tidy_up

    def look(folder: Path) -> None:
        looked.append(folder)
        tidy_up(folder)

    monkeypatch.setattr(disk_cache, "tidy_up", look)
    for number in range(20):
        disk_cache.keep(f"small {number}", ".o", b"content")
    assert len(looked) == 1  # the first time, and not again on the same day
    then = time.time() - 25 * 3600
    os.utime(folder / disk_cache.TIDIED, (then, then))
    disk_cache.keep("a day later", ".o", b"content")
    assert len(looked) == 2
    monkeypatch.setattr(disk_cache, "_TIDY_BYTES", 1 << 20)
    for number in range(64):
        disk_cache.keep(f"large {number}", ".o", bytes(1 << 18))  # 16 MiB: about 16 times, by chance
    assert 2 < len(looked) < 60


def test_clear_takes_the_caches_own_files_alone(folder: Path) -> None:
    disk_cache.keep("a request", ".o", b"content")
    write(folder, "notes.txt", 5, 0)
    write(folder, "main.o", 5, 0)
    (removed,) = disk_cache.clear_files(folder)
    assert removed.path.suffix == ".o" and removed.size == 32 + len("content")
    assert names(folder) == {"notes.txt", "main.o"}
