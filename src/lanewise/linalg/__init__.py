"""Products of matrices: `lanewise.matmul`, its plans, its kernels, and the same bits on a CPU."""
