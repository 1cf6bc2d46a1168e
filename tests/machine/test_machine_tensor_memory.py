"""tcgen05.ld, st and their reductions against a model in NumPy that follows the text of the PTX ISA."""

import os
import re
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import sampled
from lanewise.isa.asynchronous.table import Row, archs_of, rows
from lanewise.jit.ir import Module
from lanewise.machine import KernelFault
from lanewise.machine.codegen.function_code import Kernel
from lanewise.machine.compile.kernel_writer import KernelWriter
from lanewise.machine.program.basic_blocks import split
from lanewise.machine.program.resolve import resolve
from machine.tensor_memory_kernels import (
    COLUMNS,
    dump,
    fill,
    global_to_registers,
    kernel,
    registers,
    registers_to_global,
    row_pointer,
)
from ptxas import assemble, find_ptxas

SEED = int(os.environ.get("LANEWISE_SEED", "20261116"))
#: Registers of a thread for one repetition (PTX ISA, table of .num and .shape).
REGISTERS = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}
NUMS = (1, 2, 4, 8, 16, 32, 64, 128)
CASES = [(shape, num) for shape, count in REGISTERS.items() for num in NUMS if count * num <= 128]


def place(shape: str, num: int, packed: bool, split: int, thread: int, register: int) -> tuple[int, int]:
    """The lane of the warp's partition and the column that a register of a thread holds.

    Written from the figures of the PTX ISA ("Matrix fragments for shape …"): in .16x256b a thread holds two
    neighbouring columns of row thread / 4, then of row thread / 4 + 8; in .16x128b one column of each; in
    .16x64b threads take turns between row thread / 4 and that row + 8.
    """
    width = 2 if packed else 1
    if shape == "32x32b":
        return thread, width * register
    if shape == "16x32bx2":
        return thread % 16, width * register + (split if thread >= 16 else 0)
    quad, within = thread // 4, thread % 4
    if shape == "16x64b":
        return quad + 8 * (within % 2), width * (2 * register + within // 2)
    if shape == "16x128b":
        return quad + 8 * (register % 2), width * (4 * (register // 2) + within)
    assert shape == "16x256b"
    row = quad + 8 * (register // 2 % 2)
    return row, width * (8 * (register // 4) + 2 * within + register % 2)


def operation(verb: str, shape: str, num: int, packed: bool, split: int, more: str = "b32") -> str:
    """A load to, or a store from, the registers %d at the address %r0."""
    count = REGISTERS[shape] * num
    pack = {"ld": ".pack::16b", "st": ".unpack::16b"}[verb] if packed else ""
    half = f", {split}" if shape == "16x32bx2" else ""
    head = f"    tcgen05.{verb}.sync.aligned.{shape}.x{num}{pack}.{more}"
    vector = registers("d", count)
    return f"{head} {vector}, [%r0]{half};" if verb == "ld" else f"{head} [%r0]{half}, {vector};"


def address(column: int, lane: int, names_partition: bool) -> str:
    """Code that leaves an address in %r0: a lane of the warp's own partition, with or without its number."""
    own = "shl.b32 %r1, %warp, 21;" if names_partition else "mov.u32 %r1, 0;"
    return f"    {own} add.u32 %r0, %taddr, %r1; add.u32 %r0, %r0, {(lane << 16) + column};\n"


def checked(text: str, target: str = "sm_100a") -> Any:
    """The kernel, after ptxas has taken its PTX."""
    if find_ptxas() is not None:
        assert assemble(text, target) == []
    return lw.load(text)["k"]


@sampled(20)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize(("shape", "num"), CASES, ids=lambda each: str(each))
def test_every_shape_loads_and_stores_what_the_figures_show(shape: str, num: int, packed: bool) -> None:
    rng = np.random.default_rng([SEED, *shape.encode(), num, packed])
    count = REGISTERS[shape] * num
    wide = max(place(shape, num, packed, 0, t, r)[1] for t in range(32) for r in range(count)) + 1 + packed
    halves = 2 if shape == "16x32bx2" else 1
    columns = max(COLUMNS, 1 << (wide * halves - 1).bit_length())
    split = int(rng.integers(wide, columns - wide + 1)) if halves == 2 else 0
    column = int(rng.integers(0, columns - wide - split + 1))
    lane = 0 if shape == "32x32b" else int(rng.choice([0, 16]))
    names_partition = bool(rng.integers(2))
    body = "\n".join(
        [
            fill("before", columns),
            address(column, lane, names_partition),
            operation("ld", shape, num, packed, split),
            "    tcgen05.wait::ld.sync.aligned;",
            row_pointer("%rd0", "loaded", count),
            registers_to_global("%rd0", "d", count),
            row_pointer("%rd0", "stored", count),
            global_to_registers("%rd0", "d", count),
            "    bar.sync 0;",
            operation("st", shape, num, packed, split),
            "    tcgen05.wait::st.sync.aligned;",
            dump("after", columns),
        ]
    )
    before = rng.integers(0, 1 << 32, (128, columns), dtype=np.uint32)
    stored = rng.integers(0, 1 << 32, (128, count), dtype=np.uint32)
    loaded, after = np.zeros((128, count), np.uint32), np.zeros_like(before)
    text = kernel(body, ("before", "loaded", "stored", "after"), columns=columns)
    run = checked(text)[1, 128]
    expected, changed = np.zeros_like(loaded), before.copy()
    for thread in range(128):
        for register in range(count):
            row, offset = place(shape, num, packed, split, thread % 32, register)
            row, at = thread // 32 * 32 + lane + row, column + offset
            if packed:
                expected[thread, register] = before[row, at] & 0xFFFF | before[row, at + 1] << 16
                changed[row, at] = stored[thread, register] & 0xFFFF
                changed[row, at + 1] = stored[thread, register] >> 16
            else:
                expected[thread, register] = before[row, at]
                changed[row, at] = stored[thread, register]
    for schedule in ("early", "late", int(rng.integers(1000))):
        run(before, loaded, stored, after, schedule=schedule)
        np.testing.assert_array_equal(loaded, expected)
        np.testing.assert_array_equal(after, changed)


# reductions -------------------------------------------------------------------------------------------------

REDUCTIONS = [
    (verb, f"{verb}{options}.{kind}")
    for verb in ("min", "max")
    for kind, choices in (("f32", ("", ".abs", ".NaN", ".abs.NaN")), ("u32", ("",)), ("s32", ("",)))
    for options in choices
]


def reduced(values: np.ndarray, verb: str, modifiers: str) -> np.ndarray:
    """The least or largest of each row of words: a number wins over NaN unless .NaN, and -0 < +0."""
    if modifiers.endswith("u32") or modifiers.endswith("s32"):
        typed = values.view(np.uint32 if modifiers.endswith("u32") else np.int32)
        return (typed.min(1) if verb == "min" else typed.max(1)).view(np.uint32)
    if ".abs" in modifiers:
        values = values & np.uint32(0x7FFFFFFF)
    floats = values.view(np.float32)
    # An order of bits in which -0 is less than +0.
    keys = np.where(values >> 31, -(values & 0x7FFFFFFF).astype(np.int64) - 1, values.astype(np.int64))
    nan = np.isnan(floats)
    worst = 1 << 40 if verb == "min" else -(1 << 40)
    keys = np.where(nan, worst, keys)
    best = keys.argmin(1) if verb == "min" else keys.argmax(1)
    found = values[np.arange(len(values)), best]
    none = nan.all(1) | (nan.any(1) if ".NaN" in modifiers else False)
    return np.where(none, np.uint32(0x7FFFFFFF), found)


@sampled(16)
@pytest.mark.parametrize("shape", ["32x32b", "16x32bx2"])
@pytest.mark.parametrize(("verb", "modifiers"), REDUCTIONS, ids=lambda each: each)
def test_reductions_leave_the_least_or_largest_word(shape: str, verb: str, modifiers: str) -> None:
    rng = np.random.default_rng([SEED, *modifiers.encode(), *shape.encode()])
    num = int(rng.choice(NUMS[1:6]))
    half = f", {num}" if shape == "16x32bx2" else ""
    body = "\n".join(
        [
            fill("before"),
            f"    tcgen05.ld.red.sync.aligned.{shape}.x{num}.{modifiers} "
            f"{registers('d', num)}, %r5, [%taddr]{half};",
            row_pointer("%rd0", "out", num + 1),
            "    tcgen05.wait::ld.sync.aligned;",
            "    st.global.u32 [%rd0], %r5;",
            registers_to_global("%rd0", "d", num, 1),
        ]
    )
    special = np.array([0, 0x80000000, 0x7FC00000, 0xFFC00001, 0x7F800000, 0xFF800000, 0x3F800000], np.uint32)
    before = rng.integers(0, 1 << 32, (128, COLUMNS), dtype=np.uint32)
    chosen = rng.integers(0, 2, before.shape).astype(bool)
    before[chosen] = rng.choice(special, before.shape)[chosen]
    before[5] = 0x7FC00000
    out = np.zeros((128, num + 1), np.uint32)
    text = kernel(body, ("before", "out"), target="sm_103a")
    checked(text, "sm_103a")[1, 128](before, out)
    words = np.array(
        [
            [
                before[warp * 32 + row, offset]
                for row, offset in (place(shape, num, False, num, t, r) for r in range(num))
            ]
            for warp in range(4)
            for t in range(32)
        ]
    )
    np.testing.assert_array_equal(out[:, 1:], words)
    np.testing.assert_array_equal(out[:, 0], reduced(words, verb, modifiers))


# faults -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("tcgen05.ld.sync.aligned.32x32b.x32.b32 {d32}, [%taddr+40];", "columns from 40 on.*not all alloc"),
        ("tcgen05.ld.sync.aligned.32x32b.x32.b32 {d32}, [%taddr+500];", "reaches column 531"),
        ("tcgen05.ld.sync.aligned.32x32b.x1.b32 {d1}, [%taddr+1048576];", "names lane 16, and this shape"),
        ("tcgen05.st.sync.aligned.16x64b.x1.b32 [%taddr+4194304], {d1};", "names lane 64, which this warp"),
        ("tcgen05.st.sync.aligned.16x32bx2.x1.b32 [%taddr], 300, {d1};", "columns from 300 on"),
        ("add.u32 %r0, %taddr, %tid0; tcgen05.ld.sync.aligned.32x32b.x1.b32 {d1}, [%r0];", "not the same in"),
        (
            "setp.lt.u32 %p1, %tid0, 7; @%p1 tcgen05.ld.sync.aligned.32x32b.x1.b32 {d1}, [%taddr];",
            "wait for the other lanes",
        ),
    ],
)
def test_addresses_that_a_warp_cannot_reach_are_faults(line: str, message: str) -> None:
    text = line.replace("{d32}", registers("d", 32)).replace("{d1}", registers("d", 1))
    with pytest.raises((KernelFault, lw.machine.Deadlock), match=message):
        lw.load(kernel("    mov.u32 %d0, 0;\n" + text))["k"][1, 128]()


def test_a_second_half_may_lie_before_the_first() -> None:
    """The columns to it are a signed constant."""
    body = fill("before") + "\n    add.u32 %r0, %taddr, 9;\n"
    body += "    tcgen05.ld.sync.aligned.16x32bx2.x2.b32 {%d0, %d1}, [%r0], -4;\n"
    body += row_pointer("%rd0", "out", 2) + "\n" + registers_to_global("%rd0", "d", 2)
    before = np.random.default_rng(SEED).integers(0, 1 << 32, (128, COLUMNS), dtype=np.uint32)
    out = np.zeros((128, 2), np.uint32)
    checked(kernel(body, ("before", "out")))[1, 128](before, out)
    first = before.reshape(4, 32, COLUMNS)[:, :16]
    expected = np.concatenate([first[:, :, 9:11], first[:, :, 5:7]], axis=1).reshape(128, 2)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "tcgen05.shift.cta_group::2.down [%taddr];",
            r"pair of blocks, and .* all have \.cta_group::1 or all",
        ),
        (
            "tcgen05.ld.red.sync.aligned.32x32b.x2.min.u32 {%d0, %d1}, %r0, [%taddr];",
            "needs sm_103a.*for sm_100a",
        ),
        ("tcgen05.ld.sync.aligned.32x32b.x2.b32 {%d0}, [%taddr];", "takes 2 registers of 32 bits"),
        ("tcgen05.ld.sync.aligned.16x256b.x64.b32 {%d0}, [%taddr];", r"Nearest legal form: .*16x64b\.x64"),
        ("tcgen05.ld.sync.aligned.16x32bx2.x1.b32 {%d0}, [%taddr];", "second half, as a constant"),
        ("tcgen05.ld.sync.aligned.8x32b.x1.b32 {%d0}, [%taddr];", "8x32b is no word of these instructions"),
        ("tcgen05.cp.cta_group::1.warpx4 [%taddr], %rd1;", "no form with these words"),
        ("tcgen05.commit.shift.cta_group::1.down [%taddr];", "no form with these words"),
    ],
)
def test_forms_that_do_not_exist_are_refused_with_their_line(line: str, message: str) -> None:
    with pytest.raises(lw.machine.Unsupported, match=message):
        lw.load(kernel("    " + line))["k"][1, 128]()


@pytest.mark.parametrize("target", ["sm_90a", "sm_100", "sm_120a"])
def test_targets_without_tensor_memory_are_refused(target: str) -> None:
    with pytest.raises(lw.machine.Unsupported, match=rf"needs sm_100.*this PTX is for {target}"):
        lw.load(kernel("", target=target))["k"][1, 128]()


# the sweep --------------------------------------------------------------------------------------------------


def statement(text: str, operands: str) -> str:
    """An instruction of the catalogue with operands that fit: as many registers as its shape takes."""
    words = text.split(".")
    count = next((REGISTERS[each] for each in words if each in REGISTERS), 1)
    count *= next((int(each[1:]) for each in words if re.fullmatch(r"x\d+", each)), 1)
    for name, given in (
        ("{registers}", registers("d", count)),
        ("[tensor address]", "[%taddr]"),
        ("tensor address", "%taddr"),
        ("half split offset", "128"),
        ("reduced", "%r5"),
        ("[shared address]", "[place]" if "shared::cta" in words else "[%rd0]"),
        ("columns", "32"),
        ("shared descriptor", "%rd1"),
        ("[mbarrier]", "[bars]" if "shared::cluster" in words else "[%rd0]"),
        ("mask of blocks", "%h0"),
    ):
        operands = operands.replace(name, given)
    return f"{text} {operands};"


FORMS = [
    (text, statement(text, row.operands), row)
    for row in rows()
    if row.family.startswith("tcgen05") and "mma" not in row.family
    for text in row.texts()
]


@sampled(40)
@pytest.mark.parametrize(("text", "line", "row"), FORMS, ids=[text for text, _, _ in FORMS])
def test_every_form_of_the_catalogue_becomes_code(text: str, line: str, row: Row) -> None:
    """LLVM takes the code of the kernel, and of all functions that it calls."""
    import llvmlite.binding as llvm

    target = archs_of(row)[0]
    module = lw.load(kernel("    " + line, target=target, group=2 if "cta_group::2" in text else 1))
    program = resolve(module, module["k"].function)
    waiting: list[Module] = []
    KernelWriter(Kernel(program, target), split(program), None, waiting.append).write("table")
    written: set[str] = set()
    for each in waiting:
        llvm.parse_assembly(str(each)).verify()
        for name, write in each.apart.items():
            if name not in written and "tcgen05" in name:
                written.add(name)
                inner = Module(name)
                write(inner, name)
                waiting.append(inner)
    assert written or "alloc" in text or "fence" in text or "wait::ld" in text
