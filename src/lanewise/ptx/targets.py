"""PTX versions and targets by their names: how versions compare, and on which archs PTX for a target runs.

Which version a module needs for what it uses is in `compatibility.py`.
"""

import re

from lanewise.errors import LanewiseError
from lanewise.isa import arch_number, find_arch

_VERSION = re.compile(r"(^\s*\.version\s+)(\d+\.\d+)", re.MULTILINE)


def version_numbers(version: str) -> tuple[int, int]:
    """A PTX version as numbers that compare.

    >>> version_numbers("7.8") < version_numbers("8.0")
    True
    """
    major, _, minor = version.partition(".")
    if not (major.isdecimal() and minor.isdecimal()):
        raise LanewiseError(f"{version!r} is not a PTX version such as 8.0")
    return int(major), int(minor)


def with_version(text: str, version: str) -> str:
    """PTX text with another `.version`.

    >>> with_version(".version 9.4\\n.target sm_80", "9.0").splitlines()[0]
    '.version 9.0'
    """
    return _VERSION.sub(rf"\g<1>{version}", text, count=1)


def runs_on(target: str, arch: str) -> bool:
    """Whether PTX for a target runs on an arch: a newer one, or for `a` and `f` targets one of its kind.

    >>> [runs_on(target, "sm_90") for target in ("sm_80", "sm_90a", "sm_100")], runs_on("sm_90a", "sm_100")
    ([True, True, False], False)
    >>> runs_on("sm_100f", "sm_103"), runs_on("sm_100f", "sm_120")
    (True, False)
    """
    wanted, there = arch_number(target), arch_number(arch)
    if target.endswith("a"):
        return wanted == there
    if target.endswith("f"):
        return wanted <= there and wanted // 10 == there // 10
    return wanted <= there


def assembled_for(target: str, arch: str) -> str:
    """The arch to assemble PTX for, so that it runs on an arch: with a suffix where the target has one.

    >>> assembled_for("sm_80", "sm_90"), assembled_for("sm_90a", "sm_90")
    ('sm_90', 'sm_90a')
    """
    if not runs_on(target, arch):
        number = arch_number(target)
        if target.endswith("a"):
            only = f"compute capability {number // 10}.{number % 10} alone"
        else:
            only = f"{target} and later" + (" of its family" if target.endswith("f") else "")
        raise LanewiseError(
            f"this PTX is for {target}, which runs on {only}, not on {arch}: compile it for {find_arch(arch)}"
        )
    suffixed = target[-1] in "af"
    return f"sm_{arch_number(arch)}a" if suffixed else f"sm_{arch_number(arch)}"


def as_ascii(text: str) -> bytes:
    """PTX as ptxas and the driver read it: what is beyond ASCII, in comments and names of files, becomes `?`.

    >>> as_ascii("ret; // 8×8")
    b'ret; // 8?8'
    """
    return text.encode("ascii", "replace")
