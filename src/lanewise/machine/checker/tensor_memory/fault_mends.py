"""What mends a launch that stopped at a rule of tensor memory or of tcgen05.mma."""

from typing import NamedTuple

from lanewise.machine.checker.mends import Language
from lanewise.machine.tensor_core.tcgen05_faults import COLUMNS
from lanewise.machine.tensor_core.tcgen05_faults import Wrong as WrongProduct
from lanewise.machine.tensor_memory.faults import Wrong
from lanewise.machine.tensor_memory_records import FREED_COLUMN


class Mend(NamedTuple):
    """What mends a fault, and the same in the Python language if that has other words for it."""

    text: str
    in_python: str = ""

    def spelled(self, language: Language) -> str:
        """Return it as the kernel's language writes it."""
        return self.in_python if self.in_python and language is Language.PYTHON else self.text


_ALLOCATE_MORE = Mend(
    "allocate as many columns as are used (32, 64, 128, 256 or 512), and free them after their last use"
)
_BOTH_BLOCKS = Mend(
    "let both blocks of the pair meet at the barrier of the cluster before one of them ends",
    "let both blocks of the pair call `lw.cluster.sync()` before one of them ends",
)
_CLUSTER = Mend(
    "launch clusters of an even number of blocks (__cluster_dims__(2, 1, 1))",
    "launch clusters of an even number of blocks: `@lw.kernel(cluster=2)`",
)

#: By the number of what is wrong with tensor memory.
_TENSOR_MENDS: dict[int, Mend] = {
    Wrong.COUNT: Mend("ask for 32, 64, 128, 256 or 512 columns"),
    Wrong.COUNTS_DIFFER: Mend("give all lanes of the warp the same number of columns"),
    Wrong.RELINQUISHED: Mend(
        "allocate all columns before tcgen05.relinquish_alloc_permit",
        "allocate with `relinquish=False` before the last `lw.tmem.alloc`",
    ),
    Wrong.NOT_AN_ALLOCATION: Mend(
        "free what tcgen05.alloc wrote, once, with the same number of columns", "call `memory.free()` once"
    ),
    Wrong.NO_PAIR: _CLUSTER,
    Wrong.PAIR_EXITED: _BOTH_BLOCKS,
    Wrong.PAIR_COUNT: Mend("let both blocks of the pair ask for the same number of columns"),
    Wrong.NOT_ALLOCATED: _ALLOCATE_MORE,
    Wrong.BEYOND_COLUMNS: _ALLOCATE_MORE,
    Wrong.LANES_OF_OTHERS: Mend(
        "add 32 * (warp % 4) to the lane of the address: address + ((warp % 4) << 21)"
    ),
    Wrong.ADDRESSES_DIFFER: Mend(
        "give all lanes of the warp the same address, without the lane's own offset",
        "give all lanes of the warp the same column",
    ),
}
#: By the number of what is wrong with a product.
_PRODUCT_MENDS: dict[int, Mend] = {
    WrongProduct.NO_PAIR: _CLUSTER,
    WrongProduct.ODD_RANK: Mend("let the block of the pair with the even rank in the cluster issue it"),
    WrongProduct.PARTNER_EXITED: _BOTH_BLOCKS,
    **dict.fromkeys(COLUMNS, _ALLOCATE_MORE),
}
_FREE_LATER = Mend(
    "let all threads that use the columns synchronise with the warp that frees them, before tcgen05.dealloc",
    "let all threads that use the columns synchronise with the warp that frees them, before `memory.free()`",
)


def tensor_mend(why: int, number: int, otherwise: str) -> Mend:
    """Return what mends a fault of tensor memory; `number` is the one that the fault has beside it."""
    if why == Wrong.NOT_ALLOCATED and number & FREED_COLUMN:
        return _FREE_LATER
    return _TENSOR_MENDS.get(why, Mend(otherwise))


def product_mend(why: int, number: int, otherwise: str) -> Mend:
    """Return what mends a fault of a product; `number` is the one that the fault has beside it."""
    if why in COLUMNS and number & FREED_COLUMN:
        return _FREE_LATER
    return _PRODUCT_MENDS.get(why, Mend(otherwise))
