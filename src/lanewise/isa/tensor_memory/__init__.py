"""Layouts of tensor memory: which lane and which column of 32 bits hold what a tcgen05 instruction names."""
