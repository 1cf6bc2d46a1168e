"""What the Hopper kernels take on an H200: the costs of `model.py`, and how sure they are."""

from __future__ import annotations

from lanewise.linalg.planning.model import Costs

H200 = Costs(
    launch=3.2,
    first_load=1.25,
    cluster=0.0999,
    products=3.34e6,
    eight_bit=2.14,
    extra_columns=10.6,
    least_columns=26.9,
    step_alone=0.0421,
    step_shared=0.00555,
    load_latency=1.81,
    l2_bytes=1.16e7,
    port_bytes=2.29e5,
    memory_bytes=3.42e6,
    memory_port_bytes=1.45e5,
    read_again=0.175,
    loads_along_m=0.0519,
    loads_along_n=0.0806,
    half_sectors=0.8,
    broken_sector=42.5,
    broken_atom=17.8,
    broken_line=6.47,
    epilogue=0.146,
    epilogue_piece=0.299,
    thread_stores=1.47,
    long_epilogue=0.954,
    wide_results=0.292,
    direct_piece=0.0587,
    exposed_cooperative=1.0,
    exposed_pingpong=0.21,
    tile=0.131,
    last_wave=0.57,
    promotion=0.044,
    promotion_by_turns=0.0139,
    cluster_exchange=0.891,
    memory_exchange=1.76,
    exchange_bytes=7.41e4,
    second_kernel=1.6,
    gather_bytes=2.76e6,
    copy=1.64,
    second_copy=0.185,
    copy_bytes=3.46e6,
    warp_launch=4.12,
    warp_first=0.864,
    warp_products=3.93e5,
    warp_piece=0.000353,
    warp_element=0.000185,
    warp_step=0.363,
    warp_store=0.269,
)
#: By what share of the time the planner is typically off (the root of the mean square), by the part of the
#: time that is longest, on the records of an H200 (`python benchmarks/fit_planner.py --records`). There are
#: hardly any products whose epilogues, exchanges or copies take longest.
ERRORS = {
    "launch": 0.09, "tensor_cores": 0.11, "loads": 0.15, "memory": 0.15, "epilogue": 0.3, "exchange": 0.3,
    "copies": 0.3,
}  # fmt: skip
