"""Matrix instructions: fragments to matrices and back by the catalogue's layouts, products by `arith`.

Registers are put side by side (the stage), a compiled function or Python computes, and the result goes back.
Also cp.async, which copies at once: what its groups allow.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.arith import ir
from lanewise.arith.simd import Pointer, Type, Value, f32, i64
from lanewise.isa import Instruction, Operand
from lanewise.machine import frame
from lanewise.machine.access import WRITE, Access
from lanewise.machine.code import U8, U32, U64, BlockCode, Record
from lanewise.machine.lanes import several
from lanewise.machine.narrow import round_to, widen
from lanewise.machine.products import SLOTS, TABLE_BYTES, compiled_product, stage_offsets
from lanewise.machine.resolve import Op, Place, Register, Resolved

U16 = Type("u", 16)


def instruction_of(op: Op) -> Instruction:
    """The catalogue's entry."""
    found = op.source.instruction()
    if found is None or found.family.startswith("wgmma"):
        raise op.unsupported()
    return found


def _whole_warp(code: BlockCode, op: Op) -> None:
    """All 32 lanes have to be there."""
    with code.when(code.bits(code.active(op)).differs(-1)):
        code.fault(9, op.site, code.constant(i64, 0), code.constant(i64, 0), 0)


def _guarded(code: BlockCode, op: Op) -> Value:
    """Whether any lane runs the instruction."""
    return code.bits(code.active(op)).differs(0)


def _table(code: BlockCode, name: str, numbers: Any) -> Pointer:
    """Numbers as a constant of the program."""
    existing = code.module.globals.get(name)
    if existing is None:
        kind = ir.ArrayType(ir.IntType(32), len(numbers))
        existing = ir.GlobalVariable(code.module, kind, name)
        existing.initializer = ir.Constant(kind, [int(number) for number in numbers])
        existing.global_constant = True
        existing.linkage = "internal"
    return Pointer(code, U32, code.builder.bitcast(existing, ir.IntType(8).as_pointer()))


def _scratch(code: BlockCode, op: Op, slot: str) -> Value:
    """An address that was prepared for this instruction."""
    table = code.block.get(frame.SCRATCH)
    return Record(code, table + op.site * TABLE_BYTES).get(SLOTS[slot])


def _stage_in(code: BlockCode, stage: Value, start: int, registers: tuple[Resolved, ...], bits: int) -> None:
    for number, register in enumerate(registers):
        if not isinstance(register, Register):
            raise TypeError(register)
        value = code.frame.get(register.offset, Type("u", register.bits), frame.LANES).to(Type("u", bits))
        Record(code, stage).pointer(start + number * bits * 4, Type("u", bits)).store(value)


def _stage_out(code: BlockCode, stage: Value, start: int, registers: tuple[Resolved, ...], bits: int) -> None:
    for number, register in enumerate(registers):
        value = Record(code, stage).get(start + number * bits * 4, Type("u", bits), frame.LANES)
        if isinstance(register, Register):
            code.frame.pointer(register.offset, Type("u", register.bits)).store(
                value.to(Type("u", register.bits))
            )


def _places(operand: Operand) -> Any:
    """For each element of the flattened matrix: the byte of the stage where its first holder has it."""
    size = operand.register_bits // 8
    step = operand.slot_bits // 8
    lane, register, slot = np.unravel_index(
        operand.scatter, (operand.threads, operand.registers, operand.slots)
    )
    return register * 32 * size + lane * size + slot * step


def _gathered(operand: Operand) -> Any:
    """For each lane, register and slot: the flat element that it holds."""
    return operand.gather


def multiply(code: BlockCode, op: Op) -> None:
    """mma and mma.sp."""
    instruction = instruction_of(op)
    with code.when(_guarded(code, op)):
        _whole_warp(code, op)
        _product(code, op, instruction)


