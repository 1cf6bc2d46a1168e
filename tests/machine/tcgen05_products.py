"""Random products of tcgen05.mma: shared and tensor memory before, a kernel, tensor memory after.

What a product gives is what `arith` computes on arrays; where things lie is told by `isa` (held against
CUTLASS in tests/isa).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import lanewise as lw
from lanewise.formats import FORMATS
from lanewise.isa.asynchronous.descriptor import KINDS, InstructionDescriptor, legal_shapes, product_of
from lanewise.isa.asynchronous.products import tcgen05_instruction
from lanewise.isa.matrix_descriptor import MatrixDescriptor, swizzle_mode
from lanewise.isa.tensor_memory.accumulators import (
    METADATA,
    d_places,
    factor_place,
    first_bytes,
    metadata_place,
    regions,
)
from machine.tensor_memory_kernels import dump, fill, kernel

Array = npt.NDArray[Any]
#: Places of the numbers that the kernel is given.
D, DESCRIPTOR, METADATA_PLACE, SCALE_PLACE, A_MATRIX, B_MATRIX = 0, 2, 3, 4, 15, 16
#: Formats of fewer than 8 bits are K-major.
NARROW = ("e2m3", "e3m2", "e2m1")
COLUMNS = 512
#: Columns of D (at most 8 further), of scale factors and of metadata.
A_COLUMN, SCALE_A, SCALE_B, METADATA_COLUMN = 270, 480, 490, 506
SHARED_BYTES = 96 << 10
#: K of sm_103a, which takes 48 bytes of a row.
LONG_K = 96


def random_words(rng: np.random.Generator, name: str, shape: tuple[int, int], specials: bool) -> Array:
    """Raw words of a format: ordinary numbers, or any bits at all."""
    fmt = FORMATS[name]
    if not specials and fmt.bits >= 16:
        numbers = (rng.standard_normal(shape) * 4).astype(np.float32)
        if name == "tf32":
            return numbers.view(np.uint32) & 0xFFFFE000
        return numbers.astype(fmt.dtype).view(fmt.word_dtype).astype(np.uint32)
    words = rng.integers(0, 1 << fmt.bits, shape).astype(np.uint32)
    if name == "tf32":
        return rng.integers(0, 1 << 32, shape, dtype=np.uint32) & 0xFFFFE000
    if not specials and name == "e5m2":
        words = np.where(words & 0x7C == 0x7C, words & 0x83, words)
    return np.where(words & 0x7F == 0x7F, 0, words) if not specials and name == "e4m3" else words


def storage_bits(kind: str, name: str) -> int:
    """The bits that an element takes in shared memory: narrow formats beside 8-bit ones have a byte."""
    return 4 if KINDS[kind].k == 64 else max(8, 32 if name == "tf32" else FORMATS[name].bits)


def matrix_descriptor(
    rng: np.random.Generator, rows: int, k: int, bits: int, major: Any, start: int
) -> MatrixDescriptor:
    """A descriptor of a canonical layout, with a swizzle drawn."""
    if k == LONG_K and rng.integers(0, 2):
        return rows_in_two_buffers(rng, rows, start)
    wide = major == "MN" and bits == 32
    names = ["128B_ATOM_32B"] if wide else ["none", "32B", "64B", "128B"]
    mode = swizzle_mode(str(rng.choice(names)), 1)
    start = -(-start // 1024) * 1024
    if major == "K":
        stride = 8 * mode.row_bytes * int(rng.integers(1, 3))
        further = mode.name == "none" or k * bits // 8 > mode.row_bytes
        leading = stride * -(-rows // 8) if further else 0
    elif mode.name == "none":
        stride, leading = 128, 128 * -(-rows * bits // 128)
    else:
        leading = mode.pattern_bytes
        stride = leading * -(-rows * bits // (8 * mode.row_bytes))
    return MatrixDescriptor(start, leading, stride, swizzle=mode.name, version=1)


def rows_in_two_buffers(rng: np.random.Generator, rows: int, start: int) -> MatrixDescriptor:
    """A descriptor of rows of 48 bytes that begin in one buffer of 128 bytes a row and go on in another."""
    buffer = 1024 * -(-rows // 8)
    first = -(-start // 1024) * 1024
    second = first + buffer + 1024 * int(rng.integers(0, 3))
    if rng.integers(0, 2):
        first, second = second, first
    piece = 16 * int(rng.integers(0, 8))
    return MatrixDescriptor(first + piece, second, 1024, swizzle="128B", version=1, absolute_leading=True)


def store_shared(memory: Array, at: MatrixDescriptor, words: Array, fmt: str, bits: int, major: Any) -> int:
    """Write a matrix (rows, k) to shared memory as its descriptor says; return where it ends."""
    rows, k = words.shape
    addresses = at.element_addresses(rows, k, bits, major)
    narrow = FORMATS[fmt].bits
    if bits == 4:
        pairs = words[:, 0::2] | words[:, 1::2] << 4
        memory[addresses[:, 0::2]] = pairs
    elif bits == 8 and narrow < 8:  # 16 elements packed in the first bytes of a piece
        shifts = narrow * np.arange(16, dtype=object)
        for row in range(rows):
            for first in range(0, k, 16):
                packed = int((words[row, first : first + 16].astype(object) << shifts).sum())
                place = int(addresses[row, first])
                memory[place : place + 16] = np.frombuffer(packed.to_bytes(16, "little"), np.uint8)
    else:
        memory.view(f"u{bits // 8}")[addresses // (bits // 8)] = words
    return int(addresses.max()) + 16


@dataclass
class Case:
    """A product with its operands, drawn from a seed; what is named is not drawn."""

    text: str
    descriptor: InstructionDescriptor
    a_in_tensor_memory: bool
    adds: bool
    scale_d: int
    disabled: list[int]
    rng: np.random.Generator
    specials: bool = False
    zero_mask: int = 0

    def __post_init__(self) -> None:
        found, self.product = self.descriptor, product_of(self.text)
        self.arch = "sm_103a" if found.k == LONG_K else "sm_100a"
        self.blocks = self.product.cta_group
        self.rows, self.columns = found.m // self.blocks, found.n // self.blocks
        self.regions = regions(found.m, found.n, self.blocks, self.product.ws, found.sparse)
        self.packed_k = found.k // 2 if found.sparse else found.k
        self.a_bits, self.b_bits = (storage_bits(found.kind, each) for each in (found.a, found.b))
        rng = self.rng
        self.a = random_words(rng, found.a, (found.m, self.packed_k), self.specials)
        self.b = random_words(rng, found.b, (found.k, found.n), self.specials)
        shape = (found.m, found.n)
        if found.d == "s32":
            self.c: Array = rng.integers(-(2**31), 2**31, shape).astype(np.int32)
        else:
            self.c = (rng.standard_normal(shape) * 8).astype(np.float16 if found.d == "f16" else np.float32)
        self.codes = self._codes() if found.sparse else None
        self.scales = self._scales() if self.product.block else None
        self.d_column = int(rng.integers(0, 8))
        self.d_lane = 16 * int(rng.integers(0, 2)) if self.regions[0].rows == 16 else 0
        self.shared = np.zeros((self.blocks, SHARED_BYTES), np.uint8)
        self._fill_shared()
        self.before = rng.integers(0, 1 << 32, (self.blocks, 128, COLUMNS), dtype=np.uint32)
        for block in range(self.blocks):
            self._fill_tensor_memory(block, self.before[block])

    def _codes(self) -> Array:
        """Metadata: two of four, the first one first; of tf32 one of two."""
        shape = self.descriptor.m, self.descriptor.k // METADATA[self.a_bits].group
        if self.a_bits == 32:
            return self.rng.choice([0b0100, 0b1110], shape)
        pairs = [first | second << 2 for second in range(4) for first in range(second)]
        return self.rng.choice(pairs, shape)

    def _scales(self) -> tuple[Array, Array]:
        per_row = self.product.factors(self.descriptor.k)
        bounds = (110, 140) if self.descriptor.scale == "ue8m0" else (0, 127)
        shapes = (self.descriptor.m, per_row), (per_row, self.descriptor.n)
        a, b = (self.rng.integers(*bounds, shape).astype(np.uint8) for shape in shapes)
        return a, b

    def _fill_shared(self) -> None:
        found, end = self.descriptor, 0
        self.a_matrix = matrix_descriptor(self.rng, self.rows, self.packed_k, self.a_bits, found.a_major, 0)
        for block in range(self.blocks if not self.a_in_tensor_memory else 0):
            part = self.a[block * self.rows : (block + 1) * self.rows]
            memory = self.shared[block]
            end = store_shared(memory, self.a_matrix, part, found.a, self.a_bits, found.a_major)
        self.b_matrix = matrix_descriptor(self.rng, self.columns, found.k, self.b_bits, found.b_major, end)
        for block in range(self.blocks):
            part = self.b.T[block * self.columns : (block + 1) * self.columns]
            store_shared(self.shared[block], self.b_matrix, part, found.b, self.b_bits, found.b_major)

    def _fill_tensor_memory(self, block: int, memory: Array) -> None:
        found, first_row = self.descriptor, block * self.rows
        self._put(memory, self.c[first_row : first_row + self.rows], keep=True)
        lanes = memory.view(np.uint8).reshape(128, 4 * COLUMNS)
        for region in self.regions:
            for row in range(region.row, region.row + region.rows):
                lane = region.lane + row - region.row
                if self.a_in_tensor_memory:
                    content = self._lane_of_a(self.a[first_row + row])
                    start = 4 * A_COLUMN
                    lanes[lane + self.d_lane, start : start + len(content)] = content
                if self.codes is not None and region.column == 0:
                    for number, code in enumerate(self.codes[first_row + row]):
                        there, column, bit = metadata_place(lane, number, self.a_bits)
                        column += METADATA_COLUMN + found.sparsity_selector
                        there += self.d_lane
                        memory[there, column] &= np.uint32(~(15 << bit) & 0xFFFFFFFF)
                        memory[there, column] |= np.uint32(int(code) << bit)
            if self.scales is not None:
                for lane in range(region.lane, region.lane + region.rows, 32):
                    a, b = self.scales
                    part = b[:, region.column : region.column + region.columns].T
                    self._put_scales(
                        lanes, SCALE_A, a[first_row : first_row + self.rows], found.scale_a_id, lane
                    )
                    self._put_scales(lanes, SCALE_B, part, found.scale_b_id, lane)

    @staticmethod
    def _put_scales(lanes: Array, column: int, factors: Array, first_byte: int, lane: int) -> None:
        for row, of_row in enumerate(factors):
            for number, factor in enumerate(of_row):
                place = factor_place(row, number, first_byte, lane, len(factors))
                lanes[place.lane, 4 * (column + place.column) + place.byte] = factor

    def _lane_of_a(self, words: Array) -> Array:
        """A row of A as bytes of tensor memory; e2m1 beside 8-bit formats lies in bits 2 to 5 of a byte."""
        if self.a_bits == 4:
            return (words[0::2] | words[1::2] << 4).astype(np.uint8)
        shift = 2 if FORMATS[self.descriptor.a].bits == 4 else 0
        return np.ascontiguousarray((words << shift).astype(f"u{self.a_bits // 8}")).view(np.uint8)

    def _put(self, memory: Array, d: Array, keep: bool, block: int = 0) -> None:
        """Write D into tensor memory, but for disabled lanes unless all are to be written."""
        found = self.descriptor
        lanes, columns = d_places(found.m, found.n, self.blocks, self.product.ws, found.sparse)
        lanes, columns = lanes + self.d_lane, columns + self.d_column
        words = np.ascontiguousarray(d).view(np.uint16 if found.d == "f16" else np.uint32).astype(np.uint32)
        if not keep and self.disabled:
            masks = np.array(self.disabled[4 * block : 4 * block + 4], np.uint32)
            disabled = masks[lanes // 32] >> (lanes % 32).astype(np.uint32) & 1
            words = np.where(disabled, memory[lanes, columns], words)
        memory[lanes, columns] = words

    # what it gives ------------------------------------------------------------------------------------------

    def numbers(self) -> dict[str, Any]:
        """The operands as arrays of their formats."""
        found = self.descriptor
        given: dict[str, Any] = {
            name: FORMATS[fmt].from_bits(words.astype(FORMATS[fmt].word_dtype))
            for name, fmt, words in (("a", found.a, self.a), ("b", found.b, self.b))
        }
        c = self.c if self.adds else np.zeros_like(self.c)
        given["c"] = (c * c.dtype.type(2.0**-self.scale_d)) if self.scale_d else c
        if self.codes is not None:
            both = (self.codes == 0b1110,) if self.a_bits == 32 else (self.codes & 3, self.codes >> 2)
            given["metadata"] = np.stack(both, -1).reshape(found.m, -1).astype(np.int64)
        if self.scales is not None:
            fmt = FORMATS[found.scale]
            given |= {
                f"scale_{name}": fmt.from_bits(each) for name, each in zip("ab", self.scales, strict=True)
            }
        return given

    def expected(self) -> Array:
        """Tensor memory of the blocks after the product, bit for bit."""
        numbers = self.numbers()
        instruction = tcgen05_instruction(self.text, self.descriptor)
        d = np.asarray(
            instruction(numbers.pop("a"), numbers.pop("b"), numbers.pop("c"), arch=self.arch, **numbers)
        )
        after = self.before.copy()
        for block in range(self.blocks):
            part = d[block * self.rows : (block + 1) * self.rows]
            self._put(after[block], part, keep=False, block=block)
        return after

    # the kernel ---------------------------------------------------------------------------------------------

    def numbers_of_kernel(self) -> Array:
        """The operands of the instruction as 64-bit numbers, in the order of `REGISTERS`."""
        masks = self.disabled + [0] * (8 - len(self.disabled))
        lane = self.d_lane << 16
        numbers = [
            self.d_column | lane, A_COLUMN | lane, self.descriptor.encode(), METADATA_COLUMN | lane, SCALE_A,
            SCALE_B, int(self.adds), *masks, self.a_matrix.encode(), self.b_matrix.encode(), self.zero_mask,
        ]  # fmt: skip
        return np.array(numbers, np.uint64)

    def statement(self) -> str:
        """The instruction, on the registers that the kernel sets."""
        a = "[%r2]" if self.a_in_tensor_memory else "%rd1"
        operands = ["[%r1]", a, "%rd2"]
        if self.descriptor.sparse:
            operands.append("[%r4]")
        operands.append("%r3")
        if self.product.block:
            operands += ["[%r5]", "[%r6]"]
        if self.disabled:
            operands.append("{" + ", ".join(f"%r{8 + each}" for each in range(len(self.disabled))) + "}")
        operands.append("%p1")
        if self.scale_d:
            operands.append(str(self.scale_d))
        if self.zero_mask:
            operands.append("%rd3")
        return f"{self.text} {', '.join(operands)};"

    def run(
        self, module: lw.Module, statements: list[str], changed: dict[int, int] | None = None, **options: Any
    ) -> Array:
        """Launch a kernel of `ptx` and return tensor memory afterwards; some numbers may be changed."""
        after = np.zeros_like(self.before)
        numbers = np.array([*self.numbers_of_kernel(), statements.index(self.statement())], np.uint64)
        for place, number in (changed or {}).items():
            numbers[place] = number
        module["k"][self.blocks, 128, SHARED_BYTES](self.shared, self.before, after, numbers, **options)
        return after


def ptx(statements: list[str], blocks: int, target: str = "sm_100a") -> str:
    """A kernel that fills shared and tensor memory, executes one of some instructions, and reads it back."""
    pair = blocks == 2
    sync = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" if pair else "bar.sync 0;"
    multicast, mask = (".multicast::cluster", ", %h1") if pair else ("", "")
    commit = f"tcgen05.commit.cta_group::{blocks}.mbarrier::arrive::one.shared::cluster{multicast}.b64"
    loads = [f"    ld.global.u32 %r{1 + each}, [%p_numbers+{8 * each}];" for each in range(15)]
    loads += [f"    ld.global.u64 %rd{1 + each}, [%p_numbers+{8 * (15 + each)}];" for each in range(4)]
    choices = []
    for number, statement in enumerate(statements):
        choices.append(f"    setp.ne.u64 %p3, %rd4, {number};\n    @%p3 bra NOT{number};\n    {statement}")
        choices.append(f"    bra COMMIT;\nNOT{number}:")
    adjusted = "\n".join(f"    add.u32 %r{each}, %r{each}, %taddr;" for each in (1, 2, 4, 5, 6))
    body = f"""
    mad.wide.u32 %p_shared, %rank, {SHARED_BYTES}, %p_shared;
    mad.wide.u32 %p_before, %rank, {4 * 128 * COLUMNS}, %p_before;
    mad.wide.u32 %p_after, %rank, {4 * 128 * COLUMNS}, %p_after;
    mov.u32 %r50, image;
    mov.u32 %r51, %tid0;
