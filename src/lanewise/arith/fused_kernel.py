"""The functions of the truncated fused sum: decode operands once, then blocks of K over strips of columns.

Each row of a block uses the narrow or the wide method (`fused_narrow.py`, `fused_wide.py`), with the same
bits.
"""

from lanewise.arith.decoding import decode, raw_type, with_one_nan
from lanewise.arith.fused_narrow import exponents, narrow_block, nearest_half
from lanewise.arith.fused_tiles import Block, PackedRows, Plan, Room, Tile
from lanewise.arith.fused_wide import ScaleFactors, wide_row
from lanewise.jit import ir
from lanewise.jit.float_mode import write_entry_point
from lanewise.jit.simd import Code, Value, f32, i8, i32, i64, u8, u32

#: The arguments of the functions, in this order. `b_*` is a packed B, `a_*` to `part` are buffers.
PACK_B = ("b", "ldb", "b_val", "b_exp", "b_flag", "blocks", "first", "last")
ROWS = (
    "a", "lda", "b_val", "b_exp", "b_flag", "sum", "ld_sum", "rows", "blocks", "strips", "a_val", "a_exp",
    "a_flag", "scales", "sums", "more_sums", "unfit", "part", "scale_a", "scale_a_sig", "scale_b",
    "scale_b_sig", "scale_steps", "scale_columns",
)  # fmt: skip
ITEMS = (
    "a", "a_offsets", "b", "b_offsets", "scale_a_offsets", "scale_b_offsets", "ldb", "first_item",
    "last_item", *ROWS[1:],
)  # fmt: skip


def write_module(plan: Plan) -> str:
    """Return the LLVM IR of `pack_b`, `rows` and `items`."""
    module = ir.Module("fused")
    pack_b = write_pack_b(module, plan)
    rows = write_rows(module, plan)
    items = write_items(module, pack_b, rows)
    for inner, name in ((pack_b, "pack_b"), (rows, "rows"), (items, "items")):
        write_entry_point(inner, name)
    return str(module)


def write_pack_b(module: ir.Module, plan: Plan) -> Code:
    """Write `pack_b`: B as numbers and exponents in [strip][k][column], a flag for each strip and block."""
    code = Code(module, "inner_pack_b", PACK_B)
    source = code.pointer("b", raw_type(plan.model.b))
    values, exps, flags = code.pointer("b_val", f32), code.pointer("b_exp", i8), code.pointer("b_flag", u8)
    blocks = code["blocks"]
    with code.loop(code["last"], code["first"]) as strip, code.loop(blocks) as block:
        flag = code.variable(code.constant(u8, 0))
        with code.loop(plan.length) as k:
            row = block * plan.length + k
            offset = (strip * blocks * plan.length + row) * plan.strip
            for column in range(0, plan.strip, plan.lanes):
                raw = source.load(row * code["ldb"] + strip * plan.strip + column, plan.lanes)
                number = decode(raw, plan.model.b)
                values.store(number, offset + column)
                exponent, unfit = exponents(number, plan.model.b, plan.model.emin("b"))
                exps.store(exponent, offset + column)
                flag.set(flag.get() | unfit.to(u8))
        flags.store(flag.get(), strip * blocks + block)
    code.end()
    return code


def pack_rows(code: Code, plan: Plan, packed: PackedRows, rows: Value) -> None:
    """Write the decoding of rows of A to numbers and exponents. A sparse A is already decoded."""
    sparse = plan.model.sparse
    source = code.pointer("a", f32 if sparse else raw_type(plan.model.a))
    lanes = min(plan.lanes, plan.length)
    with code.loop(rows) as row, code.loop(packed.blocks) as block:
        flag = code.constant(u8, 0)
        for k in range(0, plan.length, lanes):
            column = block * plan.length + k
            raw = source.load(row * code["lda"] + column, lanes)
            number = raw if sparse else decode(raw, plan.model.a)
            exponent, unfit = exponents(number, plan.model.a, plan.model.emin("a"))
            offset = row * packed.blocks * plan.length + column
            packed.values.store(number, offset)
            packed.exponents.store(exponent, offset)
            flag = flag | unfit.to(u8)
        packed.flags.store(flag, row * packed.blocks + block)


