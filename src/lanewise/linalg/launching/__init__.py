"""Products launched on a GPU: recorded launches, and calls that were made before."""
