"""Products launched on a GPU: prepared once for each kind of call, then repeated."""
