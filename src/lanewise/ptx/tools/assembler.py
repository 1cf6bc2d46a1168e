"""ptxas: PTX to a cubin, with the resources that each kernel uses. nvdisasm: a cubin back to SASS text."""

import hashlib
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from lanewise import disk_cache
from lanewise.errors import LanewiseError
from lanewise.isa import arch_number, find_arch
from lanewise.isa.multiprocessor import MOST_THREADS, REGISTER_UNIT, REGISTERS, SCHEDULERS, WARP
from lanewise.isa.occupancy import Occupancy, best_block, occupancy
from lanewise.ptx.lexer import Source
from lanewise.ptx.targets import as_ascii, with_version
from lanewise.ptx.tools.toolkit import Tool, ToolFailed, ToolMissing, extra, find_tool, find_tools

_FILE = "module.ptx"
_NEWER = re.compile(r"Unsupported \.version [\d.]+; current version is '([\d.]+)'")
_COMPLAINT = re.compile(
    r"^ptxas (?:\S+, line (?P<line>\d+); )?(?:error|fatal) *: (?P<message>.*)$", re.MULTILINE
)
_PROPERTIES = re.compile(
    r"Function properties for (?P<name>\S+)\s*\n\s*(?P<stack>\d+) bytes stack frame, "
    r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads"
    r"(?:\s*\n[^\n]*?: Used (?P<registers>\d+) registers(?P<rest>[^\n]*))?"
)
_TARGET = re.compile(r"^\s*\.target\s+(\w+)", re.MULTILINE)


