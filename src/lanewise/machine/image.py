"""The images that a kernel is linked from: its own, and those of functions that all kernels share."""

from __future__ import annotations

from lanewise.arith import ir, machine_code
from lanewise.machine.code import SHARED
from lanewise.machine.frame import CODE_TABLE, RUN
from lanewise.machine.schedule import write_scheduler
from lanewise.machine.write import Writer


def images(writer: Writer, source: str) -> list[bytes]:
    """The kernel's own code, and what it shares with all others."""
    modules = writer.write(CODE_TABLE)
    found = {RUN: _shared(RUN, writer.checking, source)}
    waiting = [name for module in modules for name in module.undefined]
    while waiting:
        name = waiting.pop()
        if name in SHARED and name not in found:
            found[name] = _shared(name, writer.checking, source)
            waiting += _NEEDED[name]
    return [*machine_code.compile_quickly([str(module) for module in modules]), *found.values()]


#: Images of functions that all kernels share, and the other functions that they call.
_KEPT: dict[tuple[str, bool], bytes] = {}
_NEEDED: dict[str, list[str]] = {}


def _shared(name: str, checking: bool, source: str) -> bytes:
    """The image of a function that kernels share, compiled now if it never was."""
    if (name, checking) not in _KEPT:
        module = ir.Module(name)
        if name == RUN:
            write_scheduler(module, name, checking)
        else:
            SHARED[name](module, name)
        _NEEDED[name] = module.undefined
        key = f"machine {source} {name} {checking}"
        (image,) = machine_code.images(key, lambda: [machine_code.compile(str(module))])
        _KEPT[name, checking] = image
    return _KEPT[name, checking]
