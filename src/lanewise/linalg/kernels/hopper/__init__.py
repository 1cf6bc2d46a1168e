"""Products by TMA and wgmma on sm_90a: plans of family "warpgroup"."""