def _product(code: BlockCode, op: Op, instruction: Instruction) -> None:
    offsets = stage_offsets(instruction)
    stage = _scratch(code, op, "stage")
    parts = [several(operand) for operand in op.operands]
    names = ["d", "a", "b", "c"]
    for name, registers in zip(names[1:], parts[1:4], strict=True):
        operand = instruction.operands[name]
        _stage_in(code, stage, offsets[name], registers, operand.register_bits)
    rest = list(op.operands[4:])
    for name in ("metadata", "scale_a", "scale_b"):
        if name in instruction.operands:
            word = rest.pop(0)
            selector = several(rest.pop(0))
            _stage_in(code, stage, offsets[name], (word,), 32)
            for place, number in enumerate(selector):
                value = code.lane_read(number, U32, code.constant(i64, 0))
                Record(code, stage).set(offsets[f"{name}.selector"] + 4 * place, value)
    fast = compiled_product(instruction, code.arch)
    function = _scratch(code, op, "function")
    pointer = code.builder.inttoptr(
        function.handle, ir.FunctionType(ir.VoidType(), [ir.IntType(64)]).as_pointer()
    )
    if fast is None:
        code.builder.call(pointer, [stage.handle])
        _check_failure(code, op, stage)
    else:
        _to_matrices(code, op, instruction, fast, stage, offsets)
        code.builder.call(pointer, [_scratch(code, op, "arguments").handle])
        _from_sums(code, op, instruction, fast, stage, offsets)
    _stage_out(code, stage, offsets["d"], parts[0], instruction.d.register_bits)


def _check_failure(code: BlockCode, op: Op, stage: Value) -> None:
    with code.when(Record(code, stage).get(0).differs(0)):
        code.fault(8, op.site, code.constant(i64, 0), code.constant(i64, 0), 0)


def _to_matrices(
    code: BlockCode, op: Op, instruction: Instruction, fast: Any, stage: Value, offsets: dict[str, int]
) -> None:
    key = instruction.text
    for name, permutation in (("a", fast.a_order), ("b", fast.b_order)):
        operand = instruction.operands[name]
        word = Type("u", operand.slot_bits)
        places = _places(operand)[permutation] + offsets[name]
        _move_table(
            code, f"{key} {name}", places, Record(code, stage), Record(code, _scratch(code, op, name)), word
        )
    operand = instruction.c
    places = _places(operand) + offsets["c"]
    rows = np.arange(instruction.m)[:, None] * fast.row + np.arange(instruction.n)[None, :]
    sources = _table(code, f"{key} c", places)
    targets = _table(code, f"{key} sums", rows.ravel() * 4)
    stage_record, sums = Record(code, stage), Record(code, _scratch(code, op, "sums"))
    with code.loop(len(places)) as number:
        source, target = sources.load(number).to(U64).to(i64), targets.load(number).to(U64).to(i64)
        if operand.format.name == "f32":
            sums.set(target, stage_record.get(source, U32))
        else:
            sums.set(target, widen(stage_record.get(source, U16), "f16").view(U32))


def _move_table(code: BlockCode, name: str, places: Any, source: Record, target: Record, word: Type) -> None:
    """target[i] = source at places[i]."""
    table = _table(code, name, places)
    with code.loop(len(places)) as number:
        value = source.get(table.load(number).to(U64).to(i64), word)
        target.pointer(0, word).store(value, number)


def _from_sums(
    code: BlockCode, op: Op, instruction: Instruction, fast: Any, stage: Value, offsets: dict[str, int]
) -> None:
    operand = instruction.d
    flat = _gathered(operand)  # lane, register, slot
    rows, columns = flat // instruction.n, flat % instruction.n
    by_register = (rows * fast.row + columns).transpose(1, 0, 2).ravel() * 4
    table = _table(code, f"{instruction.text} d", by_register)
    sums, record = Record(code, _scratch(code, op, "sums")), Record(code, stage)
    word = Type("u", operand.slot_bits)
    with code.loop(len(by_register)) as number:
        value = sums.get(table.load(number).to(U64).to(i64), U32)
        if operand.format.name == "f16":
            value = round_to(value.view(f32), "f16")
        record.pointer(offsets["d"], word).store(value.to(word), number)


# fragments from memory and back ---------------------------------------------------------------------------


def wmma(code: BlockCode, op: Op) -> None:
    """wmma.load, wmma.store, wmma.mma."""
    instruction = instruction_of(op)
    with code.when(_guarded(code, op)):
        _whole_warp(code, op)
        if instruction.family == "wmma.mma":
            _product(code, op, instruction)
        else:
            _fragment(code, op, instruction)


