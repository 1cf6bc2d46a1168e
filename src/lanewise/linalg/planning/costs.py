"""What the Hopper kernels take on an H200: the costs of `model.py`, and how sure they are."""

from __future__ import annotations

from lanewise.linalg.planning.model import Costs

H200 = Costs(
    launch=2.89,
    first_load=1.2,
    cluster=0.0686,
    products=3.43e6,
    eight_bit=2.05,
    extra_columns=18.9,
    least_columns=25.4,
    step_alone=0.0457,
    step_shared=0.000832,
    load_latency=1.77,
    l2_bytes=1.38e7,
    port_bytes=8.58e5,
    memory_bytes=3.74e6,
    memory_port_bytes=3.92e5,
    drain=1.57,
    dirty_bytes=3.97e6,
    read_again=0.0393,
    loads_along_m=0.0714,
    loads_along_n=0.223,
    half_sectors=1.08,
    half_atoms=0.273,
    broken_sector=38.6,
    broken_atom=24.4,
    broken_line=0.526,
    epilogue=0.376,
    epilogue_piece=0.305,
    thread_stores=1.59,
    long_epilogue=0.942,
    wide_results=0.313,
    direct_piece=0.0593,
    exposed_cooperative=1.0,
    exposed_pingpong=0.288,
    tile=0.00999,
    last_wave=0.403,
    promotion=0.035,
    promotion_by_turns=0.005,
    promotion_in_halves=0.014,
    cluster_exchange=0.55,
    cluster_bytes=4.9e4,
    memory_exchange=1.33,
    exchange_bytes=7.2e4,
    second_kernel=1.53,
    gather_bytes=2.96e6,
    copy=1.56,
    second_copy=0.129,
    copy_bytes=3.51e6,
    warp_launch=4.63,
    warp_first=0.172,
    warp_products=8.66e5,
    warp_piece=0.000194,
    warp_element=0.000324,
    warp_step=0.26,
    warp_shifted=0.65,
    warp_store=0.29,
)
#: By what share of the time the planner is typically off (the root of the mean square), by the part of the
#: time that is longest, on products of sweeps of an H200 that were left out of the fit
#: (`python benchmarks/fit_planner.py`). There are no products there whose exchanges take longest.
ERRORS = {
    "launch": 0.09, "tensor_cores": 0.10, "loads": 0.12, "memory": 0.12, "epilogue": 0.49, "exchange": 0.3,
    "copies": 0.21,
}  # fmt: skip
