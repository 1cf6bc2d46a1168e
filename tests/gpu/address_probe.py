"""A kernel that tells which byte of shared memory wgmma reads for each element that a descriptor names.

Shared memory is filled with numbers that say where they lie, in as many launches as the type needs to tell
all addresses apart. The other operand is a selection of ones, so that each element of D is one element of the
operand that is looked at. Block i takes descriptor i. The same kernels run on a GPU and on the CPU machine.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.kernels import Registers
from gpu.tiles import Tile
from lanewise.isa import Instruction, instructions
from lanewise.isa.matrix_descriptor import MatrixDescriptor

#: Bytes that a descriptor can address.
ADDRESS_SPACE = 1 << 18
#: Dynamic shared memory of a block; where a selection of ones lies in it.
SHARED_BYTES, ONES = 232448, 0x38000
THREADS = 128
#: How the numbers of a type tell addresses: bits of one number, and the bytes of an element.
_DIGIT_BITS = {"f16": 9, "u8": 6, "tf32": 9}

Launch = Callable[[str, int, list[NDArray[Any]]], None]


@dataclass(frozen=True)
class Probe:
    """What is looked at: a type, the operand, dense or sparse, how it lies, and N."""

    type: str
    operand: str
    sparse: bool = False
    major: str = "K"
    n: int = 64

    def __str__(self) -> str:
        sparse = "sparse " if self.sparse else ""
        return f"{sparse}{self.type} {self.operand.upper()} {self.major}-major, n{self.n}"

    @cached_property
    def instruction(self) -> Instruction:
        """The form with the other operand in registers, where it can be there."""
        family = "wgmma.sp" if self.sparse else "wgmma"
        source = "registers" if self.operand == "b" else "descriptor"
        d = "s32" if self.type == "u8" else "f32"
        found = [
            each
            for each in instructions("sm_90a", family)
            if each.types == (d, self.type, self.type) and each.n == self.n and each.a_source == source
        ]
        return next(each for each in found if not each.satfinite)

    @property
    def bits(self) -> int:
        """The bits of an element in shared memory."""
        return self.instruction.a.format.word_bits

    @property
    def shape(self) -> tuple[int, int]:
        """Rows (of B: columns) and K of the operand, as its descriptor has them."""
        found = self.instruction
        return found.a.shape if self.operand == "a" else (found.n, found.b.rows)

    def expected(self, descriptor: MatrixDescriptor) -> NDArray[np.int64]:
        """The addresses that the library gives."""
        major: Any = self.major
        return descriptor.element_addresses(*self.shape, self.bits, major)

    # what is looked at by hardware ----------------------------------------------------------------------

    @property
    def digits(self) -> int:
        """Launches that tell an address."""
        return -(-((ADDRESS_SPACE * 8 // self.bits).bit_length() - 1) // _DIGIT_BITS[self.type])

    @property
    def codes(self) -> tuple[int, ...]:
        """The metadata of a sparse A, the same in each group: all places of B take two."""
        return (0b0100, 0b1110) if self.sparse else (0,)

    def filling(self, digit: int, code: int) -> NDArray[np.uint8]:
        """Shared memory by absolute address: numbers that tell their places, and ones to select by."""
        bits = _DIGIT_BITS[self.type]
        numbers = np.arange(ADDRESS_SPACE * 8 // self.bits) >> (bits * digit) & ((1 << bits) - 1)
        dtype = {"f16": np.float16, "u8": np.uint8, "tf32": np.float32}[self.type]
        memory = numbers.astype(dtype).view(np.uint8)
        if self.operand == "a":
            ones = np.zeros(self.instruction.b.shape[::-1], dtype)
            for packed in range(self.n):
                ones[packed, self._column(packed, code)] = 1
            image = self._ones.image(ones.view(f"uint{self.bits}"))
            memory[ONES : ONES + image.size] = image
        return memory

    def _column(self, packed: int, code: int) -> int:
        """The place along K of an element of A."""
        if not self.sparse:
            return packed
        if self.type == "tf32":
            return 2 * packed + (code == 0b1110)
        return packed // 2 * 4 + (code >> 2 * (packed % 2) & 3)

    @property
    def _ones(self) -> Tile:
        return Tile(self.n, self.instruction.b.rows, self.bits)

    def registers(self) -> NDArray[np.uint32]:
        """The registers of A if it lies in registers: row m has a one in column m."""
        a = self.instruction.a
        if self.operand == "a":
            return np.zeros((THREADS, 1), np.uint32)
        ones = np.eye(a.cols)[np.arange(a.rows) % a.cols]
        return a.pack(ones.astype(a.format.dtype))

    def kernel(self) -> str:
        """PTX: parameters are the filling, the registers of A, the descriptors, metadata, D, the base."""
        found = self.instruction
        a, d = Registers("a", max(1, found.a.registers), 32), Registers.of("d", found.d)
        metadata = Registers("metadata", 1, 32)
        operands = [d.vector]
        operands += ["%looked_at", "%ones"] if self.operand == "a" else [a.vector, "%looked_at"]
        operands += ["%metadata0", "0"] if self.sparse else []
        operands.append("%accumulate")
        operands += [] if self.type == "u8" else ["1", "1"]
        if self.type == "f16":
            transposed = str(int(self.major == "MN"))
            operands += [transposed, "0"] if self.operand == "a" else [transposed]
        ones = self._ones.descriptor_bits | ONES >> 4
        pointers = ("filling", "a", "descriptors", "metadata", "d", "base")
        load = [
            f"ld.param.u64 %p_{name}, [param_{name}];\ncvta.to.global.u64 %p_{name}, %p_{name};"
            for name in pointers
        ]
        return "\n".join([
            ".version 8.4", ".target sm_90a", ".address_size 64",
            ".extern .shared .align 1024 .b8 dynamic[];",
            f".visible .entry k({', '.join(f'.param .u64 param_{name}' for name in pointers)}) {{",
            *(each.declare() for each in (a, d, metadata)),
            f".reg .b64 {', '.join(f'%p_{name}' for name in pointers)}, %at, %wide, %looked_at, %ones;",
            ".reg .b32 %thread, %local, %item, %first, %place, %end, %w<4>;",
            ".reg .pred %accumulate, %more;",
            "mov.u32 %local, %tid.x;", "mov.u32 %item, %ctaid.x;", *load,
            "mov.u32 %first, dynamic;", "st.global.b32 [%p_base], %first;",
            f"add.u32 %end, %first, {SHARED_BYTES};",
            "shl.b32 %place, %local, 4;", "add.u32 %place, %place, %first;",
            "FILL:", "cvt.u64.u32 %wide, %place;", "add.u64 %at, %p_filling, %wide;",
            "ld.global.v4.b32 {%w0, %w1, %w2, %w3}, [%at];",
            "st.shared.v4.b32 [%place], {%w0, %w1, %w2, %w3};",
            f"add.u32 %place, %place, {16 * THREADS};", "setp.lt.u32 %more, %place, %end;",
            "@%more bra FILL;",
            "mov.u32 %thread, %local;", *(a.load() if self.operand == "b" else []),
            *(metadata.load() if self.sparse else []),
            "mad.wide.u32 %at, %item, 8, %p_descriptors;", "ld.global.u64 %looked_at, [%at];",
            f"mov.b64 %ones, {ones:#x};",
            "fence.proxy.async.shared::cta;", "bar.sync 0;", "setp.ne.u32 %accumulate, 0, 0;",
            *(f"mov.b32 %d{number}, 0;" for number in range(d.count)),
            "wgmma.fence.sync.aligned;", f"{found.text} {', '.join(operands)};",
            "wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;",
            f"mad.lo.u32 %thread, %item, {THREADS}, %local;", *d.store(), "ret;", "}", "",
        ])  # fmt: skip

    def addresses(self, launch: Launch, descriptors: list[int]) -> tuple[NDArray[np.int64], int]:
        """The byte address of each element under each descriptor, and where shared memory begins.

        `launch(ptx, blocks, arrays)` runs a kernel on arrays in place.
        """
        found, kernel = self.instruction, self.kernel()
        rows, k = self.shape
        total = np.zeros((len(descriptors), rows, k), np.int64)
        base = np.zeros(1, np.uint32)
        for digit in range(self.digits):
            for code in self.codes:
                d = np.zeros((len(descriptors), THREADS, found.d.registers), np.uint32)
                codes = np.full((THREADS, 1), code * 0x11111111, np.uint32)
                words = np.array(descriptors, np.uint64)
                launch(
                    kernel,
                    len(descriptors),
                    [self.filling(digit, code), self.registers(), words, codes, d, base],
                )
                values = found.d.unpack(d).astype(np.int64)
                packed = found.a.cols
                shifted = values << (_DIGIT_BITS[self.type] * digit)
                if self.operand == "a":
                    total += np.where(code == self.codes[0], shifted[:, :, :packed], 0)
                else:
                    places = [self._column(each, code) for each in range(packed)]
                    total[:, :, places] += np.swapaxes(shifted[:, :packed], 1, 2)
        return total * (self.bits // 8), int(base[0])


def probes() -> list[Probe]:
    """Each operand, type and way to lie, with few and many columns."""
    found = []
    for sparse in (False, True):
        for n in (8, 72, 256):
            found += [Probe("f16", "b", sparse, major, n) for major in ("K", "MN")]
        found += [Probe("u8", "b", sparse, "K", n) for n in (24, 256)]
        found += [Probe("tf32", "b", sparse, "K", n) for n in (24, 256)]
        found += [Probe("f16", "a", sparse, major, 16) for major in ("K", "MN")]
        found += [Probe("u8", "a", sparse, "K", 32), Probe("tf32", "a", sparse, "K", 8)]
    return found


def random_descriptors(
    probe: Probe, count: int, seed: int, swizzle: str, first: int = 1024
) -> list[MatrixDescriptor]:
    """Descriptors in all of shared memory below `ONES`: starts on a pattern and inside, base offsets."""
    rng = np.random.default_rng(seed)
    rows, k = probe.shape
    found = []
    for number in range(count):
        span = int(rng.integers(256, 0x30000))
        groups = {"K": rows // 8, "MN": k // 8}[probe.major] + rows * probe.bits // 128
        offsets = [int(rng.integers(0, max(1, span // groups // 16))) * 16 for _ in range(2)]
        if number % 4 == 0:
            offsets = [each // 1024 * 1024 for each in offsets]
        reach = MatrixDescriptor(0, offsets[0], offsets[1], swizzle=swizzle)
        top = int(probe.expected(reach).max()) + 8 * max(offsets) // 4 + 2048
        if first + top >= ONES:
            offsets, top = [0, 0], 8192
        step = (1024, 16, 16, 128)[number % 4]
        start = int(rng.integers(-(-first // step), max(-(-first // step) + 1, (ONES - top) // step))) * step
        base = int(rng.integers(0, 8)) if number % 4 >= 2 else 0
        found.append(MatrixDescriptor(start, offsets[0], offsets[1], base, swizzle))
    return found
