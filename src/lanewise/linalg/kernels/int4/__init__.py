"""Products with weights of 4 bits: how they are packed, and the kernels that multiply or unpack them."""
