"""What the Hopper kernels take on an H200: the costs of `model.py`, and how sure they are."""

from __future__ import annotations

from lanewise.linalg.planning.model import Costs

H200 = Costs(
    launch=3.19,
    first_load=1.25,
    cluster=0.0939,
    products=3.42e6,
    eight_bit=2.16,
    extra_columns=14.4,
    least_columns=24.9,
    step_alone=0.0438,
    step_shared=0.00462,
    load_latency=1.85,
    l2_bytes=1.14e7,
    port_bytes=5.06e5,
    memory_bytes=3.47e6,
    memory_port_bytes=1.7e5,
    read_again=0.134,
    loads_along_m=0.0535,
    loads_along_n=0.101,
    half_sectors=0.783,
    broken_sector=45.6,
    broken_atom=16.2,
    broken_line=4.68,
    epilogue=0.152,
    epilogue_piece=0.304,
    thread_stores=1.04,
    long_epilogue=0.961,
    wide_results=0.294,
    direct_piece=0.063,
    exposed_cooperative=1.0,
    exposed_pingpong=0.158,
    tile=0.145,
    last_wave=0.509,
    promotion=0.0482,
    promotion_by_turns=0.0133,
    cluster_exchange=0.904,
    memory_exchange=1.69,
    exchange_bytes=6.85e4,
    second_kernel=1.61,
    gather_bytes=2.7e6,
    copy=1.61,
    second_copy=0.164,
    copy_bytes=3.45e6,
    warp_launch=4.3,
    warp_first=0.652,
    warp_products=3.88e5,
    warp_piece=0.000294,
    warp_element=0.000179,
    warp_step=0.403,
    warp_store=0.361,
)
#: By what share of the time the planner is typically off (the root of the mean square), by the part of the
#: time that is longest, on the records of an H200 (`python benchmarks/fit_planner.py --records`). There are
#: hardly any products whose epilogues, exchanges or copies take longest.
ERRORS = {
    "launch": 0.09, "tensor_cores": 0.11, "loads": 0.15, "memory": 0.15, "epilogue": 0.3, "exchange": 0.3,
    "copies": 0.3,
}  # fmt: skip
