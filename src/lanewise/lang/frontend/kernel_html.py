"""Kernels and modules as HTML, as notebooks show them: signature, resources, source and PTX."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from lanewise.errors import LanewiseError
from lanewise.lang.frontend.kernel import Kernel
from lanewise.ptx import Entry, Module
from lanewise.ptx.notebook_cells import notebook_cell

if TYPE_CHECKING:
    from lanewise.lang.frontend.parameters import Parameter
    from lanewise.ptx import Resources

_STYLE = """
.lanewise-kernel { font: 14px system-ui, sans-serif; color: #1a1a1a; background: #fff; padding: .8em 1em; }
.lanewise-kernel h2 { font: bold 15px ui-monospace, monospace; margin: 0 0 .5em; }
.lanewise-kernel table { border-collapse: collapse; margin: 0 0 .5em; background: none; }
.lanewise-kernel td { padding: .1em 1em .1em 0; text-align: left; vertical-align: top; background: none; }
.lanewise-kernel td:first-child { color: #666; }
.lanewise-kernel pre { font: 12px ui-monospace, monospace; color: #1a1a1a; background: #f6f6f6; }
.lanewise-kernel pre { margin: .3em 0; padding: .6em; overflow-x: auto; max-height: 30em; }
.lanewise-kernel summary { cursor: pointer; color: #0b5394; }
"""
#: PTX of more letters is not assembled only to be looked at: ptxas would take seconds.
_MOST_PTX = 300_000
#: Lines of a text that a notebook gets; a module of templates may have a hundred thousand.
_MOST_LINES = 2_000
#: Kernels of a module that are listed.
_MOST_ENTRIES = 30


def page(title: str, facts: Sequence[tuple[str, str]], texts: Sequence[tuple[str, str]]) -> str:
    """Return a part of a page: a title, facts with their names, and texts that open under their names.

    >>> "registers" in page("<k>", [("registers", "8")], [("PTX", ".version 8.0")])
    True
    """
    rows = "".join(f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in facts)
    parts = "".join(
        f"<details{'' if number else ' open'}><summary>{escape(name)}</summary>"
        f"<pre>{escape(_cut(text))}</pre></details>"
        for number, (name, text) in enumerate(texts)
    )
    return (
        f'<div class="lanewise-kernel"><style>{_STYLE}</style>\n<h2>{escape(title)}</h2>\n'
        f"<table>{rows}</table>\n{parts}</div>"
    )


def resource_facts(used: Callable[[], Resources], length: int) -> list[tuple[str, str]]:
    """Return what a kernel uses, in words; why that is not known, if ptxas cannot say it.

    `length` is the number of letters of the PTX, of which ptxas takes long for many.
    """
    if length > _MOST_PTX:
        return [("resources", "not assembled, because the PTX is long; kernel.resources(arch) does")]
    try:
        resources = used()
    except LanewiseError as error:
        return [("resources", str(error).partition("\n")[0])]
    spills = resources.spill_stores + resources.spill_loads
    return [
        ("registers", f"{resources.registers} a thread" + (f", {spills} bytes spilled" if spills else "")),
        ("shared memory", f"{resources.shared:,} bytes a block"),
        ("occupancy", str(resources.occupancy())),
    ]


def entry_page(entry: Entry) -> str:
    """Return a kernel of a module as a part of a page."""
    module = entry.module
    facts = [("PTX", f"{module.version} for {module.target}"), ("name in the PTX", entry.name)]
    facts += resource_facts(entry.resources, len(module.text))
    return page(entry.demangled, facts, [*_source(module), ("PTX of this kernel", str(entry.function))])


def module_page(module: Module) -> str:
    """Return a module as a part of a page: its kernels, its variables, its source and its PTX."""
    kernels = [module[name].demangled for name in list(module.entries)[:_MOST_ENTRIES]]
    facts = [("kernel", name) for name in kernels]
    if len(module.entries) > _MOST_ENTRIES:
        facts.append(("", f"and {len(module.entries) - _MOST_ENTRIES} more: module.entries"))
    if module.variables:
        facts.append(("variables", ", ".join(list(module.variables)[:_MOST_ENTRIES])))
    return page(
        f"PTX {module.version} for {module.target}",
        facts,
        [*_source(module), ("PTX", module.text or str(module))],
    )


def _source(module: Module) -> list[tuple[str, str]]:
    return [(module.cuda.name, module.cuda.text)] if module.cuda is not None else []


def _cut(text: str) -> str:
    """Return the first lines of a text, and how many there would be."""
    lines = text.splitlines()
    if len(lines) <= _MOST_LINES:
        return text
    return "\n".join([*lines[:_MOST_LINES], f"… {len(lines) - _MOST_LINES:,} more lines"])


def shown(what: object) -> str:
    """Return a kernel of the language, a kernel of a module or a module as a part of a page."""
    if isinstance(what, Kernel):
        return kernel_page(what)
    if isinstance(what, Entry):
        return entry_page(what)
    if isinstance(what, Module):
        return module_page(what)
    raise LanewiseError(f"a kernel or a module is shown, not {what!r}")


def kernel_page(kernel: Kernel) -> str:
    """Return a kernel as a part of a page; a mistake in it is shown in place of its PTX."""
    lines, first = inspect.getsourcelines(kernel.function)
    file = kernel.function.__code__.co_filename
    facts = [("defined in", f"{notebook_cell(file) or Path(file).name}, line {first}")]
    texts = [("source", "".join(lines))]
    title = kernel.name
    try:
        title = f"{kernel.name}({', '.join(map(_declared, kernel.signature))})"
        called = ", ".join(parameter.name for parameter in kernel.signature if not parameter.is_constexpr)
        facts.append(("launched by", f"{kernel.name}[grid, block]({called})"))
        module = kernel.module()
        facts.append(("PTX", f"{module.version} for {module.target}"))
        facts += resource_facts(kernel.resources, len(module.text))
        texts.append(("PTX", module.text))
    except LanewiseError as error:
        facts.append(("not traced", str(error)))
    return page(title, facts, texts)


def _declared(parameter: Parameter) -> str:
    """Return a parameter as it is declared: its name, its type, its default."""
    kind = "Constexpr" if parameter.is_constexpr else str(getattr(parameter.kind, "name", parameter.kind))
    kind = "i32" if kind == "s32" else kind  # as it is written
    default = "" if parameter.default is inspect.Parameter.empty else f" = {parameter.default!r}"
    return f"{parameter.name}: {kind}{default}"
