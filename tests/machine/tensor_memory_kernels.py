"""Kernels for tests of tensor memory: they fill it, execute one instruction of tcgen05, and read it back."""

from collections.abc import Sequence

#: Columns that the kernels allocate, fill and read back if they need no more; the most that a thread moves.
COLUMNS, MOST = 64, 128


def registers(name: str, count: int) -> str:
    """The registers of a vector operand."""
    return "{" + ", ".join(f"%{name}{number}" for number in range(count)) + "}"


def kernel(
    body: str,
    parameters: Sequence[str] = (),
    shared: str = "",
    target: str = "sm_100a",
    group: int = 1,
    columns: int = COLUMNS,
    version: str = "8.8",
) -> str:
    """PTX of a kernel of 128 threads that allocates columns, runs a body, and frees them.

    The body finds the address in %taddr, the thread in %tid0, the warp in %warp, the pointers of parameters
    in %p_NAME; it may use %a and %d (128 registers each), %r, %rd and %p.
    """
    pointers = "\n".join(f"    ld.param.u64 %p_{name}, [{name}];" for name in parameters)
    declared = " ".join(f".reg .b64 %p_{name};" for name in parameters)
    return f"""
.version {version}
.target {target}
.address_size 64
.visible .entry k({", ".join(f".param .u64 {name}" for name in parameters)}) {{
    .reg .b32 %a<128>; .reg .b32 %d<128>; .reg .b32 %r<64>; .reg .b64 %rd<64>; .reg .pred %p<8>;
    .reg .b32 %taddr, %tid0, %warp, %rank; .reg .b16 %h<4>; {declared}
    .shared .align 16 .b32 place[4]; .shared .align 8 .b64 bars[4];
    {shared}
{pointers}
    mov.u32 %tid0, %tid.x;
    shr.u32 %warp, %tid0, 5;
    mov.u32 %rank, %cluster_ctarank;
    setp.ne.u32 %p7, %warp, 0;
    @%p7 bra ALLOCATED;
    tcgen05.alloc.cta_group::{group}.sync.aligned.shared::cta.b32 [place], {columns};
    tcgen05.relinquish_alloc_permit.cta_group::{group}.sync.aligned;
ALLOCATED:
    bar.sync 0;
    ld.shared.u32 %taddr, [place];
{body}
    bar.sync 0;
    @%p7 bra FREED;
    tcgen05.dealloc.cta_group::{group}.sync.aligned.b32 %taddr, {columns};
FREED:
    ret;
}}
"""


def row_pointer(target: str, parameter: str, row_words: int) -> str:
    """Code that leaves the address of the thread's row of a matrix of words in a register."""
    return f"    mad.wide.u32 {target}, %tid0, {4 * row_words}, %p_{parameter};"


def global_to_registers(pointer: str, name: str, count: int, start: int = 0) -> str:
    """Code that loads neighbouring words."""
    return "\n".join(f"    ld.global.u32 %{name}{n}, [{pointer}+{4 * (start + n)}];" for n in range(count))


def registers_to_global(pointer: str, name: str, count: int, start: int = 0) -> str:
    """Code that stores neighbouring words."""
    return "\n".join(f"    st.global.u32 [{pointer}+{4 * (start + n)}], %{name}{n};" for n in range(count))


def fill(parameter: str, columns: int = COLUMNS) -> str:
    """Code by which each thread fills its lane of tensor memory with a row of a matrix, and all wait."""
    lines = [row_pointer("%rd60", parameter, columns)]
    piece = min(columns, MOST)
    for start in range(0, columns, piece):
        lines += [
            global_to_registers("%rd60", "a", piece, start),
            f"    add.u32 %r60, %taddr, {start};",
            f"    tcgen05.st.sync.aligned.32x32b.x{piece}.b32 [%r60], {registers('a', piece)};",
        ]
    return "\n".join([*lines, "    tcgen05.wait::st.sync.aligned;", "    bar.sync 0;"])


def dump(parameter: str, columns: int = COLUMNS) -> str:
    """Code by which each thread writes its lane of tensor memory to a row of a matrix."""
    lines = ["    bar.sync 0;", row_pointer("%rd61", parameter, columns)]
    piece = min(columns, MOST)
    for start in range(0, columns, piece):
        lines += [
            f"    add.u32 %r60, %taddr, {start};",
            f"    tcgen05.ld.sync.aligned.32x32b.x{piece}.b32 {registers('a', piece)}, [%r60];",
            "    tcgen05.wait::ld.sync.aligned;",
            registers_to_global("%rd61", "a", piece, start),
        ]
    return "\n".join(lines)
