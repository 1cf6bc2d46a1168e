"""The table of asynchronous instructions: tcgen05 (Blackwell's Tensor Cores), bulk and tensor copies (TMA).

A row is a pattern of words. Held against ptxas 13.0 (PTX ISA 9.0) form by form and arch by arch in
tests/isa/test_isa_asynchronous.py. What the words mean is in `instruction.py`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

from lanewise.isa.archs import targets

#: The archs with tensor memory; those that are family-specific lack a few forms.
TENSOR_MEMORY = "sm_100a sm_100f sm_103a sm_110a sm_110f"
ARCH_SPECIFIC = "sm_100a sm_103a sm_110a"
INTEGERS = "sm_100a sm_110a"
REDUCED_LOADS = "sm_103a sm_110a sm_110f"
HOPPER = "sm_90+"
BLACKWELL = "sm_100+"

GROUP = "cta_group::1|cta_group::2"
FLOAT_KINDS = "kind::f16|kind::tf32|kind::f8f6f4"
_USES = ("fill", "use", "lastuse", "discard")
COLLECTOR_A = "|".join(("", *(f"collector::a::{use}" for use in _USES)))
COLLECTOR_B = "|".join(("", *(f"collector::b{n}::{use}" for n in range(4) for use in _USES)))
HINT = "|L2::cache_hint"
MULTICAST = "|multicast::cluster"
DONE = "mbarrier::complete_tx::bytes"
TILED = "1d|2d|3d|4d|5d"
IM2COL = "3d|4d|5d"
_POWERS = ("x1", "x2", "x4", "x8", "x16", "x32", "x64", "x128")
#: Shapes of tcgen05.ld and st, and how many 32-bit registers a lane has of one of them.
REGISTERS = {"16x64b": 1, "16x128b": 2, "16x256b": 4, "32x32b": 1, "16x32bx2": 1}
MOST_REGISTERS = 128
SUMS = "add|min|max|inc|dec|and|or|xor"


@dataclass(frozen=True)
class Row:
    """Forms that share their operands, their targets and their first PTX version.

    `pattern` has the words of the text, with spaces between them; `a|b` is either, `|b` is b or nothing.
    """

    family: str
    pattern: str
    operands: str
    targets: str
    since: str

    def texts(self) -> Iterator[str]:
        """Every text of the pattern."""
        for words in product(*(word.split("|") for word in self.pattern.split())):
            yield ".".join(word for word in words if word)


def _tensor_memory() -> Iterator[Row]:
    def row(pattern: str, operands: str, where: str = TENSOR_MEMORY, since: str = "8.6") -> Row:
        opcode = pattern.split()[0].split("|")[0].split("::")[0]
        return Row(opcode, pattern, operands, where, since)

    yield row(f"tcgen05.alloc {GROUP} sync aligned |shared::cta b32", "[shared address], columns")
    yield row(f"tcgen05.dealloc {GROUP} sync aligned b32", "tensor address, columns")
    yield row(f"tcgen05.relinquish_alloc_permit {GROUP} sync aligned", "")
    for shape, registers in REGISTERS.items():
        nums = "|".join(num for num in _POWERS if registers * int(num[1:]) <= MOST_REGISTERS)
        half = ", half split offset" if shape == "16x32bx2" else ""
        yield row(
            f"tcgen05.ld sync aligned {shape} {nums} |pack::16b b32", f"{{registers}}, [tensor address]{half}"
        )
        yield row(
            f"tcgen05.st sync aligned {shape} {nums} |unpack::16b b32",
            f"[tensor address]{half}, {{registers}}",
        )
    for shape in ("32x32b", "16x32bx2"):
        half = ", half split offset" if shape == "16x32bx2" else ""
        operands = f"{{registers}}, reduced, [tensor address]{half}"
        nums = "|".join(_POWERS[1:])
        yield row(
            f"tcgen05.ld.red sync aligned {shape} {nums} min|max |abs |NaN f32",
            operands,
            REDUCED_LOADS,
            "8.8",
        )
        yield row(
            f"tcgen05.ld.red sync aligned {shape} {nums} min|max u32|s32", operands, REDUCED_LOADS, "8.8"
        )
    yield row("tcgen05.wait::ld|tcgen05.wait::st sync aligned", "")
    formats = "|b8x16.b6x16_p32|b8x16.b4x16_p64"
    for shape, warps in (
        ("128x256b|4x256b|128x128b", ""),
        ("64x128b", "warpx2::02_13|warpx2::01_23"),
        ("32x128b", "warpx4"),
    ):
        yield row(f"tcgen05.cp {GROUP} {shape} {warps} {formats}", "[tensor address], shared descriptor")
    yield row(f"tcgen05.shift {GROUP} down", "[tensor address]", ARCH_SPECIFIC)
    commit = f"tcgen05.commit {GROUP} mbarrier::arrive::one |shared::cluster"
    yield row(f"{commit} b64", "[mbarrier]")
    yield row(f"{commit} multicast::cluster b64", "[mbarrier], mask of blocks")
    yield row("tcgen05.fence::before_thread_sync|tcgen05.fence::after_thread_sync", "")
    yield from _products()


def _products() -> Iterator[Row]:
    """tcgen05.mma: A is behind a descriptor of shared memory or in tensor memory, `[a]`."""

    def row(opcode: str, pattern: str, operands: str, where: str, since: str = "8.6") -> Row:
        return Row(opcode, f"{opcode} {pattern}", operands, where, since)

    for opcode, metadata in (("tcgen05.mma", ""), ("tcgen05.mma.sp", ", [metadata]")):
        start, end = f"[d], a or [a], b{metadata}, instruction descriptor", ", enable input d"
        yield row(opcode, f"{GROUP} {FLOAT_KINDS} {COLLECTOR_A}", start + end, TENSOR_MEMORY)
        yield row(opcode, f"{GROUP} kind::i8 {COLLECTOR_A}", start + end, INTEGERS)
        shifted = "|collector::a::lastuse|collector::a::discard"
        only_tensor = start.replace("a or [a]", "[a]") + end
        yield row(opcode, f"{GROUP} {FLOAT_KINDS} ashift {shifted}", only_tensor, TENSOR_MEMORY)
        yield row(opcode, f"{GROUP} kind::i8 ashift {shifted}", only_tensor, INTEGERS)
        scaled = f"{start}, [scale of a], [scale of b]{end}"
        for kind, vectors, blocks in (
            ("mxf8f6f4", "scale_vec::1X", "|block32"),
            ("mxf4", "scale_vec::2X", "|block32"),
            ("mxf4nvf4", "scale_vec::2X|scale_vec::4X", "block16|block32"),
        ):
            scale = f"{GROUP} kind::{kind} block_scale"
            small_and_sparse = opcode.endswith(".sp") and kind != "mxf8f6f4"
            where = ARCH_SPECIFIC if small_and_sparse else TENSOR_MEMORY
            yield row(opcode, f"{scale} {blocks} {COLLECTOR_A}", scaled, where, "8.8")
            vectors_since = "8.7" if kind == "mxf4nvf4" else "8.6"
            yield row(opcode, f"{scale} {vectors} {COLLECTOR_A}", scaled, ARCH_SPECIFIC, vectors_since)
    for opcode, metadata in (("tcgen05.mma.ws", ""), ("tcgen05.mma.ws.sp", ", [metadata]")):
        operands = f"[d], a or [a], b{metadata}, instruction descriptor, enable input d"
        yield row(opcode, f"cta_group::1 {FLOAT_KINDS} {COLLECTOR_B}", operands, TENSOR_MEMORY)
        yield row(opcode, f"cta_group::1 kind::i8 {COLLECTOR_B}", operands, INTEGERS)


def _copy(opcode: str, pattern: str, operands: str, where: str = HOPPER, since: str = "8.0") -> Row:
    return Row(opcode, f"{opcode} {pattern}", operands, where, since)


def _bulk() -> Iterator[Row]:
    into = "[shared], [global], bytes, [mbarrier]"
    yield _copy("cp.async.bulk", f"shared::cluster global {DONE} {MULTICAST} {HINT}", into)
    yield _copy("cp.async.bulk", f"shared::cta global {DONE} {HINT}", into, since="8.6")
    yield _copy(
        "cp.async.bulk", f"shared::cluster shared::cta {DONE}", "[cluster], [shared], bytes, [mbarrier]"
    )
    yield _copy("cp.async.bulk", f"global shared::cta bulk_group {HINT}", "[global], [shared], bytes")
    masked = f"global shared::cta bulk_group {HINT} cp_mask"
    yield _copy("cp.async.bulk", masked, "[global], [shared], bytes, byte mask", BLACKWELL, "8.6")
    yield _copy("cp.async.bulk.prefetch", f"L2 global {HINT}", "[global], bytes")
    yield _copy("cp.async.bulk.commit_group", "", "")
    yield _copy("cp.async.bulk.wait_group", "|read", "groups still on their way")
    near = f"shared::cluster shared::cta {DONE}"
    for sums in ("and|or|xor b32", "add u32|s32|u64", "inc|dec u32", "min|max u32|s32"):
        yield _copy("cp.reduce.async.bulk", f"{near} {sums}", "[cluster], [shared], bytes, [mbarrier]")
    far = f"global shared::cta bulk_group {HINT}"
    for sums in (
        "and|or|xor b32|b64", "add u32|s32|u64|f32|f64", "add.noftz f16|bf16", "inc|dec u32",
        "min|max u32|s32|u64|s64|f16|bf16",
    ):  # fmt: skip
        yield _copy("cp.reduce.async.bulk", f"{far} {sums}", "[global], [shared], bytes")


def _tensor_copies() -> Iterator[Row]:
    opcode, end = "cp.async.bulk.tensor", "[shared], [map, {coordinates}], [mbarrier]"
    for target, multicast, first in (("shared::cluster", MULTICAST, "8.0"), ("shared::cta", "", "8.6")):
        gathers = BLACKWELL if target == "shared::cta" else TENSOR_MEMORY
        for sizes, mode, where, since, more in (
            (TILED, "|tile", HOPPER, first, ""),
            ("2d", "tile::gather4", gathers, "8.6", ""),
            (IM2COL, "im2col", HOPPER, first, ", {offsets}"),
            (IM2COL, "im2col::w", gathers, "8.6", ", {half width, offset}"),
            (IM2COL, "im2col::w::128", TENSOR_MEMORY, "8.6", ", {half width, offset}"),
        ):
            head = f"{sizes} {target} global {mode} {DONE} {multicast}"
            yield _copy(opcode, f"{head} {HINT}", end + more, where, since)
            yield _copy(opcode, f"{head} {GROUP} {HINT}", end + more, TENSOR_MEMORY, "8.6")
    for opcode, sums in (("cp.async.bulk.tensor", ""), ("cp.reduce.async.bulk.tensor", SUMS)):
        for sizes, mode, where, since in (
            (TILED, "|tile", HOPPER, "8.0"),
            ("2d", "tile::scatter4", TENSOR_MEMORY, "8.6"),
            (IM2COL, "im2col_no_offs", HOPPER, "8.0"),
        ):
            pattern = f"{sizes} global shared::cta {sums} {mode} bulk_group {HINT}"
            yield _copy(opcode, pattern, "[map, {coordinates}], [shared]", where, since)
    for sizes, mode, where, since, more in (
        (TILED, "|tile", HOPPER, "8.0", ""),
        ("2d", "tile::gather4", TENSOR_MEMORY, "8.6", ""),
        (IM2COL, "im2col", HOPPER, "8.0", ", {offsets}"),
        (IM2COL, "im2col::w|im2col::w::128", TENSOR_MEMORY, "8.6", ", {half width, offset}"),
    ):
        pattern = f"{sizes} L2 global {mode} {HINT}"
        yield _copy("cp.async.bulk.prefetch.tensor", pattern, f"[map, {{coordinates}}]{more}", where, since)


@cache
def rows() -> tuple[Row, ...]:
    """Every row of the table."""
    return (*_tensor_memory(), *_bulk(), *_tensor_copies())


@cache
def families() -> tuple[str, ...]:
    """The opcodes, in the order of the table."""
    return tuple(dict.fromkeys(row.family for row in rows()))


@cache
def archs_of(row: Row) -> tuple[str, ...]:
    """The archs that have the forms of a row."""
    return targets(row.targets)
