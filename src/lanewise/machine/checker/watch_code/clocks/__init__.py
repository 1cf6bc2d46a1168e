"""The vector clocks: what orders lanes, warps, blocks and clusters, and what happened before what."""
