"""What the Hopper kernels take on an H200: the costs of `model.py`, and how sure they are."""

from __future__ import annotations

from lanewise.linalg.planning.model import Costs

H200 = Costs(
    launch=3.23,
    first_load=1.25,
    cluster=0.0754,
    products=3.49e6,
    eight_bit=2.04,
    extra_columns=12.8,
    least_columns=29.1,
    step_alone=0.032,
    step_shared=0.00188,
    load_latency=1.6,
    l2_bytes=1.44e7,
    port_bytes=7.52e5,
    memory_bytes=4.05e6,
    memory_port_bytes=3.42e5,
    read_again=0.0535,
    loads_along_m=0.0543,
    loads_along_n=0.225,
    half_sectors=0.974,
    half_atoms=0.271,
    broken_sector=48.5,
    broken_atom=22.3,
    broken_line=1.5,
    epilogue=0.184,
    epilogue_piece=0.238,
    thread_stores=1.54,
    long_epilogue=0.933,
    wide_results=0.238,
    direct_piece=0.0408,
    exposed_cooperative=1.0,
    exposed_pingpong=0.27,
    tile=0.066,
    last_wave=0.479,
    promotion=0.0473,
    promotion_by_turns=0.017,
    cluster_exchange=0.563,
    cluster_bytes=5.08e4,
    memory_exchange=1.49,
    exchange_bytes=8.63e4,
    second_kernel=1.54,
    gather_bytes=2.98e6,
    copy=1.57,
    second_copy=0.111,
    copy_bytes=3.49e6,
    warp_launch=4.71,
    warp_first=0.204,
    warp_products=8.2e5,
    warp_piece=0.000222,
    warp_element=0.000316,
    warp_step=0.285,
    warp_store=0.281,
)
#: By what share of the time the planner is typically off (the root of the mean square), by the part of the
#: time that is longest, on the records of an H200 (`python benchmarks/fit_planner.py --records`). There are
#: hardly any products whose epilogues, exchanges or copies take longest.
ERRORS = {
    "launch": 0.09, "tensor_cores": 0.11, "loads": 0.15, "memory": 0.15, "epilogue": 0.3, "exchange": 0.3,
    "copies": 0.3,
}  # fmt: skip
