"""One matrix instruction with a truncated fused sum: from the registers of a warp to the registers of a warp.

Ordinary numbers go the short way of this file; where an infinity, a NaN or an extreme exponent turns up, the
block of K goes the ways of `lanewise.arith`, which have the same bits.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Literal

import numpy as np

from lanewise.arith.decoding import decode, power_of_two, raw_type
from lanewise.arith.fused_engine import in_k_order, plan_for
from lanewise.arith.fused_kernel import add_parts, quieten, write_block
from lanewise.arith.fused_narrow import (
    BIAS,
    FLOOR,
    HIGHEST,
    LOWEST,
    ZERO,
    add_products,
    exponents,
    in_halves,
    nearest_half,
    rounded_sum,
)
from lanewise.arith.fused_tiles import Block, PackedRows, Plan, Room, Tile
from lanewise.arith.models import FusedSum, Model
from lanewise.arith.on_arrays import carries_d
from lanewise.formats import Format
from lanewise.isa import Instruction, Operand
from lanewise.jit import ir, machine_code
from lanewise.jit.simd import Pointer, Type, Value, f32, i8, i32, i64, u8, u16, u32
from lanewise.machine.codegen.register_shuffles import (
    VECTOR,
    Registers,
    held_places,
    holding,
    index_bits,
    permuted,
    shuffled,
    widest_shuffle,
)
from lanewise.machine.tensor_core.mma_function import (
    FLOAT16,
    ProductCode,
    half_numbers,
    half_words,
    operand_registers,
)


@dataclass(frozen=True)
class Orders:
    """The index bits that bring each operand's elements into the order that the sums are computed in.

    The columns of the right factor lie in the lanes of a vector. D of m16n8 has 16 rows but 8 columns, so
    where vectors have 16 lanes only the transpose Dᵀ = Bᵀ·Aᵀ fills them. A sum has the same bits either way.

    `left` is [block][row][k], `right` is [block][k][column], `c` is [row][column]; `d` goes back from there
    to the registers of D.
    """

    left: tuple[int, ...]
    right: tuple[int, ...]
    c: tuple[int, ...]
    d: tuple[int, ...]

    def allow(self, vector_bits: int, instruction: Instruction) -> bool:
        """Whether every element of a vector is another one, as shuffles need it."""
        operands = (instruction.a, instruction.b, instruction.c, instruction.d)
        lanes = vector_bits // min(operand.slot_bits for operand in operands)
        every = (self.left, self.right, self.c, self.d)
        return all(min(bits[: lanes.bit_length() - 1]) >= 0 for bits in every)


@dataclass(frozen=True)
class Factors:
    """The two factors of the product that is computed, by the operands' names, and how it is cut up.

    `rows` and `columns` are those of the product; the model in the plan has the left factor as its A.
    """

    left: Literal["a", "b"]
    right: Literal["a", "b"]
    rows: int
    columns: int
    plan: Plan

    @property
    def transposed(self) -> bool:
        """Whether the transpose of D is computed."""
        return self.left == "b"


def factors_of(instruction: Instruction, model: Model) -> Factors:
    """Which factor is the left one, and the plan of that product."""
    m, n = instruction.m, instruction.n
    plan, turned = plan_for(model, n), plan_for(replace(model, a=model.b, b=model.a), m)
    if turned.lanes > plan.lanes:
        return Factors("b", "a", n, m, replace(turned, strip=m))
    return Factors("a", "b", m, n, replace(plan, strip=n))


def orders(instruction: Instruction, factors: Factors) -> Orders | None:
    """The shuffles of a product's operands; None where the layouts do not allow them."""
    m, n, k = instruction.m, instruction.n, instruction.a.cols
    order = in_k_order(factors.plan.model, np.arange(k), axis=0)
    a, b, c = np.arange(m * k).reshape(m, k), np.arange(k * n).reshape(k, n), np.arange(m * n).reshape(m, n)
    left, right = (b.T, a.T) if factors.transposed else (a, b)
    blocks = left[:, order].reshape(factors.rows, -1, factors.plan.length)
    flat = {
        factors.left: blocks.swapaxes(0, 1).ravel(),
        factors.right: right[order].ravel(),
        "c": (c.T if factors.transposed else c).ravel(),
    }
    bits_of = {name: index_bits(held_places(instruction.operands[name])[flat[name]]) for name in flat}
    d = index_bits(np.argsort(flat["c"])[holding(instruction.d)])
    if d is None or any(bits is None for bits in bits_of.values()):
        return None
    return Orders(bits_of[factors.left] or (), bits_of[factors.right] or (), bits_of["c"] or (), d)


