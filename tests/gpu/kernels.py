"""PTX of one instruction a kernel, written from the Instruction: registers, operand order, types.

Block i of a launch works on item i. Fragments lie in memory as packed: words[item, thread, register].
Where bytes go in shared memory for wgmma is `tiles.py`; what the kernels are fed is `inputs.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpu.device import Kernel
from gpu.tiles import Tile
from lanewise.isa import Instruction, Operand, arch_number

#: The first PTX version that has a target; older modules cannot name it.
_FIRST_PTX = {
    70: "6.3", 72: "6.3", 75: "6.3", 80: "7.0", 86: "7.1", 87: "7.4", 88: "9.0", 89: "7.8",
    90: "8.0", 100: "8.6", 103: "8.8", 110: "9.0", 120: "8.7", 121: "8.8",
}  # fmt: skip


@dataclass(frozen=True)
class Registers:
    """The registers that each thread gives to one operand, under PTX names %name0, %name1, …"""

    name: str
    count: int
    bits: int

    @classmethod
    def of(cls, name: str, operand: Operand) -> Registers:
        return cls(name, operand.registers, operand.register_bits)

    @property
    def type(self) -> str:
        return "f64" if self.bits == 64 else "b32"

    @property
    def vector(self) -> str:
        return "{" + ", ".join(f"%{self.name}{i}" for i in range(self.count)) + "}"

    def declare(self) -> str:
        return f".reg .{self.type} %{self.name}<{self.count}>;"

    def _address(self, pointer: str) -> list[str]:
        return [f"mad.wide.u32 %at, %thread, {self.count * self.bits // 8}, %p_{pointer};"]

    def load(self, pointer: str = "") -> list[str]:
        """Read them from where their own pointer, or another, points."""
        step = self.bits // 8
        return self._address(pointer or self.name) + [
            f"ld.global.{self.type} %{self.name}{i}, [%at+{step * i}];" for i in range(self.count)
        ]

    def store(self) -> list[str]:
        """Write them to where their pointer points."""
        step = self.bits // 8
        return self._address(self.name) + [
            f"st.global.{self.type} [%at+{step * i}], %{self.name}{i};" for i in range(self.count)
        ]


def _kernel(
    instruction: Instruction,
    arch: str,
    pointers: Iterable[str],
    registers: Iterable[Registers],
    body: Iterable[str],
    shared: Iterable[tuple[str, int]] = (),
) -> Kernel:
    threads, pointers = instruction.threads, tuple(pointers)
    if instruction.until is not None:  # a withdrawn form needs old PTX, which knows old targets only
        version, target = instruction.until, "sm_70"
    else:
        version = max(
            _FIRST_PTX[arch_number(arch)], instruction.since, key=lambda v: tuple(map(int, v.split(".")))
        )
        target = arch
    lines = [
        f".version {version}",
        f".target {target}",
        ".address_size 64",
        f".visible .entry k({', '.join(f'.param .u64 param_{name}' for name in pointers)}) {{",
        *(f".shared .align 128 .b8 s_{name}[{size}];" for name, size in shared),
        *(each.declare() for each in registers),
        f".reg .b64 {', '.join(f'%p_{name}' for name in pointers)}, %at, %generic;",
        ".reg .b32 %thread, %local, %item, %base, %stride, %w<4>;",
        ".reg .b64 %descriptor<2>;",
        ".reg .pred %accumulate;",
        "mov.u32 %local, %tid.x;",
        "mov.u32 %item, %ctaid.x;",
        f"mad.lo.u32 %thread, %item, {threads}, %local;",
    ]
    for name in pointers:
        lines += [f"ld.param.u64 %p_{name}, [param_{name}];", f"cvta.to.global.u64 %p_{name}, %p_{name};"]
    return Kernel("\n".join([*lines, *body, "ret;", "}", ""]), threads, arch)


def _copy(name: str, size: int, threads: int, *, out: bool = False) -> list[str]:
    """Move an item's image between global and shared memory, 16 bytes a thread and step."""
    vector = "{%w0, %w1, %w2, %w3}"
    lines = [
        f"mad.wide.u32 %at, %item, {size}, %p_{name};",
        "shl.b32 %base, %local, 4;",
        "cvt.u64.u32 %generic, %base;",
        "add.u64 %at, %at, %generic;",
        f"mov.u32 %stride, s_{name};",
        "add.u32 %base, %base, %stride;",
    ]
    for offset in range(0, size, 16 * threads):
        load, store = f"[%at+{offset}]", f"[%base+{offset}]"
        if out:
            lines += [f"ld.shared.v4.b32 {vector}, {store};", f"st.global.v4.b32 {load}, {vector};"]
        else:
            lines += [f"ld.global.v4.b32 {vector}, {load};", f"st.shared.v4.b32 {store}, {vector};"]
    return ["bar.sync 0;", *lines] if out else [*lines, "bar.sync 0;"]


