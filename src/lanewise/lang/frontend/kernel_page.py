"""Kernels as notebooks show them: signature, place, resources, source and PTX."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING

from lanewise.errors import LanewiseError
from lanewise.lang.frontend.kernel import Kernel
from lanewise.lang.frontend.kernel_html import entry_page, module_page, page, resource_facts
from lanewise.ptx import Entry, Module
from lanewise.ptx.notebook_cells import notebook_cell

if TYPE_CHECKING:
    from lanewise.lang.frontend.parameters import Parameter


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
        title = f"{kernel.name}({', '.join(map(_declared, kernel.parameters))})"
        called = ", ".join(each.name for each in kernel.parameters if not each.is_constexpr)
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
