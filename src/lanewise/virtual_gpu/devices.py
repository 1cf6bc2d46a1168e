"""The GPUs that a virtual one can be, by name: memory, multiprocessors, clocks.

What is the same for all GPUs of an arch (shared memory, warps, limits of a block) is in `isa/`.
"""

from dataclasses import dataclass

from lanewise.errors import LanewiseError
from lanewise.isa import find_arch
from lanewise.isa.archs import arch_number
from lanewise.isa.gpu_models import FIGURES, arch_of_gpu, gpu_names, what_is_known
from lanewise.isa.multiprocessor import Multiprocessor, multiprocessor, shared_bytes_of

GIB = 1 << 30
MIB = 1 << 20


@dataclass(frozen=True)
class Device:
    """One GPU: its name and target, and the figures in which GPUs of a target differ."""

    name: str
    arch: str
    multiprocessors: int
    memory_bytes: int
    clock_khz: int
    memory_clock_khz: int
    bus_bits: int
    l2_bytes: int

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability: (9, 0) for an H100."""
        return divmod(arch_number(self.arch), 10)

    @property
    def multiprocessor(self) -> Multiprocessor:
        """What one multiprocessor has."""
        return multiprocessor(self.arch)

    @property
    def shared_bytes(self) -> int:
        """The bytes of shared memory that a block may have, with the opt-in."""
        return shared_bytes_of(self.arch)

    @property
    def title(self) -> str:
        """The name that programs are given: it says that the device is not hardware."""
        return f"NVIDIA {self.name} (lanewise)"


def find_device(name: str, memory_gib: float | None = None, multiprocessors: int | None = None) -> Device:
    """Return a GPU by its name, or by its target; memory and multiprocessors may be set.

    >>> find_device("h100").multiprocessors, find_device("sm_80").name, find_device("RTX 4090").capability
    (132, 'A100', (8, 9))
    """
    if not isinstance(name, str):
        raise LanewiseError(f"a virtual GPU is named by text such as 'H100', not {type(name).__name__}")
    arch = arch_of_gpu(name)
    if arch is None:
        arch = _arch_by_target(name)
    names = gpu_names()[arch]
    plain = _plain(name)
    exact = next((name for name in names if plain in (_plain(name), _plain(f"nvidia {name}"))), names[0])
    # One that has no figures of its own has those of the first GPU of its target.
    figures = next(FIGURES[name] for name in (exact, *names, "H100") if name in FIGURES)
    if multiprocessors is not None and multiprocessors < 1:
        raise LanewiseError(f"a GPU has at least one multiprocessor, not {multiprocessors}")
    if memory_gib is not None and memory_gib <= 0:
        raise LanewiseError(f"the memory of a GPU is more than 0 GiB, not {memory_gib}")
    return Device(
        name=exact,
        arch=arch,
        multiprocessors=multiprocessors or figures.multiprocessors,
        memory_bytes=int((memory_gib or figures.memory_gib) * GIB),
        clock_khz=figures.clock * 1000,
        memory_clock_khz=figures.memory_clock * 1000,
        bus_bits=figures.bus_bits,
        l2_bytes=int(figures.l2_mib * MIB),
    )


def _plain(name: str) -> str:
    """Return a name in lower case without spaces."""
    return "".join(name.lower().replace("-", " ").replace("_", " ").split())


def _arch_by_target(name: str) -> str:
    """Return the target that a GPU of the table has for a name such as sm_90; an error if there is none."""
    if not name.lower().startswith(("sm_", "compute_")):
        hint = what_is_known(name)
        raise LanewiseError(
            f"no GPU is called {name!r}" + (f"; {hint}" if hint else "; H100, A100, RTX 4090 and B200 are")
        )
    number = arch_number(find_arch(name))
    arch = next((name for name in gpu_names() if arch_number(name) == number), None)
    if arch is None:
        raise LanewiseError(f"the table has no GPU with the target {name}")
    return arch
