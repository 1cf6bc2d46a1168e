"""What the Hopper kernels take on an H200: the costs of `model.py`, and how sure they are."""

from __future__ import annotations

from lanewise.linalg.planning.model import Costs

H200 = Costs(
    launch=2.91,
    first_load=1.2,
    cluster=0.0682,
    products=3.39e6,
    eight_bit=2.05,
    extra_columns=16.4,
    least_columns=26.5,
    step_alone=0.0448,
    step_shared=0.00115,
    load_latency=1.8,
    l2_bytes=1.38e7,
    port_bytes=8.08e5,
    memory_bytes=3.75e6,
    memory_port_bytes=3.68e5,
    drain=1.56,
    dirty_bytes=4.06e6,
    read_again=0.0449,
    loads_along_m=0.0651,
    loads_along_n=0.214,
    half_sectors=1.08,
    half_atoms=0.276,
    broken_sector=38.9,
    broken_atom=24.2,
    broken_line=0.822,
    epilogue=0.361,
    epilogue_piece=0.302,
    thread_stores=1.61,
    long_epilogue=0.942,
    wide_results=0.319,
    direct_piece=0.0564,
    exposed_cooperative=1.0,
    exposed_pingpong=0.286,
    tile=0.0235,
    last_wave=0.422,
    promotion=0.0408,
    promotion_by_turns=0.0106,
    cluster_exchange=0.562,
    cluster_bytes=5.14e4,
    memory_exchange=1.34,
    exchange_bytes=7.31e4,
    second_kernel=1.53,
    gather_bytes=2.93e6,
    copy=1.56,
    second_copy=0.119,
    copy_bytes=3.5e6,
    warp_launch=4.64,
    warp_first=0.169,
    warp_products=8.74e5,
    warp_piece=0.000217,
    warp_element=0.000323,
    warp_step=0.258,
    warp_store=0.284,
)
#: By what share of the time the planner is typically off (the root of the mean square), by the part of the
#: time that is longest, on the records of an H200 (`python benchmarks/fit_planner.py --records`). There are
#: hardly any products whose epilogues, exchanges or copies take longest.
ERRORS = {
    "launch": 0.09, "tensor_cores": 0.11, "loads": 0.15, "memory": 0.15, "epilogue": 0.3, "exchange": 0.3,
    "copies": 0.3,
}  # fmt: skip
