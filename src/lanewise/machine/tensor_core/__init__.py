"""Matrix products of a warp."""
