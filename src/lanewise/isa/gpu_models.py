"""Names of GPUs as people say them, the target that names all that each has, and figures of data sheets.

A generation stands for its target if it has one. Ampere has sm_80, sm_86 and sm_87, which do not have the
same instructions.
"""

import difflib
import re
from functools import cache
from typing import NamedTuple

#: By target. From sm_90 on there are instructions that only the arch-specific target (`a`) names, so the
#: name of a GPU stands for that target.
_GPUS = {
    "sm_70": "V100, TITAN V, GV100, Quadro GV100",
    "sm_72": "Xavier, AGX Xavier, Xavier NX",
    "sm_75": "T4, RTX 2060, RTX 2070, RTX 2080, RTX 2080 Ti, TITAN RTX, Quadro RTX 6000, Quadro RTX 8000",
    "sm_80": "A100, A800, A30",
    "sm_86": "A40, A10, A10G, A16, A2, RTX 3050, RTX 3060, RTX 3060 Ti, RTX 3070, RTX 3070 Ti, RTX 3080, "
    "RTX 3080 Ti, RTX 3090, RTX 3090 Ti, RTX A2000, RTX A4000, RTX A4500, RTX A5000, RTX A5500, RTX A6000",
    "sm_87": "Orin, AGX Orin, Orin NX, Orin Nano",
    "sm_89": "L4, L40, L40S, L20, L2, RTX 4050, RTX 4060, RTX 4060 Ti, RTX 4070, RTX 4070 Ti, RTX 4080, "
    "RTX 4090, RTX 4000 Ada, RTX 5000 Ada, RTX 6000 Ada",
    "sm_90a": "H100, H200, H800, H20, GH200",
    "sm_100a": "B200, B100, GB200",
    "sm_103a": "B300, GB300",
    "sm_110a": "Thor, AGX Thor",
    "sm_120a": "RTX 5050, RTX 5060, RTX 5060 Ti, RTX 5070, RTX 5070 Ti, RTX 5080, RTX 5090, RTX PRO 6000, "
    "RTX PRO 5000, RTX PRO 4000",
    "sm_121a": "GB10, DGX Spark, Spark",
}
#: Generations whose GPUs all have one target, and those that have several, with a GPU of each.
_GENERATIONS = {
    "hopper": ("sm_90a",),
    "ada": ("sm_89",),
    "ada lovelace": ("sm_89",),
    "lovelace": ("sm_89",),
    "turing": ("sm_75",),
    "volta": ("sm_70", "sm_72"),
    "ampere": ("sm_80", "sm_86", "sm_87"),
    "blackwell": ("sm_100a", "sm_103a", "sm_110a", "sm_120a", "sm_121a"),
}
#: GPUs without Tensor Cores.
_WITHOUT = re.compile(r"(?:gtx|[kmp]\d{1,3}|titanxp?|titanx|quadro[kmp])\w*")
#: What stands before or behind a GPU's name without changing which it is.
_AROUND = re.compile(
    r"\b(?:nvidia|tesla|geforce|jetson|tensor core|gpu|generation|laptop|super"
    r"|sxm\d?|pcie|nvl|hbm\d?e?|\d+ ?gb)\b"
)


def _plain(name: str) -> str:
    """Return a name in lower case without what does not matter, and without spaces: `rtx4090`."""
    return re.sub(r"[\s_-]", "", _AROUND.sub(" ", name.lower().replace("-", " ").replace("_", " ")))


@cache
def _known() -> dict[str, str]:
    """Return the target of each name."""
    names = {_plain(name): arch for arch, names in _GPUS.items() for name in names.split(", ")}
    short = {name.removeprefix("rtx"): arch for name, arch in names.items() if name.startswith("rtxa")}
    return {**short, **names}  # people say A6000 of the RTX A6000


def gpu_names() -> dict[str, tuple[str, ...]]:
    """Return the names of the GPUs that are known, by their target.

    >>> gpu_names()["sm_80"]
    ('A100', 'A800', 'A30')
    """
    return {arch: tuple(names.split(", ")) for arch, names in _GPUS.items()}


def arch_of_gpu(name: str) -> str | None:
    """Return the target of a GPU by its name; None if it is not known.

    >>> arch_of_gpu("NVIDIA H100 PCIe"), arch_of_gpu("rtx-4090"), arch_of_gpu("sm_90")
    ('sm_90a', 'sm_89', None)
    """
    archs = _known().get(_plain(name)) or _GENERATIONS.get(name.strip().lower(), ())
    return archs if isinstance(archs, str) else archs[0] if len(archs) == 1 else None


def what_is_known(name: str) -> str:
    """Return what can be said of a name that no GPU has, as the end of a message.

    >>> what_is_known("Ampere")
    'Ampere is sm_80 (A100), sm_86 (A40) and sm_87 (Orin); name one of them'
    """
    several = _GENERATIONS.get(name.strip().lower())
    if several is not None:
        archs = [f"{arch} ({_GPUS[arch].partition(',')[0]})" for arch in several]
        return f"{name.strip()} is {', '.join(archs[:-1])} and {archs[-1]}; name one of them"
    if _WITHOUT.fullmatch(_plain(name)):
        return f"{name.strip()} has no Tensor Cores; lanewise knows GPUs from the V100 (sm_70) on"
    names = {_plain(word): word for gpus in _GPUS.values() for word in gpus.split(", ")}
    near = difflib.get_close_matches(_plain(name), names, n=1, cutoff=0.7)
    return f"did you mean {names[near[0]]}?" if near else ""


class GpuFigures(NamedTuple):
    """What a data sheet says of one GPU."""

    multiprocessors: int
    memory_gib: int
    #: Of the multiprocessors, in MHz.
    clock: int
    #: Of the memory, in MHz, and how many bits its bus has.
    memory_clock: int
    bus_bits: int
    l2_mib: float


#: By the name that `gpu_models.py` has for a GPU.
FIGURES = {
    "V100": GpuFigures(80, 32, 1530, 877, 4096, 6),
    "Xavier": GpuFigures(8, 32, 1377, 2133, 256, 0.5),
    "T4": GpuFigures(40, 16, 1590, 5001, 256, 4),
    "A100": GpuFigures(108, 80, 1410, 1593, 5120, 40),
    "A30": GpuFigures(56, 24, 1440, 1215, 3072, 24),
    "A40": GpuFigures(84, 48, 1740, 7251, 384, 6),
    "A10": GpuFigures(72, 24, 1695, 6251, 384, 6),
    "RTX 3090": GpuFigures(82, 24, 1695, 9751, 384, 6),
    "RTX A6000": GpuFigures(84, 48, 1800, 8001, 384, 6),
    "Orin": GpuFigures(16, 64, 1300, 3200, 256, 4),
    "L4": GpuFigures(58, 24, 2040, 6251, 192, 48),
    "L40S": GpuFigures(142, 48, 2520, 9001, 384, 96),
    "RTX 4090": GpuFigures(128, 24, 2520, 10501, 384, 72),
    "H100": GpuFigures(132, 80, 1980, 2619, 5120, 50),
    "H200": GpuFigures(132, 141, 1980, 3201, 6144, 50),
    "H20": GpuFigures(78, 96, 1980, 2619, 6144, 60),
    "B200": GpuFigures(148, 180, 1965, 3996, 8192, 126),
    "B300": GpuFigures(148, 268, 1965, 3996, 8192, 126),
    "Thor": GpuFigures(20, 128, 1575, 4266, 256, 32),
    "RTX 5090": GpuFigures(170, 32, 2407, 14001, 512, 96),
    "GB10": GpuFigures(48, 128, 2418, 4266, 256, 24),
}
