"""The table of instructions: its records are consistent, complete, and alone say what an opcode does."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import lanewise as lw
from lanewise.machine import Unsupported
from lanewise.machine.compile.lowering import function_of
from lanewise.machine.program.instruction_record import (
    AccessKind,
    InstructionRecord,
    Level,
    MemoryAccess,
    Order,
    Proxy,
    Role,
    Size,
    Waits,
)
from lanewise.machine.program.instruction_table import (
    MOST_ROWS,
    TABLE,
    record_of,
    refused_instructions,
)
from lanewise.machine.program.memory_accesses import accesses
from lanewise.machine.program.resolve import resolve
from lanewise.ptx import parse
from machine.forms import forms
from machine.legal_forms import legal
from ptxas import find_ptxas

SOURCE = Path(__file__).parents[2] / "src" / "lanewise" / "machine"
#: Packages whose functions write the code of one opcode, or of few that they tell apart.
LOWERINGS = ("arithmetic", "warp_ops", "bulk_copies", "tensor_core", "tensor_memory", "textures")


@pytest.mark.parametrize("record", TABLE, ids=lambda record: record.pattern)
def test_functions_that_a_record_names_exist_and_take_what_they_are_given(record: InstructionRecord) -> None:
    if record.lowering:
        function = function_of(record.lowering)
        assert callable(function)
        assert len(inspect.signature(function).parameters) == 2
    if record.shared_step:
        step = function_of(record.shared_step)
        assert callable(step)
        assert len(inspect.signature(step).parameters) == 3
    if record.level is Level.LANE and not record.refused:
        assert record.lowering and not record.memory and record.waits is Waits.NOBODY


def test_every_form_that_ptxas_takes_has_a_record() -> None:
    missing = set()
    for form in forms():
        opcode, *modifiers = form.split()[0].rstrip(";").split(".")
        if record_of(opcode, tuple(modifiers)) is None:
            missing.add(opcode)
    assert not missing


def test_no_opcode_is_compared_outside_of_what_writes_its_code() -> None:
    """What an opcode reads, writes, waits for and counts is asked of its record."""
    compared = re.compile(r"opcode (==|!=|in|not in) ")
    found = [
        f"{path.relative_to(SOURCE)}:{number}"
        for path in SOURCE.rglob("*.py")
        if path.relative_to(SOURCE).parts[0] not in LOWERINGS
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if compared.search(line) and '"pragma"' not in line
    ]
    assert not found


def test_the_longest_pattern_counts_in_any_order() -> None:
    assert record_of("cp", ("async", "ca", "shared", "global")) is record_of("cp", ("global", "async"))
    group = record_of("cp", ("wait_group", "async"))
    assert group is not None and group.pattern == "cp.async.wait_group"
    bulk = record_of("cp", ("async", "bulk", "commit_group"))
    assert bulk is not None and bulk.orders is Order.BULK_COMMIT
    store = record_of("st", ("async", "mmio", "release", "global", "u32"))
    assert store is not None and store.pattern == "st.async"


def test_a_record_that_contradicts_itself_cannot_be_made() -> None:
    with pytest.raises(AssertionError, match="is no address"):
        InstructionRecord(
            "x", Level.WARP, (Role.USED,), memory=(MemoryAccess(AccessKind.READ, 0, Size.TYPE),)
        )
    with pytest.raises(AssertionError, match="refused, and yet"):
        InstructionRecord("x", lowering="arithmetic.bits:logic", refused="it is not known")


def test_rows_of_the_checker_follow_from_the_table() -> None:
    watched = [[each for each in record.memory if each.proxy is not Proxy.ASYNC] for record in TABLE]
    assert max(map(len, watched)) <= MOST_ROWS <= 3


PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out) {{
    .reg .b64 %rd<4>; .reg .b32 %r<4>; .shared .align 16 .b8 tile[256];
    {line}
    ret;
}}
"""


def resolved(line: str) -> object:
    module = parse(PTX.format(line=line))
    return resolve(module, module["k"].function).sites[0]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("add.u32 %r0, %r1;", r"line 7: .*it takes 3 operands, not 2"),
        ("setp.lt.u32 %r0;", r"it takes 3 to 4 operands, not 1"),
        ("mov.u32 %tid.x, %r0;", r"its operand 1 is not a register"),
        ("add.u32 %r0, %r1, [%rd0];", r"its operand 3 is not a value"),
        ("ld.global.u32 %r0, %rd0;", r"its operand 2 is not an address"),
        ("frobnicate.u32 %r0;", r"the machine cannot run 'frobnicate"),
    ],
)
def test_operands_are_held_to_their_roles(line: str, message: str) -> None:
    with pytest.raises(Unsupported, match=message):
        resolved(line)


def test_a_register_is_never_taken_for_a_number_of_bytes() -> None:
    """The size of a copy in a register was once read as the register's own width."""
    op = resolved("cp.async.ca.shared.global [%r0], [%rd0], %r1;")
    with pytest.raises(Unsupported, match="its number of bytes is not a constant"):
        accesses(op)  # type: ignore[arg-type]  # resolved: it is an Op


def test_the_documentation_lists_what_is_refused() -> None:
    text = (Path(__file__).parents[2] / "docs" / "machine.md").read_text()
    for pattern, reason in refused_instructions().items():
        assert f"`{pattern}`" in text, pattern
        assert reason in text, reason


@pytest.mark.parametrize("form", ["div.full.b128", "add.b128", "add.e2m3x2", "mul.lo.ue8m0x2", "rem.f32x2"])
def test_types_that_an_instruction_does_not_have_are_refused(form: str) -> None:
    """The processor has no instruction for some of them: what LLVM made of it once stopped the process."""
    kernel = lw.load(PTX.format(line=f"{form} %r0, %r1, %r2;"))["k"]
    with pytest.raises(Unsupported, match="line 7"):
        kernel[1, 1](np.zeros(1, np.uint32))


def test_instructions_are_held_to_the_gpus_that_have_them() -> None:
    """ptxas takes some form of a record on the first GPU that has it, and none on the one before."""
    if find_ptxas() is None:
        pytest.skip("no ptxas: pip install 'nvidia-cuda-nvcc==13.0.*'")
    by_record: dict[str, list[str]] = {}
    for form in forms():
        opcode, *modifiers = form.split()[0].rstrip(";").split(".")
        record = record_of(opcode, tuple(modifiers))
        if record is not None and record.since and not record.refused:
            by_record.setdefault(record.pattern, []).append(form)
    assert len(by_record) > 15
    sinces = {record.pattern: record.since for record in TABLE}
    for target, before in (("sm_80", "sm_75"), ("sm_90a", "sm_89"), ("sm_100a", "sm_90a")):
        number = int(re.findall(r"\d+", target)[0])
        chosen = {name: each for name, each in by_record.items() if sinces[name] == number}
        every = [form for each in chosen.values() for form in each[:40]]
        assert not legal(every, before)
        taken = set(legal(every, target))
        assert all(taken.intersection(each) for each in chosen.values())


def test_an_instruction_of_later_gpus_is_refused_with_its_line() -> None:
    text = PTX.format(line="stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r0], {%r1};")
    with pytest.raises(Unsupported, match=r"line 7: 'stmatrix.* needs sm_90; this PTX is for sm_80"):
        lw.load(text)["k"][1, 32](np.zeros(1, np.uint32))
