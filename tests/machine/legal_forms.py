"""Which forms of instructions ptxas takes, and which of these the machine refuses."""

from __future__ import annotations

import re

from machine.forms import FIRST, module_of
from ptxas import assemble

#: Forms that the machine refuses, and why.
REFUSED = {
    r"tcgen05": "later",
    r"tensormap.*swizzle_atomicity": "no field that sm_90 has",
    r"istypep": "removed texture and surface references",
    r"sust\.p": "formatted access",
    r"txq\.(channel_order|filter_mode)": "it can be asked for",
    r"clusterlaunchcontrol": "cancels clusters",
    r"cp.*(gather4|scatter4|cp_mask|cta_group)": "needs sm_100",
    r"(st\.bulk|red\.async.*global)": "sm_100",
    r"multimem": "multicast",
}


def reason(form: str) -> str:
    return next((why for pattern, why in REFUSED.items() if re.match(pattern, form)), "")


def legal(given: list[str], target: str) -> list[str]:
    """Those that ptxas takes; it looks for some mistakes only where there are no others."""
    rest = given
    while True:
        wrong = {line - FIRST for line, _ in assemble(module_of(rest, target), target)}
        kept = [form for place, form in enumerate(rest) if place not in wrong]
        if len(kept) == len(rest):
            return kept
        rest = kept