@dataclass(frozen=True)
class Resources:
    """What a function uses, as ptxas reports it: registers of each thread, and bytes of everything else."""

    registers: int = 0
    stack: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    shared: int = 0
    barriers: int = 0
    constant: Mapping[int, int] = field(default_factory=dict)
    #: The arch that it was assembled for; empty if that is not known.
    arch: str = ""

    @property
    def shared_bytes(self) -> int:
        """Static shared memory of a block."""
        return self.shared

    @property
    def local_bytes(self) -> int:
        """Local memory of a thread: arrays that are indexed, and what was spilled."""
        return self.stack

    @property
    def constant_bytes(self) -> int:
        """Constant memory, all banks together; ptxas of CUDA 13 leaves the parameters out."""
        return sum(self.constant.values())

    @property
    def threads(self) -> int:
        """The most threads that a block can have: of 65,536 registers, a warp takes 256 at a time.

        >>> Resources(registers=64).threads, Resources(registers=168).threads
        (1024, 384)
        """
        warps = REGISTERS // max(-(-self.registers * WARP // REGISTER_UNIT) * REGISTER_UNIT, 1)
        return min(warps // SCHEDULERS * SCHEDULERS * WARP, MOST_THREADS)

    def occupancy(
        self, threads: int | None = None, shared_bytes: int = 0, *, most_threads: int = MOST_THREADS
    ) -> Occupancy:
        """How many blocks of so many threads, with so much dynamic shared memory, are resident at a time.

        Without `threads` it is the block, of up to `most_threads`, with which most warps are resident.

        >>> print(Resources(registers=40, arch="sm_86").occupancy(256))
        sm_86: 6 blocks of 256 threads, 48 of 48 warps (100 %), limited by warps and registers
        """
        if not self.arch:
            raise LanewiseError("the occupancy depends on the arch, and these resources name none")
        shared = self.shared + shared_bytes
        if threads is None:
            return best_block(self.arch, self.registers, shared, self.barriers, most_threads)
        return occupancy(self.arch, threads, self.registers, shared, self.barriers)


@dataclass(frozen=True)
class Cubin:
    """Machine code for one arch, with the resources of its functions and what ptxas said.

    `notes` tell what was done to the PTX to have it assembled.
    """

    image: bytes = field(repr=False)
    arch: str
    resources: Mapping[str, Resources]
    log: str = field(default="", repr=False)
    notes: tuple[str, ...] = ()

    def sass(self) -> str:
        """The machine code as text: see `nvdisasm`."""
        return nvdisasm(self)


@runtime_checkable
class PtxModule(Protocol):
    """A parsed module as far as ptxas needs it: the arch that it is for; `str` gives its PTX."""

    @property
    def target(self) -> str:
        """The arch that the PTX is for."""


def ptxas(
    ptx: PtxModule | str, arch: str | None = None, *, options: Iterable[str] = (), timeout: float = 600
) -> Cubin:
    """Assemble PTX for an arch; without one, for the arch that the PTX is for.

    If the PTX has a newer version than ptxas knows, it is assembled as the newest version that ptxas knows,
    and the `notes` of the cubin say so; ptxas still refuses instructions that it does not know.
    """
    if not isinstance(ptx, PtxModule | str):
        raise LanewiseError(f"ptxas takes a Module or PTX text, not {type(ptx).__name__}")
    text = str(ptx)
    Source(text)  # ptxas hangs on a comment that does not end; this refuses it
    if arch is None:
        target = _TARGET.search(text) if isinstance(ptx, str) else None
        arch = ptx.target if not isinstance(ptx, str) else target.group(1) if target else ""
    name = find_arch(arch)
    tool = _assembler(name)
    notes: tuple[str, ...] = ()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        arguments = ["-v", f"-arch={name}", *options, _FILE, "-o", "module.cubin"]
        Path(folder, _FILE).write_bytes(as_ascii(text))
        done = tool.run(arguments, folder, timeout)
        if newest := _NEWER.search(done.stdout + done.stderr):
            text = with_version(text, newest.group(1))
            notes = (f"assembled as PTX {newest.group(1)}, the newest that ptxas {_words(tool)} knows",)
            Path(folder, _FILE).write_bytes(as_ascii(text))
            done = tool.run(arguments, folder, timeout)
        log = done.stdout + done.stderr
        if done.returncode:
            raise ToolFailed(_refusal(log, text, name, done.returncode), log)
        image = Path(folder, "module.cubin").read_bytes()
    return Cubin(image, name, _resources(log, name), log, notes)


def _words(tool: Tool) -> str:
    return ".".join(map(str, tool.release))


def _assembler(arch: str) -> Tool:
    """CUDA 13 has no back end for Volta any more; an older ptxas does."""
    if arch_number(arch) >= 75:
        return find_tool("ptxas")
    for tool in find_tools("ptxas"):
        if tool.release < (13, 0):
            return tool
    raise ToolMissing(
        f"no ptxas for {arch} is installed, CUDA 13 has none: pip install nvidia-cuda-nvcc-cu12 (about 40 MB)"
        + ("" if find_tools("ptxas") else f"; for newer GPUs, {extra()}")
    )


def _refusal(log: str, text: str, arch: str, status: int) -> str:
    lines = text.split("\n")
    complaints = []
    for match in _COMPLAINT.finditer(log):
        line = int(match["line"] or 0)
        if match["message"].startswith("Ptx assembly aborted"):
            continue
        complaints.append(
            f"line {line}: {match['message']}\n    {lines[line - 1].strip()}"
            if 0 < line <= len(lines)
            else match["message"]
        )
    return f"ptxas refuses the PTX for {arch}: " + (
        "\n".join(complaints) or log.strip() or f"exit status {status}"
    )


def _resources(log: str, arch: str) -> dict[str, Resources]:
    """What `ptxas -v` says of each function."""
    resources = {}
    for match in _PROPERTIES.finditer(log):
        rest = match["rest"] or ""
        shared = re.search(r"(\d+) bytes smem", rest)
        barriers = re.search(r"used (\d+) barriers", rest)
        resources[match["name"]] = Resources(
            int(match["registers"] or 0),
            int(match["stack"]),
            int(match["stores"]),
            int(match["loads"]),
            int(shared.group(1)) if shared else 0,
            int(barriers.group(1)) if barriers else 0,
            {int(bank): int(size) for size, bank in re.findall(r"(\d+) bytes cmem\[(\d+)\]", rest)},
            arch,
        )
    return resources


def sass_of(listing: str, name: str) -> str:
    """The part of nvdisasm's listing that is one function's."""
    head = re.search(rf"^//-+ \.text\.{re.escape(name)} +-+\s*$", listing, re.MULTILINE)
    if head is None:
        return listing
    after = re.compile(r"^//-{9,}", re.MULTILINE).search(listing, head.end())
    return listing[head.start() : after.start() if after else len(listing)].rstrip() + "\n"


def nvdisasm(cubin: Cubin | bytes | Path, *, options: Iterable[str] = ("-c",), timeout: float = 600) -> str:
    """Return the SASS of a cubin as text; by default its code alone (`-c`).

    nvdisasm takes half a second and more even for a small cubin, so the text is kept on disk.
    """
    if isinstance(cubin, Path):
        path = cubin
        try:
            cubin = path.read_bytes()
        except OSError as error:
            raise LanewiseError(f"{path}: {error.strerror}") from None
    if isinstance(cubin, Cubin):
        cubin = cubin.image
    if not isinstance(cubin, bytes) or not cubin.startswith(b"\x7fELF"):
        raise LanewiseError("nvdisasm takes a Cubin, the bytes of one or the path of one")
    tool, flags = find_tool("nvdisasm"), list(options)
    stamp = tool.path.stat()
    digest = hashlib.sha256(cubin).hexdigest()
    request = repr(["nvdisasm", digest, flags, str(tool.path), stamp.st_size, stamp.st_mtime_ns])
    kept = disk_cache.read(request, ".sass")
    if kept is not None:
        return kept.decode()
    with tempfile.TemporaryDirectory() as place:
        Path(place, "module.cubin").write_bytes(cubin)
        done = tool.run([*flags, "module.cubin"], Path(place), timeout)
    if done.returncode:
        log = done.stdout + done.stderr
        raise ToolFailed(
            f"nvdisasm refuses the cubin: {log.strip() or f'exit status {done.returncode}'}", log
        )
    disk_cache.keep(request, ".sass", done.stdout.encode())
    return done.stdout
