"""Every form of an instruction that ptxas takes becomes code that LLVM takes, or is refused with a reason.

Forms that GPUs have from Blackwell on run on the targets that ptxas takes them for, and on no other.
"""

import re
from functools import cache

import pytest

from everything import sampled
from lanewise.machine import Unsupported
from lanewise.machine.codegen.function_code import Kernel
from lanewise.machine.compile.kernel_writer import KernelWriter
from lanewise.machine.program.basic_blocks import split
from lanewise.machine.program.resolve import resolve
from lanewise.ptx import parse
from lanewise.ptx.compatibility import instruction_version
from machine.forms import BLACKWELL, FIRST, forms, module_of
from machine.legal_forms import legal, reason
from ptxas import find_ptxas

TARGETS = ("sm_90a", "sm_100a")
#: Targets with other forms of Blackwell than sm_100a.
OTHER_TARGETS = ("sm_90a", "sm_100", "sm_100f", "sm_103a", "sm_110a", "sm_120a")
#: Of all forms, every so many is tried; of every opcode one at least.
STEP = 7


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


@cache
def forms_of_blackwell() -> list[str]:
    """The forms that ptxas takes for sm_100a and not for sm_90a; of those that differ in hints alone, one."""
    every = forms(BLACKWELL)
    before = set(legal(every, "sm_90a"))
    kinds = {re.sub(HINTS, "", form): form for form in legal(every, "sm_100a") if form not in before}
    return [form for form in kinds.values() if not reason(form)]


#: Modifiers that decide nothing about targets.
HINTS = r"\.(L[12]::\w+|relaxed|acquire|release|weak|volatile|mmio|gpu|sys|r[nzmp]|ftz|sat|NaN|abs|relu)\b"
#: Forms whose targets depend on the number that an operand is.
BY_NUMBER = r"tensormap\.replace\.tile\.(elemtype|swizzle_mode)"


@sampled(4)
@pytest.mark.parametrize("target", OTHER_TARGETS)
def test_forms_of_blackwell_run_where_ptxas_takes_them(target: str) -> None:
    if find_ptxas() is None:
        pytest.skip("no ptxas: pip install 'nvidia-cuda-nvcc==13.0.*'")
    every = [form for form in forms_of_blackwell() if not re.match(BY_NUMBER, form)]
    assert len(every) > 150
    taken = set(legal(every, target))
    for form in every:
        if form in taken:
            written([form], target)
        else:
            with pytest.raises(Unsupported, match=f"line {FIRST}: .* needs .*; this PTX is for {target}"):
                written([form], target)


def test_the_version_of_forms_of_blackwell_is_the_first_that_ptxas_takes() -> None:
    if find_ptxas() is None:
        pytest.skip("no ptxas: pip install 'nvidia-cuda-nvcc==13.0.*'")
    every = forms_of_blackwell()
    operations = parse(module_of(every, "sm_100a"))["e"].function.operations
    found = dict(zip(every, map(instruction_version, operations), strict=False))
    left = every
    for version in ("8.6", "8.7", "8.8", "9.0"):
        taken = set(legal(left, "sm_100a", version))
        assert {form: found[form] for form in taken} == dict.fromkeys(taken, version)
        left = [form for form in left if form not in taken]
    assert not left
