"""The product of wgmma on plain matrices: the functions of `arith` that compute an instruction on arrays.

They are compiled once for arrays and kernels. This file says which they are for an instruction, where their
operands lie in a buffer of the block (the stage), and writes their calls.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from lanewise.arith import fused_kernel, plain_kernel
from lanewise.arith.decoding import decode, raw_type
from lanewise.arith.fused_engine import plan_for
from lanewise.arith.models import FusedSum, IntegerSum, Model, PopcountSum
from lanewise.arith.on_arrays import required_model
from lanewise.arith.plain_engine import cut_for
from lanewise.isa import Instruction
from lanewise.jit import ir
from lanewise.jit.simd import Pointer, Type, Value, f32, i16, i64, u32, u64
from lanewise.machine import abi
from lanewise.machine.codegen.function_code import BlockCode, FunctionCode, Record, shared_code
from lanewise.machine.codegen.register_shuffles import Registers
from lanewise.machine.tensor_core.sparsity_and_scales import Selections
from lanewise.machine.tensor_core.wgmma_operands import WARP_ROWS, warp_frames

if TYPE_CHECKING:
    from lanewise.jit import machine_code

#: Rows of the product, and the most columns.
ROWS, MOST_COLUMNS = 64, 256
#: Products of floats that follow one another and are computed together, at most.
LONGEST_CHAIN = 4
#: The stage begins with areas of the warpgroups of a block, for what was gathered; all share the rest of it.
GROUPS, GROUP_BYTES, LARGEST_STAGE = 8, 48 << 10, 640 << 10
#: The state at the begin of an area: how many products wait for the next, whether the first of them is added
#: to the accumulators.
WAITING, ACCUMULATES = 0, 8
#: Elements that are converted at a time.
TOGETHER = 16


@dataclass(frozen=True)
class Form:
    """What is the same for all N that a kernel of `arith` serves: types, K, and how columns are cut."""

    instruction: Instruction
    arch: str

    @cached_property
    def model(self) -> Model:
        """How the arch computes."""
        model = required_model(self.instruction, self.arch)
        integers = isinstance(model.scheme, IntegerSum)
        return replace(model, satfinite=True) if integers and self.instruction.satfinite else model

    @property
    def fused(self) -> bool:
        """Whether it is a truncated fused sum, as those of floats are."""
        return isinstance(self.model.scheme, FusedSum)

    @property
    def binary(self) -> bool:
        """Whether 32 elements of one bit are a word."""
        return isinstance(self.model.scheme, PopcountSum)

    @property
    def bits(self) -> int:
        """Bits of an element as it is gathered."""
        return 32 if self.binary else self.model.b.word_bits

    @property
    def k(self) -> int:
        """Elements of B along K as they are gathered."""
        return self.instruction.k // 32 if self.binary else self.instruction.k

    @property
    def packed_k(self) -> int:
        """Elements of A along K: half as many if it is sparse."""
        return self.k // 2 if self.model.sparse else self.k

    @cached_property
    def strip(self) -> int:
        """The columns that the kernel computes together."""
        n = self.instruction.n
        return plan_for(self.model, n).strip if self.fused else cut_for(self.model, n).strip

    @property
    def name(self) -> str:
        """The name of code that serves this form."""
        wgmma = self.instruction
        saturates = " satfinite" if wgmma.satfinite else ""
        source = f" A by {wgmma.a_source}"
        return f"{wgmma.family} k{wgmma.k} {'.'.join(wgmma.types)}{saturates}{source} strips of {self.strip}"

    def program(self) -> tuple[machine_code.Program, str, str]:
        """Return the kernel of `arith`, and the names of its functions: one for B ("": none), and the sum."""
        from lanewise.arith import fused_engine, plain_engine

        if self.fused:
            return fused_engine.program_for(self.model, self.instruction.n)[1], "pack_b", "rows"
        return plain_engine.program_for(self.model, self.instruction.n), "", "items"

    @property
    def chain(self) -> int:
        """How many products that follow one another may be computed together, as one of a longer K."""
        return LONGEST_CHAIN if self.fused and not self.model.sparse else 1

    @cached_property
    def gathered(self) -> dict[str, int]:
        """Where the state, A and B lie in the area of a warpgroup, in bytes, for the most columns."""
        a, b = (
            elements * self.chain * self.bits // 8
            for elements in (ROWS * self.packed_k, self.k * MOST_COLUMNS)
        )
        assert 64 + a + b <= GROUP_BYTES, self.name
        return {"state": 0, "a": 64, "b": 64 + a}

    @cached_property
    def stage(self) -> dict[str, int]:
        """Where everything else lies in the stage, in bytes, for the most columns; and the size of all."""
        k = self.k * self.chain
        sizes = {"areas": GROUPS * GROUP_BYTES, "total": WARP_ROWS * MOST_COLUMNS * 4}
        if self.model.sparse:
            sizes |= {
                "metadata": 4 * abi.LANES * abi.WARPGROUP,
                "packed": ROWS * k * 2,
                "dense": ROWS * k * 4,
            }
        if self.fused:
            blocks = k // plan_for(self.model, self.instruction.n).length
            rows, columns, sums = WARP_ROWS, MOST_COLUMNS, WARP_ROWS * self.strip * 4
            sizes |= {"a_val": rows * k * 4, "a_exp": rows * k, "a_flag": rows * blocks, "unfit": rows}
            sizes |= {"b_val": k * columns * 4, "b_exp": k * columns, "b_flag": blocks * columns}
            sizes |= dict.fromkeys(("scales", "sums", "more_sums", "part"), sums)
        else:
            sizes |= {"a_elements": ROWS * k * 4, "b_elements": k * MOST_COLUMNS * 4, "zero": 8}
        offsets, place = {}, 0
        for name, size in sizes.items():
            offsets[name] = place
            place += abi.aligned(size, 64)
        return offsets | {"size": place}


@lru_cache(maxsize=256)
def form_of(instruction: Instruction, arch: str) -> Form:
    """Return the form of an instruction on an arch."""
    return Form(instruction, arch)


def call_kernel(code: FunctionCode, function: Value, names: tuple[str, ...], given: dict[str, Value]) -> None:
    """Write a call of a function of `arith`, which takes a list of numbers; those that are missing are 0."""
    kind = ir.FunctionType(ir.VoidType(), [ir.LONG.as_pointer()])
    with code.builder.goto_entry_block():
        block = code.builder.alloca(ir.LONG, len(names))
    arguments = Pointer(code, i64, code.builder.bitcast(block, ir.IntType(8).as_pointer()))
    for number, name in enumerate(names):
        arguments.store(given.get(name, code.constant(i64, 0)), number)
    code.builder.call(code.builder.inttoptr(function.handle, kind.as_pointer()), [block])


class Product:
    """Writes a product of matrices that were gathered into the stage; `columns` are whole strips."""

    def __init__(self, code: BlockCode, form: Form, entry: Record, columns: Value, chained: Value) -> None:
        self.code, self.form, self.entry, self.columns = code, form, entry, columns
        stage = entry.get(abi.MmaEntry.stage)
        group = stage + (code.frame.get(abi.WarpFrame.index) >> 2) * GROUP_BYTES
        self.at = {name: stage + offset for name, offset in form.stage.items()}
        self.at |= {name: group + offset for name, offset in form.gathered.items()}
        self.strips = columns // code.constant(i64, form.strip)
        #: Elements of K in a row of A, as the kernel takes it, where it lies, and the bytes of a row.
        self.pitch = form.chain * form.packed_k
        self.a, self.row_bytes = self.at["a"], self.pitch * form.bits // 8
        #: How many products are computed together.
        self.chained = chained

    def spread(self, selector: Value, places: Value) -> Value:
        """Write a sparse A with its gaps; return whether the selector or the metadata is none.

        `places` is the address of the offset of the metadata's register.
        """
        at = self.at
        matrices = [at[name] for name in ("metadata", "a", "packed", "dense")]
        self.pitch = self.form.k
        self.a, self.row_bytes = at["dense"], self.pitch * _element_type(self.form).bits // 8
        spread = _spread(self.code.module, self.form)
        return self.code.invoke(spread, self.code["frame"], selector, places, *matrices).differs(0)

    def prepare(self) -> None:
        """Write A and B as the kernel takes them: decoded, widened, in strips."""
        code, form, at = self.code, self.form, self.at
        if form.fused:
            given = at | {"ldb": self.columns, "blocks": self._blocks, "last": self.strips}
            call_kernel(code, self.entry.get(abi.MmaEntry.pack_b), fused_kernel.PACK_B, given)
            return
        code.invoke(_in_strips(code.module, form), code["frame"], at["b"], at["b_elements"], self.strips)
        if not form.binary and not form.model.sparse:
            code.invoke(_widened(code.module, form), code["frame"], at["a"], at["a_elements"])
            self.a, self.row_bytes = at["a_elements"], form.k * 2
        Record(code, at["zero"]).set(0, 0)

    @property
    def _blocks(self) -> Value:
        """The blocks of K that are summed one after the other."""
        return self.chained * (self.form.k // plan_for(self.form.model, self.form.instruction.n).length)

    def multiply(self, warp: Value) -> None:
        """Write the sums of a warp's rows: what lies there as C becomes D."""
        code, at = self.code, self.at
        pitch, one, rows = (code.constant(i64, number) for number in (self.pitch, 1, WARP_ROWS))
        given = at | {
            "a": self.a + warp * (WARP_ROWS * self.row_bytes), "sum": at["total"], "rows": rows,
            "strips": self.strips,
        }  # fmt: skip
        if self.form.fused:
            given |= {"lda": pitch, "ld_sum": self.columns, "blocks": self._blocks}
            call_kernel(code, self.entry.get(abi.MmaEntry.function), fused_kernel.ROWS, given)
            return
        given |= dict.fromkeys(("a_offsets", "b_offsets", "sum_offsets"), at["zero"])
        given |= {
            "b": at["b_elements"],
            "last_item": one,
            "chunks": one,
            "chunk": code.constant(i64, self.form.k),
        }
        call_kernel(code, self.entry.get(abi.MmaEntry.function), plain_kernel.ITEMS, given)


