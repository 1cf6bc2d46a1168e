"""Products by TMA and tcgen05 on sm_100a: plans of family "blackwell"."""