def write_rows(module: ir.Module, plan: Plan) -> Code:
    """Write `rows`: some rows of D in place of C, for every strip of columns and every block of K."""
    code = Code(module, "inner_rows", ROWS)
    rows, blocks = code["rows"], code["blocks"]
    packed = PackedRows(
        code.pointer("a_val", f32), code.pointer("a_exp", i8), code.pointer("a_flag", u8), blocks
    )
    pack_rows(code, plan, packed, rows)
    factors = None
    if plan.model.scale is not None:
        factors = ScaleFactors(
            code.pointer("scale_a", i32),
            code.pointer("scale_a_sig", f32),
            code.pointer("scale_b", i32),
            code.pointer("scale_b_sig", f32),
            code["scale_steps"],
            code["scale_columns"],
        )
    room = Room(
        code.pointer("scales", f32),
        code.pointer("sums", i32),
        code.pointer("more_sums", i32),
        code.pointer("unfit", u8),
    )
    part = Tile(code.pointer("part", f32), code.constant(i64, plan.strip))
    with code.loop(code["strips"]) as strip:
        total = Tile(code.pointer("sum", f32) + strip * plan.strip, code["ld_sum"])
        quieten(code, plan, rows, total)
        # Where C enters last, an instruction is two blocks that start from zero.
        last = plan.scheme.c_enters == "last"
        phases: list[tuple[Tile | None, Tile]] = [(None, part), (part, part)] if last else [(total, total)]
        with code.loop(blocks >> 1 if last else blocks) as step:
            for number, (before, after) in enumerate(phases):
                block = step * len(phases) + number
                offset = (strip * blocks + block) * (plan.length * plan.strip)
                work = Block(
                    rows=rows,
                    a=packed,
                    number=block,
                    first_column=strip * plan.strip,
                    b_values=code.pointer("b_val", f32) + offset,
                    b_exponents=code.pointer("b_exp", i8) + offset,
                    b_flag=code.pointer("b_flag", u8).load(strip * blocks + block),
                    room=room,
                    before=before,
                    after=after,
                )
                write_block(code, plan, work, factors)
            if last:
                add_parts(code, plan, rows, total, part)
    code.end()
    return code


def quieten(code: Code, plan: Plan, rows: Value, total: Tile) -> None:
    """Write the replacement of every NaN of C by the one that results have."""
    with code.loop(rows) as row:
        for column in range(0, plan.strip, plan.lanes):
            total.store(with_one_nan(total.load(row, column, plan.lanes)), row, column)


def add_parts(code: Code, plan: Plan, rows: Value, total: Tile, partial: Tile) -> None:
    """Write the sum of C and the blocks' results, to nearest, as FADD or HADD2 compute it.

    For HADD2, f32 has enough bits to round twice.
    """
    with code.loop(rows) as row:
        for column in range(0, plan.strip, plan.lanes):
            number = total.load(row, column, plan.lanes) + partial.load(row, column, plan.lanes)
            if plan.half:
                bits = number.view(u32)
                number = nearest_half(plan, (bits & 0x7FFFFFFF).view(f32), bits & 0x80000000)
            total.store(with_one_nan(number), row, column)


def write_block(code: Code, plan: Plan, work: Block, factors: ScaleFactors | None) -> None:
    """Write one block for all rows of a strip, each row by the narrow or the wide method."""
    if not plan.narrow:
        with code.loop(work.rows) as row:
            wide_row(code, plan, work, row, factors)
        return
    unfit = work.room.unfit
    with code.when(work.b_flag.equals(0)):
        narrow_block(code, plan, work)
    with code.loop(work.rows) as row, code.when((unfit.load(row) | work.b_flag).differs(0)):
        wide_row(code, plan, work, row, None)


def write_items(module: ir.Module, pack_b: Code, rows: Code) -> Code:
    """Write `items`: many small products; for each item it packs B and computes all rows."""
    code = Code(module, "inner_items", ITEMS)
    with code.loop(code["last_item"], code["first_item"]) as item:

        def shifted(name: str, offsets: str) -> Value:
            return code[name] + code.pointer(offsets, i64).load(item)

        code.call(
            pack_b,
            **{name: code[name] for name in PACK_B if name in ITEMS and name != "b"},
            b=shifted("b", "b_offsets"),
            first=code.constant(i64, 0),
            last=code["strips"],
        )
        moved = {
            "a": shifted("a", "a_offsets"),
            "sum": code["sum"] + item * code["rows"] * code["ld_sum"] * 4,
            "scale_a": shifted("scale_a", "scale_a_offsets"),
            "scale_a_sig": shifted("scale_a_sig", "scale_a_offsets"),
            "scale_b": shifted("scale_b", "scale_b_offsets"),
            "scale_b_sig": shifted("scale_b_sig", "scale_b_offsets"),
        }
        code.call(rows, **{name: moved.get(name, code[name]) for name in ROWS})
    code.end()
    return code