def _fragment(code: BlockCode, op: Op, instruction: Instruction) -> None:
    storing = instruction.family == "wmma.store"
    name = instruction.matrix
    operand = instruction.operands[name]
    place = op.operands[0] if storing else op.operands[1]
    registers = several(op.operands[1] if storing else op.operands[0])
    assert isinstance(place, Place)
    bits = operand.format.bits if operand.format.name != "tf32" else 32
    by_row = instruction.layouts[0] == "row"
    rows, columns = operand.shape
    flat = operand.gather
    row, column = flat // columns, flat % columns
    # What is narrower than a byte lies in memory as in the register: a word at a time.
    whole = bits < 8
    if whole:
        row, column = row[..., :1], column[..., :1]
    major, minor = (row, column) if by_row else (column, row)
    word = Type("u", 32 if whole else operand.slot_bits)
    slots = major.shape[-1]
    majors = _table(code, f"{instruction.text} major", major.ravel())
    minors = _table(code, f"{instruction.text} minor", minor.ravel())
    access = Access(
        code,
        op.site,
        (instruction.space or "generic").split("::")[0],
        word.bits // 8,
        word.bits // 8,
        WRITE if storing else 0,
    )
    stage = _scratch(code, op, "stage")
    record = Record(code, stage)
    size = operand.register_bits // 8
    if storing:
        _stage_in(code, stage, 64, registers, operand.register_bits)
    zero = code.constant(i64, 0)
    if instruction.stride:
        leading = code.lane_read(op.operands[-1], U32, zero).to(U64)
    else:
        leading = code.constant(U64, columns if by_row else rows)
    with code.loop(frame.LANES) as lane:
        base = code.address_of(place, lane)
        with code.loop(operand.registers * slots) as number:
            index = lane * (operand.registers * slots) + number
            element = majors.load(index).to(U64) * leading + minors.load(index).to(U64)
            address = base + ((element * bits) >> 3)
            host = Pointer(code, word, access.host(address, lane))
            register, slot = _split(code, number, slots)
            where = register * (size * 32) + lane * size + slot * (word.bits // 8) + 64
            if storing:
                code.builder.store(record.get(where, word).handle, host._typed(word), align=1)
            else:
                record.set(where, Value(code, word, code.builder.load(host._typed(word), align=1)))
    if not storing:
        _stage_out(code, stage, 64, registers, operand.register_bits)


def _split(code: BlockCode, number: Value, slots: int) -> tuple[Value, Value]:
    shift = slots.bit_length() - 1
    return number >> shift, number & (slots - 1)


def _rows(code: BlockCode, op: Op, instruction: Instruction, place: Place, storing: bool) -> None:
    """16-byte rows between memory and the stage; lane r gives row r's address."""
    space = (instruction.space or "generic").split("::")[0]
    access = Access(code, op.site, space, 16, 16, WRITE if storing else 0)
    record = Record(code, _scratch(code, op, "stage"))
    word = Type("u", 64)
    with code.loop(instruction.row_addresses.rows) as lane:
        host = Pointer(code, word, access.host(code.address_of(place, lane), lane))
        for half in range(2):
            where = lane * 16 + (64 + 8 * half)
            if storing:
                code.builder.store(record.get(where, word).handle, (host + half)._typed(word), align=1)
            else:
                record.set(where, Value(code, word, code.builder.load((host + half)._typed(word), align=1)))


def _image_places(operand: Operand) -> Any:
    """For each register, lane and slot: the byte of the rows' image that it holds."""
    flat = operand.gather.transpose(1, 0, 2)
    row, column = flat // operand.cols, flat % operand.cols
    return (row * 16 + column * (operand.slot_bits // 8)).ravel()


def load(code: BlockCode, op: Op) -> None:
    """ldmatrix."""
    instruction = instruction_of(op)
    if instruction.types != ("b16",):
        raise op.unsupported("of 8-bit elements")
    place = op.operands[1]
    assert isinstance(place, Place)
    with code.when(_guarded(code, op)):
        _whole_warp(code, op)
        _rows(code, op, instruction, place, storing=False)
        stage = _scratch(code, op, "stage")
        record = Record(code, stage)
        places = _image_places(instruction.d)
        out = 64 + 512
        pairs = places.reshape(-1, 2)
        if (pairs[:, 1] == pairs[:, 0] + 2).all():
            _move_table(
                code, f"{instruction.text} words", pairs[:, 0] + 64, record, Record(code, stage + out), U32
            )
        else:
            _move_table(
                code, f"{instruction.text} halves", places + 64, record, Record(code, stage + out), U16
            )
        _stage_out(code, stage, out, several(op.operands[0]), 32)


def store(code: BlockCode, op: Op) -> None:
    """stmatrix."""
    instruction = instruction_of(op)
    if instruction.types != ("b16",):
        raise op.unsupported("of 8-bit elements")
    place = op.operands[0]
    assert isinstance(place, Place)
    with code.when(_guarded(code, op)):
        _whole_warp(code, op)
        stage = _scratch(code, op, "stage")
        record = Record(code, stage)
        start = 64 + 512
        _stage_in(code, stage, start, several(op.operands[1]), 32)
        places = _image_places(instruction.a)
        inverse = np.argsort(places) * 2 + start
        _move_table(code, f"{instruction.text} halves", inverse, record, Record(code, stage + 64), U16)
        _rows(code, op, instruction, place, storing=True)


def transpose(code: BlockCode, op: Op) -> None:
    """movmatrix: an 8×8 matrix transposed."""
    instruction = instruction_of(op)
    with code.when(_guarded(code, op)):
        _whole_warp(code, op)
        stage = _scratch(code, op, "stage")
        _stage_in(code, stage, 64, several(op.operands[1]), 32)
        source, target = instruction.a.scatter, instruction.d.gather.transpose(1, 0, 2).ravel()
        row, column = target // 8, target % 8
        places = source[column * 8 + row] * 2 + 64
        _move_table(
            code, f"{instruction.text} halves", places, Record(code, stage), Record(code, stage + 640), U16
        )
        _stage_out(code, stage, 640, several(op.operands[0]), 32)


# asynchronous copies --------------------------------------------------------------------------------------


def copy_async(code: BlockCode, op: Op) -> None:
    """cp.async: at once. Committing and waiting are nothing then."""
    if not op.has("async") or any(each.startswith("bulk") or each == "mbarrier" for each in op.modifiers):
        raise op.unsupported()
    if any(op.has(each) for each in ("commit_group", "wait_group", "wait_all")):
        return
    target, source, size, *rest = op.operands
    if not isinstance(target, Place) or not isinstance(source, Place) or not hasattr(size, "bits"):
        raise op.unsupported("of these operands")
    count = int(size.bits)
    if count not in (4, 8, 16):
        raise op.unsupported("a copy is of 4, 8 or 16 bytes")
    to = Access(code, op.site, "shared", count, count, WRITE)
    word = Type("u", 32)
    with code.each_lane(code.bits(code.active(op))) as lane:
        host = Pointer(code, word, to.host(code.address_of(target, lane), lane))
        wanted = code.constant(U64, count)
        if rest and not isinstance(rest[0], Register | type(size)):
            raise op.unsupported("of these operands")
        if rest and isinstance(rest[0], Register) and rest[0].type == "pred":
            ignored = code.lane_read(rest[0], U8, lane)
            wanted = ignored.select(code.constant(U64, 0), wanted)
        elif rest:
            wanted = code.lane_read(rest[0], U32, lane).to(U64)
            wanted = (wanted > count).select(code.constant(U64, count), wanted)
        zero = code.constant(U8, 0)
        for place in range(count):
            Pointer(code, U8, host.handle).store(zero, place)
        with code.when(wanted.differs(0)):
            # What is not copied may lie outside: only the first `wanted` bytes are checked.
            last = Access(code, op.site, "global", 1, 1, 0)
            start = code.address_of(source, lane)
            with code.when((start & (count - 1)).differs(0)):
                code.fault(2, op.site, lane, start, count)
            first = Pointer(code, U8, last.host(start, lane))
            last.host(start + wanted - 1, lane)
            with code.loop(wanted.to(i64)) as byte:
                Pointer(code, U8, host.handle).store(first.load(byte), byte)
