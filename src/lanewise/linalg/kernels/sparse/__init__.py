"""Products with a 2:4-sparse B on sm_90a, by TMA and wgmma.sp: plans of family "sparse"."""
