"""A check whose shadow memory ends right before a page that nobody may touch: a program of its own.

An access behind the last plane ends the process. `test_check_shadow_pool.py` starts it.
"""

import ctypes
import mmap

import numpy as np

import lanewise as lw
from lanewise.jit.host_memory import address
from lanewise.machine.checker.shadow_pool import SHADOWS, Piece, Words

PAGE = mmap.PAGESIZE
NO_ACCESS = 0  # PROT_NONE


def fenced(count: int) -> Words:
    """Return zeroed words; the page behind them is protected."""
    size = 4 * count
    whole = -(-size // PAGE) * PAGE
    memory = np.frombuffer(mmap.mmap(-1, whole + PAGE), np.uint8)
    status = ctypes.CDLL(None).mprotect(
        ctypes.c_void_p(address(memory) + whole), ctypes.c_size_t(PAGE), NO_ACCESS
    )
    assert status == 0
    return memory[whole - size : whole].view(np.uint32)


@lw.kernel
def scatter(x: lw.Ptr[lw.i32], n: lw.i32, rounds: lw.i32) -> None:
    t = lw.block_idx.x * 64 + lw.thread_idx.x
    drawn = (t + 1).to(lw.u32)
    for i in lw.range(rounds):
        drawn = drawn ^ (drawn << 13)
        drawn = drawn ^ (drawn >> 17)
        drawn = drawn ^ (drawn << 5)
        j = (drawn % n.to(lw.u32)).to(lw.i32)
        if t % 2 == 0:
            x[j] = x[j] + x[(j * 7 + i) % n]


def take(count: int) -> Piece:
    """Return a piece of shadow memory whose end is fenced."""
    return Piece(fenced(count) if count else np.zeros(0, np.uint32))


if __name__ == "__main__":
    SHADOWS.take = take  # type: ignore[method-assign]  # every check of this process has it
    print(len(lw.check(scatter[4, 64], np.zeros(500, np.int32), 500, 500).findings))
