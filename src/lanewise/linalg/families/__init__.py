"""The kernels behind a product: one file for each family, all with `kernel` and `launch`."""
