"""Every form of an instruction that ptxas takes becomes code that LLVM takes, or is refused with a reason."""

from __future__ import annotations

import re

import pytest

from everything import sampled
from lanewise.machine import Unsupported
from lanewise.machine.codegen.function_code import Kernel
from lanewise.machine.compile.kernel_writer import KernelWriter
from lanewise.machine.program.basic_blocks import split
from lanewise.machine.program.resolve import resolve
from lanewise.ptx import parse
from machine.forms import FIRST, forms, module_of
from ptxas import assemble, find_ptxas

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
TARGETS = ("sm_90a", "sm_100a")
#: Of all forms, every so many is tried; of every opcode one at least.
STEP = 7


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


def written(given: list[str], target: str) -> list[str]:
    """The IR of a kernel of these instructions."""
    module = parse(module_of(given, target))
    program = resolve(module, module["e"].function)
    texts: list[str] = []
    kernel = Kernel(program, target.rstrip("a"))
    KernelWriter(kernel, split(program), None, lambda each: texts.append(str(each))).write("table")
    return texts


@sampled(2)
@pytest.mark.parametrize("target", TARGETS)
def test_every_form_that_ptxas_takes_runs_or_is_refused(target: str, everything: bool) -> None:
    import llvmlite.binding as llvm

    if find_ptxas() is None:
        pytest.skip("no ptxas: pip install 'nvidia-cuda-nvcc==13.0.*'")
    every = forms()
    chosen = every if everything else [*every[::STEP], *{form.split(".")[0]: form for form in every}.values()]
    chosen = legal(list(dict.fromkeys(chosen)), target)
    assert len(chosen) > 500
    refused = [form for form in chosen if reason(form)]
    for form in refused:
        with pytest.raises(Unsupported, match=f"line {FIRST}: the machine cannot run .*{reason(form)}"):
            written([form], target)
    wanted = [form for form in chosen if not reason(form)]
    wrong = []
    for start in range(0, len(wanted), 100):
        some = wanted[start : start + 100]
        try:
            texts = written(some, target)
        except Unsupported as error:
            wrong.append(str(error))
            continue
        for text in texts:
            llvm.parse_assembly(text).verify()
    assert not wrong, "\n".join(wrong)
