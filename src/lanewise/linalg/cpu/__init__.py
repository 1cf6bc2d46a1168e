"""Products in host memory, with the bits that a GPU returns for the same plan."""
