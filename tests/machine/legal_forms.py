"""Which forms of instructions ptxas takes, and which of these the machine refuses."""

import re

from machine.forms import FIRST, module_of
from ptxas import assemble

#: Forms that the machine refuses, and why.
REFUSED = {
    r"istypep": "removed texture and surface references",
    r"sust\.p": "formatted access",
    r"txq\.(channel_order|filter_mode)": "it can be asked for",
    r"multimem": "multicast",
}


def reason(form: str) -> str:
    return next((why for pattern, why in REFUSED.items() if re.match(pattern, form)), "")


def legal(given: list[str], target: str, version: str = "9.0") -> list[str]:
    """Those that ptxas takes; it looks for some mistakes only where there are no others."""
    rest = given
    while True:
        wrong = {line - FIRST for line, _ in assemble(module_of(rest, target, version), target)}
        kept = [form for place, form in enumerate(rest) if place not in wrong]
        if len(kept) == len(rest):
            return kept
        rest = kept
