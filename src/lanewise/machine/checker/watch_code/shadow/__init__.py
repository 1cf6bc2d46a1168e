"""Shadow memory: what came before an access to each cell, and what a request to memory costs."""
