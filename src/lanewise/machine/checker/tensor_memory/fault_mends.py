"""What mends a launch that stopped at a rule of tensor memory or of tcgen05.mma."""

from __future__ import annotations

from lanewise.machine.tensor_core.tcgen05_faults import Wrong as WrongProduct
from lanewise.machine.tensor_memory.faults import Wrong

_ALLOCATE_MORE = (
    "allocate as many columns as are used (32, 64, 128, 256 or 512), and free them after their last use"
)
_BOTH_BLOCKS = "let both blocks of the pair meet at the barrier of the cluster before one of them ends"
_CLUSTER = "launch clusters of an even number of blocks (__cluster_dims__(2, 1, 1))"

#: By the number of what is wrong with tensor memory.
TENSOR_MENDS: dict[int, str] = {
    Wrong.COUNT: "ask for 32, 64, 128, 256 or 512 columns",
    Wrong.COUNTS_DIFFER: "give all lanes of the warp the same number of columns",
    Wrong.RELINQUISHED: "allocate all columns before tcgen05.relinquish_alloc_permit",
    Wrong.NOT_AN_ALLOCATION: "free what tcgen05.alloc wrote, once, with the same number of columns",
    Wrong.NO_PAIR: _CLUSTER,
    Wrong.PAIR_EXITED: _BOTH_BLOCKS,
    Wrong.PAIR_COUNT: "let both blocks of the pair ask for the same number of columns",
    Wrong.NOT_ALLOCATED: _ALLOCATE_MORE,
    Wrong.BEYOND_COLUMNS: _ALLOCATE_MORE,
    Wrong.LANES_OF_OTHERS: "add 32 * (warp % 4) to the lane of the address: address + ((warp % 4) << 21)",
    Wrong.ADDRESSES_DIFFER: "give all lanes of the warp the same address, without the lane's own offset",
}
#: By the number of what is wrong with a product.
PRODUCT_MENDS: dict[int, str] = {
    WrongProduct.NO_PAIR: _CLUSTER,
    WrongProduct.ODD_RANK: "let the block of the pair with the even rank in the cluster issue it",
    WrongProduct.PARTNER_EXITED: _BOTH_BLOCKS,
    WrongProduct.D_COLUMNS: _ALLOCATE_MORE,
    WrongProduct.A_COLUMNS: _ALLOCATE_MORE,
    WrongProduct.SCALE_COLUMNS: _ALLOCATE_MORE,
    WrongProduct.METADATA_COLUMNS: _ALLOCATE_MORE,
}