def _padded(size: int, threads: int) -> int:
    return -(-size // (16 * threads)) * 16 * threads


# mma, mma.sp, wmma.mma, movmatrix: everything in registers -----------------------------------------------


def register_kernel(instruction: Instruction, arch: str, selector: int = 0) -> Kernel:
    """Inputs: the words of a, b, c, then of metadata or scale factors, if there are any; output: d's."""
    named = {name: Registers.of(name, operand) for name, operand in instruction.operands.items()}
    d = named.pop("d")
    if instruction.family == "movmatrix":
        call = [f"{instruction.text} %d0, %a0;"]
    else:
        arguments = [d.vector, named["a"].vector, named["b"].vector, named["c"].vector]
        if instruction.sparse:
            arguments += ["%metadata0", str(selector)]
        if instruction.scale_vec:
            arguments += ["%scale_a0", "{0, 0}", "%scale_b0", "{0, 0}"]
        call = [f"{instruction.text} {', '.join(arguments)};"]
    loads = [line for each in named.values() for line in each.load()]
    return _kernel(instruction, arch, [*named, "d"], [*named.values(), d], [*loads, *call, *d.store()])


# wgmma ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Warpgroup:
    """The choices that wgmma leaves to its immediate operands."""

    accumulate: bool = True
    negate_a: bool = False
    negate_b: bool = False
    transpose_a: bool = False
    transpose_b: bool = False
    selector: int = 0

    def __str__(self) -> str:
        words = {
            "D = A·B": not self.accumulate,
            "−A": self.negate_a,
            "−B": self.negate_b,
            "A M-major": self.transpose_a,
            "B N-major": self.transpose_b,
            f"selector {self.selector}": self.selector,
        }
        return ", ".join(word for word, said in words.items() if said)


def tile_a(instruction: Instruction, choice: Warpgroup) -> Tile:
    """How A lies in shared memory."""
    return Tile(instruction.a.rows, instruction.a.cols, instruction.a.format.bits, choice.transpose_a)


def tile_b(instruction: Instruction, choice: Warpgroup) -> Tile:
    """How B lies in shared memory, as (N, K)."""
    return Tile(instruction.b.cols, instruction.b.rows, instruction.b.format.bits, choice.transpose_b)


def warpgroup_kernel(instruction: Instruction, arch: str, choice: Warpgroup) -> Kernel:
    """Inputs: a (words, or its shared-memory image), b's image, c's words, metadata words; output: d's."""
    named = {name: Registers.of(name, each) for name, each in instruction.operands.items() if each.registers}
    d = named.pop("d")
    del named["c"]  # the accumulator is both C and D
    shared = {"b": tile_b(instruction, choice)}
    if instruction.a_source == "descriptor":
        shared = {"a": tile_a(instruction, choice), **shared}
    sizes = {name: _padded(tile.size, instruction.threads) for name, tile in shared.items()}
    body: list[str] = []
    for number, (name, tile) in enumerate(shared.items()):
        body += _copy(name, sizes[name], instruction.threads)
        body += [
            f"mov.u32 %base, s_{name};",
            "and.b32 %base, %base, 0x3FFFF;",
            "shr.u32 %base, %base, 4;",
            f"cvt.u64.u32 %descriptor{number}, %base;",
            f"or.b64 %descriptor{number}, %descriptor{number}, {tile.descriptor_bits:#x};",
        ]
    for each in named.values():
        body += each.load()
    body += d.load("c")
    arguments = [
        d.vector,
        named["a"].vector if "a" in named else "%descriptor0",
        f"%descriptor{len(shared) - 1}",
    ]
    if instruction.sparse:
        arguments += ["%metadata0", str(choice.selector)]
    arguments.append("%accumulate")
    if instruction.a.format.kind == "float":
        arguments += ["-1" if negated else "1" for negated in (choice.negate_a, choice.negate_b)]
    if instruction.a.format.bits == 16:
        arguments += [str(int(choice.transpose_a))] if "a" in shared else []
        arguments.append(str(int(choice.transpose_b)))
    body += [
        "fence.proxy.async.shared::cta;",
        "bar.sync 0;",
        f"setp.ne.u32 %accumulate, {int(choice.accumulate)}, 0;",
        "wgmma.fence.sync.aligned;",
        f"{instruction.text} {', '.join(arguments)};",
        "wgmma.commit_group.sync.aligned;",
        "wgmma.wait_group.sync.aligned 0;",
        *d.store(),
    ]
    pointers = ["a", "b", "c", *(["metadata"] if instruction.sparse else []), "d"]
    return _kernel(instruction, arch, pointers, [*named.values(), d], body, sizes.items())


# wmma through memory -------------------------------------------------------------------------------------


def _place(space: str, name: str, size: int) -> tuple[str, list[str]]:
    """The address of an item's image in a state space, and the lines that compute it."""
    if space.startswith("shared"):
        return "[%base]", [f"mov.u32 %base, s_{name};"]
    lines = [f"mad.wide.u32 %at, %item, {size}, %p_{name};"]
    if space == "global":
        return "[%at]", lines
    return "[%generic]", [*lines, "cvta.global.u64 %generic, %at;"]


def wmma_move_kernel(instruction: Instruction, arch: str, size: int, stride: int) -> Kernel:
    """wmma.load: image of `size` bytes an item in, words out; wmma.store: words in, image out.

    The image is in the state space that the text names; `stride` is given where the form takes one.
    """
    name = instruction.matrix
    fragment = Registers.of("fragment", instruction.operands[name])
    in_shared = instruction.space.startswith("shared")
    size = _padded(size, instruction.threads)
    where, compute = _place(instruction.space, "image", size)
    last = [f"mov.u32 %stride, {stride};"] if instruction.stride else []
    comma = ", %stride" if instruction.stride else ""
    staged = [("image", size)] if in_shared else []
    # A stored image starts as the output was given, so that bytes between the rows can be seen to stay.
    copy_in = _copy("image", size, instruction.threads) if in_shared else []
    if instruction.family == "wmma.load":
        body = [
            *copy_in,
            *compute,
            *last,
            f"{instruction.text} {fragment.vector}, {where}{comma};",
            *fragment.store(),
        ]
        return _kernel(instruction, arch, ["image", "fragment"], [fragment], body, staged)
    copy_out = _copy("image", size, instruction.threads, out=True) if in_shared else []
    call = [f"{instruction.text} {where}, {fragment.vector}{comma};"]
    body = [*copy_in, *fragment.load(), *compute, *last, *call, *copy_out]
    return _kernel(instruction, arch, ["fragment", "image"], [fragment], body, staged)


def wmma_memory_kernel(
    instruction: Instruction, arch: str, sizes: dict[str, int], strides: dict[str, int]
) -> Kernel:
    """wmma.mma between wmma.load and wmma.store: images of a, b, c in (c and d row-major), image of d out."""
    named = {name: Registers.of(name, operand) for name, operand in instruction.operands.items()}
    layouts = {"a": instruction.layout_a, "b": instruction.layout_b, "c": "row", "d": "row"}

    def move(verb: str, name: str) -> str:
        fmt = instruction.operands[name].format.name
        return f"wmma.{verb}.{name}.sync.aligned.{layouts[name]}.{instruction.shape_text}.global.{fmt}"

    body: list[str] = []
    for name in "abc":
        where, compute = _place("global", name, sizes[name])
        body += [*compute, f"{move('load', name)} {named[name].vector}, {where}, {strides[name]};"]
    body.append(f"{instruction.text} {', '.join(named[name].vector for name in 'dabc')};")
    where, compute = _place("global", "d", sizes["d"])
    body += [*compute, f"{move('store', 'd')} {where}, {named['d'].vector}, {strides['d']};"]
    return _kernel(instruction, arch, named, named.values(), body)


# ldmatrix, stmatrix --------------------------------------------------------------------------------------

#: Bytes of shared memory that the rows of ldmatrix and stmatrix are spread over: one row a lane.
ROWS_SIZE = 16 * 32


def row_kernel(instruction: Instruction, arch: str) -> Kernel:
    """ldmatrix: image and row offsets in, words out; stmatrix: words and row offsets in, image out.

    Lane l gives the address of the row at byte offset `offsets[item, l]` of the image.
    """
    loading = instruction.family == "ldmatrix"
    name = "d" if loading else "a"
    fragment = Registers.of("fragment", instruction.operands[name])
    offsets = Registers("offsets", 1, 32)
    address = ["mov.u32 %base, s_image;", "add.u32 %base, %base, %offsets0;"]
    where = "[%base]"
    if not instruction.space:
        address += ["cvt.u64.u32 %at, %base;", "cvta.shared.u64 %generic, %at;"]
        where = "[%generic]"
    copy_in = _copy("image", ROWS_SIZE, instruction.threads)
    if loading:
        call = [f"{instruction.text} {fragment.vector}, {where};", *fragment.store()]
        body = [*copy_in, *offsets.load(), *address, *call]
        pointers = ["image", "offsets", "fragment"]
    else:
        call = [f"{instruction.text} {where}, {fragment.vector};"]
        copy_out = _copy("image", ROWS_SIZE, instruction.threads, out=True)
        body = [*copy_in, *offsets.load(), *fragment.load(), *address, *call, *copy_out]
        pointers = ["fragment", "offsets", "image"]
    return _kernel(instruction, arch, pointers, [fragment, offsets], body, [("image", ROWS_SIZE)])
