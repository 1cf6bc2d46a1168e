"""A module with one of its kernels alone, for tools that take whole modules."""

import re
from dataclasses import replace

from lanewise.ptx.model.function import Function
from lanewise.ptx.model.module import Module
from lanewise.ptx.model.variables import Variable


def one_kernel(module: Module, name: str) -> Module:
    """Return a module with one of its kernels, and of functions and variables those that it needs."""
    words = {id(item): set(re.findall(r"[\w$%]+", str(item))) for item in module.items}
    named = {item.name: item for item in module.items if isinstance(item, Function | Variable)}
    kept, waiting = {name}, [name]
    while waiting:
        used = words[id(named[waiting.pop()])] & named.keys()
        new = {name for name in used - kept if name not in module.entries}
        kept |= new
        waiting += sorted(new)
    items = [item for item in module.items if not isinstance(item, Function | Variable) or item.name in kept]
    return replace(module, items=items)