# elements ---------------------------------------------------------------------------------------------------


def _element(form: Form, name: str, raw: Value) -> Value:
    """Return raw words as elements of the kernels: 16-bit integers, f32 of a sparse A, words of bits."""
    fmt = form.model.a if name == "a" else form.model.b
    if form.binary:
        return raw
    if form.fused:
        return decode(raw, fmt) + 0.0
    return raw.view(Type("i" if fmt.signed else "u", raw.type.bits)).to(i16)


def _element_type(form: Form) -> Type:
    return u32 if form.binary else f32 if form.fused else i16


def _raw_type(form: Form) -> Type:
    return u32 if form.binary else raw_type(form.model.b)


def _convert(code: BlockCode, form: Form, name: str, source: str, target: str, count: int) -> None:
    """Write the conversion of raw words, one after the other."""
    raw, out = code.pointer(source, _raw_type(form)), code.pointer(target, _element_type(form))
    with code.loop(count // TOGETHER) as number:
        out.store(_element(form, name, raw.load(number * TOGETHER, TOGETHER)), number * TOGETHER)


def _widened(module: ir.Module, form: Form) -> ir.Function:
    """Return `widened(frame, raw, elements)`: A as elements."""

    def write(code: BlockCode) -> None:
        _convert(code, form, "a", "raw", "elements", ROWS * form.k)

    return shared_code(module, f"wgmma A of {form.model.a.name} widened", ("raw", "elements"), write)


def _in_strips(module: ir.Module, form: Form) -> ir.Function:
    """Return `in_strips(frame, raw, elements, strips)`: B, [k][column], as elements in [strip][k][column]."""

    def write(code: BlockCode) -> None:
        raw, out = code.pointer("raw", _raw_type(form)), code.pointer("elements", _element_type(form))
        columns = code["strips"] * form.strip
        together = min(form.strip, TOGETHER)
        with code.loop(code["strips"]) as strip, code.loop(form.k) as k:
            for first in range(0, form.strip, together):
                value = raw.load(k * columns + strip * form.strip + first, together)
                place = (strip * form.k + k) * form.strip + first
                out.store(_element(form, "b", value), place)

    name = f"wgmma B of {form.model.b.name} k{form.k} in strips of {form.strip}"
    return shared_code(module, name, ("raw", "elements", "strips"), write)


def _spread(module: ir.Module, form: Form) -> ir.Function:
    """Return `spread(frame, selectors, places, metadata, raw, packed, dense)`: a sparse A with its gaps.

    It returns 1 if the selector or the metadata is not one that the instruction takes.
    """

    def write(code: BlockCode) -> None:
        selections = Selections(form.instruction)
        selections.check(code)
        offset = code.pointer("places", u32).load(0).to(u64).to(i64)
        metadata = code.record("metadata")
        for warp, frame in enumerate(warp_frames(code)):
            words = Record(code, frame + offset).get(0, u32, abi.LANES)
            metadata.pointer(4 * abi.LANES * warp, u32).store(words)
        _convert(code, form, "a", "raw", "packed", ROWS * form.packed_k)
        kind = _element_type(form)
        dense = code.pointer("dense", kind)
        gap = code.constant(kind.by(TOGETHER), -0.0 if form.fused else 0)
        with code.loop(ROWS * form.k // TOGETHER) as number:
            dense.store(gap, number * TOGETHER)
        registers = Registers(code, metadata.handle, [code.constant(u64, 0)], 32)
        places = range(form.k)
        selections.spread(code, {"metadata": registers}, code.pointer("packed", kind), dense, list(places))

    arguments = ("selectors", "places", "metadata", "raw", "packed", "dense")
    name = f"wgmma sparse A of {form.model.a.name} k{form.k} {'fused' if form.fused else 'plain'}"
    return shared_code(module, name, arguments, write)
