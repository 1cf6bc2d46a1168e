"""The compute targets that PTX names, and the sets of them in which instructions are legal.

Knows nothing of instructions; the catalogue's rows name their targets in the notation read here.
"""

import re
from functools import cache

from lanewise.errors import LanewiseError

#: Every target the catalogue was probed on, oldest first.
#: A suffix `a` is arch-specific, `f` family-specific: neither is inherited by newer chips.
ARCHS: tuple[str, ...] = (
    "sm_70", "sm_72", "sm_75", "sm_80", "sm_86", "sm_87", "sm_88", "sm_89", "sm_90", "sm_90a",
    "sm_100", "sm_100a", "sm_100f", "sm_103", "sm_103a", "sm_110", "sm_110a", "sm_110f",
    "sm_120", "sm_120a", "sm_120f", "sm_121", "sm_121a",
)  # fmt: skip

_NAME = re.compile(r"(?:sm_|compute_)?(\d+)([af]?)")
#: A compute capability as people write it: `sm90`, `cc 8.6`, `9.0a`.
_CAPABILITY = re.compile(r"(?:sm|compute|cc)?[_ ]?(\d{1,2})\.?(\d)([af]?)")


def arch_number(arch: str) -> int:
    """The number of an arch, without its suffix.

    >>> arch_number("sm_90a")
    90
    """
    match = _NAME.fullmatch(arch) if isinstance(arch, str) else None
    if match is None:
        raise LanewiseError(f"{arch!r} is not an arch; write it as {', '.join(ARCHS[:4])}, … or {ARCHS[-1]}")
    return int(match.group(1))


def find_arch(arch: str) -> str:
    """The arch of that name; `90a`, `9.0a` and `SM_90a` are taken for `sm_90a`, so are GPUs by name.

    >>> find_arch("90a"), find_arch("H100"), find_arch("RTX 4090")
    ('sm_90a', 'sm_90a', 'sm_89')
    """
    if not isinstance(arch, str):
        raise LanewiseError(f"an arch is a name such as 'sm_90', not {arch!r}")
    match = _CAPABILITY.fullmatch(arch.strip().lower())
    name = f"sm_{''.join(match.groups())}" if match else arch
    if name in ARCHS:
        return name
    from lanewise.isa.gpu_models import arch_of_gpu, what_is_known  # few calls name a GPU

    gpu = arch_of_gpu(arch)
    if gpu is None:
        hint = "" if match else what_is_known(arch)
        known = f"known are {', '.join(ARCHS)}, and GPUs by name, such as H100 or RTX 4090"
        raise LanewiseError(f"unknown arch {arch!r}; {hint or known}")
    return gpu


@cache
def targets(notation: str) -> tuple[str, ...]:
    """The archs that a row's notation stands for.

    `sm_80+` is every target from 80 on; `sm_100a+` every arch- or family-specific one from 100 on;
    names separated by spaces stand for themselves.

    >>> targets("sm_120a+")
    ('sm_120a', 'sm_120f', 'sm_121a')
    """
    if not notation.endswith("+"):
        return tuple(notation.split())
    first = notation[:-1]
    specific = first[-1] in "af"
    return tuple(
        arch
        for arch in ARCHS
        if arch_number(arch) >= arch_number(first) and (not specific or arch[-1] in "af")
    )


def describe_targets(archs: tuple[str, ...]) -> str:
    """A set of archs in words, as short as it can be said exactly.

    >>> describe_targets(targets("sm_80+")), describe_targets(("sm_90a",))
    ('sm_80 and later', 'sm_90a only')
    """
    if not archs:
        return "no arch"
    if archs == targets(archs[0] + "+"):
        return f"{archs[0]} and later" if archs[0][-1] not in "af" else ", ".join(archs)
    return f"{archs[0]} only" if len(archs) == 1 else ", ".join(archs)
