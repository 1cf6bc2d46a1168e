"""Matrix instructions of the catalogue inside kernels: fragments, and instructions that emit themselves."""
