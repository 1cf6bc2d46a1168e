"""Writing a module as PTX text that means the same. What one statement looks like, each says itself."""

from __future__ import annotations

from collections.abc import Iterator

from lanewise.ptx.module import Function, Module
from lanewise.ptx.statements import BlockEnd, BlockStart, Label
from lanewise.ptx.variables import Variable


def print_module(module: Module) -> str:
    """The PTX of a module."""
    target = ", ".join((module.target, *module.target_options))
    lines = [f".version {module.version}", f".target {target}"]
    lines += [f".address_size {module.address_size}", ""] if module.says_address_size else [""]
    for item in module.items:
        lines.append(str(item))
        if isinstance(item, Function):
            lines.append("")
    return "\n".join(lines) + "\n"


def print_function(function: Function) -> str:
    """The PTX of a function, or of its declaration."""
    return "\n".join((*_head(function), *(_body(function) if function.body is not None else (";",))))


def _head(function: Function) -> Iterator[str]:
    parts = [f".{function.linking}"] if function.linking else []
    parts.append(".entry" if function.is_entry else ".func")
    if function.attributes:
        parts.append(f".attribute({', '.join(map(str, function.attributes))})")
    if function.returns:
        parts.append(f"({', '.join(part.declaration for part in function.returns)})")
    parts.append(f"{function.name}(")
    yield " ".join(parts)
    yield from _listed(function.parameters)
    yield ")"
    yield from map(str, function.limits)


def _listed(parameters: tuple[Variable, ...]) -> Iterator[str]:
    for place, parameter in enumerate(parameters):
        yield f"\t{parameter.declaration}{',' if place + 1 < len(parameters) else ''}"


def _body(function: Function) -> Iterator[str]:
    yield "{"
    depth = 1
    for statement in function.body or ():
        depth -= isinstance(statement, BlockEnd)
        yield str(statement) if isinstance(statement, Label) else "\t" * min(depth, 8) + str(statement)
        depth += isinstance(statement, BlockStart)
    yield "}"
