"""What the words of asynchronous instructions mean. Which of them go together is in `table.py`."""

import re

#: What an opcode does, in a sentence.
OPCODES = {
    "tcgen05.alloc": "One warp allocates columns of tensor memory and writes their address to shared memory.",
    "tcgen05.dealloc": "One warp gives columns of tensor memory back.",
    "tcgen05.relinquish_alloc_permit": "The block promises to allocate no more tensor memory.",
    "tcgen05.ld": "A warp loads its 32 lanes of tensor memory into registers; tcgen05.wait::ld waits for it.",
    "tcgen05.ld.red": "A load from tensor memory that also gives each lane the least or greatest value.",
    "tcgen05.st": "A warp stores registers to its 32 lanes of tensor memory; tcgen05.wait::st waits for it.",
    "tcgen05.wait": "A warp waits until its loads (::ld) or stores (::st) of tensor memory are complete.",
    "tcgen05.cp": "One thread starts a copy from shared memory to tensor memory.",
    "tcgen05.shift": "One thread starts a shift of 32 rows of tensor memory by one row.",
    "tcgen05.commit": "Arrives at an mbarrier when all tcgen05 operations that this thread started are done.",
    "tcgen05.fence": "Orders tcgen05 operations with the synchronisation of threads before or after it.",
    "tcgen05.mma": "One thread starts D = A·B + D for a block, or for two: D lies in tensor memory, B behind "
    "a descriptor of shared memory, A behind one or in tensor memory.",
    "tcgen05.mma.sp": "tcgen05.mma with a 2:4 sparse A, whose metadata lie in tensor memory.",
    "tcgen05.mma.ws": "tcgen05.mma that keeps B in a buffer between instructions (weight stationary).",
    "tcgen05.mma.ws.sp": "tcgen05.mma.ws with a 2:4 sparse A.",
    "cp.async.bulk": "One thread starts a copy of bytes that are one block of memory, at both ends.",
    "cp.async.bulk.prefetch": "One thread asks for bytes of global memory in L2.",
    "cp.async.bulk.commit_group": "Closes the group of the bulk copies that this thread started so far.",
    "cp.async.bulk.wait_group": "Waits until at most so many of this thread's groups are on their way.",
    "cp.reduce.async.bulk": "One thread starts a bulk copy that combines elements with those in memory.",
    "cp.async.bulk.tensor": "One thread starts a copy of a box of an array, described by a tensor map (TMA).",
    "cp.reduce.async.bulk.tensor": "A tensor copy to global memory that combines elements with those there.",
    "cp.async.bulk.prefetch.tensor": "One thread asks for a box of an array in L2.",
}

WORDS = {
    "cta_group::1": "one block takes part",
    "cta_group::2": "a pair of blocks of a cluster takes part",
    "sync": "all lanes of the warp execute it together",
    "aligned": "all lanes execute this same instruction",
    "b32": "units of 32 bits",
    "b64": "the mbarrier has 64 bits",
    "pack::16b": "two 16-bit elements of neighbouring columns are packed into a register",
    "unpack::16b": "the two 16-bit halves of a register go to neighbouring columns",
    "min": "the lesser of two values",
    "max": "the greater of two values",
    "abs": "of absolute values",
    "NaN": "a NaN among the values is the result",
    "add": "the sum",
    "inc": "count up to the given value, then from 0",
    "dec": "count down to 0, then from the given value",
    "and": "bits that both have",
    "or": "bits that one of them has",
    "xor": "bits in which they differ",
    "noftz": "subnormal numbers are kept",
    "warpx2::02_13": "the 64 rows are copied to warps 0 and 2, and 1 and 3",
    "warpx2::01_23": "the 64 rows are copied to warps 0 and 1, and 2 and 3",
    "warpx4": "the 32 rows are copied to all four warps' lanes",
    "b8x16": "elements become 8 bits wide, 16 of them in a piece",
    "b6x16_p32": "from 16 elements of 6 bits and 32 bits of padding",
    "b4x16_p64": "from 16 elements of 4 bits and 64 bits of padding",
    "down": "towards lower rows",
    "mbarrier::arrive::one": "one arrival at the mbarrier when everything is complete",
    "mbarrier::complete_tx::bytes": "an mbarrier counts the bytes that have arrived",
    "multicast::cluster": "to several blocks of the cluster, which a mask names",
    "bulk_group": "this thread waits for it by groups: commit_group, wait_group",
    "read": "only until the sources have been read",
    "cp_mask": "a mask says which bytes of every 16 are written",
    "shared::cta": "shared memory of this block",
    "shared::cluster": "shared memory of a block of the cluster",
    "global": "global memory",
    "L2": "into the L2 cache",
    "L2::cache_hint": "a 64-bit policy for the L2 cache is the last operand",
    "ashift": "rows of A are shifted by one (A lies in tensor memory)",
    "block_scale": "blocks of elements along K have scale factors, which lie in tensor memory",
    "scale_vec::1X": "one scale factor for each row and 32 elements of K",
    "scale_vec::2X": "two scale factors for each row along K",
    "scale_vec::4X": "four scale factors for each row along K",
    "block16": "a scale factor for each 16 elements",
    "block32": "a scale factor for each 32 elements",
    "kind::f16": "A and B are f16 or bf16; D is f16 or f32",
    "kind::tf32": "A and B are tf32; D is f32",
    "kind::f8f6f4": "A and B are e4m3, e5m2, e3m2, e2m3 or e2m1, each its own; D is f16 or f32",
    "kind::i8": "A and B are s8 or u8; D is s32",
    "kind::mxf8f6f4": "A and B are e4m3, e5m2, e3m2, e2m3 or e2m1 with ue8m0 scales; D is f32",
    "kind::mxf4": "A and B are e2m1 with ue8m0 scales; D is f32",
    "kind::mxf4nvf4": "A and B are e2m1 with ue8m0 or ue4m3 scales; D is f32",
    "tile": "boxes as the tensor map says (the default)",
    "tile::gather4": "four rows, each with its own coordinate",
    "tile::scatter4": "four rows, each with its own coordinate",
    "im2col": "boxes of a convolution's input, by offsets",
    "im2col_no_offs": "boxes of a convolution's output, without offsets",
    "im2col::w": "as im2col, along the width alone",
    "im2col::w::128": "as im2col::w, for 128 elements of the width",
}
WORDS |= {
    f"collector::{buffer}::{use}": f"the buffer of {buffer.upper()} {meaning}"
    for buffer in ("a", "b0", "b1", "b2", "b3")
    for use, meaning in (
        ("fill", "is filled for later instructions"),
        ("use", "is used, and kept"),
        ("lastuse", "is used for the last time"),
        ("discard", "is not kept (the default)"),
    )
}
_PATTERNS = (
    (r"(\d)d", r"a tensor of \1 dimensions"),
    (r"x(\d+)", r"\1 times along the columns"),
    (r"(\d+)x(\d+)b", r"\1 lanes by \2 bits of tensor memory"),
    (r"16x32bx2", r"two halves of 16 lanes by 32 bits, the second at an offset"),
    (r"([usf]|bf)(8|16|32|64)", r"elements are \1\2"),
)


def meaning(word: str) -> str:
    """What a word of an instruction says.

    >>> meaning("x8"), meaning("cta_group::2")
    ('8 times along the columns', 'a pair of blocks of a cluster takes part')
    """
    if word in WORDS:
        return WORDS[word]
    for pattern, words in _PATTERNS:
        match = re.fullmatch(pattern, word)
        if match:
            return match.expand(words)
    return ""
