"""What the Hopper kernels take on an H200: the costs of `model.py`, and how sure they are."""

from __future__ import annotations

from lanewise.linalg.planning.model import Costs

H200 = Costs(
    launch=2.9,
    first_load=1.1,
    cluster=0.4,
    products=3.3e6,
    least_columns=32,
    l2_bytes=7.6e6,
    l2_bytes_short=1.2e7,
    short=5e9,
    few=128,
    port_bytes=1.1e5,
    memory_bytes=4.2e6,
    filling=60,
    uneven=0.6,
    drain=2.2,
    dirty_bytes=1.6e7,
    epilogue=0.4,
    epilogue_piece=0.5,
    cluster_exchange=0.95,
    memory_exchange=2.4,
    second_kernel=2.6,
    copy=2.3,
    copy_bytes=3.3e6,
)
#: By what share of the time the planner is typically off (the root of the mean square), by the part of the
#: time that is longest, on the records of an H200 (`python benchmarks/fit_planner.py --records`). There are
#: hardly any products whose epilogues, exchanges or copies take longest.
ERRORS = {
    "launch": 0.09, "tensor_cores": 0.11, "l2": 0.15, "memory": 0.15, "epilogue": 0.3, "exchange": 0.3,
    "copies": 0.3, "eight_bit": 0.05,
}  # fmt: skip