#: The bits of an infinite f32, which are those of its exponent.
INFINITY = 0x7F800000


@dataclass(frozen=True)
class Numbers:
    """A factor decoded: its numbers as f32, their exponents, and whether some do not fit the short way."""

    values: Pointer
    exponents: Pointer
    unfit: Value


class FusedProduct:
    """Writes `product(frame, places)`: the registers' offsets lie at `places`, those of D, A, B, C.

    What `arith` calls A and B here are the left and the right factor: those of the transposed product are
    B and A of the instruction.
    """

    def __init__(self, module: ir.Module, instruction: Instruction, factors: Factors, order: Orders) -> None:
        self.instruction, self.factors, self.order = instruction, factors, order
        self.plan = factors.plan
        self.code = ProductCode(module, "product")
        self.rows, self.columns, self.k = factors.rows, factors.columns, instruction.a.cols
        self.blocks = self.k // self.plan.length
        widest = widest_shuffle()
        self.vector_bits = widest if order.allow(widest, instruction) else VECTOR

    def write(self) -> None:
        """Write the whole function: operands in, blocks of K, results out."""
        code, plan = self.code, self.plan
        registers = operand_registers(code, self.instruction)
        elements = self.rows * self.columns
        model, operands = plan.model, self.instruction.operands
        left, right = (
            self._unpack(registers[name], operands[name], order, emin)
            for name, order, emin in (
                (self.factors.left, self.order.left, model.emin("a")),
                (self.factors.right, self.order.right, model.emin("b")),
            )
        )
        self.sums = Tile(code.room(f32, elements), code.constant(i64, self.columns))
        two_sums = code.room(i32, elements), code.room(i32, elements)
        self.room = Room(code.room(f32, elements), *two_sums, code.room(u8, self.rows))
        self.part = Tile(code.room(f32, elements), code.constant(i64, self.columns))
        left_flags = code.room(u8, self.rows)
        self._sums_in(registers["c"])
        rows = code.constant(i64, self.rows)
        last = plan.scheme.c_enters == "last"
        if last:
            quieten(code, plan, rows, self.sums)
        places: list[tuple[Tile | None, Tile]] = (
            [(None, self.part), (self.part, self.part)] if last else [(self.sums, self.sums)]
        )
        with code.loop(self.blocks // len(places)) as step:
            for number, (before, after) in enumerate(places):
                block = step * len(places) + number
                of_left, of_right = block * (self.rows * plan.length), block * (plan.length * self.columns)
                work = Block(
                    rows=rows,
                    a=PackedRows(
                        left.values + of_left, left.exponents + of_left, left_flags, code.constant(i64, 1)
                    ),
                    number=code.constant(i64, 0),
                    first_column=code.constant(i64, 0),
                    b_values=right.values + of_right,
                    b_exponents=right.exponents + of_right,
                    b_flag=right.unfit.to(u8),
                    room=self.room,
                    before=before,
                    after=after,
                )
                self._block(work, left.unfit | right.unfit)
            if last:
                add_parts(code, plan, rows, self.sums, self.part)
        self._sums_out(registers["d"])
        code.give(0)

    # operands -----------------------------------------------------------------------------------------------

    def _unpack(self, registers: Registers, operand: Operand, order: tuple[int, ...], emin: int) -> Numbers:
        """Decode an operand, its elements in order."""
        code, fmt = self.code, operand.format
        words = registers.load(Type("u", operand.slot_bits), self.vector_bits)
        vectors = permuted(code, words, order)
        if operand.shift or operand.slot_bits > fmt.word_bits:
            vectors = [(vector >> operand.shift).to(raw_type(fmt)) for vector in vectors]
        if fmt.bits < fmt.word_bits and fmt.bits < 19:
            vectors = [vector & ((1 << fmt.bits) - 1) for vector in vectors]
        lanes = vectors[0].type.lanes
        count = lanes * len(vectors)
        values, exps = code.room(f32, count), code.room(i8, count)
        if fmt.bits == 16 and emin == fmt.emin:
            return Numbers(values, exps, self._unpack_words(vectors, fmt, values, exps))
        raw = code.room(vectors[0].type.by(1), count)
        for number, vector in enumerate(vectors):
            raw.store(vector, number * lanes)
        unfit = code.variable(code.constant(u8, 0))
        together = machine_code.lanes_of(32)
        with code.loop(count // together) as group:
            decoded = decode(raw.load(group * together, together), fmt)
            exponent, outside = exponents(decoded, fmt, emin)
            values.store(decoded, group * together)
            exps.store(exponent, group * together)
            unfit.set(unfit.get() | outside.to(u8))
        return Numbers(values, exps, unfit.get().differs(0))

    def _unpack_words(self, vectors: list[Value], fmt: Format, values: Pointer, exps: Pointer) -> Value:
        """16-bit formats: exponents by 16-bit arithmetic; returns whether some numbers do not fit."""
        code = self.code
        lanes = vectors[0].type.lanes
        lowest, highest = (-1, -1) if fmt.exponent_bits < 8 else (LOWEST, HIGHEST)
        smallest = code.constant(u16.by(lanes), -1)
        largest = code.constant(u16.by(lanes), 0)
        for number, raw in enumerate(vectors):
            magnitude = raw << 1
            exponent = (magnitude >> (fmt.mantissa_bits + 1)).max(1) - fmt.bias
            if fmt.exponent_bits == 8:
                exponent = (magnitude >> (fmt.mantissa_bits + 1)) - fmt.bias
                # Zeros wrap around to the largest.
                smallest = _least(smallest, magnitude - 1)
            largest = largest.max(magnitude)
            exponent = magnitude.equals(0).select(code.constant(u16.by(lanes), ZERO), exponent)
            exps.store(exponent.to(Type("i", 8)), number * lanes)
            values.store(_numbers(raw, fmt), number * lanes)
        if fmt.exponent_bits < 8:
            top = ((1 << fmt.exponent_bits) - 1) << (fmt.mantissa_bits + 1)
            return (largest > top - 1).any()
        shift = fmt.mantissa_bits + 1
        beyond = largest > ((highest + 1 + fmt.bias) << shift) - 1
        return (beyond | (smallest < (((lowest + fmt.bias) << shift) - 1))).any()

    def _sums_in(self, registers: Registers) -> None:
        """Read the registers of C into the sums, as f32."""
        operand = self.instruction.c
        word = Type("u", operand.slot_bits)
        vectors = permuted(self.code, registers.load(word, self.vector_bits), self.order.c)
        for number, vector in enumerate(vectors):
            value = vector.view(f32) if word.bits == 32 else half_numbers(vector)
            self.sums.first.store(value, number * vector.type.lanes)

    def _sums_out(self, registers: Registers) -> None:
        """Write the sums, which are f32, to the registers of D."""
        operand = self.instruction.d
        lanes = self.vector_bits // operand.slot_bits
        words = []
        for place in range(0, self.rows * self.columns, lanes):
            value = self.sums.first.load(place, lanes)
            words.append(value.view(u32) if operand.slot_bits == 32 else half_words(value))
        registers.store(permuted(self.code, words, self.order.d))

    # sums ---------------------------------------------------------------------------------------------------

    def _block(self, work: Block, unfit: Value) -> None:
        """One block of K: the short way if everything fits."""
        code, plan, flags = self.code, self.plan, work.a.flags
        if not plan.narrow:
            flags.store(code.constant(u8.by(self.rows), 0))
            write_block(code, plan, work, None)
            return
        unfit = unfit | self._scales(work)
        with code.builder.if_else(unfit.handle) as (otherwise, short):
            with short:
                self.room.unfit.store(code.constant(u8.by(self.rows), 0))
                for column in range(0, plan.strip, plan.lanes):
                    add_products(code, plan, work, column)
                self._round(work)
            with otherwise:
                with code.loop(self.rows) as row:
                    flag = code.variable(code.constant(u8, 0))
                    with code.loop(plan.length) as k:
                        value = work.a.values.load(row * plan.length + k)
                        bad = exponents(value, plan.model.a, plan.model.emin("a"))[1]
                        flag.set(flag.get() | bad.to(u8))
                    flags.store(flag.get(), row)
                write_block(code, plan, work, None)

    def _scales(self, work: Block) -> Value:
        """2^(fraction - e_max) of every element; returns whether some C does not fit.

        Exponents of products are bytes. Those of C are powers of two in f32, which processors compare in more
        of their units than integers.
        """
        code, plan, columns = self.code, self.plan, self.columns
        together = max(1, self.vector_bits // 8 // columns)
        width = columns * together
        b = []
        for k in range(plan.length):
            row = work.b_exponents.load(k * columns, columns)
            b.append(row if together == 1 else shuffled(code, row, None, tuple(range(columns)) * together))
        floor = max(plan.scheme.e_zero, FLOOR) if plan.half else FLOOR
        smallest = code.variable(code.constant(u32.by(plan.lanes), -1))
        largest = code.variable(code.constant(f32.by(plan.lanes), 0.0))
        with code.loop(self.rows // together) as group:
            a = work.a.exponents.load(group * (together * plan.length), together * plan.length)
            exponents = []
            for k in range(plan.length):
                mask = tuple(row * plan.length + k for row in range(together) for _ in range(columns))
                exponents.append(shuffled(code, a, None, mask).saturating_add(b[k]))
            tops = (reduce(Value.max, exponents).max(floor) + BIAS).view(u8)
            for start in range(0, width, plan.lanes):
                place = group * width + start
                power = power_of_two(tops.part(start, plan.lanes).to(u32).view(i32))
                if work.before is not None:
                    c = work.before.first.load(place, plan.lanes).view(u32)
                    power_of_c = (c & INFINITY).view(f32)
                    largest.set(_greater(largest.get(), power_of_c))
                    if plan.half:  # subnormal numbers count like the smallest normal one, a zero does not
                        least = 2.0**plan.sum_emin
                        power_of_c = _greater(power_of_c, _smaller(power_of_c * 2.0**10, least))
                    else:
                        smallest.set(_least(smallest.get(), (c & 0x7FFFFFFF) - 1))
                    power = _greater(power, power_of_c)
                scale = ((2 * BIAS + plan.scheme.fraction) << 23) - power.view(i32)
                self.room.scales.store(scale.view(f32), place)
        unfit = largest.get().view(u32).equals(INFINITY)
        if not plan.half:
            unfit = unfit | (smallest.get() < (((BIAS + floor) << 23) - 1))
        return unfit.any()

    def _round(self, work: Block) -> None:
        """The sums of a block, rounded, to where its results go."""
        code, plan = self.code, self.plan
        with code.loop(self.rows * self.columns // plan.lanes) as vector:
            place = vector * plan.lanes
            unit = ((2 * BIAS) << 23) - self.room.scales.load(place, plan.lanes).view(i32)
            work.after.first.store(self._rounded(work, place, unit.view(f32)), place)

    def _rounded(self, work: Block, place: Value, unit: Value) -> Value:
        plan = self.plan
        if plan.bound < 1 << 24 or in_halves(plan):
            return rounded_sum(plan, work, place, unit)
        total = self.room.sums.load(place, plan.lanes)
        if plan.half:
            return self._nearest(total, unit)
        number = total.to(f32)  # to nearest; one step back where that was away from zero
        back = number.to(i32)
        size = [
            self.code.intrinsic("abs", i32.by(plan.lanes), [value, self._false]) for value in (back, total)
        ]
        bits = number.view(i32) + (size[0] > size[1]).mask(back.type)
        return bits.view(f32) * unit

    @property
    def _false(self) -> Value:
        return self.code.constant(Type("u", 1), 0)

    def _nearest(self, total: Value, unit: Value) -> Value:
        """An exact sum of int32 to the nearest f16."""
        code, plan = self.code, self.plan
        # Beyond 24 bits f32 has no room: the last bits become a sticky one, far below what f16 keeps.
        excess = int(np.ceil(np.log2(plan.bound))) - 23
        low = (total & ((1 << excess) - 1)).differs(0).mask(total.type) & (1 << excess)
        sticky = (total & -(1 << excess)) | low
        size = code.intrinsic("abs", i32.by(plan.lanes), [total, self._false])
        number = (size > (1 << 24)).select(sticky, total).to(f32) * unit
        if plan.scheme.underflow != "signed" and machine_code.has_half_floats():
            return number.to(FLOAT16).to(f32) + 0.0
        bits = number.view(u32)
        return nearest_half(plan, (bits & 0x7FFFFFFF).view(f32), bits & 0x80000000)


def _least(a: Value, b: Value) -> Value:
    return a.code.intrinsic("umin", a.type, [a, b])


def _greater(a: Value, b: Value) -> Value:
    """The greater of f32 numbers, none of them a NaN."""
    return (a > b).select(a, b)


def _smaller(a: Value, b: float) -> Value:
    """The smaller of an f32 number and a constant."""
    return (a < b).select(a, b)


def _numbers(raw: Value, fmt: Format) -> Value:
    """16-bit words as f32."""
    if fmt.exponent_bits == 8:
        return (raw.to(u32) << 16).view(f32)
    return half_numbers(raw)


def writer_of(instruction: Instruction, model: Model) -> Callable[[ir.Module], None] | None:
    """What writes the product of a dense instruction with a fused sum; None if this file does not know it."""
    plain = (
        isinstance(model.scheme, FusedSum)
        and not model.sparse
        and model.scale is None
        and instruction.products == 1
        and carries_d(model)
        and not (instruction.satfinite or model.satfinite)
    )
    if not plain:
        return None
    factors = factors_of(instruction, model)
    order = orders(instruction, factors)
    if order is None:
        return None
    return lambda module: FusedProduct(module, instruction, factors, order).write()