COPY:
    mad.wide.u32 %rd10, %r51, 4, %p_shared;
    ld.global.u32 %r52, [%rd10];
    mad.lo.u32 %r53, %r51, 4, %r50;
    st.shared.u32 [%r53], %r52;
    add.u32 %r51, %r51, 128;
    setp.lt.u32 %p2, %r51, {SHARED_BYTES // 4};
    @%p2 bra COPY;
{fill("before", COLUMNS)}
    setp.ne.u32 %p3, %tid0, 0;
    @%p3 bra READY;
    mbarrier.init.shared::cta.b64 [bars], 1;
    fence.mbarrier_init.release.cluster;
READY:
    fence.proxy.async.shared::cta;
    tcgen05.fence::before_thread_sync;
    {sync}
    tcgen05.fence::after_thread_sync;
    or.b32 %r54, %tid0, %rank;
    setp.ne.u32 %p3, %r54, 0;
    @%p3 bra WAIT;
{chr(10).join(loads)}
    setp.ne.u32 %p1, %r7, 0;
    cvt.u64.u32 %rd5, %r50; and.b64 %rd5, %rd5, 0x3FFFF; shr.u64 %rd5, %rd5, 4;
    shl.b64 %rd6, %rd5, 16;
    and.b64 %rd7, %rd1, 0x10000000000000; setp.eq.u64 %p5, %rd7, 0; @!%p5 add.u64 %rd1, %rd1, %rd6;
    and.b64 %rd7, %rd2, 0x10000000000000; setp.eq.u64 %p5, %rd7, 0; @!%p5 add.u64 %rd2, %rd2, %rd6;
    add.u64 %rd1, %rd1, %rd5; add.u64 %rd2, %rd2, %rd5;
{adjusted}
{chr(10).join(choices)}
COMMIT:
    mov.u16 %h1, 3;
    {commit} [bars]{mask};
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p4, [bars], 0;
    @!%p4 bra WAIT;
    tcgen05.fence::after_thread_sync;
{dump("after", COLUMNS)}
    tcgen05.fence::before_thread_sync;
    {sync}
"""
    parameters = ("shared", "before", "after", "numbers")
    text = kernel(body, parameters, group=blocks, columns=COLUMNS, target=target)
    entry = ".visible .entry k("
    text = text.replace(entry, f".extern .shared .align 1024 .b8 image[];\n{entry}")
    cluster = ".reqnctapercluster 2, 1, 1 .explicitcluster\n" if pair else ""
    return text.replace(") {\n    .reg .b32 %a", f")\n{cluster}{{\n    .reg .b32 %a", 1)


def random_case(seed: int, kind: str = "", **chosen: Any) -> Case:
    """A product drawn from a seed; `chosen` has fields of the descriptor, or cta_group, ws, sparse."""
    rng = np.random.default_rng([seed, *kind.encode()])
    about = KINDS[kind or str(rng.choice(list(KINDS)))]

    def draw(name: str, choices: Any) -> Any:
        drawn = rng.choice(list(choices))
        return chosen[name] if name in chosen else drawn.item() if hasattr(drawn, "item") else drawn

    ws = bool(draw("ws", [False, False, False, True])) and not about.block_scaled
    group = 1 if ws else draw("cta_group", [1, 2])
    sparse = draw("sparse", [False, False, True])
    block = draw("block", about.blocks) if about.block_scaled else 0
    words = f"{'.ws' if ws else ''}{'.sp' if sparse else ''}.cta_group::{group}.kind::{about.name}"
    text = f"tcgen05.mma{words}" + (f".block_scale.block{block}" if block else "")
    legal = legal_shapes(product_of(text))
    a, b, d = (
        str(draw(name, choices))
        for name, choices in (("a", about.formats), ("b", about.formats), ("d", about.d))
    )
    if about.name == "f16" and d == "f16":
        a = b = "f16"
    a_in_tensor_memory = bool(draw("a_in_tensor_memory", [False, False, True]))
    majors = [str(draw(f"{name}_major", ["K", "MN"])) for name in "ab"]
    b_major = "K" if b in NARROW else majors[1]
    step = 16 * group if b_major == "MN" and FORMATS[b].bits == 8 else 1  # of N
    fields: dict[str, Any] = {
        "m": draw("m", legal.m), "n": draw("n", [n for n in legal.n if n % step == 0]),
        "a": a, "b": b, "d": d, "sparse": sparse,
        "a_major": "K" if a in NARROW or a_in_tensor_memory else majors[0],
        "b_major": b_major,
    }  # fmt: skip
    if not about.integer:
        fields |= {f"negate_{name}": bool(draw(f"negate_{name}", [False, True])) for name in "ab"}
    else:
        fields["saturate"] = bool(draw("saturate", [False, True]))
    if block:
        fields["scale"] = "ue8m0" if block == 32 else str(draw("scale", about.scales))
        if "k" in chosen:
            fields["k"] = chosen["k"]
        first = first_bytes(product_of(text).factors(chosen.get("k", about.k)))
        fields |= {f"scale_{name}_id": draw(f"scale_{name}_id", first) for name in "ab"}
    if sparse and len(about.selectors) > 1:
        fields["sparsity_selector"] = draw("sparsity_selector", [0, 1])
    plain = not block and not ws
    adds = bool(draw("adds", [False, True]))
    scale_d = draw("scale_d", [0, 1, 7]) if plain and adds and kind in ("f16", "tf32") else 0
    disabled = draw("disabled", [False, False, True]) and plain
    masks = [int(each) for each in rng.integers(0, 1 << 32, 4 * group)] if disabled else []
    return Case(
        text, InstructionDescriptor(about.name, **fields), a_in_tensor_memory, adds, scale_d, masks, rng,
        specials=bool(draw("specials", [False, True])),
    )  # fmt: skip
