"""The special registers of PTX that the machine has, and the elements of each.

`codegen/lane_vectors.py` computes the values that a kernel reads from them.
"""

#: The shared memory that the system reserves in each block; tiles of several warps use it.
RESERVED_MEMORY_REGISTERS = tuple(f"%reserved_smem_offset_{end}" for end in ("begin", "end", "cap", "0", "1"))
#: By name: the elements that it has, none for a register that is a single number.
SPECIAL_REGISTERS = {
    **dict.fromkeys(("%tid", "%ntid", "%ctaid", "%nctaid"), "xyz"),
    **dict.fromkeys(("%clusterid", "%nclusterid", "%cluster_ctaid", "%cluster_nctaid"), "xyz"),
    **dict.fromkeys(("%cluster_ctarank", "%cluster_nctarank", "%is_explicit_cluster"), ""),
    **dict.fromkeys(("%laneid", "%warpid", "%nwarpid", "WARP_SZ"), ""),
    **{f"%lanemask_{relation}": "" for relation in ("eq", "le", "lt", "ge", "gt")},
    **dict.fromkeys(("%clock", "%clock_hi", "%clock64"), ""),
    **dict.fromkeys(("%globaltimer", "%globaltimer_lo", "%globaltimer_hi"), ""),
    **dict.fromkeys(("%smid", "%nsmid", "%gridid", "%current_graph_exec"), ""),
    **dict.fromkeys(("%dynamic_smem_size", "%total_smem_size", "%aggr_smem_size"), ""),
    **dict.fromkeys(RESERVED_MEMORY_REGISTERS, ""),
    **{f"%pm{number}": "" for number in range(8)},
    **{f"%pm{number}_64": "" for number in range(8)},
    **{f"%envreg{number}": "" for number in range(32)},
}
#: Where cooperative groups find the words of the barrier that all blocks of a grid wait at.
GRID_BARRIER_REGISTERS = ("%envreg1", "%envreg2")
#: Registers that count time.
CLOCK_REGISTERS = frozenset(
    ("%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi")
)
